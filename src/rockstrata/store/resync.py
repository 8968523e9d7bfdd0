"""Where the next record begins, told by the queues, when the log itself cannot be read on.

Answers to no RocketMQ class: there a damaged record ends the scan. Called by check and dump.
"""

from collections.abc import Iterator

from rockstrata.store.reader import StoreReader
from rockstrata.store.reader_queues import ReaderQueue
from rockstrata.store.unit_queue import PRE_BLANK_SIZE


def dispatched_end(reader: StoreReader) -> int:
    """End of the newest record any queue has a unit for: everything before it was written whole."""
    end = 0
    for queue in _queues(reader):
        count = queue.unit_count
        if count:
            physical, size = queue.unit(count - 1)[:2]
            if size != PRE_BLANK_SIZE:
                end = max(end, physical + size)
    return end


def next_known_record(reader: StoreReader, physical_offset: int) -> int | None:
    """The nearest record after ``physical_offset`` that a queue knows, None if there is none."""
    nearest: int | None = None
    for queue in _queues(reader):
        low = first = queue.starts[0] // queue.layout.size if queue.starts else 0
        high = count = queue.unit_count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if queue.unit(middle)[0] <= physical_offset else (low, middle)
        if first <= low < count:
            found = int(queue.unit(low)[0])
            nearest = found if nearest is None else min(nearest, found)
    return nearest


def _queues(reader: StoreReader) -> Iterator[ReaderQueue]:
    for topic, queue_ids in reader.topic_queues().items():
        for queue_id in queue_ids:
            queue = reader.queues.get(topic, queue_id)
            if queue is not None:
                yield queue
