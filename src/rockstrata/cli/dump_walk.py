"""Stored messages one after the other: along the commit log, or along a queue.

Answers to no RocketMQ class. Bounded memory, no numpy: a person waits for the first line. Called by dump.
"""

import struct
from collections.abc import Callable, Iterator

from rockstrata.errors import CorruptionError
from rockstrata.message.layouts import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from rockstrata.message.model import StoredMessage
from rockstrata.message.record import decode_record
from rockstrata.store.reader import StoreReader
from rockstrata.store.resync import dispatched_end, next_known_record

OnDamage = Callable[[CorruptionError], None]
_HEAD = struct.Struct(">iI")
_TIME = struct.Struct(">q")
_QUEUE_UNITS = 1_000
_QUEUE_BYTES = 16 << 20


def walk_queue(
    reader: StoreReader,
    topic: str,
    queue_id: int,
    offsets: tuple[int, int],
    times: tuple[int, int],
    on_damage: OnDamage,
) -> Iterator[StoredMessage]:
    """Messages of a queue with offsets in [first, limit) stored in [begin, end]."""
    begin, end = times
    queue = reader.queues.get(topic, queue_id)
    assert queue is not None
    offset = max(offsets[0], queue.min_offset)
    if begin > 0:
        offset = max(offset, reader.offset_by_time(topic, queue_id, begin))
    limit = min(offsets[1], queue.max_offset)
    at_once = _QUEUE_UNITS
    while offset < limit:
        try:
            result = reader.get(topic, queue_id, offset, min(at_once, limit - offset), max_bytes=_QUEUE_BYTES)
        except CorruptionError as error:
            # A unit that points at no record spoils the whole read: go one by one to find it.
            if at_once == 1:
                on_damage(error)
                offset += 1
            at_once = _QUEUE_UNITS if at_once == 1 else 1
            continue
        for record, at in zip(result.records, result.queue_offsets, strict=True):
            try:
                message = decode_record(record, path=f"{topic}/{queue_id} offset", base=at)
            except CorruptionError as error:
                on_damage(error)
                continue
            if message.store_timestamp > end:
                return
            yield message
        if result.next_begin_offset <= offset:
            return
        offset = result.next_begin_offset


def walk_log(reader: StoreReader, begin: int, end: int, on_damage: OnDamage) -> Iterator[StoredMessage]:
    """Every whole record of the log stored in [begin, end], in the order of the log.

    Records no queue knows yet are taken as long as they are whole: after a crash, or beside an owner
    that is writing them, the log simply ends there.
    """
    known_end = dispatched_end(reader)
    starts = reader.log.starts
    for number in range(_first_file(reader, starts, begin), len(starts)):
        start = starts[number]
        path = reader.log.path(start)
        if path is None:
            continue
        view = reader.disk.open(path, writable=False).view()
        position: int | None = 0
        while position is not None and position + 8 <= len(view):
            size, magic = _HEAD.unpack_from(view, position)
            if magic == MAGIC_BLANK:
                break
            try:
                if magic not in (MAGIC_V1, MAGIC_V2) and start + position >= known_end:
                    return
                if magic in (MAGIC_V1, MAGIC_V2) and RECORD_BYTES_MIN <= size <= len(view) - position:
                    stored = _TIME.unpack_from(view, position + (68 if view[position + 39] & 0x10 else 56))[0]
                    if stored > end and start + position < known_end:
                        return
                    if stored < begin:
                        position += size
                        continue
                message = decode_record(view, position, path=path)
                if message.physical_offset != start + position:
                    raise CorruptionError(
                        "record of another place", path=path, position=position, expected=start + position,
                        found=message.physical_offset,
                    )  # fmt: skip
            except CorruptionError as error:
                if start + position >= known_end:
                    return
                on_damage(error)
                found = next_known_record(reader, start + position)
                position = None if found is None or found >= start + len(view) else found - start
                continue
            if begin <= message.store_timestamp <= end:
                yield message
            position += message.record_bytes


def _first_file(reader: StoreReader, starts: list[int], begin: int) -> int:
    """The last file that begins before the wanted time; store times never decrease along the log."""
    first = 0
    for number, start in enumerate(starts):
        stored = reader.log.store_timestamp(start, RECORD_BYTES_MIN)
        if number and 0 < stored < begin:
            first = number
    return first
