"""Estimated counts of messages that pass a filter."""

from pathlib import Path

import msgspec
import pytest

from rockstrata.message.model import Message
from rockstrata.store.count_estimate import UNKNOWN, estimate_count
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.message_filter import TagFilter
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.topics import TopicConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk

ROOT = Path("/store")
WANTED = TagFilter("wanted")


def open_store(**changes):
    disk = ForgetfulDisk()
    settings = {
        "store_path_root_dir": str(ROOT),
        "commit_log_file_bytes": 65536,
        "consume_queue_file_bytes": 2000,
        "batch_consume_queue_file_bytes": 460,
        "message_index_enable": False,
        "broker_ip": "10.0.0.1",
    }
    return LocalMessageStore.open(
        StoreConfig(**(settings | changes)), disk=disk, clock=disk.clock, start_services=False
    )


def fill(store, count=200):
    """Every third message is wanted."""
    for n in range(count):
        store.put(Message.of("orders", b"x", tags="other" if n % 3 else "wanted"))
    store.dispatcher.catch_up()
    return store


@pytest.fixture(scope="module")
def store():
    with fill(open_store()) as store:
        yield store


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (0, 200, 67), (0, 100, 34), (100, 200, 33), (99, 101, 1), (0, 1, 1), (1, 3, 0),
        # Past the end there is nothing to count.
        (150, 500, 17),
        # RocketMQ answers these with the length.
        (200, 300, 100), (1000, 2000, 1000),
        # And these with 0.
        (10, 10, 0), (20, 10, 0), (-5, 0, 0),
    ],
)  # fmt: skip
def test_matching_messages_are_counted(store, first, end, expected):
    assert store.estimate_message_count("orders", 0, first, end, WANTED) == expected


def test_without_a_filter_every_offset_counts(store):
    assert store.estimate_message_count("orders", 0, 10, 60) == 50
    assert store.estimate_message_count("unknown", 0, 10, 60) == 50


def test_an_unknown_queue_has_no_match(store):
    assert store.estimate_message_count("unknown", 0, 10, 60, WANTED) == 0


@pytest.mark.parametrize(("first", "end"), [(5, 5), (9, 5), (200, 210), (-1, 5)])
def test_a_queue_that_has_none_of_the_offsets_does_not_know(store, first, end):
    queue = store.queues.get("orders", 0)
    assert estimate_count(queue, first, end, WANTED, max_units=100, max_matches=100) == UNKNOWN


@pytest.mark.parametrize(
    ("units", "matches", "expected"),
    [
        # 4 of the first 10 units match.
        (10, 5000, 4 * 200 // 10),
        # The second match is unit 3.
        (20_000, 1, 2 * 200 // 4),
        (20_000, 0, 200),
        # Just enough for all of it.
        (200, 67, 67),
        (150, 5000, 50 * 200 // 150),
    ],
)
def test_a_sample_stands_for_the_rest(units, matches, expected):
    with fill(open_store(max_consume_queue_scan=units, sample_count_threshold=matches)) as store:
        assert store.estimate_message_count("orders", 0, 0, 200, WANTED) == expected


def test_an_interval_before_the_minimum_is_moved_there_with_its_length():
    with fill(open_store(), count=900) as store:
        assert len(store.commit_log.queue.files) > 1
        store.commit_log.queue.delete_first(store.commit_log.queue.files[0])
        store.queues.correct_min(store.commit_log.min_offset)
        minimum = store.min_offset("orders", 0)
        assert minimum > 100
        assert store.estimate_message_count("orders", 0, 0, 30, WANTED) == 10
        assert store.estimate_message_count("orders", 0, minimum - 5, minimum + 25, WANTED) == 10


def test_batches_count_with_their_size():
    with open_store(max_consume_queue_scan=20) as store:
        store.topics.ensure(TopicConfig(topic_name="batches", attributes={"queue.type": "BatchCQ"}))
        for n in range(30):
            tags = "other" if n % 3 else "wanted"
            message = Message.of("batches", b"x", tags=tags, properties={"INNER_NUM": "10"})
            assert store.put(msgspec.structs.replace(message, sys_flag=0xC0)).ok
        store.dispatcher.catch_up()
        assert store.estimate_message_count("batches", 0, 0, 10, WANTED) == 10
        assert store.estimate_message_count("batches", 0, 10, 30, WANTED) == 0
        assert store.estimate_message_count("batches", 0, 5, 35, WANTED) == 10, "the first batch counts whole"
        assert store.estimate_message_count("batches", 0, 200, 300, WANTED) == 30
        assert store.estimate_message_count("batches", 0, 0, 300, WANTED) == 70 * 300 // 200, "20 of 30 units"
