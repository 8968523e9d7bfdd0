"""``rockstrata store get``: messages by queue offset, physical offset, message id or time.

Answers to RocketMQ's queryMsgByOffset, queryMsgById and consumeMessage. Reads beside a running broker.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from rockstrata.cli.options import ConfigOption, DirOption, JsonOption, SetOption, existing_store, time_ms

if TYPE_CHECKING:
    from rockstrata.message.model import StoredMessage
    from rockstrata.store.message_filter import MessageFilter
    from rockstrata.store.reader import StoreReader

# Bodies of one read that are held at a time.
_READ_BYTES = 16 << 20


def get(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC")] = None,
    queue: Annotated[int | None, typer.Argument(metavar="QUEUE", min=0)] = None,
    offset: Annotated[int | None, typer.Argument(metavar="OFFSET", min=0, help="Queue offset.")] = None,
    directory: DirOption = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Messages at most.")] = 1,
    message_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Offset message id.")] = None,
    physical: Annotated[
        int | None, typer.Option("--physical", min=0, metavar="OFFSET", help="Offset in the commit log.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="TIME", help="Start at the first message stored then or later; ms or ISO."
        ),
    ] = None,
    tags: Annotated[str | None, typer.Option(help="Only these tags: 'A || B'.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only messages whose properties match, as in SQL92.")
    ] = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Get messages: TOPIC QUEUE OFFSET, or TOPIC QUEUE --time TIME, or --id ID, or --physical OFFSET.

    Nothing found says why, and where to ask next, and exits with 1.
    """
    from rockstrata.store.reader import StoreReader

    ways = [offset is not None, time is not None, message_id is not None, physical is not None]
    by_queue = offset is not None or time is not None
    if sum(ways) != 1 or by_queue != (topic is not None and queue is not None):
        raise typer.BadParameter(
            "TOPIC QUEUE OFFSET, or TOPIC QUEUE --time TIME, or --id ID, or --physical OFFSET",
            param_hint="arguments",
        )
    if tags is not None and sql is not None:
        raise typer.BadParameter("--tags or --sql, not both", param_hint="--sql")
    start = time_ms(time, "--time", -1)
    wanted = _filter(tags, sql)
    reader = StoreReader(existing_store(directory, config, sets))
    if not by_queue:
        _get_one(reader, message_id, physical, json=json)
        return
    assert topic is not None
    assert queue is not None
    if offset is None:
        offset = reader.offset_by_time(topic, queue, start)
    _get_many(reader, topic, queue, offset, count, wanted, json=json)


def _filter(tags: str | None, sql: str | None) -> "MessageFilter | None":
    from rockstrata.store.message_filter import SqlFilter, tag_filter

    return SqlFilter(sql) if sql is not None else tag_filter(tags)


def _get_one(reader: "StoreReader", message_id: str | None, physical: int | None, *, json: bool) -> None:
    from rockstrata.cli import messages, render

    if message_id is not None:
        message = reader.message_by_id(message_id)
        what = f"id {message_id}"
    else:
        assert physical is not None
        message = reader.message_at(physical)
        what = f"physical offset {physical}"
    if message is None:
        span = f"[{max(0, reader.log.min_offset)}, {reader.log.max_offset})"
        render.error(f"no message with {what}; the commit log's files span {span}")
        raise typer.Exit(1)
    messages.show([message], json=json)


def _get_many(
    reader: "StoreReader",
    topic: str,
    queue: int,
    offset: int,
    count: int,
    wanted: "MessageFilter | None",
    *,
    json: bool,
) -> None:
    from rockstrata.cli import messages, render
    from rockstrata.store.results import GetStatus

    found: list[StoredMessage] = []
    shown = 0
    while True:
        result = reader.get(
            topic, queue, offset, count - shown - len(found), max_bytes=_READ_BYTES, message_filter=wanted
        )
        found += result.messages()
        if json:
            messages.show(found, json=True)
            shown += len(found)
            found = []
        moved = result.next_begin_offset > offset
        offset = result.next_begin_offset
        if not moved or shown + len(found) >= count or offset >= result.max_offset:
            break
    if found:
        messages.show(found, json=False)
        shown = len(found)
    if shown:
        if not json:
            render.note(f"next offset {offset}; the queue holds [{result.min_offset}, {result.max_offset})")
        return
    status = result.status if wanted is None or result.status is not GetStatus.OFFSET_OVERFLOW_ONE else (
        GetStatus.NO_MATCHED_MESSAGE
    )  # fmt: skip
    holds = f"holds [{max(0, result.min_offset)}, {result.max_offset})"
    what = holds if result.max_offset else "is empty or unknown"
    render.error(f"{status.name}: queue {queue} of {topic} {what}; next offset {offset}")
    raise typer.Exit(1)
