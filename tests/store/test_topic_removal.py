"""Deleting topics and queues: RocketMQ's deleteTopics, cleanUnusedTopic, cleanExpiredConsumerQueue."""

import itertools
import threading
import time
from pathlib import Path

import pytest

from rockstrata.errors import StoreClosedError
from rockstrata.message.model import Message
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import GetStatus
from rockstrata.store.store_config import FlushDiskType, StoreConfig
from rockstrata.store.topic_kinds import is_light_topic, is_system_topic
from rockstrata.store.topics import TopicConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk

ROOT = Path("/store")
QUEUES = ROOT / "consumequeue"


def open_store(disk, *, start_services=False, **changes):
    settings = {
        "store_path_root_dir": str(ROOT),
        "commit_log_file_bytes": 65536,
        "consume_queue_file_bytes": 2000,
        "max_hash_slot_num": 100,
        "max_index_num": 1000,
        "broker_ip": "10.0.0.1",
        "broker_name": "broker-a",
    }
    return LocalMessageStore.open(
        StoreConfig(**(settings | changes)), disk=disk, clock=disk.clock, start_services=start_services
    )


def fill(store, *topics, count=10, queues=2):
    for topic in topics:
        for n in range(count):
            assert store.put(Message.of(topic, f"{topic} {n}", queue_id=n % queues)).ok
    store.commit_log.sync()
    store.dispatcher.catch_up()
    store._queue_flusher.flush_all()


def expire_all_before_now(store, disk):
    """Roll the log with other messages and delete every file but the last."""
    files = len(store.commit_log.queue.files)
    while len(store.commit_log.queue.files) < files + 2:
        store.put(Message.of("filler", b"x" * 900))
    fill(store)
    disk.set_usage(ROOT, 86)
    store.retention.clean()
    disk.set_usage(ROOT, 10)


def bodies(store, topic, queue_id=0):
    return [message.body.decode() for message in store.get(topic, queue_id, 0).messages()]


@pytest.fixture
def disk():
    return ForgetfulDisk()


def test_deleting_topics_removes_queues_directories_settings_and_offsets(disk):
    with open_store(disk) as store:
        fill(store, "a", "b", "c")
        for topic in "abc":
            store.topics.ensure(TopicConfig(topic_name=topic))
            store.consumer_offsets.commit("group", topic, 0, 3)
        assert store.delete_topics(["a", "b", "unknown", "a"]) == 2
        assert store.topic_queues() == {"c": [0, 1]}
        assert disk.list_dirs(QUEUES) == ["c"]
        assert list(store.topics.all()) == ["c"]
        assert store.consumer_offsets.query("group", "a", 0) == -1
        assert store.consumer_offsets.query("group", "c", 0) == 3
        assert store.max_offset("a", 0) == 0
        assert store.get("a", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert len(bodies(store, "c")) == 5


def test_settings_and_offsets_may_outlive_the_queues(disk):
    with open_store(disk) as store:
        fill(store, "a")
        store.topics.ensure(TopicConfig(topic_name="a"))
        store.consumer_offsets.commit("group", "a", 0, 3)
        assert store.delete_topics(["a"], forget=False) == 1
        assert store.topics.get("a") is not None
        assert store.consumer_offsets.query("group", "a", 0) == 3


def test_a_topic_made_again_starts_at_offset_zero(disk):
    store = open_store(disk)
    fill(store, "a", count=300, queues=1)
    store.delete_topics(["a"])
    assert store.put(Message.of("a", "new")).queue_offset == 0
    fill(store)
    for _ in range(2):
        assert (store.min_offset("a", 0), store.max_offset("a", 0)) == (0, 1)
        assert bodies(store, "a") == ["new"]
        # An unclean start dispatches the old records too, then the new one at their first offset.
        disk = disk.power_cut()
        store = open_store(disk)
    store.close()


def test_a_topic_made_again_is_readable_after_its_old_records_half_expired(disk):
    store = open_store(disk)
    fill(store, "a", count=900, queues=1)
    assert store.physical_offset("a", 0, 800) > 65536
    store.delete_topics(["a"])
    while len(store.commit_log.queue.files) < 3:
        store.put(Message.of("filler", b"x" * 900))
    fill(store, "a", count=3, queues=1)
    first = store.commit_log.queue.files[0]
    assert store.message_at(0).topic == "a"
    store.commit_log.queue.delete_first(first)
    # As if the queues had been lost: they are built anew from what the log still has.
    store.close()
    for topic, queue_id in (("a", "0"), ("filler", "0")):
        for name in disk.list_files(QUEUES / topic / queue_id):
            disk.unlink(QUEUES / topic / queue_id / name)
    with open_store(disk) as store:
        assert (store.min_offset("a", 0), store.max_offset("a", 0)) == (0, 3)
        assert bodies(store, "a") == ["a 0", "a 1", "a 2"]


def test_messages_waiting_for_dispatch_go_with_their_topic(disk):
    with open_store(disk) as store:
        for n in range(3):
            store.put(Message.of("a", str(n)))
            store.put(Message.of("b", str(n)))
        assert store.delete_topics(["a"]) == 1
        store.dispatcher.catch_up()
        assert store.topic_queues() == {"b": [0]}
        assert disk.list_dirs(QUEUES) == ["b"]


def test_messages_that_cannot_be_dispatched_yet_do_not_stop_a_deletion(disk):
    with open_store(disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as store:
        store.appender.put(Message.of("a", "not synced"))
        assert store.delete_topics(["a"]) == 0
        assert store.put(Message.of("a", "new")).queue_offset == 0
        fill(store)
        assert bodies(store, "a") == ["new"]


def test_a_deleted_topic_stays_deleted_after_a_power_cut_of_directories(disk):
    store = open_store(disk)
    fill(store, "a", "b")
    store.delete_topics(["a"])
    assert disk.power_cut().list_dirs(QUEUES) == ["b"]


def test_a_deleted_topic_stays_deleted_after_a_clean_restart(disk):
    with open_store(disk) as store:
        fill(store, "a", "b")
        store.delete_topics(["a"])
        fill(store, "b", count=1)
    with open_store(disk) as store:
        assert store.topic_queues() == {"b": [0, 1]}


def test_no_round_runs_while_the_dispatcher_is_paused(disk):
    with open_store(disk) as store:
        store.put(Message.of("a", "waits"))
        other = threading.Thread(target=store.dispatcher.catch_up)
        with store.dispatcher.paused():
            other.start()
            other.join(0.05)
            assert store.dispatcher.position == 0
            store.dispatcher.catch_up()
            assert store.dispatcher.position > 0, "except that of whoever paused it"
        other.join()
        assert bodies(store, "a") == ["waits"]


def test_topics_are_deleted_under_a_running_dispatcher(disk):
    store = open_store(disk, start_services=True)
    failures, done = [], threading.Event()

    def write():
        for n in itertools.count():
            if done.is_set():
                return
            if not store.put(Message.of(f"t{n % 3}", b"x")).ok:
                failures.append(n)
                return
            if n % 20 == 0:
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    for n in range(60):
        store.delete_topics([f"t{n % 3}"])
    done.set()
    writer.join()
    assert not failures
    assert store.flags.bits == 0
    assert store.dispatcher.failure is None
    store.close()


def test_unused_topics_are_those_nobody_keeps_but_system_and_light_ones(disk):
    with open_store(disk) as store:
        fill(store, "kept", "unused", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%LMQ%light")
        fill(store, "%RETRY%group", "DefaultCluster_REPLY_TOPIC")
        assert store.clean_unused_topics({"kept"}) == 2
        assert list(store.topic_queues()) == [
            "%LMQ%light", "DefaultCluster_REPLY_TOPIC", "SCHEDULE_TOPIC_XXXX", "kept", "rmq_sys_wheel_timer",
        ]  # fmt: skip


def test_queues_without_a_message_left_are_removed_and_start_again(disk):
    with open_store(disk) as store:
        fill(store, "dead", "half", "spared", "RMQ_SYS_TRANS_HALF_TOPIC")
        for topic in ("dead", "half"):
            store.consumer_offsets.commit("group", topic, 0, 5)
            store.consumer_offsets.commit("group", topic, 1, 5)
        expire_all_before_now(store, disk)
        assert store.clean_expired_queues(spare={"half", "spared"}) == 2
        fill(store, "half", count=1)
        assert store.clean_expired_queues(spare={"spared"}) == 1, "queue 1 of half"
        assert store.topic_queues() == {
            "RMQ_SYS_TRANS_HALF_TOPIC": [0, 1], "filler": [0], "half": [0], "spared": [0, 1],
        }  # fmt: skip
        assert disk.list_dirs(QUEUES / "half") == ["0"]
        assert not disk.exists(QUEUES / "dead")
        assert store.consumer_offsets.query_all("group", "dead") == {}
        assert store.consumer_offsets.query_all("group", "half") == {0: 5}
        assert store.put(Message.of("dead", b"x")).queue_offset == 0
        assert store.put(Message.of("half", b"x", queue_id=1)).queue_offset == 0
        assert store.put(Message.of("half", b"x", queue_id=0)).queue_offset == 6
        assert store.put(Message.of("spared", b"x")).queue_offset == 5


def test_an_expired_queue_with_a_message_on_its_way_stays(disk):
    with open_store(disk) as store:
        fill(store, "a", queues=1)
        expire_all_before_now(store, disk)
        assert store.put(Message.of("a", "on its way")).queue_offset == 10
        assert store.clean_expired_queues() == 0
        store.dispatcher.catch_up()
        assert store.get("a", 0, 10).status is GetStatus.FOUND


def test_a_closed_store_deletes_nothing(disk):
    store = open_store(disk)
    store.close()
    with pytest.raises(StoreClosedError):
        store.delete_topics(["a"])


@pytest.mark.parametrize(
    ("topic", "is_system"),
    [
        ("TBW102", True), ("rmq_sys_REVIVE_LOG_DefaultCluster", True), ("DefaultCluster", True),
        ("broker-a", True), ("orders", False), ("%RETRY%g", False), ("%LMQ%x", False),
    ],
)  # fmt: skip
def test_system_topics_are_known_by_name(topic, is_system):
    config = StoreConfig(broker_name="broker-a")
    assert is_system_topic(topic, config) is is_system
    assert is_light_topic(topic) is topic.startswith("%LMQ%")
