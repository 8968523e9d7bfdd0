"""The index as a whole: roll-over, look-ups, expiry, and completeness after any crash."""

import logging
import random
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockstrata.clock import local_stamp
from rockstrata.errors import CorruptionError, DiskError, DiskFullError, ForeignFileError
from rockstrata.store.checkpoint import Checkpoint
from rockstrata.store.disk import Disk
from rockstrata.store.index import Index, query_hash
from rockstrata.store.index_file import index_file_bytes
from rockstrata.store.index_reader import IndexReader
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.store_config import StoreConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock

ROOT = Path("/store")
NOW = 1_700_000_000_000
FOREVER = 2**63 - 1
ROLLBACK, PREPARED = 0xC, 0x4


@dataclass
class Row:
    """One record of an imagined log."""

    physical: int
    timestamp: int
    keys: list[str] = field(default_factory=list)
    sys_flag: int = 0


class House:
    """An index with its disk, as a store would open them."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        root: Path = ROOT,
        slots: int = 16,
        items: int = 8,
        lazy: bool = False,
    ) -> None:
        self.clock = ManualClock(NOW)
        self.disk = disk if disk is not None else ForgetfulDisk(self.clock)
        self.config = StoreConfig(store_path_root_dir=str(root), max_hash_slot_num=slots, max_index_num=items)
        self.checkpoint = Checkpoint(self.disk, self.config.checkpoint_path)
        self.full = 0
        self.index = Index(self.config, self.disk, self.clock, self.checkpoint, self.filled if lazy else None)

    def filled(self) -> None:
        self.full += 1

    def load(self, *, clean: bool) -> "House":
        self.index.load(clean, self.checkpoint)
        return self

    def add(self, *rows: Row) -> None:
        edges = np.cumsum([0, *(len(row.keys) for row in rows)])
        hashes = [query_hash("t", key) for row in rows for key in row.keys]
        self.index.add(
            np.array([row.physical for row in rows], np.int64),
            np.array([row.timestamp for row in rows], np.int64),
            edges.astype(np.int64),
            np.array(hashes, np.int32),
            np.array([row.sys_flag for row in rows], np.int32),
        )

    def find(self, key: str, begin: int = 0, end: int = FOREVER, max_num: int = 64) -> list[int]:
        return self.index.query_offsets("t", key, max_num, begin, end)

    def names(self) -> list[str]:
        return self.disk.list_files(self.config.index_dir)


def rows(count: int, *, first: int = 0, keys: int = 2) -> list[Row]:
    return [Row(100 * n, NOW + n, [f"k{n}-{k}" for k in range(keys)]) for n in range(first, first + count)]


def test_a_file_appears_with_the_first_record_even_without_keys() -> None:
    house = House()
    house.add()
    assert house.names() == []
    house.add(Row(0, NOW))
    assert house.names() == [local_stamp(NOW)]
    assert house.disk.file_bytes(house.config.index_dir / house.names()[0]) == index_file_bytes(16, 8)
    assert house.index.rebuild_from_physical == 0


def test_rolled_back_records_are_not_indexed_but_prepared_ones_are() -> None:
    house = House()
    house.add(Row(0, NOW, ["a"], PREPARED), Row(100, NOW, ["a"], ROLLBACK), Row(200, NOW, ["a"], 0x8 | 1))
    assert house.find("a") == [200, 0]


def test_records_before_the_end_are_skipped_and_the_last_is_indexed_again() -> None:
    house = House()
    house.add(*rows(3, keys=1))
    house.add(*rows(3, keys=1))
    assert [house.find(f"k{n}-0") for n in range(3)] == [[0], [100], [200, 200]]


@pytest.mark.parametrize("keys", [1, 40])
def test_files_fill_up_and_follow_each_other(keys: int) -> None:
    house = House()
    all_rows = rows(40 // keys, keys=keys)
    house.add(*all_rows)
    assert [file.index_count for file in house.index.files] == [8, 8, 8, 8, 8, 6]
    assert house.names() == sorted({file.path.name for file in house.index.files})
    for row in all_rows:
        for key in row.keys:
            assert house.find(key) == [row.physical]
    last = house.index.files[-2]
    assert house.checkpoint.index_msg_timestamp == last.end_timestamp
    assert Checkpoint(house.disk, house.config.checkpoint_path).index_msg_timestamp == last.end_timestamp


def test_few_keys_and_many_keys_write_the_same_files() -> None:
    one, many = House(), House()
    batch = rows(30, keys=3)
    batch[4].sys_flag = batch[20].sys_flag = ROLLBACK
    many.add(*batch)
    for row in batch:
        one.add(row)
    assert one.names() == many.names()
    for name in one.names():
        assert one.disk.read_bytes(one.config.index_dir / name) == many.disk.read_bytes(
            many.config.index_dir / name
        )


def test_names_grow_whatever_the_clock_does() -> None:
    house = House()
    for n, step in enumerate((0, 0, -3_600_000, 5)):
        house.clock.set_now_ms(NOW + step)
        house.add(*rows(7, first=7 * n, keys=1))
    stamp = int(local_stamp(NOW))
    assert [int(name) for name in house.names()] == [stamp, stamp + 1, stamp + 2, stamp + 5]


def test_queries_by_time_tag_and_limit() -> None:
    house = House(items=100)
    for n in range(70):
        house.add(Row(n, NOW + 1000 * n, ["x"]))
    house.index.add(
        np.array([900]), np.array([NOW + 70_000]), np.array([0, 1]),
        np.array([query_hash("t", "red", "T")], np.int32), np.array([0], np.int32),
    )  # fmt: skip
    assert house.find("x", max_num=64) == list(range(69, 5, -1))
    assert house.find("x", max_num=2) == [69, 68]
    assert house.find("x", NOW + 5_000, NOW + 7_000) == [7, 6, 5]
    assert house.find("x", NOW + 80_000) == []
    assert house.index.query_offsets("t", "red", 9, 0, FOREVER, "T") == [900]
    assert house.index.query_offsets("t", "red", 9, 0, FOREVER) == []
    assert house.index.last_update == (NOW + 70_000, 900)
    assert House().find("x", max_num=10**9) == []


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 2_500)), max_size=60),
    begin=st.integers(-1, 90),
    length=st.integers(0, 90),
    max_num=st.integers(0, 70),
)
def test_queries_over_files_agree_with_a_list(
    steps: list[tuple[int, int, int]], begin: int, length: int, max_num: int
) -> None:
    house = House(slots=5)
    timestamp = NOW
    log: list[Row] = []
    for n, (count, which, wait) in enumerate(steps):
        timestamp += wait
        log.append(Row(n, timestamp, [f"k{(which + i) % 7}" for i in range(count)]))
    house.add(*log)
    reader = IndexReader(house.disk, house.config.index_dir, 5, 8)
    asked = [f"k{n}" for n in range(8)]
    begin_ms, end_ms = NOW + 1000 * begin, NOW + 1000 * (begin + length)
    many = house.index.query_offsets_many("t", asked, max_num, begin_ms, end_ms)
    everything = house.index.query_offsets_many("t", asked, 64, 0, FOREVER)
    for n, key in enumerate(asked):
        found = house.find(key, begin_ms, end_ms, max_num)
        assert many[n] == found
        assert len(found) <= min(max_num, 64)
        assert reader.query_offsets("t", key, min(64, max_num), begin_ms, end_ms) == found
        # Times in a file are off by less than a second, but for its first item, whose seconds are
        # counted from the end of the file before.
        for physical in found:
            assert key in log[physical].keys
        assert everything[n] == [row.physical for row in reversed(log) for k in row.keys if k == key][:64]
        if max_num == 70 and begin == -1:
            assert found == everything[n] or length < 80


def test_expired_files_go_but_never_the_last() -> None:
    house = House()
    house.add(*rows(20, keys=1))
    held = house.index.files[0]
    assert [file.end_physical for file in house.index.files] == [600, 1300, 1900]
    assert house.index.delete_expired(600) == 0
    assert house.index.delete_expired(601) == 1
    assert house.find("k3-0") == []
    assert held.query(query_hash("t", "k3-0"), 0, FOREVER, 9) == [300]
    assert house.index.delete_expired(10**9) == 1
    assert len(house.names()) == len(house.index.files) == 1
    assert house.find("k19-0") == [1900]


def test_a_full_disk_says_so_and_adding_again_heals() -> None:
    house = House()
    assert isinstance(house.disk, ForgetfulDisk)
    house.disk.fail("create", 2, error=DiskFullError)
    batch = rows(20, keys=1)
    with pytest.raises(DiskFullError):
        house.add(*batch)
    house.add(*batch)
    for row in batch:
        assert row.physical in house.find(row.keys[0])


def test_after_a_failed_sync_nothing_is_called_durable() -> None:
    house = House()
    assert isinstance(house.disk, ForgetfulDisk)
    house.disk.fail("sync")
    for _ in range(3):
        with pytest.raises(DiskError):
            house.add(*rows(20, keys=1))
    with pytest.raises(DiskError):
        house.index.flush()
    assert house.checkpoint.index_msg_timestamp == 0


def test_sealing_can_be_left_to_somebody_else() -> None:
    house = House(lazy=True)
    house.add(*rows(20, keys=1))
    assert (house.full, house.checkpoint.index_msg_timestamp) == (2, 0)
    house.index.seal()
    assert house.checkpoint.index_msg_timestamp == house.index.files[1].end_timestamp


def test_clean_reload_and_going_on() -> None:
    house = House()
    house.add(*rows(10))
    house.index.close()
    assert house.index.files == ()
    again = House(house.disk).load(clean=True)
    again.add(*rows(12))
    assert again.find("k3-1") == [300]
    assert again.find("k11-0") == [1100]
    again.index.destroy()
    assert again.names() == []
    again.add(*rows(1))
    assert again.find("k0-0") == [0]


def test_strange_files(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.add(*rows(10))
    house.index.close()
    folder = house.config.index_dir
    house.disk.write_file(folder / "notes.txt", b"hello")
    house.disk.write_file(folder / "99999999999999999", bytes(7))
    with caplog.at_level(logging.WARNING):
        assert House(house.disk).load(clean=True).find("k9-0") == [900]
    assert "notes.txt is no index file" in caplog.text
    assert "99999999999999999" not in house.names()
    assert "notes.txt" in house.names()

    house.disk.write_file(folder / "99999999999999999", b"not empty")
    for clean in (True, False):
        with pytest.raises(ForeignFileError, match="maxIndexNum"):
            House(house.disk).load(clean=clean)
    house.disk.write_file(folder / "99999999999999999", bytes(10_000))
    with pytest.raises(ForeignFileError):
        House(house.disk).load(clean=False)
    house.disk.write_file(folder / "99999999999999999", b"\xff" * index_file_bytes(16, 8))
    with pytest.raises(CorruptionError, match="bad item count"):
        House(house.disk).load(clean=True)
    assert House(house.disk).load(clean=False).index.rebuild_from_physical < 1000
    assert "99999999999999999" not in house.names()


class Scenario:
    """A log and an index over several lives, each ended by a kill or a power cut."""

    def __init__(self, dice: random.Random, lazy: bool) -> None:
        self.dice = dice
        self.lazy = lazy
        self.items = dice.choice((100, 700))  # One page, or several.
        self.log: list[Row] = []
        self.house = self.open(ForgetfulDisk())
        self.serial = 0
        self.now = NOW

    def open(self, disk: ForgetfulDisk) -> House:
        return House(disk, slots=13, items=self.items, lazy=self.lazy).load(clean=False)

    def write(self) -> None:
        """Some records, dispatched in several rounds, now and then with the clock set back."""
        for _ in range(self.dice.randrange(1, 6)):
            batch = []
            for _ in range(self.dice.randrange(0, self.items)):
                self.serial += 1
                self.now += self.dice.choice((0, 0, 1, 300, 2_000, -1_000))
                physical = self.log[-1].physical + 50 if self.log else 0
                keys = [f"k{self.serial}.{n}" for n in range(self.dice.randrange(0, 4))]
                batch.append(Row(physical, self.now, keys))
                self.log.append(batch[-1])
            self.house.add(*batch)
            event = self.dice.random()
            if event < 0.2:
                self.house.index.flush()
            elif event < 0.4:
                self.house.index.seal()
            elif event < 0.6:
                assert isinstance(self.house.disk, ForgetfulDisk)
                self.house.disk.write_back(self.dice)

    def crash(self) -> None:
        """Lose the index's unsynced bytes, and perhaps the end of the log; then recover."""
        assert isinstance(self.house.disk, ForgetfulDisk)
        if self.dice.random() < 0.4:
            disk = self.house.disk.kill()
        else:
            disk = self.house.disk.power_cut(self.dice)
            if self.dice.random() < 0.5:
                del self.log[len(self.log) - self.dice.randrange(0, len(self.log) + 1) :]
        self.house = self.open(disk)
        if self.dice.random() < 0.3:  # Another crash, inside recovery.
            self.redo(self.dice.randrange(1, 50))
            self.house = self.open(disk.power_cut(self.dice))
        self.redo(len(self.log))
        self.house.index.truncate_physical(self.log[-1].physical + 50 if self.log else 0)
        if self.dice.random() < 0.7:
            self.house.index.flush()

    def redo(self, count: int) -> None:
        start = self.house.index.rebuild_from_physical
        self.house.add(*[row for row in self.log if row.physical >= start][:count])

    def check(self) -> None:
        end = self.log[-1].physical if self.log else -1
        wanted = {key: row.physical for row in self.log for key in row.keys}
        for (key, physical), found in zip(
            wanted.items(),
            self.house.index.query_offsets_many("t", list(wanted), 64, 0, FOREVER),
            strict=True,
        ):
            assert physical in found, key
        for file in self.house.index.files:
            assert file.end_physical <= max(0, end)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), lazy=st.booleans())
def test_after_any_crash_the_index_is_complete(seed: int, lazy: bool) -> None:
    scenario = Scenario(random.Random(seed), lazy)
    for _ in range(4):
        scenario.write()
        scenario.crash()
        scenario.check()


def test_a_crash_does_not_cost_the_whole_file() -> None:
    house = House(slots=50, items=2_000)
    house.add(*rows(900))
    assert isinstance(house.disk, ForgetfulDisk)
    after = House(house.disk.kill(), slots=50, items=2_000).load(clean=False)
    assert after.index.rebuild_from_physical >= 88_000 - 1_600


def test_a_reader_beside_a_living_writer() -> None:
    house = House(items=100_000, slots=1_000)
    reader = IndexReader(house.disk, house.config.index_dir, 1_000, 100_000)
    assert reader.query_offsets("t", "k0-0", 9, 0, FOREVER) == []
    for n in range(0, 30_000, 2_500):
        house.add(*rows(2_500, first=n))
        assert reader.query_offsets("t", f"k{n + 2499}-1", 9, 0, FOREVER) == [100 * (n + 2499)]
    house.disk.unlink(house.config.index_dir / house.names()[0])
    assert reader.query_offsets("t", "k0-0", 9, 0, FOREVER) == []
    house.disk.write_file(house.config.index_dir / "1", b"123")
    assert reader.query_offsets("t", "k0-0", 9, 0, FOREVER) == []
    house.disk.write_file(house.config.index_dir / "2", bytes(index_file_bytes(1_000, 100_000)))
    with pytest.raises(ForeignFileError):
        reader.query_offsets("t", "k0-0", 9, 0, FOREVER)


def test_readers_never_miss_what_was_added_before(tmp_path: Path) -> None:
    house = House(PosixDisk(), root=tmp_path, slots=97, items=400_000)
    old = rows(200, keys=1)
    house.add(*old)
    errors: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for row in old:
                if house.find(row.keys[0]) != [row.physical]:
                    errors.append(row.keys[0])

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    count = 100_000
    hashes = np.arange(count, dtype=np.int32) * 7 + 1_000_003
    for n in range(3):
        physical = np.arange(count) + 1_000_000 * (n + 1)
        house.index.add(
            physical, np.full(count, NOW + 500), np.arange(count + 1), hashes, np.zeros(count, np.int32)
        )
    done.set()
    for thread in threads:
        thread.join()
    assert not errors


def test_few_keys_need_no_numba() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/store'); from test_index import House, rows\n"
        "house = House(items=100); house.add(*rows(20)); assert house.find('k3-1') == [300]\n"
        "assert 'numba' not in sys.modules, 'numba was imported'"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)
