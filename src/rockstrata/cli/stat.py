"""``rockstrata store stat``: what a store directory holds.

Answers to RocketMQ's topicStatus and brokerStatus. Reads beside a running broker.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from rockstrata.cli.options import (
    ConfigOption,
    DirArgument,
    DirOption,
    JsonOption,
    SetOption,
    existing_store,
)

if TYPE_CHECKING:
    from rockstrata.cli.overview import StoreOverview


def stat(
    place: DirArgument = None,
    directory: DirOption = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic's queues.")] = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show topics, queues, offsets, sizes, times, log, index, checkpoint, and who owns the store.

    Bytes are the exact sizes of the records, added up from the consume queues.
    """
    from rockstrata.cli import render
    from rockstrata.cli.overview import overview
    from rockstrata.store.reader import StoreReader

    found = overview(StoreReader(existing_store(place or directory, config, sets)))
    if json:
        render.json_line(found)
    else:
        show(found, topic)


def show(found: "StoreOverview", topic: str | None = None) -> None:
    """Print an overview."""
    from rockstrata.cli import render

    queues = [q for q in found.queues if topic in (None, q.topic)]
    render.table(
        ("topic", "queue", "min", "max", "messages", "bytes", "oldest", "newest"),
        [
            (
                q.topic, q.queue_id, q.min_offset, q.max_offset, q.messages, render.size_text(q.record_bytes),
                render.time_text(q.oldest), render.time_text(q.newest),
            )
            for q in queues
        ],
        title=f"{render.plural(len(queues), 'queue')} in {found.root}",
        right=("queue", "min", "max", "messages", "bytes"),
    )  # fmt: skip
    log = found.log
    render.facts(
        [
            ("state", _state(found)),
            ("messages", f"{found.messages:,} in {render.size_text(found.record_bytes)} of records"),
            ("commit log", f"[{log.min_offset}, {log.end_offset}) in {render.plural(log.files, 'file')} "
                           f"of {render.size_text(log.file_bytes)}"),
            ("index", _index(found)),
            ("checkpoint", _checkpoint(found)),
        ]
    )  # fmt: skip


def _state(found: "StoreOverview") -> str:
    if found.owner_pid is not None:
        owner = f"process {found.owner_pid}" if found.owner_pid else "a process this one cannot see"
        return f"open: owned by {owner}"
    if found.state == "closed":
        return "closed in order"
    pid = f" by process {found.abort_pid}" if found.abort_pid is not None else ""
    return f"not closed{pid}, which is gone: the next start recovers"


def _index(found: "StoreOverview") -> str:
    from rockstrata.cli import render

    if not found.index:
        return "none"
    items = sum(file.items for file in found.index)
    first, last = found.index[0].begin_timestamp, found.index[-1].end_timestamp
    span = f"{render.time_text(first)} to {render.time_text(last)}"
    return f"{render.plural(items, 'item')} in {render.plural(len(found.index), 'file')}, {span}"


def _checkpoint(found: "StoreOverview") -> str:
    from rockstrata.cli import render

    if not found.checkpoint:
        return "none"
    point = found.checkpoint
    return (
        f"log flushed to {render.time_text(point['physic_msg_timestamp'])}, "
        f"queues to {render.time_text(point['logics_msg_timestamp'])} "
        f"(physical offset {point['logics_physical_offset']})"
    )
