"""``rockstrata store query``: messages by key, unique key or tag, through the index.

Answers to RocketMQ's queryMsgByKey. Reads beside a running broker.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from rockstrata.cli.options import ConfigOption, DirOption, JsonOption, SetOption, existing_store, time_ms

if TYPE_CHECKING:
    from rockstrata.store.reader import StoreReader

_LONG_MAX = 2**63 - 1


def query(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A word of KEYS, or the unique key.")],
    directory: DirOption = None,
    max_num: Annotated[
        int, typer.Option("--max", min=1, help="Messages at most, the newest first to count.")
    ] = 32,
    begin: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stored then or later; ms or ISO.")
    ] = None,
    end: Annotated[str | None, typer.Option(metavar="TIME", help="Stored then or earlier.")] = None,
    by_tag: Annotated[
        bool, typer.Option("--by-tag", help="KEY is a tag (indexed since RocketMQ 5.5.0).")
    ] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Find messages by key. Says which time window was searched; nothing found exits with 1."""
    from rockstrata.cli import messages, render
    from rockstrata.store.reader import StoreReader

    first, last = time_ms(begin, "--begin", 0), time_ms(end, "--end", _LONG_MAX)
    reader = StoreReader(existing_store(directory, config, sets))
    found = reader.query(topic, key, max_num, first, last, by_tag=by_tag)
    messages.show(found, json=json)
    what = f"{'tag' if by_tag else 'key'} {key!r} in topic {topic}"
    searched = f"searched {_window(first, last)}; {_coverage(reader)}"
    if not found:
        render.error(f"no message with {what}; {searched}")
        raise typer.Exit(1)
    if not json:
        more = f" (the newest; --max {max_num})" if len(found) == max_num else ""
        render.note(f"{render.plural(len(found), 'message')} with {what}{more}; {searched}")


def _window(first: int, last: int) -> str:
    from rockstrata.cli import render

    begin = render.time_text(first) if first else "the beginning"
    return f"from {begin} to {render.time_text(last) if last < _LONG_MAX else 'now'}"


def _coverage(reader: "StoreReader") -> str:
    from rockstrata.cli import render
    from rockstrata.cli.overview import index_files

    files = index_files(reader)
    if not files:
        return "there is no index"
    oldest, newest = min(f.begin_timestamp for f in files), max(f.end_timestamp for f in files)
    span = f"{render.time_text(oldest)} to {render.time_text(newest)}"
    return f"{render.plural(len(files), 'index file')} from {span}"
