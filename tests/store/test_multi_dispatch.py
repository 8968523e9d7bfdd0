"""Light queues: one record, many queues, each with offsets of its own, over crashes and bad names."""

import random

import pytest

from rockstrata.message import Message
from rockstrata.store.results import PutStatus
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from store.store_kit import ASYNC, bodies, letter, open_store, put_all, read_queue_of, settle

LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def to(names: str, n: int = 0, topic: str = "orders", **properties: str) -> Message:
    return letter(n, topic, properties={"INNER_MULTI_DISPATCH": names, **properties})


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


def test_a_record_stands_in_its_own_queue_and_in_every_light_one(disk):
    with open_store(disk, **LIGHT) as store:
        put_all(store, [to("%LMQ%a,%LMQ%b", 0), to("%LMQ%b", 1), letter(2), to("%LMQ%a", 3)])
        assert bodies(store) == [letter(n).body for n in range(4)]
        assert bodies(store, "%LMQ%a") == [letter(n).body for n in (0, 3)]
        assert bodies(store, "%LMQ%b") == [letter(n).body for n in (0, 1)]
        written = read_queue_of(store)[3].property_map()
        assert written["INNER_MULTI_QUEUE_OFFSET"] == "1"


@pytest.mark.parametrize("end", ["clean", "kill", "cut"])
def test_light_offsets_go_on_after_every_end(disk, end):
    store = open_store(disk, **LIGHT)
    put_all(store, [to("%LMQ%a,%LMQ%b" if n % 2 else "%LMQ%b", n) for n in range(50)])
    if end == "clean":
        store.close()
    after = disk.kill() if end == "kill" else disk.power_cut()
    with open_store(after, **LIGHT) as store:
        put_all(store, [to("%LMQ%a,%LMQ%b", 50)])
        assert bodies(store, "%LMQ%a") == [letter(n).body for n in [*range(1, 50, 2), 50]]
        assert bodies(store, "%LMQ%b") == [letter(n).body for n in range(51)]


def test_light_queues_are_rebuilt_with_the_others(disk):
    store = open_store(disk, **LIGHT)
    put_all(store, [to("%LMQ%a", n) for n in range(40)])
    store.close()
    for topic in ("orders", "%LMQ%a"):
        folder = store.config.consume_queue_dir / topic / "0"
        for name in disk.list_files(folder):
            disk.unlink(folder / name)
    with open_store(disk, **LIGHT) as store:
        assert bodies(store, "%LMQ%a") == bodies(store) == [letter(n).body for n in range(40)]


@pytest.mark.parametrize(
    "names",
    [
        "plain",
        "%LMQ%a,plain",
        "%LMQ%a,",
        "%LMQ%../../etc",
        "%LMQ%a/b",
        "%LMQ%" + "x" * 123,
        "%LMQ%a\0b",
    ],
)
def test_a_name_that_is_no_light_queue_refuses_the_message_and_costs_nothing(disk, names):
    with open_store(disk, **LIGHT) as store:
        put_all(store, [to("%LMQ%a", 0)])
        end = store.commit_log.queue.wrote_offset
        for put in (store.put, lambda message: store.put_batch([message])):
            assert put(to(names, 1)).status is PutStatus.MESSAGE_ILLEGAL
        assert store.commit_log.queue.wrote_offset == end
        put_all(store, [to("%LMQ%a", 2)])
        assert bodies(store, "%LMQ%a") == [letter(n).body for n in (0, 2)]
        assert set(store.topic_queues()) == {"orders", "%LMQ%a"}


def test_a_name_given_twice_is_one_entry(disk):
    with open_store(disk, **LIGHT) as store:
        put_all(store, [to("%LMQ%a,%LMQ%a", n) for n in range(5)])
        assert bodies(store, "%LMQ%a") == [letter(n).body for n in range(5)]
        assert store.flags.writable


@pytest.mark.parametrize("topic", ["%RETRY%group", "rmq_sys_something"])
def test_some_topics_are_never_dispatched_to_light_queues(disk, topic):
    with open_store(disk, **LIGHT) as store:
        put_all(store, [to("%LMQ%a", 0, topic)])
        assert store.max_offset("%LMQ%a", 0) == 0
        assert store.max_offset(topic, 0) == 1


def test_without_the_settings_the_property_means_nothing(disk):
    with open_store(disk) as store:
        put_all(store, [to("%LMQ%a", 0), to("no light queue", 1)])
        assert store.max_offset("%LMQ%a", 0) == 0
        assert store.max_offset("orders", 0) == 2


def test_a_batch_with_light_queues_is_put_one_by_one(disk):
    with open_store(disk, **LIGHT) as store:
        result = store.put_batch([letter(0), to("%LMQ%a", 1), letter(2)])
        settle(store)
        assert result.ok
        assert [one.queue_offset for one in result] == [0, 1, 2]
        assert bodies(store, "%LMQ%a") == [letter(1).body]


def test_light_queues_after_power_cuts_hold_what_their_records_say():
    for seed in range(12):
        dice = random.Random(seed)
        disk, count = ForgetfulDisk(), 0
        for _ in range(3):
            store = open_store(disk, **LIGHT, flush_disk_type=ASYNC)
            count = len(bodies(store))
            for n in range(count, count + dice.randrange(40)):
                store.put(to(dice.choice(["%LMQ%a", "%LMQ%a,%LMQ%b"]), n))
                if dice.random() < 0.1:
                    settle(store)
            store.dispatcher.catch_up()
            disk = disk.power_cut(dice)
            store = open_store(disk, **LIGHT, flush_disk_type=ASYNC)
            found = read_queue_of(store)
            for light in ("%LMQ%a", "%LMQ%b"):
                mine = [m for m in found if light in m.property_map()["INNER_MULTI_DISPATCH"]]
                assert read_queue_of(store, light) == mine
            disk = disk.kill()
