"""Every way to read, against spec 10: statuses and next offsets, limits, filters, batches, times, keys."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from rockstrata.errors import CorruptionError
from rockstrata.message.batch import BatchElement, encode_batch, inner_batch, unwrap_inner_batch
from rockstrata.message.ids import encode_message_id
from rockstrata.message.layouts import MAGIC_V1
from rockstrata.message.model import Message
from rockstrata.message.record import decode_record
from rockstrata.message.tags import java_hash_code, tags_code
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.message_filter import SqlFilter, TagFilter, tag_filter
from rockstrata.store.queue_read import ReadLimits, read_queue
from rockstrata.store.results import BoundaryType, GetResult, GetStatus
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.topics import TopicConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock
from store.store_kit import NOW, flip, letter, letters, log_path, open_store, put_all, queue_path, settle

LOWER, UPPER = BoundaryType.LOWER, BoundaryType.UPPER
LIMITS = ReadLimits.of(StoreConfig())
RECORD = 100


class PlainLog:
    """Records of equal size, ten to a file; those below ``gone_below`` were deleted."""

    file_bytes = 10 * RECORD
    min_offset = 0

    def __init__(self, records: int, sizes: dict[int, int] | None = None) -> None:
        self.max_offset = records * RECORD
        self.gone_below = 0
        self.in_memory_from = 0
        self.sizes = sizes or {}

    def in_memory(self, physical_offset: int) -> bool:
        return physical_offset >= self.in_memory_from

    def window(self, physical_offset: int) -> None:
        return None

    def read(self, physical_offset: int, size: int) -> bytes | None:
        if physical_offset < self.gone_below:
            return None
        return struct.pack(">iI", size, MAGIC_V1) + bytes(size - 8)


class PlainQueue:
    """Unit n points at record n and has tags code n % 3; files of twenty units, some missing."""

    layout = CONSUME_QUEUE_UNIT
    topic, queue_id = "plain", 0

    def __init__(self, log: PlainLog, low: int, high: int, units_per_file: int = 20) -> None:
        self.log = log
        self.min_offset, self.max_offset = low, high
        self.per_file = units_per_file
        self.file_bytes = units_per_file * CONSUME_QUEUE_UNIT.size
        self.missing: set[int] = set()

    def units(self, number: int, count: int) -> bytes:
        if number // self.per_file in self.missing:
            return b""
        end = min(number + count, number - number % self.per_file + self.per_file, self.max_offset)
        units = ((n * RECORD, self.log.sizes.get(n, RECORD), n % 3) for n in range(number, end))
        return b"".join(CONSUME_QUEUE_UNIT.struct.pack(*unit) for unit in units)


class Code:
    """Passes units with one tags code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def matches_unit(self, tags_code: int) -> bool:
        return tags_code == self.code

    def matches_record(self, record: Any) -> bool:
        return True


class NoRecord:
    """Passes the units, none of the records."""

    def matches_unit(self, tags_code: int) -> bool:
        return True

    def matches_record(self, record: Any) -> bool:
        return False


def plain(low: int = 0, high: int = 40, **log: Any) -> tuple[PlainLog, PlainQueue]:
    source = PlainLog(high)
    for name, value in log.items():
        setattr(source, name, value)
    return source, PlainQueue(source, low, high)


def read(
    pair: tuple[PlainLog, PlainQueue], offset: int, count: int = 32, limits: ReadLimits = LIMITS, **more: Any
) -> GetResult:
    return read_queue(*pair, offset, count, limits, **more)  # type: ignore[arg-type]


# Statuses and next offsets

STATUSES: dict[str, tuple[dict[str, Any], int, Any, GetStatus, int, list[int]]] = {
    # What is there, the offset asked for, a filter, and the answer.
    "an empty queue": ({"high": 0}, 0, None, GetStatus.NO_MESSAGE_IN_QUEUE, 0, []),
    "an empty queue, far": ({"high": 0}, 9, None, GetStatus.NO_MESSAGE_IN_QUEUE, 0, []),
    "one too small": ({"low": 5}, 4, None, GetStatus.OFFSET_TOO_SMALL, 5, []),
    "negative": ({}, -1, None, GetStatus.OFFSET_TOO_SMALL, 0, []),
    "the end": ({}, 40, None, GetStatus.OFFSET_OVERFLOW_ONE, 40, []),
    "past the end": ({}, 41, None, GetStatus.OFFSET_OVERFLOW_BADLY, 40, []),
    "far past the end": ({"low": 7}, 1 << 40, None, GetStatus.OFFSET_OVERFLOW_BADLY, 40, []),
    "a drained queue": ({"low": 40}, 40, None, GetStatus.OFFSET_OVERFLOW_ONE, 40, []),
    "found to the end of its file": ({}, 15, None, GetStatus.FOUND, 20, [15, 16, 17, 18, 19]),
    "found at the minimum": ({"low": 18}, 18, None, GetStatus.FOUND, 20, [18, 19]),
    "found the last": ({}, 39, None, GetStatus.FOUND, 40, [39]),
    "found by tag": ({}, 13, Code(1), GetStatus.FOUND, 20, [13, 16, 19]),
    "no unit matches": ({}, 3, Code(7), GetStatus.NO_MATCHED_MESSAGE, 20, []),
    "no record matches": ({}, 3, NoRecord(), GetStatus.NO_MATCHED_MESSAGE, 20, []),
    "records removed": ({"gone_below": 4000}, 2, None, GetStatus.MESSAGE_WAS_REMOVING, 20, []),
    # Ten records are one log file: the first miss skips the rest of it.
    "the first log file removed": ({"gone_below": 1000}, 2, None, GetStatus.FOUND, 20, list(range(10, 20))),
    "one record removed costs its file": (
        {"gone_below": 100},
        0,
        None,
        GetStatus.FOUND,
        20,
        [*range(10, 20)],
    ),
    "removed, then no match": ({"gone_below": 1000}, 0, NoRecord(), GetStatus.NO_MATCHED_MESSAGE, 20, []),
    "no match, then removed": ({"gone_below": 4000}, 1, Code(0), GetStatus.MESSAGE_WAS_REMOVING, 20, []),
    "removed, then no unit matches": (
        {"gone_below": 100, "high": 11},
        0,
        Code(0),
        GetStatus.NO_MATCHED_MESSAGE,
        11,
        [],
    ),
}


@pytest.mark.parametrize("case", STATUSES)
def test_status_and_next_offset_are_those_of_rocketmq(case: str) -> None:
    there, offset, message_filter, status, next_offset, found = STATUSES[case]
    pair = plain(**there)

    result = read(pair, offset, message_filter=message_filter)

    assert (result.status, result.next_begin_offset, result.queue_offsets) == (status, next_offset, found)
    assert (result.min_offset, result.max_offset) == (pair[1].min_offset, pair[1].max_offset)
    assert (result.message_count, result.total_bytes) == (len(found), RECORD * len(found))
    assert not result.suggest_pulling_from_slave


@pytest.mark.parametrize(("offset", "next_offset"), [(20, 40), (27, 40), (39, 40)])
def test_a_hole_in_the_queue_sends_the_reader_to_the_next_file(offset: int, next_offset: int) -> None:
    pair = plain(high=60)
    pair[1].missing = {1}

    result = read(pair, offset)

    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, next_offset)
    assert read(pair, next_offset).queue_offsets == list(range(40, 60))


def test_a_pull_may_cross_as_many_files_as_it_is_told_until_something_is_found() -> None:
    limits = ReadLimits(1 << 20, 32, 1 << 20, 8, 16_000, 3)
    pair = plain(high=100)

    assert read(pair, 5, message_filter=Code(7), limits=limits).next_begin_offset == 60
    # Something was found in the first file: that is enough.
    assert read(pair, 5, limits=limits).next_begin_offset == 20


def test_a_scan_ends_after_800_units_and_says_where_to_go_on() -> None:
    log = PlainLog(3000)
    queue = PlainQueue(log, 0, 3000, units_per_file=3000)

    result = read((log, queue), 100, message_filter=Code(7))
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 900)
    assert read((log, queue), 100, 1000, message_filter=Code(7)).next_begin_offset == 1100
    # A count whose bytes do not fit 32 bits must not break the scan.
    assert read((log, queue), 100, 2**31 - 1, message_filter=Code(7)).next_begin_offset > 100


def test_filtered_records_are_counted_filtered_units_are_not() -> None:
    assert read(plain(), 0, message_filter=NoRecord()).filtered_count == 20
    assert read(plain(), 0, message_filter=Code(7)).filtered_count == 0


# Limits


@pytest.mark.parametrize(
    ("in_memory_from", "asked", "found"),
    [(0, 32, 32), (0, 100, 32), (0, 5, 5), (0, 1, 1), (0, 0, 1), (1 << 40, 32, 8), (1 << 40, 3, 3)],
)
def test_a_pull_brings_32_from_memory_and_8_from_disk(in_memory_from: int, asked: int, found: int) -> None:
    log = PlainLog(100)
    log.in_memory_from = in_memory_from

    result = read((log, PlainQueue(log, 0, 100, units_per_file=100)), 0, asked)

    assert (result.message_count, result.next_begin_offset) == (found, found)
    assert result.suggest_pulling_from_slave == bool(in_memory_from)


@pytest.mark.parametrize(
    ("in_memory_from", "max_bytes", "found"),
    [
        (0, 128 << 20, 26),  # 26 * 10,000 <= 262,144
        (1 << 40, 128 << 20, 6),  # 6 * 10,000 <= 65,536
        (0, 50_000, 5),
        (0, 49_999, 4),
        (0, 9_999, 1),
        (0, 0, 1),
        (0, -1, 1),
    ],
)
def test_a_pull_brings_so_many_bytes_but_always_the_first_message(
    in_memory_from: int, max_bytes: int, found: int
) -> None:
    log = PlainLog(100, dict.fromkeys(range(100), 10_000))
    log.in_memory_from = in_memory_from

    result = read((log, PlainQueue(log, 0, 100, units_per_file=100)), 7, max_bytes=max_bytes)

    assert result.queue_offsets == list(range(7, 7 + found))
    assert (result.next_begin_offset, result.total_bytes) == (7 + found, 10_000 * found)


def test_a_message_larger_than_every_limit_is_still_delivered() -> None:
    log = PlainLog(10, {3: 5 << 20})
    queue = PlainQueue(log, 0, 10)

    assert read((log, queue), 3).queue_offsets == [3]
    assert read((log, queue), 0).queue_offsets == [0, 1, 2]


# A real store


def tagged(tags: list[str | None], **more: Any) -> list[Message]:
    return [Message.of("orders", f"{n}", tags=tag, keys=f"k{n}", **more) for n, tag in enumerate(tags)]


# Its hash is negative, so its code in the queue is too.
NEGATIVE = "polygenelubricants!"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("*", [0, 1, 2, 3, 4, 5]),
        (" * ", [0, 1, 2, 3, 4, 5]),
        (None, [0, 1, 2, 3, 4, 5]),
        ("", [0, 1, 2, 3, 4, 5]),
        ("A", [0, 4]),
        ("A || B", [0, 1, 4]),
        ("B||  A", [0, 1, 4]),
        (NEGATIVE, [2]),
        (f"{NEGATIVE} || B", [1, 2]),
        # Hashes are compared, not words: the client looks again.
        ("BB", [5]),
        ("nobody", []),
    ],
)
def test_tags_are_matched_by_hash(expression: str | None, found: list[int]) -> None:
    with open_store() as store:
        put_all(store, tagged(["A", "B", NEGATIVE, None, "A", "Aa"]))
        result = store.get("orders", 0, 0, message_filter=tag_filter(expression))

    assert java_hash_code(NEGATIVE) < 0
    assert tags_code(NEGATIVE) == java_hash_code(NEGATIVE)
    assert result.queue_offsets == found
    assert result.status is (GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE)
    assert result.next_begin_offset == 6
    assert [message.queue_offset for message in result.messages()] == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("price > 2", [3, 4]),
        ("price BETWEEN 1 AND 3 AND color = 'red'", [2]),
        ("TAGS = 'odd'", [1, 3]),
        ("color IS NULL", [1, 3]),
        ("absent = 1", []),
    ],
)
def test_sql92_is_matched_on_the_properties(expression: str, found: list[int]) -> None:
    with open_store() as store:
        for n in range(5):
            more = {"price": str(n)} | ({} if n % 2 else {"color": "red"})
            put_all(store, [Message.of("orders", b"x", tags=("even", "odd")[n % 2], properties=more)])
        result = store.get("orders", 0, 0, message_filter=SqlFilter(expression))

    assert result.queue_offsets == found
    assert (result.filtered_count, result.next_begin_offset) == (5 - len(found), 5)


def test_a_tag_filter_never_reads_the_records_it_passes_over() -> None:
    disk = ForgetfulDisk()
    with open_store(disk) as store:
        first = put_all(store, tagged(["A", "B"]))[0]
        flip(disk, log_path(), first.physical_offset + 4)
        assert store.get("orders", 0, 0, message_filter=TagFilter("B")).queue_offsets == [1]


def test_what_retention_took_is_too_small_and_the_answer_says_where_to_go_on() -> None:
    disk = ForgetfulDisk(ManualClock(NOW))
    with open_store(disk) as store:
        put_all(store, letters(60, body_bytes=400))
        store._queue_flusher.flush_all()
        for file in store.commit_log.queue.files[:2]:
            disk.set_modified_ms(file.path, NOW - 100 * 3_600_000)
        store.retention.request_delete()
        assert store.retention.clean() == 2
        minimum = store.min_offset("orders", 0)

        assert minimum > 0
        result = store.get("orders", 0, minimum - 1)
        assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, minimum)
        assert store.get("orders", 0, minimum).messages()[0].body == letter(minimum, body_bytes=400).body
        assert store.message_at(0) is None
        assert store.query("orders", "key0") == []
        assert store.offset_by_time("orders", 0, 0) == minimum
        assert store.earliest_time("orders", 0) == NOW
        assert store.store_time("orders", 0, 0) == -1


# Batch queues


def batch_store(*sizes: int, **changes: Any) -> LocalMessageStore:
    """A store whose topic "batches" has an inner batch of each size."""
    store = open_store(**changes)
    store.topics.create_or_update(TopicConfig(topic_name="batches", attributes={"queue.type": "BatchCQ"}))
    for number, size in enumerate(sizes):
        elements = [BatchElement(0, b"%d.%d" % (number, n)) for n in range(size)]
        put_all(store, [inner_batch(Message("batches", encode_batch(elements)))])
        store.clock.advance(10)  # type: ignore[attr-defined]
    return store


def test_every_offset_inside_a_batch_finds_the_batch() -> None:
    sizes = (3, 1, 5, 2)
    with batch_store(*sizes) as store:
        base = 0
        for number, size in enumerate(sizes):
            for offset in range(base, base + size):
                result = store.get("batches", 0, offset, 1)
                assert result.status is GetStatus.FOUND
                assert (result.queue_offsets, result.next_begin_offset) == ([base], base + size)
                assert result.message_count == size
                inner = unwrap_inner_batch(result.messages()[0])
                assert [message.body for message in inner] == [b"%d.%d" % (number, n) for n in range(size)]
                assert [message.queue_offset for message in inner] == list(range(base, base + size))
                assert store.store_time("batches", 0, offset) == NOW + 10 * number
                assert store.physical_offset("batches", 0, offset) == inner[0].physical_offset
            base += size
        assert (store.min_offset("batches", 0), store.max_offset("batches", 0)) == (0, 11)
        assert store.get("batches", 0, 11).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert store.get("batches", 0, 12).status is GetStatus.OFFSET_OVERFLOW_BADLY
        assert store.get("batches", 0, -1).next_begin_offset == 0


@pytest.mark.parametrize(("asked", "units"), [(1, 1), (20, 1), (39, 1), (40, 2), (60, 3), (1000, 5)])
def test_a_batch_is_never_divided_by_the_count(asked: int, units: int) -> None:
    with batch_store(20, 20, 20, 20, 20, max_transfer_count_in_memory=1000) as store:
        result = store.get("batches", 0, 0, asked)
        assert (len(result.records), result.message_count) == (units, 20 * units)
        assert result.next_begin_offset == 20 * units


def test_a_pull_of_batches_ends_once_32_messages_are_in_it() -> None:
    with batch_store(20, 20, 20) as store:
        assert store.get("batches", 0, 0, 60).message_count == 40


def test_an_empty_batch_queue_has_no_minimum() -> None:
    with batch_store() as store:
        assert store.get("batches", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_an_id_is_looked_up_beside_batch_queues_too() -> None:
    disk = ForgetfulDisk(ManualClock(NOW))
    with batch_store(5, 5, 5, disk=disk) as store:
        first = store.get("batches", 0, 0).messages()[0]
        assert store.message_by_id(first.message_id) == first
        assert store.message_by_id(encode_message_id(first.store_host, first.physical_offset + 9)) is None
        flip(disk, log_path(), first.physical_offset + 100)
        with pytest.raises(CorruptionError):
            store.message_by_id(first.message_id)


class VanishingBatches:
    """A batch queue whose oldest file goes after its minimum was read."""

    layout = BATCH_CONSUME_QUEUE_UNIT
    file_bytes = 10 * BATCH_CONSUME_QUEUE_UNIT.size
    max_offset = 44

    def __init__(self, *minima: int) -> None:
        self.minima = list(minima)

    @property
    def min_offset(self) -> int:
        return self.minima.pop(0)

    def find_unit(self, queue_offset: int) -> int | None:
        return None


@pytest.mark.parametrize(("minima", "next_offset"), [((0, 4), 4), ((0, 40), 40), ((0, 0), 0)])
def test_a_hole_in_a_batch_queue_never_costs_what_is_still_there(
    minima: tuple[int, ...], next_offset: int
) -> None:
    result = read((PlainLog(0), VanishingBatches(*minima)), 3)  # type: ignore[arg-type]
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, next_offset)


# By time

# Twenty units are one queue file: the second time crosses into the second file.
TIMES = [NOW] * 15 + [NOW + 100] * 15 + [NOW + 101] + [NOW + 500] * 9


@pytest.fixture(scope="module")
def timed() -> LocalMessageStore:
    clock = ManualClock(NOW)
    store = open_store(clock=clock)
    for n, time in enumerate(TIMES):
        clock.set_now_ms(time)
        put_all(store, [letter(n)])
    return store


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [
        (0, 0, 0),
        (NOW - 1, 0, 0),
        (NOW, 0, 14),
        (NOW + 1, 15, 14),
        (NOW + 99, 15, 14),
        (NOW + 100, 15, 29),
        (NOW + 101, 30, 30),
        (NOW + 102, 31, 30),
        (NOW + 499, 31, 30),
        (NOW + 500, 31, 39),
        (NOW + 501, 40, 39),
        (2**63 - 1, 40, 39),
    ],
)
def test_a_time_finds_the_first_or_the_last_of_equals(
    timed: LocalMessageStore, time: int, lower: int, upper: int
) -> None:
    assert timed.offset_by_time("orders", 0, time) == lower
    assert timed.offset_by_time("orders", 0, time, LOWER) == lower
    assert timed.offset_by_time("orders", 0, time, UPPER) == upper


def test_an_unknown_queue_has_offset_zero_at_any_time(timed: LocalMessageStore) -> None:
    for boundary in BoundaryType:
        assert timed.offset_by_time("nobody", 0, NOW, boundary) == 0


def test_every_offset_tells_its_time(timed: LocalMessageStore) -> None:
    assert [timed.store_time("orders", 0, n) for n in range(40)] == TIMES
    assert timed.store_time("orders", 0, 40) == timed.store_time("orders", 0, -1) == -1
    assert timed.earliest_time("orders", 0) == NOW


# By physical offset and id


def test_a_physical_offset_finds_its_record_and_nothing_else() -> None:
    with open_store() as store:
        results = put_all(store, letters(30))
        end = results[-1].physical_offset + results[-1].record_bytes
        for n, result in enumerate(results):
            message = store.message_at(result.physical_offset)
            assert message is not None
            assert (message.body, message.queue_offset) == (letter(n).body, n)
            record = store.record_at(result.physical_offset)
            assert record is not None
            assert decode_record(bytes(record)) == message
            assert store.message_by_id(result.message_id) == message
            assert store.physical_offset("orders", 0, n) == result.physical_offset
        for outside in (end, end + 1, 1 << 50, -1, -(1 << 40)):
            assert store.message_at(outside) is None
            assert store.record_at(outside) is None
        host = results[0].store_host
        for inside in (1, 4, results[1].physical_offset + 50):
            with pytest.raises(CorruptionError):
                store.message_at(inside)
            assert store.message_by_id(encode_message_id(host, inside)) is None
        assert store.message_by_id(encode_message_id(host, end)) is None
        assert store.physical_offset("orders", 0, 30) == store.physical_offset("orders", 0, -1) == 0


# By key


def found_by(store: LocalMessageStore, topic: str, key: str, *more: int, **options: Any) -> list[int]:
    return [int(message.body) for message in store.query(topic, key, *more, **options)]


def test_keys_unique_keys_and_tags_are_found_in_their_own_topic() -> None:
    with open_store() as store:
        put_all(
            store,
            [
                Message.of("orders", "0", keys="red round", unique_key="U0", tags="A"),
                Message.of("orders", "1", keys=["round", "blue"], unique_key="U1", tags="B"),
                Message.of("bills", "2", keys="red", unique_key="U0", tags="A"),
                Message.of("orders", "3"),
            ],
        )
        assert found_by(store, "orders", "round") == [0, 1]
        assert found_by(store, "orders", "red") == [0]
        assert found_by(store, "bills", "red") == [2]
        assert found_by(store, "orders", "U1") == [1]
        assert found_by(store, "bills", "U0") == [2]
        assert found_by(store, "orders", "A", by_tag=True) == [0]
        for nothing in ("A", "red round", "", "Round", "U2"):
            assert found_by(store, "orders", nothing) == []
        assert found_by(store, "orders", "red", by_tag=True) == []


def test_equal_hashes_are_never_an_answer() -> None:
    assert java_hash_code("Aa") == java_hash_code("BB")
    with open_store() as store:
        put_all(store, [Message.of("orders", f"{n}", keys=("Aa", "BB")[n % 2]) for n in range(100)])
        put_all(store, [Message.of(topic, "7", keys="same") for topic in ("Aa", "BB")])
        # Half of what the index says is the other key.
        assert found_by(store, "orders", "Aa", 32) == list(range(98 - 62, 100, 2))
        assert found_by(store, "orders", "BB", 3) == [95, 97, 99]
        assert found_by(store, "orders", "AaAa") == []
        assert [m.topic for m in store.query("Aa", "same")] == ["Aa"]
        assert found_by(store, "orders", "Aa", by_tag=True) == []


@pytest.mark.parametrize(
    ("asked", "first"), [(1, 299), (32, 268), (64, 236), (65, 236), (1000, 236), (0, 300)]
)
def test_a_query_brings_the_newest_64_at_most_oldest_first(asked: int, first: int) -> None:
    # Several index files hold them.
    with open_store() as store:
        put_all(store, [Message.of("orders", f"{n}", keys="k") for n in range(300)])
        assert store.index is not None
        assert len(store.index.files) > 1
        assert found_by(store, "orders", "k", asked) == list(range(first, 300))


def test_the_time_range_of_a_query_is_exact_to_the_millisecond() -> None:
    clock = ManualClock(NOW)
    # Around whole seconds of the index, and across its files.
    times = [0, 1, 999, 1000, 1001, 1999, 2000, 2500, 10_000, 10_001]
    with open_store(clock=clock, max_index_num=8) as store:
        for n, at in enumerate(times):
            clock.set_now_ms(NOW + at)
            put_all(store, [Message.of("orders", f"{n}", keys="k other")])
        edges = sorted({t + d for t in times for d in (-1, 0, 1)})
        for begin in edges:
            for end in edges:
                expected = [n for n, at in enumerate(times) if begin <= at <= end]
                assert found_by(store, "orders", "k", 32, NOW + begin, NOW + end) == expected, (begin, end)


# Damage


@pytest.mark.parametrize(
    ("what", "position"), [("magic", 4), ("size", 2), ("body", 100), ("topic length", 88 + 60)]
)
def test_a_damaged_record_is_an_error_and_never_no_message(what: str, position: int) -> None:
    disk = ForgetfulDisk()
    with open_store(disk) as store:
        results = put_all(store, letters(5))
        place = results[2].physical_offset
        flip(disk, log_path(), place + position, 0x40)
        reads: list[Callable[[], Any]] = [
            lambda: store.get("orders", 0, 2, 1).messages(),
            lambda: store.get("orders", 0, 0).messages(),
            lambda: store.message_at(place),
            lambda: store.message_by_id(results[2].message_id),
            lambda: store.query("orders", "key2"),
        ]
        for read_it in reads:
            with pytest.raises(CorruptionError):
                read_it()
        assert store.get("orders", 0, 3).messages()[0].body == letter(3).body
        assert found_body(store, "key1") == letter(1).body


def found_body(store: LocalMessageStore, key: str) -> bytes:
    (message,) = store.query("orders", key)
    return message.body


@pytest.mark.parametrize("field", ["physical offset", "size"])
def test_a_unit_that_points_at_no_record_is_an_error(field: str) -> None:
    disk = ForgetfulDisk()
    with open_store(disk) as store:
        put_all(store, letters(5))
        flip(disk, queue_path(), 2 * 20 + (7 if field == "physical offset" else 11), 0x04)
        assert store.get("orders", 0, 0, 2).queue_offsets == [0, 1]
        with pytest.raises(CorruptionError):
            store.get("orders", 0, 2)


def test_what_is_not_dispatched_is_not_there_yet() -> None:
    with open_store() as store:
        store.put(letter(0))
        assert store.get("orders", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert store.query("orders", "key0") == []
        settle(store)
        assert store.get("orders", 0, 0).messages()[0].body == letter(0).body
        assert found_body(store, "key0") == letter(0).body
