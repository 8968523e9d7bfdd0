"""How many messages between two queue offsets pass a filter, from a sample of the queue's units.

Answers to estimateMessageCount of ConsumeQueue and BatchConsumeQueue. Called by ``StoreReads``, for
the lag of a consumer that wants only some of the messages.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.message_filter import MessageFilter
from rockstrata.store.sources import BatchQueueSource, QueueSource

UNKNOWN = -1


def estimate_count(
    queue: QueueSource,
    first_offset: int,
    end_offset: int,
    message_filter: MessageFilter,
    *,
    max_units: int,
    max_matches: int,
) -> int:
    """Messages of [first_offset, end_offset) whose units match; UNKNOWN if the queue has none of them.

    After ``max_units`` units, or more than ``max_matches`` that match, the share found so far stands
    for the rest. Unlike RocketMQ, offsets past the end of the queue count as not there.
    """
    end_offset = min(end_offset, queue.max_offset)
    units = _unit_range(queue, first_offset, end_offset)
    if units is None:
        return UNKNOWN
    sample = _read(queue, *units, max_units)
    weights = sample["batch_size"].astype(np.int64) if "batch_size" in (sample.dtype.names or ()) else None
    matches = _matches(sample["tags_code"], message_filter)
    scanned = len(sample)
    enough = int(np.searchsorted(np.cumsum(matches), max_matches + 1))
    scanned = min(scanned, enough + 1)
    matches = matches[:scanned]
    if weights is None:
        found, looked_at = int(matches.sum()), scanned
    else:
        found, looked_at = int(weights[:scanned][matches].sum()), int(weights[:scanned].sum())
    if scanned == units[1] - units[0]:
        return found
    return found * (end_offset - first_offset) // looked_at if looked_at else 0


def _unit_range(queue: QueueSource, first_offset: int, end_offset: int) -> tuple[int, int] | None:
    """Unit numbers [first, end) that stand for the offsets; the first batch counts whole."""
    if not max(0, queue.min_offset) <= first_offset < end_offset:
        return None
    if queue.layout is not BATCH_CONSUME_QUEUE_UNIT:
        return first_offset, end_offset
    batches = cast(BatchQueueSource, queue)
    first = batches.find_unit(first_offset)
    end = queue.unit_count if end_offset >= queue.max_offset else batches.find_unit(end_offset)
    return (first, end) if first is not None and end is not None and first < end else None


def _read(queue: QueueSource, first: int, end: int, max_units: int) -> NDArray[np.void]:
    """Units [first, end), at most ``max_units``; fewer if files are deleted meanwhile."""
    end = min(end, first + max_units)
    parts = []
    while first < end and (data := queue.units(first, end - first)):
        parts.append(data)
        first += len(data) // queue.layout.size
    return np.frombuffer(b"".join(parts), queue.layout.dtype)


def _matches(tags_codes: NDArray[np.int64], message_filter: MessageFilter) -> NDArray[np.bool_]:
    """The filter is asked once per distinct code: a queue has few tags."""
    codes, places = np.unique(tags_codes, return_inverse=True)
    verdicts = np.fromiter(map(message_filter.matches_unit, codes.tolist()), np.bool_, len(codes))
    return verdicts[places]
