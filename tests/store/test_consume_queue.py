"""Consume queues: units in order, duplicates, gaps, pre-blank units, and what a crash leaves of them."""

import random
from pathlib import Path

import pytest

from rockstrata.clock import SystemClock
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT, BatchConsumeQueue
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueue
from rockstrata.store.handles import FileHandles
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.unit_queue import PRE_BLANK_SIZE, QueueGapError
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from store.store_kit import bodies, letter, letters, open_store, put_all, small_config

DIR = Path("/store/consumequeue/orders/0")
PER_FILE = 20


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


def queue_on(disk, limit: int | None = None) -> ConsumeQueue:
    return ConsumeQueue(FileHandles(disk, limit), DIR, "orders", 0, PER_FILE * 20)


def unit(n: int) -> bytes:
    """The unit of record n: 100 bytes at 100 n."""
    return CONSUME_QUEUE_UNIT.struct.pack(100 * n, 100, n)


def fill(queue: ConsumeQueue, first: int, end: int, records: int | None = None) -> None:
    start = first if records is None else records
    for n in range(first, end):
        record = start + n - first
        queue.append(n, unit(record), 100 * record + 100)


def reopened(disk, *, clean: bool = True, min_physical: int = 0, whole_before: int = 0) -> ConsumeQueue:
    queue = queue_on(disk)
    queue.load(clean=clean)
    queue.recover(clean=clean, whole_before=whole_before)
    queue.correct_min(min_physical)
    return queue


def physicals(queue: ConsumeQueue) -> list[int]:
    return [queue.unit(n)[0] // 100 for n in range(queue.min_offset, queue.max_offset)]


def test_units_are_read_as_they_were_written_file_by_file(disk):
    queue = queue_on(disk)
    fill(queue, 0, 50)
    assert (queue.min_offset, queue.max_offset) == (0, 50)
    assert [queue.unit(n) for n in (0, 19, 20, 49)] == [(100 * n, 100, n) for n in (0, 19, 20, 49)]
    assert queue.units(15, 100) == b"".join(unit(n) for n in range(15, 20))
    assert queue.units(40, 100) == b"".join(unit(n) for n in range(40, 50))
    assert queue.units(50, 1) == queue.units(1000, 1) == b""
    assert [int(name) for name in disk.list_files(DIR)] == [0, 400, 800]
    assert queue.max_physical == 5000


def test_many_units_at_once_span_files(disk):
    queue = queue_on(disk)
    queue.append(0, b"".join(unit(n) for n in range(55)), 5500)
    assert physicals(queue) == list(range(55))


def test_a_unit_that_is_there_already_is_left_alone(disk):
    queue = queue_on(disk)
    fill(queue, 0, 30)
    before = {name: disk.read_bytes(DIR / name) for name in disk.list_files(DIR)}
    fill(queue, 10, 30)
    queue.append(0, b"".join(unit(n) for n in range(30)), 3000)
    assert {name: disk.read_bytes(DIR / name) for name in disk.list_files(DIR)} == before
    queue.append(25, b"".join(unit(n) for n in range(25, 35)), 3500)
    assert physicals(queue) == list(range(35))


def test_a_gap_is_refused_and_changes_nothing(disk):
    queue = queue_on(disk)
    fill(queue, 0, 5)
    with pytest.raises(QueueGapError) as caught:
        queue.append(6, unit(6), 700)
    assert caught.value.path == str(DIR)
    assert "unit 5" in str(caught.value)
    assert queue.max_offset == 5


@pytest.mark.parametrize("first", [1, 19, 20, 21, 100, 105, 1000])
def test_a_queue_that_does_not_start_at_zero_is_filled_with_pre_blank_units(disk, first):
    queue = queue_on(disk)
    fill(queue, first, first + 3)
    assert (queue.min_offset, queue.max_offset) == (first, first + 3)
    start = first - first % PER_FILE
    assert int(disk.list_files(DIR)[0]) == start * 20
    for n in range(start, first):
        assert queue.unit(n) == (0, PRE_BLANK_SIZE, 0)
    for minimum in (0, 1):
        after = reopened(disk, min_physical=minimum)
        assert (after.min_offset, after.max_offset) == (first, first + 3)
    unclean = reopened(disk, clean=False)
    assert physicals(unclean) == [first, first + 1, first + 2]


def test_a_queue_of_only_pre_blank_units_keeps_its_place(disk):
    queue = queue_on(disk)
    fill(queue, 105, 110)
    queue.truncate_physical(0)
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (105, 105, -1)
    after = reopened(disk, min_physical=1)
    assert (after.min_offset, after.max_offset) == (105, 105)
    fill(after, 105, 107)
    assert physicals(after) == [105, 106]


@pytest.mark.parametrize(
    ("min_physical", "minimum"),
    [(0, 0), (1, 1), (500, 5), (501, 6), (2000, 20), (4900, 49), (4901, 50), (9999, 50)],
)
def test_the_minimum_moves_to_the_first_record_that_is_left(disk, min_physical, minimum):
    queue = queue_on(disk)
    fill(queue, 0, 50)
    queue.correct_min(min_physical)
    assert (queue.min_offset, queue.max_offset) == (minimum, 50)
    queue.correct_min(0)
    assert queue.min_offset == minimum
    assert reopened(disk, min_physical=min_physical).min_offset == minimum


def test_files_whose_records_are_gone_are_deleted_but_never_the_last(disk):
    queue = queue_on(disk)
    fill(queue, 0, 50)
    assert queue.delete_files_before(1900) == 0
    assert queue.delete_files_before(1901) == 1
    assert queue.delete_files_before(10**6) == 1
    queue.correct_min(10**6)
    assert (queue.min_offset, queue.max_offset) == (50, 50)
    fill(queue, 50, 70, records=10**4)
    after = reopened(disk, min_physical=10**6)
    assert after.max_offset == 70


# A topic made again.


@pytest.mark.parametrize(
    ("old_first", "old_end", "new_first"), [(0, 30, 0), (0, 30, 10), (105, 130, 0), (105, 130, 110)]
)
def test_a_newer_record_at_a_lower_offset_starts_the_queue_over(disk, old_first, old_end, new_first):
    queue = queue_on(disk)
    fill(queue, old_first, old_end)
    fill(queue, new_first, new_first + 5, records=1000)
    assert queue.max_offset == new_first + 5
    assert physicals(queue)[-5:] == list(range(1000, 1005))
    assert queue.min_offset <= new_first
    assert queue.max_physical == 100_500
    after = reopened(disk, clean=False)
    assert physicals(after)[-5:] == list(range(1000, 1005))
    assert after.max_offset == new_first + 5


# Truncation and recovery.


@pytest.mark.parametrize("end", [0, 1, 19, 20, 21, 39, 40, 49])
def test_units_cut_off_are_gone_for_good(disk, end):
    queue = queue_on(disk)
    fill(queue, 0, 50)
    queue.truncate_physical(100 * end)
    assert queue.max_offset == end
    assert queue.max_physical == (100 * end if end else -1)
    after = reopened(disk, clean=False)
    assert after.max_offset == end
    fill(after, end, end + 5, records=end)
    assert physicals(after) == list(range(end + 5))


def test_zeros_behind_the_end_become_durable_even_if_no_unit_is_left(disk):
    queue = queue_on(disk)
    fill(queue, 0, 5)
    queue.flush()
    queue.truncate(0)
    queue.flush()
    after = reopened(disk.power_cut(), clean=False)
    assert after.max_offset == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 59, 60, 61, 130])
def test_the_end_is_found_again(disk, clean, count):
    fill(queue_on(disk), 0, count)
    after = reopened(disk, clean=clean)
    assert after.max_offset == count
    assert after.max_physical == (100 * count or -1)


@pytest.mark.parametrize("hole", [0, 1, 20, 25, 45, 60, 99])
def test_an_unclean_queue_ends_at_its_first_hole(disk, hole):
    fill(queue_on(disk), 0, 100)
    file = disk.open(DIR / disk.list_files(DIR)[hole // PER_FILE])
    file.pwrite(hole % PER_FILE * 20, bytes(20))
    after = reopened(disk, clean=False, whole_before=100 * (hole - hole % PER_FILE))
    assert after.max_offset == hole
    assert physicals(after) == list(range(hole))


def test_only_units_known_to_be_whole_are_not_looked_at(disk):
    fill(queue_on(disk), 0, 200)
    queue = queue_on(disk)
    queue.load(clean=False)
    before = disk.calls["pread"]
    queue.recover(clean=False, whole_before=100 * 200)
    assert disk.calls["pread"] - before < 12


def test_a_failed_write_leaves_the_queue_as_it_was(disk):
    queue = queue_on(disk)
    fill(queue, 0, 5)
    disk.fail("pwrite")
    with pytest.raises(OSError):
        queue.append(5, unit(5) + unit(6), 700)
    assert (queue.max_offset, queue.max_physical) == (5, 500)
    queue.append(5, unit(5) + unit(6), 700)
    assert physicals(queue) == list(range(7))


def test_more_queues_than_open_files_are_no_trouble(tmp_path, monkeypatch):
    monkeypatch.setattr("rockstrata.store.handles.default_limit", lambda: 4)
    config = small_config(tmp_path)
    with open_store(PosixDisk(), SystemClock(), config=config) as store:
        put_all(store, [letter(n, queue_id=n % 40) for n in range(400)])
        for q in range(40):
            assert bodies(store, queue_id=q) == [letter(n).body for n in range(q, 400, 40)]
    with open_store(PosixDisk(), SystemClock(), config=config) as store:
        put_all(store, [letter(n, queue_id=n % 40) for n in range(400, 800)])
        for q in range(40):
            assert bodies(store, queue_id=q) == [letter(n).body for n in range(q, 800, 40)]


# Batch consume queues.

BATCH_DIR = Path("/store/batchconsumequeue/orders/0")


def batch_queue_on(disk) -> BatchConsumeQueue:
    return BatchConsumeQueue(FileHandles(disk), BATCH_DIR, "orders", 0, 46 * 10)


def batch_unit(n: int, base: int, count: int) -> bytes:
    return BATCH_CONSUME_QUEUE_UNIT.struct.pack(100 * n, 100, 7, 1000 + 10 * n, base, count, -1, 0)


def fill_batches(queue: BatchConsumeQueue, sizes: list[int], first: int = 0) -> None:
    base = queue.max_offset
    for n, count in enumerate(sizes, first):
        queue.append_batches(batch_unit(n, base, count), 100 * n + 100)
        base += count


SIZES = [1, 3, 10, 2, 1, 1, 7, 30, 2, 5, 4, 4, 9, 1, 100, 3, 2, 2, 2, 6, 11, 5, 8, 1, 1, 40]


def test_every_offset_inside_a_batch_finds_it(disk):
    queue = batch_queue_on(disk)
    assert (queue.min_offset, queue.max_offset) == (-1, 0)
    fill_batches(queue, SIZES)
    assert (queue.min_offset, queue.max_offset) == (0, sum(SIZES))
    offset = 0
    for n, count in enumerate(SIZES):
        for inside in range(offset, offset + count):
            assert queue.find_unit(inside) == n
        offset += count
    assert queue.find_unit(offset) is None
    assert queue.find_unit(-1) is None


def test_batches_that_are_there_already_are_left_out(disk):
    queue = batch_queue_on(disk)
    fill_batches(queue, SIZES[:5])
    base, again = 0, b""
    for n, count in enumerate(SIZES[:8]):
        again += batch_unit(n, base, count)
        base += count
    queue.append_batches(again, 800)
    assert queue.unit_count == 8
    assert queue.max_offset == sum(SIZES[:8])


@pytest.mark.parametrize("clean", [True, False])
def test_a_batch_queue_of_several_files_is_found_again(disk, clean):
    fill_batches(batch_queue_on(disk), SIZES)
    queue = batch_queue_on(disk)
    queue.load(clean=clean)
    queue.recover(clean=clean)
    assert len(queue.queue.files) == 3
    assert (queue.unit_count, queue.min_offset, queue.max_offset) == (len(SIZES), 0, sum(SIZES))
    fill_batches(queue, [5], first=len(SIZES))
    assert queue.find_unit(sum(SIZES) + 4) == len(SIZES)


def test_truncated_and_expired_batches_leave_the_rest_in_place(disk):
    dice = random.Random(2)
    for _ in range(20):
        disk = ForgetfulDisk()
        queue = batch_queue_on(disk)
        fill_batches(queue, SIZES)
        end = dice.randrange(len(SIZES) + 1)
        queue.truncate_physical(100 * end)
        assert queue.unit_count == end
        assert queue.max_offset == sum(SIZES[:end])
        first = dice.randrange(end + 1)
        queue.correct_min(100 * first)
        queue.delete_files_before(100 * first)
        assert queue.max_offset == sum(SIZES[:end])
        assert queue.min_offset == (sum(SIZES[:first]) if first < end else -1)
        fill_batches(queue, SIZES[end:], first=end)
        assert queue.max_offset == sum(SIZES)
        after = batch_queue_on(disk)
        after.load()
        after.recover(clean=True)
        after.correct_min(100 * first)
        assert (after.min_offset, after.max_offset) == (queue.min_offset, queue.max_offset)


def test_letters_of_a_topic_deleted_and_made_again_are_the_new_ones(disk):
    with open_store(disk) as store:
        put_all(store, letters(50))
        store.delete_topics(["orders"])
        put_all(store, letters(7, first=100))
        assert bodies(store) == [letter(n).body for n in range(100, 107)]
    for after in (disk, disk.kill(), disk.power_cut()):
        with open_store(after) as store:
            assert bodies(store) == [letter(n).body for n in range(100, 107)]
            put_all(store, letters(1, first=107))
