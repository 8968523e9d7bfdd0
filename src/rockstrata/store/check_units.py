"""Units of consume queues as arrays: as the log says they should be, and as they are.

Answers to no RocketMQ class. Called by ``check_queues``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.message.scan import Scan
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT
from rockstrata.store.reader_queues import ReaderQueue

_BATCH_FIELDS = ("physical_offset", "size", "tags_code", "store_timestamp", "base_offset", "batch_size")
Units = NDArray[Any]


def units_of(found: Scan, start: int, rows: NDArray[np.int64]) -> Units:
    """The units of records, as the dispatcher makes them."""
    units = np.empty(len(rows), CONSUME_QUEUE_UNIT.dtype)
    units["physical_offset"] = found.position[rows] + start
    units["size"] = found.size[rows]
    units["tags_code"] = found.tags_code[rows]
    return units


def batch_units_of(found: Scan, start: int, rows: NDArray[np.int64]) -> Units:
    """The units of inner batches; records without batch marks have no place in a batch queue."""
    rows = rows[(found.inner_base[rows] >= 0) & (found.inner_num[rows] > 0)]
    units = np.zeros(len(rows), BATCH_CONSUME_QUEUE_UNIT.dtype)
    for name in ("physical_offset", "size", "tags_code"):
        units[name] = units_of(found, start, rows)[name]
    units["store_timestamp"] = found.store_timestamp[rows]
    units["base_offset"] = found.inner_base[rows]
    units["batch_size"] = found.inner_num[rows]
    return units


def read_units(queue: ReaderQueue, number: int, count: int) -> Units:
    """Exactly ``count`` units, across files; zeros where there is nothing."""
    units = np.zeros(count, queue.layout.dtype)
    size, done = queue.layout.size, 0
    while done < count:
        data = queue.pread((number + done) * size, (count - done) * size) or b""
        whole = len(data) // size
        if not whole:
            break
        units[done : done + whole] = np.frombuffer(data[: whole * size], queue.layout.dtype)
        done += whole
    return units


def same_batches(actual: Any, expected: Any) -> bool:
    """Do they agree in all that the log tells?"""
    return all(np.array_equal(actual[name], expected[name]) for name in _BATCH_FIELDS)


def place_of(queue: ReaderQueue, number: int) -> tuple[str, int]:
    """File and position of a unit."""
    offset = number * queue.layout.size
    start = offset - offset % queue.file_bytes if queue.file_bytes else 0
    return str(queue.path(start) or queue.directory / f"{start:020d}"), offset - start


def told_unit(unit: Any) -> str:
    """A unit for people."""
    return f"physical {int(unit['physical_offset'])}, size {int(unit['size'])}, tags {int(unit['tags_code'])}"
