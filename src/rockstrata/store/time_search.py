"""From a time to a queue offset, and back.

Answers to ConsumeQueue.getOffsetInQueueByTime and its batch twin. Store times never decrease along a
queue, so this is a bisection over all of it, not RocketMQ's choice of a file first.
"""

from typing import cast

from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.results import BoundaryType
from rockstrata.store.sources import BatchQueueSource, LogSource, QueueSource


def offset_by_time(
    log: LogSource, queue: QueueSource, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
) -> int:
    """LOWER: the first message stored at or after ``timestamp``, the maximum if there is none.

    UPPER: the last message stored at or before it, the minimum if there is none.
    """
    if queue.layout is BATCH_CONSUME_QUEUE_UNIT:
        return _batch_offset_by_time(cast(BatchQueueSource, queue), timestamp, boundary)
    low, high = queue.min_offset, queue.max_offset
    first = low
    wanted = timestamp if boundary is BoundaryType.LOWER else timestamp + 1
    while low < high:
        middle = (low + high) // 2
        if time_of(log, queue, middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low if boundary is BoundaryType.LOWER else max(first, low - 1)


def time_of(log: LogSource, queue: QueueSource, queue_offset: int) -> int:
    """Store time of the message at a queue offset, -1 if it is not in the log."""
    if not queue.min_offset <= queue_offset < queue.max_offset:
        return -1
    number = unit_number(queue, queue_offset)
    if number is None:
        return -1
    if queue.layout is BATCH_CONSUME_QUEUE_UNIT:
        return int(queue.unit(number)[3])
    physical, size = queue.unit(number)[:2]
    return log.store_timestamp(physical, size)


def unit_number(queue: QueueSource, queue_offset: int) -> int | None:
    """Number of the unit that stands for a queue offset; a batch queue may have none."""
    if queue.layout is BATCH_CONSUME_QUEUE_UNIT:
        return cast(BatchQueueSource, queue).find_unit(queue_offset)
    return queue_offset


def unit_range(queue: QueueSource) -> tuple[int, int]:
    """Numbers of the readable units: [first, end)."""
    if queue.layout is BATCH_CONSUME_QUEUE_UNIT:
        return cast(BatchQueueSource, queue).min_unit, queue.unit_count
    return queue.min_offset, queue.max_offset


def _batch_offset_by_time(queue: BatchQueueSource, timestamp: int, boundary: BoundaryType) -> int:
    """As RocketMQ: a batch is found by its base; the oldest if none is old enough, -1 in an empty queue."""
    low, high = queue.min_unit, queue.unit_count
    if low == high:
        return -1
    last_time, last_base = queue.unit(high - 1)[3:5]
    if timestamp >= last_time:
        return int(last_base)
    first = low
    wanted = timestamp if boundary is BoundaryType.LOWER else timestamp + 1
    while low < high:
        middle = (low + high) // 2
        if queue.unit(middle)[3] < wanted:
            low = middle + 1
        else:
            high = middle
    number = low if boundary is BoundaryType.LOWER else max(first, low - 1)
    return int(queue.unit(number)[4])
