"""Every way to read: statuses and next offsets, limits, filters, times, keys, ids and listeners."""

import logging

import pytest

from rockstrata.errors import CorruptionError
from rockstrata.message import Message, encode_batch, sys_flag
from rockstrata.message import properties as props
from rockstrata.message.batch import BatchElement, inner_batch, unwrap_inner_batch
from rockstrata.store.message_filter import SqlFilter, TagFilter, tag_filter
from rockstrata.store.results import BoundaryType, GetStatus, PutStatus
from rockstrata.store.topics import TopicConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock
from store.store_kit import (
    ASYNC,
    NOW,
    bodies,
    letter,
    letters,
    open_store,
    put_all,
    queue_path,
    read_queue_of,
    settle,
)

UNKNOWN = GetStatus.NO_MESSAGE_IN_QUEUE, 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def disk(clock) -> ForgetfulDisk:
    return ForgetfulDisk(clock)


# Statuses.

STATUSES = [
    # A queue of offsets [40, 100), of units 40 to 99, in files of 20.
    (-1, GetStatus.OFFSET_TOO_SMALL, 40),
    (0, GetStatus.OFFSET_TOO_SMALL, 40),
    (39, GetStatus.OFFSET_TOO_SMALL, 40),
    (40, GetStatus.FOUND, 60),
    (59, GetStatus.FOUND, 60),
    (60, GetStatus.FOUND, 80),
    (80, GetStatus.FOUND, 100),
    (99, GetStatus.FOUND, 100),
    (100, GetStatus.OFFSET_OVERFLOW_ONE, 100),
    (101, GetStatus.OFFSET_OVERFLOW_BADLY, 100),
    (2**62, GetStatus.OFFSET_OVERFLOW_BADLY, 100),
]


@pytest.mark.parametrize(("asked", "status", "following"), STATUSES)
def test_each_offset_has_its_status_and_next_offset(disk, asked, status, following):
    with open_store(disk) as store:
        put_all(store, letters(100))
        minimum = store.queues.get("orders", 0).unit(40)[0]
        store.queues.get("orders", 0).correct_min(minimum)
        result = store.get("orders", 0, asked)
        assert (result.status, result.next_begin_offset) == (status, following)
        assert (result.min_offset, result.max_offset) == (40, 100)
        found = [m.queue_offset for m in result.messages()]
        assert found == result.queue_offsets == (list(range(asked, following)) if found else [])
        assert result.message_count == len(found)
        assert result.total_bytes == sum(map(len, result.records))


def test_a_queue_nobody_wrote_to_is_empty(disk):
    with open_store(disk) as store:
        put_all(store, letters(1))
        for topic, queue_id in (("orders", 1), ("nobody", 0), ("../orders", 0), ("orders", -1)):
            result = store.get(topic, queue_id, 5)
            assert (result.status, result.next_begin_offset) == UNKNOWN
            assert store.max_offset(topic, queue_id) == 0
            assert store.offset_by_time(topic, queue_id, NOW) == 0
            assert store.store_time(topic, queue_id, 0) == -1
            assert store.earliest_time(topic, queue_id) == -1
            assert store.physical_offset(topic, queue_id, 0) == 0
            assert store.message_count(topic, queue_id) == 0
        assert store.topic_queues() == {"orders": [0]}


def test_messages_whose_log_file_is_gone_are_removing_and_skipped(disk):
    with open_store(disk) as store:
        put_all(store, letters(100))
        second = store.commit_log.queue.files[1].start
        first_left = next(n for n in range(100) if store.queues.get("orders", 0).unit(n)[0] >= second)
        store.commit_log.queue.delete_first(store.commit_log.queue.files[0])
        result = store.get("orders", 0, 0)
        assert result.status is GetStatus.MESSAGE_WAS_REMOVING
        assert 0 < result.next_begin_offset <= first_left
        result = store.get("orders", 0, first_left - 1)
        assert result.status is GetStatus.FOUND
        assert result.messages()[0].body == letter(first_left).body
        assert store.message_at(0) is None
        assert store.store_time("orders", 0, 0) == -1


def test_a_unit_file_that_vanished_is_found_null_and_read_past(disk):
    with open_store(disk) as store:
        put_all(store, letters(100))
        queue = store.queues.get("orders", 0)
        queue.queue.delete_first(queue.queue.files[0])
        result = store.get("orders", 0, 3)
        assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 20)


def test_a_damaged_unit_is_an_error_not_a_message(disk):
    with open_store(disk) as store:
        put_all(store, letters(5))
        file = disk.open(queue_path())
        file.pwrite(2 * 20, (17).to_bytes(8, "big"))
        with pytest.raises(CorruptionError) as caught:
            store.get("orders", 0, 0)
        assert caught.value.position == 17
        assert store.get("orders", 0, 3).messages()[0].body == letter(3).body


# Limits.


@pytest.mark.parametrize(("asked", "found"), [(32, 32), (20, 20), (10, 10), (1, 1), (0, 1), (100, 32)])
def test_a_pull_brings_what_was_asked_up_to_the_limit(disk, asked, found):
    with open_store(disk, consume_queue_file_bytes=2000) as store:
        put_all(store, letters(60))
        assert len(store.get("orders", 0, 0, asked).records) == found


@pytest.mark.parametrize(("asked", "found"), [(32, 8), (8, 8), (3, 3)])
def test_from_disk_a_pull_brings_less(disk, asked, found):
    with open_store(disk, consume_queue_file_bytes=2000, access_message_in_memory_max_ratio=0) as store:
        put_all(store, letters(60))
        result = store.get("orders", 0, 0, asked)
        assert len(result.records) == found
        assert result.suggest_pulling_from_slave
        assert [m.body for m in result.messages()] == [letter(n).body for n in range(found)]


def test_bytes_limit_a_pull_but_never_its_first_message(disk):
    with open_store(disk, consume_queue_file_bytes=2000) as store:
        results = put_all(store, letters(30))
        size = results[0].record_bytes
        for max_bytes, found in ((1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (10 * size, 10)):
            assert len(store.get("orders", 0, 0, max_bytes=max_bytes).records) == found


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_configured_bytes_limit_a_pull(disk, in_memory):
    changes = {"max_transfer_bytes_in_memory": 1000, "max_transfer_bytes_on_disk": 500}
    ratio = 40 if in_memory else 0
    with open_store(disk, access_message_in_memory_max_ratio=ratio, **changes) as store:
        size = put_all(store, letters(30))[0].record_bytes
        result = store.get("orders", 0, 0)
        assert len(result.records) == (1000 if in_memory else 500) // size
        big = store.put(letter(99, body_bytes=3000))
        settle(store)
        assert len(store.get("orders", 0, big.queue_offset).records) == 1


def test_one_pull_crosses_as_many_queue_files_as_it_may(disk):
    with open_store(disk, travel_cq_file_num_when_get_message=3) as store:
        put_all(store, letters(100))
        wanted = TagFilter("tag-of-nobody")
        result = store.get("orders", 0, 0, message_filter=wanted)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 60)
        result = store.get("orders", 0, 50, message_filter=wanted)
        assert result.next_begin_offset == 100


def test_records_found_stay_readable_after_their_file_is_deleted(disk):
    with open_store(disk) as store:
        put_all(store, letters(60))
        result = store.get("orders", 0, 0, 5)
        store.commit_log.queue.delete_first(store.commit_log.queue.files[0])
        assert [m.body for m in result.messages()] == [letter(n).body for n in range(5)]


# Filters.


def test_a_tag_filter_brings_only_its_tags_and_the_next_offset_passes_the_others(disk):
    with open_store(disk) as store:
        put_all(store, letters(30))
        result = store.get("orders", 0, 0, message_filter=TagFilter("tag1 || tag-unknown"))
        assert result.queue_offsets == [1, 4, 7, 10, 13, 16, 19]
        assert result.next_begin_offset == 20
        result = store.get("orders", 0, 20, message_filter=TagFilter("nobody"))
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)
        assert not result.records


def test_a_filtered_pull_scans_only_so_far(disk):
    with open_store(disk, max_filter_message_bytes=200, consume_queue_file_bytes=2000) as store:
        put_all(store, letters(90))
        result = store.get("orders", 0, 0, 5, message_filter=TagFilter("nobody"))
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
        result = store.get("orders", 0, 0, 50, message_filter=TagFilter("nobody"))
        assert result.next_begin_offset == 50


def test_no_expression_or_a_star_is_no_filter():
    assert tag_filter(None) is tag_filter("*") is tag_filter(" ") is None
    assert isinstance(tag_filter("a"), TagFilter)


def test_an_sql_filter_looks_at_the_properties_and_counts_what_it_leaves_out(disk):
    with open_store(disk) as store:
        put_all(store, [letter(n, properties={"price": str(n)}) for n in range(15)])
        result = store.get("orders", 0, 0, message_filter=SqlFilter("price >= 5 AND TAGS = 'tag2'"))
        assert result.queue_offsets == [5, 8, 11, 14]
        assert result.filtered_count == 11
        result = store.get("orders", 0, 0, message_filter=SqlFilter("nothing IS NOT NULL"))
        assert result.status is GetStatus.NO_MATCHED_MESSAGE
        assert result.next_begin_offset == 15


# Times.


def test_an_offset_is_found_by_time_at_every_boundary(disk, clock):
    with open_store(disk, clock) as store:
        times = []
        for n in range(60):
            clock.advance((0, 0, 10)[n % 3])
            times.append(store.put(letter(n)).store_timestamp)
        settle(store)
        for t in range(NOW - 20_000, NOW + 300, 1):
            if t < NOW - 2 and t != NOW - 20_000:
                continue
            lower = sum(time < t for time in times)
            upper = max(0, sum(time <= t for time in times) - 1)
            assert store.offset_by_time("orders", 0, t) == lower
            assert store.offset_by_time("orders", 0, t, BoundaryType.UPPER) == upper
        assert store.earliest_time("orders", 0) == times[0]
        assert [store.store_time("orders", 0, n) for n in range(60)] == times
        assert store.store_time("orders", 0, 60) == store.store_time("orders", 0, -1) == -1


# Keys and ids.


def test_messages_are_found_by_every_key_word_unique_key_and_tag(disk, clock):
    with open_store(disk, clock) as store:
        for n in range(40):
            clock.advance(1000)
            store.put(letter(n, keys=f"key{n} shared{n % 4}", unique_key=f"U{n}"))
        settle(store)
        assert [m.body for m in store.query("orders", "key7")] == [letter(7).body]
        assert [m.body for m in store.query("orders", "U7")] == [letter(7).body]
        assert [m.queue_offset for m in store.query("orders", "shared1")] == list(range(1, 40, 4))
        assert [m.queue_offset for m in store.query("orders", "shared1", 3)] == [29, 33, 37]
        tagged = store.query("orders", "tag2", 64, by_tag=True)
        assert [m.queue_offset for m in tagged] == list(range(2, 40, 3))
        begin, end = NOW + 10_000, NOW + 20_000
        assert [m.queue_offset for m in store.query("orders", "shared1", 64, begin, end)] == [9, 13, 17]
        assert store.query("orders", "key") == []
        assert store.query("orders", "shared") == []
        assert store.query("others", "key7") == []


def test_messages_of_one_key_are_limited_to_the_configured_number(disk):
    with open_store(disk, max_msgs_num_batch=10) as store:
        put_all(store, letters(30, keys="same"))
        assert [m.queue_offset for m in store.query("orders", "same", 1000)] == list(range(20, 30))


def test_without_an_index_nothing_is_found_by_key(disk):
    with open_store(disk, message_index_enable=False) as store:
        put_all(store, letters(3))
        assert store.query("orders", "key1") == []


def test_each_message_is_found_by_its_id_and_place(disk):
    with open_store(disk) as store:
        results = put_all(store, letters(60))
        for n in (0, 1, 22, 23, 59):
            message = store.message_by_id(results[n].message_id)
            assert message.body == letter(n).body
            assert message.message_id == results[n].message_id
            assert store.message_at(results[n].physical_offset) == message
            assert store.physical_offset("orders", 0, n) == results[n].physical_offset
            assert bytes(store.record_at(results[n].physical_offset)[:4]) == results[n].record_bytes.to_bytes(
                4, "big"
            )
        assert store.message_count("orders", 0) == 60


# Batch consume queues: BatchConsumeMessageTest.


def batch_store(disk, **changes):
    store = open_store(disk, **changes)
    store.topics.ensure(TopicConfig(topic_name="batches", attributes={"queue.type": "BatchCQ"}))
    return store


def inner(first: int, count: int, **more) -> Message:
    elements = [BatchElement(0, f"inner {n}".encode(), b"") for n in range(first, first + count)]
    return inner_batch(
        Message("batches", encode_batch(elements), properties=props.encode({"UNIQ_KEY": f"U{first}"}), **more)
    )


def test_an_inner_batch_is_one_record_for_many_offsets(disk, clock):
    with batch_store(disk) as store:
        heard: list = []
        store.add_listener(heard.extend)
        sizes, base = [5, 1, 39, 20, 3, 7], 0
        for size in sizes:
            clock.advance(10)
            result = store.put(inner(base, size))
            assert result.status is PutStatus.PUT_OK, result.reason
            assert (result.queue_offset, result.message_count) == (base, size)
            base += size
        settle(store)
        assert (store.min_offset("batches", 0), store.max_offset("batches", 0)) == (0, 75)
        heard_of = [o for a in heard for o in range(a.first_offset, a.end_offset)]
        assert heard_of == list(range(75))
        for offset in range(75):
            result = store.get("batches", 0, offset, 1)
            assert result.status is GetStatus.FOUND
            inside = [m for one in result.messages() for m in unwrap_inner_batch(one)]
            assert inside[0].queue_offset <= offset < result.next_begin_offset
            assert result.next_begin_offset == inside[-1].queue_offset + 1
            assert {m.body for m in inside} >= {f"inner {offset}".encode()}
            assert store.physical_offset("batches", 0, offset) == result.messages()[0].physical_offset
        assert [len(store.get("batches", 0, 0, n).records) for n in (1, 6, 44, 45)] == [1, 2, 2, 3]
        assert store.get("batches", 0, 75).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert store.message_by_id(store.get("batches", 0, 7).messages()[0].message_id).queue_offset == 6
    for end in (disk.kill(), disk.power_cut(), disk):
        with open_store(end) as again:
            assert again.max_offset("batches", 0) == 75
            assert again.put(inner(75, 2)).queue_offset == 75


def test_marks_that_contradict_the_topics_type_are_refused(disk):
    with batch_store(disk) as store:
        plain = Message("orders", b"x", properties=props.encode({"INNER_NUM": "2"}))
        flagged = Message("orders", b"x", sys_flag=sys_flag.INNER_BATCH)
        bad_number = Message("batches", b"x", sys_flag=sys_flag.INNER_BATCH, properties=b"INNER_NUM\1-3\2")
        for message in (plain, flagged, bad_number):
            assert store.put(message).status is PutStatus.MESSAGE_ILLEGAL
            assert not store.put_batch([message]).ok
        assert store.commit_log.queue.wrote_offset == 0


def test_a_damaged_batch_record_is_told_from_an_id_of_nobody(disk):
    with batch_store(disk) as store:
        first = store.put(inner(0, 5))
        second = store.put(inner(5, 5))
        settle(store)
        wrong = second.message_id[:-1] + ("0" if second.message_id[-1] != "0" else "1")
        assert store.message_by_id(wrong) is None
        store.commit_log.queue.last.target[second.physical_offset + 95] ^= 1
        assert store.message_by_id(first.message_id).queue_offset == 0
        with pytest.raises(CorruptionError):
            store.message_by_id(second.message_id)


# Listeners.


def test_listeners_hear_of_each_message_once_and_in_order(disk):
    with open_store(disk) as store:
        heard: list = []
        store.add_listener(heard.extend)
        for n in range(40):
            store.put(letter(n, queue_id=n % 2))
            if n % 7 == 6:
                settle(store)
        settle(store)
        for q in (0, 1):
            ranges = [(a.first_offset, a.end_offset) for a in heard if (a.topic, a.queue_id) == ("orders", q)]
            assert [o for first, end in ranges for o in range(first, end)] == list(range(20))
        store.remove_listener(heard.extend)
        store.put(letter(99))
        count = len(heard)
        settle(store)
        assert len(heard) == count


def test_a_listener_hears_only_of_what_it_can_read(disk):
    with open_store(disk) as store:
        seen: list[bytes] = []

        def read(arrivals):
            for a in arrivals:
                for offset in range(a.first_offset, a.end_offset):
                    seen.append(store.get(a.topic, a.queue_id, offset, 1).messages()[0].body)
                    assert store.query(a.topic, f"key{len(seen) - 1}")

        store.add_listener(read)
        put_all(store, letters(30))
        assert seen == [letter(n).body for n in range(30)]


def test_a_listener_that_fails_stops_neither_the_others_nor_the_messages(disk, caplog):
    with open_store(disk) as store:
        heard: list = []

        def broken(arrivals):
            raise ValueError("my own trouble")

        store.add_listener(broken)
        store.add_listener(heard.extend)
        with caplog.at_level(logging.ERROR):
            put_all(store, letters(3))
        assert "my own trouble" in caplog.text
        assert sum(a.end_offset - a.first_offset for a in heard) == 3
        assert bodies(store) == [letter(n).body for n in range(3)]
        assert store.flags.writable


def test_recovery_tells_no_listener_anything(disk):
    store = open_store(disk, flush_disk_type=ASYNC)
    put_all(store, letters(10))
    with open_store(disk.kill(), flush_disk_type=ASYNC) as again:
        heard: list = []
        again.add_listener(heard.extend)
        settle(again)
        assert heard == []


# Prepared and rolled-back records.


@pytest.mark.parametrize(
    "kind", [sys_flag.TransactionType.PREPARED_TYPE, sys_flag.TransactionType.ROLLBACK_TYPE]
)
def test_prepared_and_rolled_back_records_are_in_the_log_and_in_no_queue(disk, kind):
    with open_store(disk) as store:
        put_all(store, letters(2))
        half = store.put(Message("orders", b"half", sys_flag=kind))
        assert half.queue_offset == 0
        put_all(store, letters(2, first=2))
        assert [m.queue_offset for m in read_queue_of(store)] == [0, 1, 2, 3]
        assert store.message_at(half.physical_offset).body == b"half"
    for end in (disk.kill(), disk.power_cut()):
        with open_store(end) as again:
            assert again.message_at(half.physical_offset).body == b"half"
            assert again.put(letter(4)).queue_offset == 4
