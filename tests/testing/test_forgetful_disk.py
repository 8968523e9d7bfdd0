"""The forgetful disk: sees like a disk, forgets like a power cut, fails when asked."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockstrata.errors import DiskError, DiskFullError, StoreLockedError
from rockstrata.store.disk import Disk, DiskFile
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.testing.forgetful_disk import ForgetfulDisk, PowerCut
from rockstrata.testing.manual_clock import ManualClock

ROOT = Path("/store")
LOG = ROOT / "log"
PAGE = 4096


def synced_file(disk: ForgetfulDisk, pages: int = 4) -> DiskFile:
    """A file of zeros that is durable, name and all."""
    file = disk.create(LOG, pages * PAGE, reserve=True)
    file.sync()
    disk.sync_dir(ROOT)
    return file


def test_it_is_a_disk() -> None:
    disk: Disk = ForgetfulDisk()
    file: DiskFile = disk.create(LOG, 10, reserve=True)
    file.pwrite(2, b"abc")
    assert file.pread(0, 10) == b"\0\0abc\0\0\0\0\0"
    assert file.pread(8, 10) == b"\0\0"
    file.view()[0:2] = b"xy"
    assert disk.read_bytes(LOG) == b"xyabc\0\0\0\0\0"
    assert disk.open(LOG, writable=False).view().readonly


def test_only_synced_bytes_survive() -> None:
    disk = ForgetfulDisk()
    file = synced_file(disk)
    file.view()[0:4] = b"kept"
    file.sync()
    file.view()[4:8] = b"lost"
    after = disk.power_cut()
    assert after.read_bytes(LOG)[:8] == b"kept\0\0\0\0"
    assert disk.read_bytes(LOG)[:8] == b"keptlost"


def test_killed_process_leaves_everything_but_durability() -> None:
    disk = ForgetfulDisk()
    synced_file(disk).view()[0:4] = b"seen"
    after = disk.kill()
    assert after.read_bytes(LOG)[:4] == b"seen"
    assert after.power_cut().read_bytes(LOG)[:4] == b"\0\0\0\0"
    assert after.power_cut(lambda change: True).read_bytes(LOG)[:4] == b"seen"


def test_any_subset_of_dirty_pages_may_survive() -> None:
    disk = ForgetfulDisk()
    view = synced_file(disk).view()
    for page in range(4):
        view[page * PAGE] = page + 1
    assert [change.number for change in disk.unsynced()] == [0, 1, 2, 3]
    after = disk.power_cut({1, 3}).read_bytes(LOG)
    assert [after[page * PAGE] for page in range(4)] == [0, 2, 0, 4]
    after = disk.power_cut(lambda change: change.number == 2).read_bytes(LOG)
    assert [after[page * PAGE] for page in range(4)] == [0, 0, 3, 0]


def test_a_page_may_be_torn_between_sectors() -> None:
    disk = ForgetfulDisk()
    synced_file(disk).view()[:] = b"n" * (4 * PAGE)
    after = disk.power_cut(tear=(6, 3)).read_bytes(LOG)
    assert after[: 2 * PAGE] == bytes(2 * PAGE)
    assert after[2 * PAGE : 3 * PAGE] == b"n" * 1536 + bytes(PAGE - 1536)
    assert after[3 * PAGE :] == bytes(PAGE)


def test_the_kernel_may_have_written_an_older_state() -> None:
    disk = ForgetfulDisk()
    view = synced_file(disk).view()
    view[0] = 1
    disk.write_back(lambda change: True)
    view[0] = 2
    assert disk.power_cut().read_bytes(LOG)[0] == 1


def test_same_seed_same_fate() -> None:
    disk = ForgetfulDisk()
    synced_file(disk).view()[:] = random.Random(1).randbytes(4 * PAGE)
    fates = [disk.power_cut(random.Random(seed)).read_bytes(LOG) for seed in (*range(30), *range(30))]
    assert fates[:30] == fates[30:]
    assert len(set(fates)) > 5


def test_a_name_needs_sync_dir() -> None:
    disk = ForgetfulDisk()
    disk.create(LOG, PAGE, reserve=True).sync()
    assert not disk.power_cut().exists(LOG)
    assert disk.power_cut(lambda change: change.kind == "entry").file_bytes(LOG) == PAGE
    disk.sync_dir(ROOT)
    assert disk.power_cut().file_bytes(LOG) == PAGE


def test_on_a_mild_disk_the_name_follows_the_sync() -> None:
    disk = ForgetfulDisk(names_follow_sync=True)
    disk.create(ROOT / "a" / "b", PAGE, reserve=True).sync()
    assert disk.power_cut().file_bytes(ROOT / "a" / "b") == PAGE


def test_a_named_but_unsynced_file_is_empty() -> None:
    disk = ForgetfulDisk()
    disk.create(LOG, PAGE, reserve=True).pwrite(0, b"x")
    disk.sync_dir(ROOT)
    assert disk.power_cut().read_bytes(LOG) == b""
    assert disk.power_cut(lambda change: change.kind == "size").read_bytes(LOG) == bytes(PAGE)
    assert disk.power_cut(lambda change: change.kind == "page").read_bytes(LOG) == b""


def test_a_lost_rename_loses_what_followed_it() -> None:
    disk = ForgetfulDisk()
    one, two = ROOT / "x", ROOT / "x.bak"
    disk.write_file(one, b"old")
    disk.sync_dir(ROOT)
    disk.rename(one, two)
    disk.write_file(one, b"new")

    assert disk.list_files(ROOT) == ["x", "x.bak"]
    lost = disk.power_cut()
    assert lost.list_files(ROOT) == ["x"]
    assert lost.read_bytes(one) == b"old"
    half = disk.power_cut({0})
    assert half.list_files(ROOT) == ["x.bak"]
    assert half.read_bytes(two) == b"old"
    # The creation alone cannot survive: the journal is replayed from its start.
    assert disk.power_cut({1}).read_bytes(one) == b"old"
    disk.sync_dir(ROOT)
    assert disk.power_cut().read_bytes(one) == b"new"


def test_a_removal_may_come_back() -> None:
    disk = ForgetfulDisk()
    file = synced_file(disk)
    file.view()[0:3] = b"new"
    disk.unlink(LOG)
    disk.unlink(LOG)
    assert not disk.exists(LOG)
    assert file.pread(0, 3) == b"new"
    assert disk.power_cut().read_bytes(LOG)[:3] == b"\0\0\0"
    assert disk.power_cut(lambda change: change.kind == "page").read_bytes(LOG)[:3] == b"new"
    disk.sync_dir(ROOT)
    assert not disk.power_cut().exists(LOG)


def test_directories_are_lost_with_what_is_in_them() -> None:
    disk = ForgetfulDisk()
    deep = ROOT / "a" / "b" / "c"
    disk.write_file(deep, b"1")
    orphan = disk.power_cut(lambda change: change.path == deep)
    assert not orphan.exists(deep)
    assert not orphan.exists(ROOT)
    disk.sync_dir(deep.parent)
    assert disk.power_cut().read_bytes(deep) == b"1"
    with pytest.raises(DiskError, match="not empty"):
        disk.remove_dir(deep.parent)
    disk.unlink(deep)
    disk.remove_dir(deep.parent)
    disk.remove_dir(deep.parent)
    assert disk.list_dirs(ROOT / "a") == []


def test_nth_call_fails() -> None:
    disk = ForgetfulDisk()
    file = synced_file(disk)
    disk.fail("pwrite", 2, times=2, error=DiskFullError)
    file.pwrite(0, b"aaaa")
    for _ in range(2):
        with pytest.raises(DiskFullError, match="/store/log"):
            file.pwrite(0, b"bbbb")
    assert file.pread(0, 4) == b"bbaa"
    file.pwrite(0, b"cccc")
    assert disk.calls["pwrite"] == 4


def test_a_failed_sync_is_not_healed_by_the_next_one() -> None:
    disk = ForgetfulDisk()
    file = synced_file(disk)
    file.pwrite(0, b"a")
    disk.fail("sync")
    with pytest.raises(DiskError):
        file.sync()
    file.pwrite(PAGE, b"b")
    file.sync()
    after = disk.power_cut(lambda change: True).read_bytes(LOG)
    assert (after[0], after[PAGE]) == (0, ord("b"))
    assert file.pread(0, 1) == b"a"
    file.pwrite(0, b"c")
    file.sync()
    assert disk.power_cut().read_bytes(LOG)[0] == ord("c")


def test_machine_stops_in_the_middle_of_a_call() -> None:
    disk = ForgetfulDisk()
    disk.write_file(LOG, b"old")
    disk.sync_dir(ROOT)
    disk.stop_after(1)
    disk.open(LOG)
    with pytest.raises(PowerCut):
        disk.write_file(LOG, b"newer!")
    with pytest.raises(PowerCut):
        disk.read_bytes(LOG)
    assert disk.power_cut().read_bytes(LOG) == b"old"
    assert disk.kill().read_bytes(LOG) == b"new"


def test_quota() -> None:
    disk = ForgetfulDisk(quota_bytes=2 * PAGE)
    disk.create(LOG, PAGE, reserve=True)
    with pytest.raises(DiskFullError):
        disk.create(ROOT / "other", PAGE + 1, reserve=True)
    assert not disk.exists(ROOT / "other")
    sparse = disk.create(ROOT / "sparse", 8 * PAGE, reserve=False)
    sparse.pwrite(0, bytes(PAGE))
    assert disk.usage(ROOT).usable_bytes == 0
    with pytest.raises(DiskFullError):
        sparse.pwrite(PAGE, b"x")
    disk.unlink(LOG)
    sparse.pwrite(PAGE, b"x")
    assert disk.usage(ROOT).used_bytes == PAGE + 1


def test_lock_excludes_until_released_or_dead() -> None:
    disk = ForgetfulDisk()
    lock = disk.lock(ROOT / "lock")
    with pytest.raises(StoreLockedError):
        disk.lock(ROOT / "lock")
    disk.kill().lock(ROOT / "lock").release()
    disk.power_cut().lock(ROOT / "lock")
    lock.release()
    disk.lock(ROOT / "lock")


def test_modification_times() -> None:
    clock = ManualClock(1000)
    disk = ForgetfulDisk(clock)
    file = synced_file(disk)
    clock.advance(500)
    file.sync()
    assert disk.modified_ms(LOG) == 1000
    file.view()[0] = 1
    file.sync()
    assert disk.modified_ms(LOG) == 1500
    disk.set_modified_ms(LOG, 7)
    assert disk.power_cut().modified_ms(LOG) == 7


def test_manual_clock() -> None:
    clock = ManualClock(5000)
    clock.sleep_s(0.25)
    clock.advance(0.5)
    clock.advance(0.5)
    clock.set_now_ms(10)
    assert clock.now_ms() == 10
    assert clock.monotonic_s() == 0.251


NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a"])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(1, 2 * PAGE), st.booleans()),
    st.tuples(st.just("pwrite"), NAMES, st.integers(0, PAGE), st.binary(max_size=9)),
    st.tuples(st.just("write_file"), NAMES, st.binary(max_size=9)),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("unlink"), NAMES),
    st.tuples(st.just("remove_dir"), st.sampled_from(["d", "d/e"])),
    st.tuples(st.just("sync_dir"), st.sampled_from(["", "d", "d/e"])),
)


def step(disk: Disk, root: Path, action: tuple[object, ...]) -> None:
    match action:
        case ("create", str(name), int(size), bool(reserve)):
            assert disk.create(root / name, size, reserve=reserve).size == size
        case ("pwrite", str(name), int(position), bytes(data)):
            disk.open(root / name).pwrite(position, data)
        case ("write_file", str(name), bytes(data)):
            disk.write_file(root / name, data)
        case ("rename", str(name), str(other)):
            disk.rename(root / name, root / other)
        case (str(kind), str(name)):
            getattr(disk, kind)(root / name)


def outcome(disk: Disk, root: Path, action: tuple[object, ...]) -> object:
    try:
        step(disk, root, action)
    except DiskError as error:
        return type(error)
    return None


@given(actions=st.lists(STEPS, max_size=12), cut=st.integers())
def test_it_behaves_as_the_real_disk(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[object, ...]], cut: int
) -> None:
    root = tmp_path_factory.mktemp("twin")
    real, twin = PosixDisk(), ForgetfulDisk()
    twin.make_dirs(root)
    twin.sync_dir(root)
    for action in actions:
        assert outcome(twin, root, action) == outcome(real, root, action), action
        for folder in (root, root / "d", root / "d/e"):
            assert twin.list_files(folder) == real.list_files(folder)
            assert twin.list_dirs(folder) == real.list_dirs(folder)
            for name in real.list_files(folder):
                assert twin.read_bytes(folder / name) == real.read_bytes(folder / name)
    # Whatever survives is a legal disk: every name has its directory.
    after = twin.power_cut(random.Random(cut))
    for path, _ in after._names.files():
        assert after.exists(path.parent)
    assert not after.unsynced()
