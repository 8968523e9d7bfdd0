"""Delayed messages come when they are due, to their own queue, and never get lost."""

import json
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockstrata.errors import DiskError
from rockstrata.message import properties as props
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.model import Message, pack_host
from rockstrata.message.tags import java_hash_code
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import PutStatus
from rockstrata.store.running_flags import Flag
from rockstrata.store.store_config import BrokerRole, FlushDiskType
from rockstrata.store.topic_kinds import HALF_TOPIC
from rockstrata.testing.forgetful_disk import PowerCut
from store.small_store import (
    ROOT,
    START_MS,
    bodies_of,
    dispatch,
    messages_of,
    new_disk,
    open_small,
    small_config,
)

DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
OFFSETS_PATH = ROOT / "config" / "delayOffset.json"


@pytest.fixture
def disk():
    return new_disk()


@pytest.fixture
def store(disk):
    with open_small(disk) as store:
        yield store


def put_delayed(store, body, level, **fields):
    result = store.put(Message.of("Orders", body, delay_level=level, **fields))
    assert result.status is PutStatus.PUT_OK
    return result


def run(store):
    """One round of the dispatcher and one of the schedule, and what it delivered made readable."""
    dispatch(store)
    store.schedule.run_once()
    dispatch(store)


def saved_offsets(disk):
    return {int(level): at for level, at in json.loads(disk.read_bytes(OFFSETS_PATH))["offsetTable"].items()}


# Delivery


def test_a_delayed_message_is_invisible_until_it_is_due(store):
    put_delayed(store, b"tea", 2)

    store.clock.advance(4_999)
    run(store)
    early = bodies_of(store, "Orders")
    store.clock.advance(1)
    run(store)

    assert early == []
    assert bodies_of(store, "Orders") == [b"tea"]
    assert store.schedule.progress() == {2: (1, 1)}


def test_the_delivered_message_is_the_one_that_was_put(store):
    message = Message(
        "Orders",
        b"body",
        queue_id=3,
        properties=props.encode({"TAGS": "A", "KEYS": "k1", "DELAY": "1", "colour": "red"}),
        flag=7,
        sys_flag=0x1,
        born_timestamp=START_MS - 5,
        born_host=pack_host("10.0.0.9", 99),
        store_host=pack_host("10.0.0.8", 10911),
        reconsume_times=2,
        prepared_transaction_offset=4711,
    )
    store.put(message)
    store.clock.advance(1_000)
    run(store)

    (found,) = messages_of(store, "Orders", 3)
    assert (found.body, found.flag, found.sys_flag, found.reconsume_times) == (b"body", 7, 0x1, 2)
    assert (found.born_timestamp, found.born_host) == (message.born_timestamp, message.born_host)
    assert found.store_host == message.store_host
    assert found.prepared_transaction_offset == 0
    assert found.property_map() == {
        "TAGS": "A",
        "KEYS": "k1",
        "colour": "red",
        "DELAY": "1",
        "REAL_TOPIC": "Orders",
        "REAL_QID": "3",
    }
    assert store.queues.get("Orders", 3).unit(0)[2] == java_hash_code("A")
    assert [hit.topic for hit in store.query("Orders", "k1")] == ["Orders"]


@pytest.mark.parametrize("level", range(1, 19))
def test_every_level_waits_its_own_time_in_its_own_queue(store, level):
    put_delayed(store, b"x", level)
    dispatch(store)
    assert store.max_offset(SCHEDULE_TOPIC, level - 1) == 1

    store.clock.advance(DELAYS_S[level - 1] * 1000 - 1)
    run(store)
    assert bodies_of(store, "Orders") == []
    store.clock.advance(1)
    run(store)
    assert bodies_of(store, "Orders") == [b"x"]


def test_a_level_beyond_the_last_is_the_last(store):
    put_delayed(store, b"x", 99)
    store.clock.advance(DELAYS_S[-1] * 1000)
    run(store)

    (found,) = messages_of(store, "Orders")
    assert found.find_property("DELAY") == "18"


def test_messages_of_a_level_come_in_order_and_only_as_far_as_they_are_due(store):
    for number in range(300):
        put_delayed(store, b"%d" % number, 2)
        store.clock.advance(10)
    store.clock.advance(3_499)
    run(store)
    assert bodies_of(store, "Orders") == [b"%d" % number for number in range(150)]
    store.clock.advance(3_000)
    run(store)

    assert bodies_of(store, "Orders") == [b"%d" % number for number in range(300)]
    assert store.schedule.progress() == {2: (300, 300)}


def test_a_message_due_later_than_its_whole_delay_is_delivered_now(store):
    put_delayed(store, b"x", 4)
    run(store)
    store.clock.set_now_ms(START_MS - 1)
    run(store)

    assert bodies_of(store, "Orders") == [b"x"]


def test_nothing_is_read_while_nothing_is_due(store, disk):
    put_delayed(store, b"x", 5)
    run(store)
    reads = disk.calls["pread"]
    for _ in range(50):
        store.clock.advance(100)
        store.schedule.run_once()

    assert disk.calls["pread"] == reads


def test_a_message_put_behind_one_that_waits_is_not_forgotten(store):
    put_delayed(store, b"1", 1)
    run(store)
    put_delayed(store, b"2", 1)
    store.clock.advance(1_000)
    run(store)

    assert bodies_of(store, "Orders") == [b"1", b"2"]


def test_one_sync_makes_a_whole_batch_durable(store, disk):
    for number in range(50):
        put_delayed(store, b"%d" % number, 1)
    dispatch(store)
    store.clock.advance(1_000)
    before = disk.calls["sync"]
    store.schedule.run_once()

    assert disk.calls["sync"] - before == 1
    assert len(bodies_of(store, "Orders")) == 50


def test_a_refused_delivery_is_tried_again_from_the_same_message(store):
    for number in range(3):
        put_delayed(store, b"%d" % number, 1)
    store.clock.advance(1_000)
    store.flags.set(Flag.FENCED, "test")
    run(store)
    assert store.schedule.progress() == {1: (0, 3)}
    store.flags.clear(Flag.FENCED)
    run(store)

    assert bodies_of(store, "Orders") == [b"0", b"1", b"2"]


def test_a_level_that_fails_rests_ten_seconds_while_the_others_go_on(store, monkeypatch):
    put_delayed(store, b"one", 1)
    put_delayed(store, b"two", 2)
    store.clock.advance(5_000)
    put = store.put_without_hooks

    def fail(message, *, wait=True):
        if message.body == b"one":
            raise DiskError("asked to fail")
        return put(message, wait=wait)

    monkeypatch.setattr(store, "put_without_hooks", fail)
    with pytest.raises(DiskError, match="asked to fail"):
        run(store)
    monkeypatch.undo()
    store.clock.advance(9_999)
    run(store)
    assert bodies_of(store, "Orders") == [b"two"]
    store.clock.advance(1)
    run(store)

    assert bodies_of(store, "Orders") == [b"two", b"one"]


def test_what_was_delivered_before_a_failure_is_not_delivered_again(store, monkeypatch):
    for number in range(3):
        put_delayed(store, b"%d" % number, 1)
    store.clock.advance(1_000)
    put = store.put_without_hooks

    def fail(message, *, wait=True):
        if message.body == b"2":
            raise DiskError("asked to fail")
        return put(message, wait=wait)

    monkeypatch.setattr(store, "put_without_hooks", fail)
    with pytest.raises(DiskError):
        run(store)
    monkeypatch.undo()
    store.clock.advance(10_000)
    run(store)

    assert bodies_of(store, "Orders") == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "properties",
    [
        {"REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"},
        {"REAL_TOPIC": "Orders"},
        {"REAL_QID": "0"},
        {"REAL_TOPIC": "Orders", "REAL_QID": "none"},
    ],
    ids=["half topic", "no queue", "no topic", "bad queue"],
)
def test_a_message_with_nowhere_to_go_is_passed_over(store, properties):
    wire = props.encode({"DELAY": "1", **properties})
    store.put_without_hooks(Message(SCHEDULE_TOPIC, b"lost", 0, wire))
    put_delayed(store, b"next", 1)
    store.clock.advance(1_000)
    run(store)

    assert bodies_of(store, "Orders") == [b"next"]
    assert bodies_of(store, HALF_TOPIC) == []
    assert store.schedule.progress() == {1: (2, 2)}


def test_a_damaged_message_is_passed_over_and_said_aloud(store, caplog):
    place = put_delayed(store, b"damaged body", 1)
    put_delayed(store, b"next", 1)
    dispatch(store)
    store.clock.advance(1_000)
    view = store.commit_log.queue.files[0].file.view()
    at = place.physical_offset + bytes(view[place.physical_offset :][:500]).index(b"damaged body")
    view[at : at + 1] = b"D"
    store.schedule.run_once()

    assert bodies_of(store, "Orders") == [b"next"]
    assert "body does not match its CRC" in caplog.text


@pytest.mark.parametrize("topic", ["x" * 128, "a/b", "", "a\1b"])
def test_a_delay_to_a_topic_that_cannot_be_is_refused_at_once(store, topic):
    result = store.put(Message.of(topic, b"x", delay_level=1))

    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert store.commit_log.max_offset <= 0


def test_what_left_the_timer_wheel_is_no_timer_message_any_more(store):
    timer = {"TIMER_DELIVER_MS": str(START_MS)}

    asking = store.put(Message.of("Orders", b"x", properties=timer))
    delivered = store.put(Message.of("Orders", b"x", properties={**timer, "TIMER_OUT_MS": str(START_MS)}))

    assert asking.status is PutStatus.WHEEL_TIMER_NOT_ENABLE
    assert delivered.status is PutStatus.PUT_OK


# Offsets


@pytest.mark.parametrize(("saved", "corrected"), [(7, 3), (3, 3), (1, 1), (-5, 0), (10**15, 3)])
def test_saved_offsets_are_brought_into_their_queues(disk, saved, corrected):
    with open_small(disk) as store:
        for _ in range(3):
            put_delayed(store, b"x", 4)
    disk.write_file(OFFSETS_PATH, b'{"offsetTable":{4:%d}}' % saved)
    with open_small(disk) as store:
        assert store.schedule.offsets.get(4) == corrected


def test_offsets_saved_without_their_queue_start_at_the_first_message(disk):
    disk.make_dirs(OFFSETS_PATH.parent)
    disk.write_file(OFFSETS_PATH, b'{"offsetTable":{1:70,3:20}}')
    with open_small(disk) as store:
        assert store.schedule.offsets.all() == {1: 0, 3: 0}
        put_delayed(store, b"x", 1)
        store.clock.advance(1_000)
        run(store)
        assert bodies_of(store, "Orders") == [b"x"]


def test_a_queue_whose_first_files_are_gone_goes_on_at_its_minimum(store):
    for number in range(3):
        put_delayed(store, b"%d" % number, 1)
    dispatch(store)
    queue = store.queues.get(SCHEDULE_TOPIC, 0)
    queue.correct_min(queue.unit(2)[0])
    store.clock.advance(1_000)
    run(store)

    assert bodies_of(store, "Orders") == [b"2"]


JAVA_5_5_0 = (
    b'{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
    b'\t"offsetTable":{\n\t\t1:1,\n\t\t3:1\n\t}\n}'
)
JAVA_5_3_3 = (
    b'{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
    b'\t"offsetTable":{1:1,3:1\n\t}\n}'
)


@pytest.mark.parametrize("text", [JAVA_5_5_0, JAVA_5_3_3], ids=["5.5.0", "5.3.3"])
def test_offsets_written_by_java_are_read(disk, text):
    with open_small(disk) as store:
        for level in (1, 1, 3):
            put_delayed(store, b"%d" % level, level)
    disk.write_file(OFFSETS_PATH, text)
    with open_small(disk) as store:
        assert store.schedule.offsets.all() == {1: 1, 3: 1}
        assert store.schedule.offsets.data_version.counter == 3
        store.clock.advance(60_000)
        run(store)
        assert bodies_of(store, "Orders") == [b"1"]


def test_offsets_are_saved_every_interval_and_at_the_end(disk):
    with open_small(disk) as store:
        put_delayed(store, b"1", 1)
        store.clock.advance(1_000)
        run(store)
        assert not disk.exists(OFFSETS_PATH)
        store.clock.advance(9_000)
        run(store)
        assert saved_offsets(disk) == {1: 1}
        put_delayed(store, b"2", 1)
        store.clock.advance(1_000)
        run(store)
        assert saved_offsets(disk) == {1: 1}
    assert saved_offsets(disk) == {1: 2}


def test_levels_no_longer_configured_keep_their_offsets(disk):
    with open_small(disk) as store:
        put_delayed(store, b"x", 3)
        store.clock.advance(10_000)
        run(store)
    with open_small(disk, message_delay_level="1s 5s") as store:
        put_delayed(store, b"y", 1)
        store.clock.advance(1_000)
        run(store)
    assert saved_offsets(disk) == {1: 1, 3: 1}


def test_the_data_version_moves_once_per_step(disk):
    with open_small(disk, delay_offset_update_version_step=10) as store:
        for _ in range(25):
            put_delayed(store, b"x", 1)
        store.clock.advance(1_000)
        run(store)
    version = json.loads(disk.read_bytes(OFFSETS_PATH))["dataVersion"]
    assert version == {"counter": 2, "stateVersion": 0, "timestamp": START_MS + 1_000}


def test_a_clean_restart_delivers_nothing_twice(disk):
    with open_small(disk) as store:
        for number in range(5):
            put_delayed(store, b"%d" % number, 1)
            store.clock.advance(400)
        run(store)
    with open_small(disk) as store:
        store.clock.advance(5_000)
        run(store)
        assert bodies_of(store, "Orders") == [b"0", b"1", b"2", b"3", b"4"]


# Crashes


@pytest.mark.parametrize("flush", FlushDiskType)
def test_offsets_on_disk_never_call_delivered_what_a_power_cut_takes(disk, flush):
    store = open_small(disk, flush_disk_type=flush)
    put_delayed(store, b"x", 1)
    store.commit_log.sync()
    store.clock.advance(10_000)
    dispatch(store)
    store.schedule.run_once()
    assert saved_offsets(disk) == {1: 1}

    with open_small(disk.power_cut(), flush_disk_type=flush) as reopened:
        run(reopened)
        assert bodies_of(reopened, "Orders") == [b"x"]


def test_offsets_are_not_saved_if_the_deliveries_cannot_be_synced(disk):
    store = open_small(disk, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    put_delayed(store, b"x", 1)
    dispatch(store)
    store.clock.advance(10_000)
    disk.fail("sync")
    with pytest.raises(DiskError):
        store.schedule.run_once()

    assert not disk.exists(OFFSETS_PATH)


def test_a_kill_between_delivery_and_saving_delivers_twice_but_never_loses(disk):
    store = open_small(disk)
    put_delayed(store, b"x", 1)
    store.clock.advance(1_000)
    run(store)

    with open_small(disk.kill()) as reopened:
        run(reopened)
        assert bodies_of(reopened, "Orders") == [b"x", b"x"]


def live(store, rng, acked, number):
    """One thing that happens to a store; returns the number of the next message."""
    act = rng.randrange(8)
    if act < 3:
        body = b"%d" % number + b"." * rng.choice((0, 40, 3_000))
        if store.put(Message.of("Orders", body, delay_level=rng.randrange(1, 4))).status is PutStatus.PUT_OK:
            acked.add(body)
        return number + 1
    if act == 3:
        store.clock.advance(rng.choice((100, 1_000, 10_000)))
    elif act == 4:
        store.dispatcher.catch_up()
    elif act < 7:
        store.schedule.run_once()
    else:
        store._queue_flusher.flush_all()
        store.checkpoint.flush()
    return number


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_acknowledged_delayed_message_is_lost_by_power_cuts(seed):
    rng = random.Random(seed)
    disk, acked, number = new_disk(), set(), 0
    for _ in range(3):
        disk.stop_after(rng.randrange(20, 400))
        try:
            store = open_small(disk)
            while True:
                number = live(store, rng, acked, number)
        except PowerCut:
            disk = disk.power_cut(rng)

    with open_small(disk) as store:
        store.clock.advance(20_000)
        run(store)
        assert acked <= set(bodies_of(store, "Orders"))


# The service


def test_the_first_round_comes_a_second_after_the_start(store):
    put_delayed(store, b"x", 1)
    dispatch(store)
    store.clock.advance(1_000)
    store.schedule.start()
    try:
        store.schedule.run_once()
        assert store.schedule.progress() == {1: (0, 1)}
        store.clock.advance(1_000)
        delivered = threading.Event()
        store.add_listener(lambda arrivals: delivered.set())
        for _ in range(100):
            store.dispatcher.catch_up()
            if delivered.wait(0.05):
                break
    finally:
        store.schedule.stop()

    assert bodies_of(store, "Orders") == [b"x"]
    assert saved_offsets(store.disk) == {1: 1}


def test_a_running_store_delivers_by_itself(tmp_path):
    arrived = threading.Event()
    config = small_config(tmp_path, message_delay_level="0s")
    with LocalMessageStore.open(config) as store:
        store.add_listener(lambda found: [arrived.set() for a in found if a.topic == "Orders"])
        put_delayed(store, b"x", 1)

        assert arrived.wait(10)
        assert store.get("Orders", 0, 0).messages()[0].body == b"x"
        assert store.schedule.failure is None
    assert json.loads((tmp_path / "config" / "delayOffset.json").read_text())["offsetTable"] == {"1": 1}


def test_a_slave_delivers_nothing(tmp_path):
    config = small_config(tmp_path, broker_role=BrokerRole.SLAVE)
    with LocalMessageStore.open(config) as store:
        assert not store.schedule.running
