"""A row of equal files as one address space: what MappedFileQueueTest and its kin ask, and crashes."""

from contextlib import suppress
from pathlib import Path

import pytest

from rockstrata.errors import CorruptionError, DiskError, ForeignFileError
from rockstrata.store.handles import FileHandles
from rockstrata.store.mapped_file import MappedFile
from rockstrata.store.mapped_file_queue import MappedFileQueue, file_name
from rockstrata.testing.forgetful_disk import ForgetfulDisk, PowerCut

DIR = Path("/store/commitlog")
A, B, C = Path("/a/log"), Path("/b/log"), Path("/c/log")
SIZE = 1024


def queue_on(disk, *directories, **options) -> MappedFileQueue:
    return MappedFileQueue(FileHandles(disk), directories or (DIR,), SIZE, **options)


def grow(queue: MappedFileQueue, count: int, start: int = 0) -> list[MappedFile]:
    files = []
    for n in range(count):
        file = queue.create(start + n * SIZE)
        queue.add(file)
        file.set_cursors(SIZE)
        files.append(file)
    return files


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


def test_an_empty_queue_has_no_minimum_and_ends_at_zero(disk):
    queue = queue_on(disk)
    queue.load()

    assert (queue.min_offset, queue.max_offset, queue.wrote_offset) == (-1, 0, 0)
    assert queue.first is queue.last is queue.find(0) is None


@pytest.mark.parametrize("start", [0, 5 * SIZE])
def test_an_offset_is_found_in_its_file_and_nowhere_else(disk, start):
    queue = queue_on(disk)
    files = grow(queue, 4, start)

    for n, file in enumerate(files):
        assert queue.find(start + n * SIZE) is queue.find(start + (n + 1) * SIZE - 1) is file
    assert queue.find(start + 4 * SIZE) is None
    assert queue.find(start - 1) is None
    assert (queue.min_offset, queue.max_offset) == (start, start + 4 * SIZE)
    assert queue.total_bytes == 4 * SIZE


def test_loaded_files_are_full_until_recovery_says_otherwise(disk):
    grow(queue_on(disk), 3)
    loaded = queue_on(disk)
    loaded.load()

    assert [file.start for file in loaded.files] == [0, SIZE, 2 * SIZE]
    assert all(file.wrote == file.flushed == SIZE for file in loaded.files)


def test_files_of_several_paths_are_loaded_in_the_order_of_their_names(disk):
    grow(queue_on(disk, A, B, C), 7)
    loaded = queue_on(disk, C, A, B)
    loaded.load()

    assert [file.start for file in loaded.files] == [n * SIZE for n in range(7)]
    assert [file.path.parent for file in loaded.files] == [A, B, C, A, B, C, A]


def test_a_read_only_path_is_read_and_gets_no_new_file(disk):
    grow(queue_on(disk, A, B), 4)
    queue = queue_on(disk, A, B, read_only=(B,))
    queue.load()
    more = grow(queue, 4, 4 * SIZE)

    assert len(queue.files) == 8
    assert {file.path.parent for file in more} == {A}


def test_a_full_path_is_skipped_unless_all_are_full(disk):
    full = {B}
    queue = queue_on(disk, A, B, C, is_full=lambda path: path in full)
    assert {file.path.parent for file in grow(queue, 4)} == {A, C}
    full |= {A, C}
    assert {file.path.parent for file in grow(queue, 3, 4 * SIZE)} == {A, B, C}


def test_the_set_of_paths_may_change_between_two_starts(disk):
    grow(queue_on(disk, A, B), 4)
    queue = queue_on(disk, A, C, read_only=(B,))
    queue.load()
    grow(queue, 2, 4 * SIZE)
    again = queue_on(disk, A, B, C)
    again.load()

    assert [file.start for file in again.files] == [n * SIZE for n in range(6)]


def test_an_empty_last_file_is_what_a_crash_at_creation_leaves_and_goes(disk):
    grow(queue_on(disk), 2)
    disk.create(DIR / file_name(2 * SIZE), 0, reserve=False)
    queue = queue_on(disk)
    queue.load()

    assert len(queue.files) == 2
    assert not disk.exists(DIR / file_name(2 * SIZE))


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("notes.txt", SIZE),
        ("0000000000000000102", SIZE),
        ("00000000000000001024.bak", SIZE),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٠٢٤", SIZE),
        (file_name(SIZE), SIZE - 1),
        (file_name(SIZE), 2 * SIZE),
        (file_name(SIZE + 20), SIZE),
    ],
)
def test_a_foreign_file_is_named_and_left_alone(disk, name, length):
    grow(queue_on(disk), 1)
    disk.create(DIR / name, length, reserve=False).pwrite(0, b"x")
    queue = queue_on(disk)

    with pytest.raises(ForeignFileError) as caught:
        queue.load()

    assert caught.value.path == str(DIR / name)
    assert disk.exists(DIR / name)
    assert disk.exists(DIR / file_name(0))


def test_sub_directories_are_nobodys_business(disk):
    grow(queue_on(disk), 1)
    disk.make_dirs(DIR / "lost+found")
    queue = queue_on(disk)
    queue.load()

    assert len(queue.files) == 1


def test_a_missing_file_in_the_middle_is_named(disk):
    grow(queue_on(disk), 4)
    disk.unlink(DIR / file_name(2 * SIZE))

    with pytest.raises(CorruptionError, match="missing file") as caught:
        queue_on(disk).load()

    assert caught.value.expected == file_name(2 * SIZE)
    assert disk.list_files(DIR) == [file_name(n * SIZE) for n in (0, 1, 3)]


def test_the_same_file_in_two_paths_is_refused(disk):
    grow(queue_on(disk, A), 2)
    grow(queue_on(disk, B), 1)

    with pytest.raises(ForeignFileError, match="twice"):
        queue_on(disk, A, B).load()


@pytest.mark.parametrize(
    ("offset", "left", "wrote"),
    [
        (4 * SIZE, 4, SIZE),
        (3 * SIZE + 1, 4, 1),
        (3 * SIZE, 3, SIZE),
        (3 * SIZE - 1, 3, SIZE - 1),
        (1, 1, 1),
        (0, 1, 0),
    ],
)
def test_truncation_sets_the_cursors_and_drops_the_files_behind(disk, offset, left, wrote):
    queue = queue_on(disk)
    grow(queue, 4)

    queue.truncate_to(offset)

    assert len(queue.files) == len(disk.list_files(DIR)) == left
    assert queue.files[-1].wrote == queue.files[-1].flushed == wrote
    assert queue.max_offset == offset


@pytest.mark.parametrize("paths", [(A,), (A, B)])
def test_files_cut_off_never_come_back_and_no_crash_leaves_a_hole(paths):
    for calls in range(40):
        disk = ForgetfulDisk()
        queue = queue_on(disk, *paths)
        grow(queue, 5)
        queue.sync_dirs()
        for file in queue.files:
            file.flush()
        disk.stop_after(calls)
        finished = False
        with suppress(PowerCut):
            queue.truncate_to(SIZE + 1)
            queue.sync_dirs()
            finished = True
        for keeps in (None, lambda change: True, lambda change: change.path.parent == paths[-1]):
            after = queue_on(disk.power_cut(keeps), *paths)
            after.load()
            assert len(after.files) >= 2
            if finished:
                assert len(after.files) == 2
        if finished:
            return
    raise AssertionError("never finished")


def test_only_the_oldest_file_can_be_deleted(disk):
    queue = queue_on(disk)
    files = grow(queue, 3)

    assert not queue.delete_first(files[1])
    assert queue.delete_first(files[0])
    assert not queue.delete_first(files[0])

    assert queue.min_offset == SIZE
    assert queue.find(0) is None
    assert not queue.holds(files[0])
    assert queue.holds(files[1])


def test_a_file_that_cannot_be_deleted_stays_in_the_list(disk):
    queue = queue_on(disk)
    files = grow(queue, 2)
    disk.fail("unlink")

    with pytest.raises(DiskError):
        queue.delete_first(files[0])

    assert queue.files == tuple(files)


def test_a_view_outlives_its_file(disk):
    queue = queue_on(disk)
    (file, _) = grow(queue, 2)
    file.file.pwrite(0, b"still here")
    view = file.file.view()

    queue.delete_first(file)

    assert bytes(view[:10]) == b"still here"


def test_destroy_leaves_nothing(disk):
    queue = queue_on(disk, A, B)
    grow(queue, 5)

    queue.destroy()

    assert disk.list_files(A) == disk.list_files(B) == []
    assert queue.files == ()


@pytest.mark.parametrize(
    ("flushed", "readable", "least_pages", "flushes"),
    [
        (0, 0, 0, False),
        (0, 1, 0, True),
        (0, 1, 1, False),
        (0, 4095, 1, False),
        (0, 4096, 1, True),
        (4095, 4096, 1, True),
        (0, 4 * 4096, 4, True),
        (1, 4 * 4096 - 1, 4, False),
        (0, 65536, 1000, True),
        (65536, 65536, 0, False),
    ],
)
def test_a_file_is_flushed_by_pages_or_when_full(disk, flushed, readable, least_pages, flushes):
    file = MappedFile(DIR / file_name(0), 0, 65536, FileHandles(disk))
    file.flushed, file.wrote = flushed, readable

    assert file.can_flush(least_pages) is flushes


def test_the_names_of_new_files_are_durable_before_their_content_counts(disk):
    queue = queue_on(disk, sync_levels=2)
    (file,) = grow(queue, 1)
    queue.sync_dirs()
    file.flush()

    after = queue_on(disk.power_cut())
    after.load()

    assert len(after.files) == 1


def test_a_directory_that_failed_to_sync_is_tried_again(disk):
    queue = queue_on(disk)
    (file,) = grow(queue, 1)
    file.flush()
    disk.fail("sync_dir")
    with pytest.raises(DiskError):
        queue.sync_dirs()

    queue.sync_dirs()

    assert disk.power_cut().list_files(DIR) == [file_name(0)]


@pytest.mark.parametrize("length", [1, 512, SIZE - 1])
def test_a_last_file_whose_making_was_killed_half_way_goes_after_an_unclean_end_only(disk, length):
    grow(queue_on(disk), 2)
    half = disk.create(DIR / file_name(2 * SIZE), length, reserve=False)

    with pytest.raises(ForeignFileError):
        queue_on(disk).load(clean=True)
    half.pwrite(0, b"x")
    with pytest.raises(ForeignFileError):
        queue_on(disk).load(clean=False)
    half.pwrite(0, b"\0")
    queue = queue_on(disk)
    queue.load(clean=False)

    assert len(queue.files) == 2
    assert not disk.exists(DIR / file_name(2 * SIZE))
