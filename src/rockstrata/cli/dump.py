"""``rockstrata store dump``: every message as a line of JSON, streamed.

Answers to RocketMQ's exportRocksDBConfigToJson and DumpCompactionLogCommand in spirit. Reads beside a
running broker. ``store put --from`` puts the lines back.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rockstrata.cli.options import ConfigOption, DirOption, SetOption, existing_store, time_ms

if TYPE_CHECKING:
    from rockstrata.errors import CorruptionError
    from rockstrata.message.model import StoredMessage
    from rockstrata.store.reader import StoreReader

_LONG_MAX = 2**63 - 1
_FLUSH_BYTES = 1 << 18


def dump(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="One topic, queue by queue.")] = None,
    directory: DirOption = None,
    queue: Annotated[int | None, typer.Option("--queue", "-q", min=0, help="One queue of the topic.")] = None,
    from_offset: Annotated[int, typer.Option(min=0, help="First queue offset.")] = 0,
    to_offset: Annotated[int | None, typer.Option(min=0, help="Queue offset to end before.")] = None,
    begin: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stored then or later; ms or ISO.")
    ] = None,
    end: Annotated[str | None, typer.Option(metavar="TIME", help="Stored then or earlier.")] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="With bodies, in base64.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Pass over damaged records; still exits with 3.")
    ] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="The only form there is; accepted for symmetry.")
    ] = True,
) -> None:
    """Dump messages as JSON lines: the whole commit log in its order, or one topic queue by queue.

    The whole log includes what no queue shows (prepared and rolled-back transactions). With --bodies,
    `store put --from` puts the same messages back.
    """
    from rockstrata.cli.dump_walk import walk_log, walk_queue
    from rockstrata.store.reader import StoreReader

    if topic is None and (queue is not None or from_offset or to_offset is not None):
        raise typer.BadParameter(
            "--queue, --from-offset and --to-offset need a TOPIC", param_hint="arguments"
        )
    first, last = time_ms(begin, "--begin", 0), time_ms(end, "--end", _LONG_MAX)
    reader = StoreReader(existing_store(directory, config, sets))
    damage = _Damage(keep_going)
    if topic is None:
        _write(walk_log(reader, first, last, damage), bodies=bodies)
    else:
        limit = _LONG_MAX if to_offset is None else to_offset
        for queue_id in _queues(reader, topic, queue):
            _write(
                walk_queue(reader, topic, queue_id, (from_offset, limit), (first, last), damage),
                bodies=bodies,
            )
    if damage.count:
        raise typer.Exit(3)


class _Damage:
    """Met a damaged record: raise, or tell and go on."""

    def __init__(self, keep_going: bool) -> None:
        self.count = 0
        self._keep_going = keep_going

    def __call__(self, error: "CorruptionError") -> None:
        from rockstrata.cli import render

        if not self._keep_going:
            raise error
        self.count += 1
        render.error(str(error))


def _queues(reader: "StoreReader", topic: str, queue: int | None) -> list[int]:
    from rockstrata.errors import ConfigError

    known = reader.topic_queues().get(topic)
    if known is None or (queue is not None and queue not in known):
        what = f"no topic {topic}" if known is None else f"no queue {queue} in topic {topic}"
        raise ConfigError(what, path=reader.config.root, hint="`rockstrata store stat` lists what there is")
    return known if queue is None else [queue]


def _write(messages: "Iterator[StoredMessage]", *, bodies: bool) -> None:
    import msgspec

    from rockstrata.cli.lines import line_of

    encoder = msgspec.json.Encoder()
    stream = sys.stdout.buffer
    buffer = bytearray()
    try:
        for message in messages:
            encoder.encode_into(line_of(message, body=bodies), buffer, len(buffer))
            buffer += b"\n"
            if len(buffer) >= _FLUSH_BYTES:
                stream.write(buffer)
                del buffer[:]
    finally:
        # Also before an error: what was read is good.
        stream.write(buffer)
        stream.flush()
