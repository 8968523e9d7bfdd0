"""A search by time in a batch queue answers an offset of the queue, as RocketMQ's store clamps it."""

from __future__ import annotations

import pytest

from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.results import BoundaryType
from rockstrata.store.time_search import offset_by_time

# Store time and first queue offset of each batch; the first is gone from the log.
BATCHES = ((100, 0), (200, 3), (200, 5), (300, 6))


class Batches:
    """A batch queue of three messages in each batch, the oldest batch expired."""

    layout = BATCH_CONSUME_QUEUE_UNIT
    min_unit = 1
    unit_count = len(BATCHES)

    def unit(self, number: int) -> tuple[int, ...]:
        time, base = BATCHES[number]
        return (0, 1, 0, time, base, 3, -1, 0)


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(0, 3, 3), (150, 3, 3), (199, 3, 3), (200, 3, 5), (250, 6, 5), (300, 6, 6), (999, 6, 6)],
)
def test_a_time_before_the_oldest_batch_finds_the_oldest(timestamp: int, lower: int, upper: int) -> None:
    queue = Batches()

    assert offset_by_time(None, queue, timestamp, BoundaryType.LOWER) == lower  # type: ignore[arg-type]
    assert offset_by_time(None, queue, timestamp, BoundaryType.UPPER) == upper  # type: ignore[arg-type]
