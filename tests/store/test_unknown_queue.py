"""A queue nobody ever wrote to is an empty one, as RocketMQ makes it on demand."""

from __future__ import annotations

from pathlib import Path

from rockstrata.store.reader import StoreReader
from rockstrata.store.results import GetStatus


def test_an_unknown_queue_answers_as_an_empty_one(tmp_path: Path) -> None:
    reader = StoreReader.open(tmp_path)

    assert (reader.min_offset("Nobody", 3), reader.max_offset("Nobody", 3)) == (0, 0)
    assert reader.get("Nobody", 3, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert reader.offset_by_time("Nobody", 3, 5) == 0
    assert reader.earliest_time("Nobody", 3) == reader.store_time("Nobody", 3, 0) == -1
    assert reader.message_count("Nobody", 3) == 0
