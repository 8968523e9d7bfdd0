"""Putting messages: every status, every limit, offsets, ids and times."""

import random
import threading

import msgspec
import pytest

from rockstrata.errors import DiskError, DiskFullError
from rockstrata.message import Message, encode_batch, pack_host, sys_flag
from rockstrata.message import properties as props
from rockstrata.message.batch import BatchElement
from rockstrata.message.crc import verify_record_crc
from rockstrata.store.queue_offsets import QueueOffsets
from rockstrata.store.results import AppendStatus, PutStatus
from rockstrata.store.running_flags import Flag
from rockstrata.store.store_config import BrokerRole
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock
from store.store_kit import (
    ASYNC,
    NOW,
    bodies,
    letter,
    letters,
    log_path,
    open_store,
    put_all,
    read_queue_of,
    records_of,
    settle,
)

V6 = pack_host("fe80::1", 10911)


@pytest.fixture
def store():
    with open_store() as opened:
        yield opened


def test_a_put_says_where_the_message_went(store):
    first, second = put_all(store, letters(2))

    assert (first.physical_offset, first.queue_offset) == (0, 0)
    assert (second.physical_offset, second.queue_offset) == (first.record_bytes, 1)
    assert first.store_timestamp == NOW
    assert store.message_by_id(second.message_id).body == letter(1).body


def test_every_queue_counts_for_itself(store):
    offsets = {}
    for n in range(60):
        topic, queue_id = ("a", "b")[n % 2], n % 3
        result = store.put(letter(n, topic, queue_id))
        assert result.queue_offset == offsets.get((topic, queue_id), 0)
        offsets[topic, queue_id] = result.queue_offset + 1
    settle(store)
    assert {(t, q): store.max_offset(t, q) for t in "ab" for q in range(3)} == offsets


# What is refused, and costs no offset.

BODY_MAX, PROPERTIES_MAX = 1000, props.PROPERTIES_BYTES_MAX
REFUSED = [
    ("no topic", Message("", b"x"), PutStatus.MESSAGE_ILLEGAL),
    ("a topic of 128 bytes", Message("t" * 128, b"x"), PutStatus.MESSAGE_ILLEGAL),
    ("a retry topic of 256 bytes", Message("%RETRY%" + "t" * 249, b"x"), PutStatus.MESSAGE_ILLEGAL),
    ("a path for a topic", Message("../../etc", b"x"), PutStatus.MESSAGE_ILLEGAL),
    ("the parent for a topic", Message("..", b"x"), PutStatus.MESSAGE_ILLEGAL),
    ("a zero in the topic", Message("a\0b", b"x"), PutStatus.MESSAGE_ILLEGAL),
    ("half a character", Message("a\ud800", b"x"), PutStatus.MESSAGE_ILLEGAL),
    ("a negative queue", Message("orders", b"x", -1), PutStatus.MESSAGE_ILLEGAL),
    ("a negative queue of a new topic", Message("fresh", b"x", -1), PutStatus.MESSAGE_ILLEGAL),
    ("a queue beyond 32 bits", Message("orders", b"x", 2**31), PutStatus.MESSAGE_ILLEGAL),
    ("a flag beyond 32 bits", Message("orders", b"x", flag=2**31), PutStatus.MESSAGE_ILLEGAL),
    ("too large a body", Message("orders", bytes(BODY_MAX + 1)), PutStatus.MESSAGE_ILLEGAL),
    (
        "too large properties",
        Message("orders", b"x", properties=b"a\1" + b"v" * (PROPERTIES_MAX - 2) + b"\2"),
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
    ),
    ("a record larger than a file", Message("orders", b"x", properties=b"a\1" + b"v" * 30_000), "file"),
    ("a host of no length", Message("orders", b"x", born_host=b"1234"), PutStatus.MESSAGE_ILLEGAL),
    ("INNER_NUM without its flag", Message.of("orders", b"x", properties={"INNER_NUM": "2"}), None),
    ("an inner batch for a simple queue", Message("orders", b"x", sys_flag=sys_flag.INNER_BATCH), None),
    ("a timer", Message.of("orders", b"x", properties={"TIMER_DELAY_SEC": "1"}), "timer"),
]


@pytest.mark.parametrize("crc", [False, True], ids=["plain", "record crc"])
@pytest.mark.parametrize(("what", "message", "status"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_stored_is_refused_and_costs_no_offset(what, message, status, crc):
    expected = {
        None: PutStatus.MESSAGE_ILLEGAL,
        "file": PutStatus.MESSAGE_ILLEGAL,
        "timer": PutStatus.WHEEL_TIMER_NOT_ENABLE,
    }
    with open_store(max_message_bytes=BODY_MAX, enabled_append_prop_crc=crc) as store:
        put_all(store, letters(1))
        end = store.commit_log.queue.wrote_offset

        for _ in range(2):
            result = store.put(message)
            assert result.status is expected.get(status, status)
            assert result.reason
            assert not result.ok
            assert result.message_id == ""

        assert store.commit_log.queue.wrote_offset == end
        assert store.put(letter(1)).queue_offset == 1
        assert store.topic_queues() == {"orders": [0]}


@pytest.mark.parametrize(("what", "message", "status"), REFUSED, ids=[row[0] for row in REFUSED])
def test_one_bad_message_refuses_a_whole_batch_or_only_itself(what, message, status):
    with open_store(max_message_bytes=BODY_MAX) as store:
        put_all(store, letters(1))
        result = store.put_batch([letter(1), message, letter(2)])
        settle(store)

        assert not result.ok
        assert len(result) == 3
        stored = bodies(store)[1:]
        assert stored == [
            letter(n).body for n, answer in zip((1, 2), (result[0], result[2]), strict=True) if answer.ok
        ]
        assert store.max_offset("orders", 0) == 1 + len(stored)


# Exact limits.


@pytest.mark.parametrize("crc", [False, True], ids=["plain", "record crc"])
@pytest.mark.parametrize("batch", [False, True], ids=["one", "batch"])
def test_the_largest_body_and_properties_are_accepted_and_one_byte_more_is_not(batch, crc):
    with open_store(
        max_message_bytes=BODY_MAX, commit_log_file_bytes=1 << 17, enabled_append_prop_crc=crc
    ) as store:
        room = PROPERTIES_MAX - (20 if crc else 0)

        def put(message):
            return store.put_batch([message])[0] if batch else store.put(message)

        def with_properties(length):
            return Message("orders", b"x", properties=b"a\1" + b"v" * (length - 3) + b"\2")

        assert put(Message("orders", bytes(BODY_MAX))).status is PutStatus.PUT_OK
        assert put(Message("orders", bytes(BODY_MAX + 1))).status is PutStatus.MESSAGE_ILLEGAL
        assert put(with_properties(room)).status is PutStatus.PUT_OK
        assert put(with_properties(room + 1)).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
        settle(store)
        assert len(read_queue_of(store)) == 2


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_a_record_fits_if_eight_bytes_remain_behind_it(spare):
    size = 4096
    fixed = 91 + len("orders")
    with open_store(commit_log_file_bytes=size) as store:
        result = store.put(Message("orders", bytes(size - 8 - fixed - spare)))
        if spare < 0:
            assert (result.status, result.append_status) == (
                PutStatus.MESSAGE_ILLEGAL,
                AppendStatus.END_OF_FILE,
            )
        else:
            assert result.status is PutStatus.PUT_OK
            # What is left is room for a blank, and the next record goes to the next file.
            assert store.put(Message("orders", b"")).physical_offset == size
        settle(store)
        assert store.max_offset("orders", 0) == (0 if spare < 0 else 2)


def test_the_limit_of_a_body_can_change_while_the_store_runs(store):
    for message in (Message("orders", bytes(2000)), Message.of("orders", bytes(2000))):
        assert store.put(message).ok
        store.appender.max_message_bytes = 1999
        assert store.put(message).status is PutStatus.MESSAGE_ILLEGAL
        store.appender.max_message_bytes = 2000
        assert store.put(message).ok


# A store that cannot take messages.


def test_a_closed_store_refuses():
    store = open_store()
    store.close()
    store.close()

    assert store.put(letter(0)).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.put_batch(letters(2)).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert len(store.put_batch(letters(2))) == 2
    assert store.put_client_batch(client_batch(2)).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_slave_refuses():
    with open_store(broker_role=BrokerRole.SLAVE) as store:
        assert store.put(letter(0)).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.put_batch(letters(2)).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    "flag",
    [Flag.NOT_WRITABLE, Flag.LOGICS_QUEUE_ERROR, Flag.INDEX_FILE_ERROR, Flag.DISK_FULL, Flag.FENCED],
)
def test_each_flag_but_not_readable_stops_puts_and_names_its_reason(store, flag):
    store.flags.set(flag, "because of the test")
    result = store.put(letter(0))
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "because of the test" in result.reason
    store.flags.clear(flag)
    store.flags.set(Flag.NOT_READABLE, "x")
    assert store.put(letter(0)).ok


def test_a_full_disk_refuses_the_message_that_needs_a_file_and_takes_it_later():
    disk = ForgetfulDisk()
    store = open_store(disk)
    put_all(store, letters(10))
    disk.fail("create", times=3, error=DiskFullError)

    accepted = [store.put(letter(n)).status for n in range(10, 40)]
    settle(store)

    refused = [n for n, status in enumerate(accepted, 10) if status is not PutStatus.PUT_OK]
    assert {accepted[n - 10] for n in refused} == {PutStatus.CREATE_MAPPED_FILE_FAILED}
    assert len(refused) == 3
    assert bodies(store) == [letter(n).body for n in range(40) if n not in refused]
    store.close()
    with open_store(disk) as again:
        assert bodies(again) == [letter(n).body for n in range(40) if n not in refused]


def test_a_batch_on_a_full_disk_is_stored_as_far_as_it_goes():
    disk = ForgetfulDisk()
    with open_store(disk) as store:
        disk.fail("create", nth=3, error=DiskFullError)
        result = store.put_batch(letters(100))
        settle(store)

        assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert not result.ok
        assert 0 < result.stored < 100
        assert [result[n].queue_offset for n in range(result.stored)] == list(range(result.stored))
        assert result[result.stored].status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert bodies(store) == [letter(n).body for n in range(result.stored)]
        assert store.put(letter(100)).queue_offset == result.stored


def test_a_failed_sync_answers_flush_timeout_and_stops_writes_for_good():
    disk = ForgetfulDisk()
    store = open_store(disk)
    put_all(store, letters(3))
    disk.fail("sync")

    result = store.put(letter(3))

    assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert result.ok
    assert "sync failed" in result.reason
    assert store.put(letter(4)).status is PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(DiskError):
        store.close()
    again = open_store(disk.kill())
    assert bodies(again)[:3] == [letter(n).body for n in range(3)]


def test_the_put_lock_held_too_long_makes_others_fail_fast(monkeypatch):
    clock = ManualClock(NOW)
    with open_store(clock=clock, os_page_cache_busy_timeout_ms=1000) as store:
        inside, gate, roll = threading.Event(), threading.Event(), store.commit_log.roll

        def slow_roll():
            inside.set()
            gate.wait(10)
            return roll()

        monkeypatch.setattr(store.commit_log, "roll", slow_roll)
        putter = threading.Thread(target=store.put, args=(letter(0),))
        putter.start()
        inside.wait(10)
        clock.advance(1001)
        busy = store.put(letter(1))
        batch = store.put_batch(letters(2))
        gate.set()
        putter.join()

        assert busy.status is batch.status is PutStatus.OS_PAGE_CACHE_BUSY
        assert store.put(letter(1)).ok


# Time.


def test_store_time_never_goes_back_whatever_the_clock_does():
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    dice = random.Random(3)
    for opening in range(4):
        with open_store(disk, clock) as store:
            for n in range(20):
                clock.set_now_ms(NOW + dice.randrange(-100_000, 100_000))
                if n % 5 == 4:
                    assert store.put_batch(letters(3, queue_id=opening % 2)).ok
                else:
                    assert store.put(letter(n, queue_id=opening % 2)).ok
            settle(store)
            times = [m.store_timestamp for q in (0, 1) for m in read_queue_of(store, queue_id=q)]
            by_offset = sorted(
                (m.physical_offset, m.store_timestamp)
                for q in (0, 1)
                for m in read_queue_of(store, queue_id=q)
            )
            assert [t for _, t in by_offset] == sorted(times)


def test_a_born_time_of_zero_becomes_the_store_time_and_any_other_stays(store):
    store.put(letter(0))
    store.put(letter(1, born_timestamp=42))
    settle(store)
    assert [m.born_timestamp for m in read_queue_of(store)] == [NOW, 42]


# Client batches: AppendCallbackTest and BatchPutMessageTest.


def client_batch(count: int, topic: str = "orders", **more) -> Message:
    elements = [BatchElement(n, b"b" * n, props.encode({"KEYS": f"k{n}"})) for n in range(1, count + 1)]
    return Message(topic, encode_batch(elements), **more)


@pytest.mark.parametrize("host", [pack_host("10.0.0.1", 1), V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("crc", [False, True], ids=["plain", "record crc"])
def test_a_batch_that_fits_has_consecutive_offsets_and_ids_of_its_own(host, crc):
    with open_store(enabled_append_prop_crc=crc) as store:
        store.put(letter(0))
        message = client_batch(10, born_host=host, store_host=host, properties=b"OWN\1is dropped\2")
        result = store.put_client_batch(message)
        settle(store)

        assert result.ok
        ids = result.message_ids.split(",")
        assert len(set(ids)) == len(result) == 10
        assert {len(i) for i in ids} == {32 if len(host) == 8 else 56}
        found = [store.message_by_id(i) for i in ids]
        assert [m.queue_offset for m in found] == list(range(1, 11))
        assert [m.body for m in found] == [b"b" * n for n in range(1, 11)]
        assert [m.flag for m in found] == list(range(1, 11))
        assert len({m.store_timestamp for m in found}) == 1
        assert all("OWN" not in m.property_map() for m in found)
        start = found[0].physical_offset
        for m in found:
            assert m.physical_offset == start
            start += m.record_bytes
        assert read_queue_of(store)[1:] == found


def test_a_batch_that_does_not_fit_leaves_only_a_blank(store):
    store.put(letter(0))
    before = store.commit_log.queue.wrote_offset
    result = store.put_client_batch(client_batch(33))
    data = store.disk.read_bytes(log_path())

    assert result.ok
    assert result.physical_offsets[0] == 4096
    assert data[before : before + 8] == (4096 - before).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert data[before + 8 :] == bytes(4096 - before - 8)
    assert len(list(records_of(data))) == 1


def test_a_batch_larger_than_a_file_is_refused_whole(store):
    result = store.put_client_batch(client_batch(60))
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert store.commit_log.queue.wrote_offset == 0
    assert store.put(letter(0)).queue_offset == 0


@pytest.mark.parametrize(
    "message",
    [
        client_batch(2, sys_flag=sys_flag.TransactionType.PREPARED_TYPE),
        client_batch(2, properties=props.encode({"DELAY": "1"})),
        msgspec.structs.replace(client_batch(2), queue_id=-1),
        msgspec.structs.replace(client_batch(2), body=b"not a batch at all"),
        msgspec.structs.replace(client_batch(2), body=client_batch(2).body[:-1]),
        msgspec.structs.replace(client_batch(2), topic="t" * 128),
    ],
    ids=["transaction", "delay", "queue", "garbage", "cut", "topic"],
)
def test_a_bad_client_batch_is_refused(store, message):
    assert store.put_client_batch(message).status is PutStatus.MESSAGE_ILLEGAL
    assert store.commit_log.queue.wrote_offset == 0


def test_an_empty_batch_stores_nothing_and_is_fine(store):
    assert store.put_batch([]).ok
    assert len(store.put_batch([])) == 0
    assert store.commit_log.queue.wrote_offset == 0


def test_a_batch_of_many_queues_spans_files_and_keeps_each_queue_in_order(store):
    messages = [letter(n, topic=f"t{n % 5}", queue_id=n % 3) for n in range(300)]
    result = store.put_batch(messages)
    settle(store)

    assert result.ok
    assert len(store.commit_log.queue.files) > 5
    for t in range(5):
        for q in range(3):
            mine = [m for m in messages if (m.topic, m.queue_id) == (f"t{t}", q)]
            assert bodies(store, f"t{t}", q) == [m.body for m in mine]
    for n, message in enumerate(messages):
        assert store.message_at(result[n].physical_offset).body == message.body
        assert store.message_at(result[n].physical_offset).queue_offset == result[n].queue_offset


# The record's own checksum: AppendPropCRCTest.


def test_a_record_checksum_is_right_until_a_bit_turns():
    with open_store(enabled_append_prop_crc=True) as store:
        store.put(letter(0))
        store.put_batch(letters(3, first=1))
        store.put_client_batch(client_batch(3))
        store.put(Message("orders", b"", properties=b"no\1end"))
        data = store.disk.read_bytes(log_path())
        found = list(records_of(data))
        assert len(found) == 8
        for at, size in found:
            record = data[at : at + size]
            assert verify_record_crc(record)
            for bit in (size - 25, 20, 91):
                turned = bytearray(record)
                turned[bit] ^= 1
                assert not verify_record_crc(bytes(turned))


def test_offsets_in_the_log_are_taken_even_if_a_batch_is_interrupted(store, monkeypatch):
    make_room, calls = store.appender.make_room, []

    def interrupted(size, now):
        calls.append(size)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return make_room(size, now)

    monkeypatch.setattr(store.appender, "make_room", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put_batch(letters(100))
    stored = sum(len(list(records_of(store.disk.read_bytes(log_path(s))))) for s in (0, 4096))
    assert store.put(letter(100)).queue_offset == stored


def test_a_batch_put_one_by_one_says_if_one_was_not_durable_in_time():
    disk = ForgetfulDisk()
    store = open_store(disk)
    disk.fail("sync")
    result = store.put_batch([letter(0), letter(1, delay_level=1)])
    assert result[0].status is PutStatus.FLUSH_DISK_TIMEOUT
    assert result.status is not PutStatus.PUT_OK


# Offsets under threads.


def test_two_first_putters_of_a_topic_get_one_counter():
    for _ in range(30):
        makers: list = []
        barrier = threading.Barrier(2)

        def is_batch(topic, barrier=barrier):
            # The moment between looking a topic up and entering it.
            barrier.wait(5)
            return False

        offsets = QueueOffsets(is_batch)
        threads = [
            threading.Thread(target=lambda o=offsets, m=makers: m.append(o.topic("orders"))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert makers[0] is makers[1] is offsets.topics["orders"]


# Waiting for the disk.


@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        (b"", True),
        (b"WAIT\1true\2", True),
        (b"WAIT\1TRUE\2", True),
        (b"WAIT\1false\2", False),
        (b"WAIT\1no\2", False),
        (b"NOWAIT\1false\2", True),
        (b"a\1WAIT\1false\2", True),
        (b"WAIT\1false\2WAIT\1true\2", True),
    ],
)
def test_only_a_producer_who_says_so_does_not_wait(properties, waits):
    disk = ForgetfulDisk()
    store = open_store(disk)
    result = store.put(Message("orders", b"hello", properties=properties))

    assert result.ok
    after = open_store(disk.power_cut())
    assert (bodies(after) == [b"hello"]) is waits


def test_async_puts_are_not_durable_until_synced():
    disk = ForgetfulDisk()
    store = open_store(disk, flush_disk_type=ASYNC)
    store.put(letter(0))
    store.commit_log.sync()
    store.put(letter(1))

    assert bodies(open_store(disk.power_cut(), flush_disk_type=ASYNC)) == [letter(0).body]
    assert bodies(open_store(disk.kill(), flush_disk_type=ASYNC)) == [letter(0).body, letter(1).body]


def test_a_put_that_was_under_way_when_the_store_closed_is_refused_not_lost():
    """It passed the gate; were it appended now, the next owner would write over it."""
    disk = ForgetfulDisk()
    store = open_store(disk)
    put_all(store, letters(3))
    store.close()
    before = disk.read_bytes(log_path())

    result = store.appender.put(letter(3))
    batch = store.batch_appender.put(letters(2))

    assert result.status is batch.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert disk.read_bytes(log_path()) == before
