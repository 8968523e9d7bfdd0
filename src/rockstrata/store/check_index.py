"""Index files against the log: every key of every record is there, and its chain leads to it.

Answers to no RocketMQ class. Fed with the log window by window by ``StoreCheck``. Tags are not asked
for: RocketMQ before 5.5.0 does not index them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.message.scan import Scan
from rockstrata.store.check_findings import Finding, FindingKind, Progress
from rockstrata.store.disk import Disk
from rockstrata.store.index_file import INDEX_HEADER, INDEX_ITEM, INT_MAX, SLOT, index_file_bytes
from rockstrata.store.store_config import StoreConfig

_ITEMS_AT_ONCE = 1 << 18
_HASH_BITS = np.int64(32)
_LONG_MAX = 2**63 - 1


@dataclass
class _File:
    """One index file as arrays; ``count`` is the number of the next item."""

    path: Path
    begin_timestamp: int
    end_timestamp: int
    begin_physical: int
    end_physical: int
    used_slots: int
    count: int
    slots: NDArray[Any]
    items: NDArray[Any]


class IndexCheck:
    """All index files. Findings at or after ``notes_from`` are notes: a start indexes those records anew."""

    def __init__(self, config: StoreConfig, disk: Disk, notes_from: int | None, *, is_live: bool) -> None:
        self.wanted = config.message_index_enable
        self.keys = 0
        self.items = 0
        self._config = config
        self._disk = disk
        self._notes_from = notes_from
        self._is_live = is_live
        # Start of the log; items that point before it are of records that were deleted in order.
        self._begin = 0
        self._last_name = ""
        self._files: list[_File] = []
        self._file = 0
        self._item = 1
        self._missing: Finding | None = None

    def open(self, log_begin: int) -> Iterator[Finding]:
        """Open the files and look at their sizes and headers."""
        config, self._begin = self._config, log_begin
        size = index_file_bytes(config.max_hash_slot_num, config.max_index_num)
        names = [n for n in self._disk.list_files(config.index_dir) if n.isascii() and n.isdigit()]
        self._last_name = names[-1] if names else ""
        for name in names if self.wanted else ():
            path = config.index_dir / name
            file = self._disk.open(path, writable=False)
            if file.size != size:
                # A file is short for a moment after it is made; a crash then leaves it so.
                is_new = name == names[-1] and file.size < size
                yield self._bad(path, 0, "index file of another size", str(size), str(file.size), note=is_new)
                continue
            view = file.view()
            begin, end, begin_physical, end_physical, used_slots, count = INDEX_HEADER.struct.unpack_from(
                view
            )
            if not 0 <= count <= config.max_index_num:
                position = INDEX_HEADER.positions["index_count"]
                yield self._bad(path, position, "bad item count", f"0 to {config.max_index_num}", str(count))
                continue
            items_at = INDEX_HEADER.size + SLOT.size * config.max_hash_slot_num
            slots: Any = np.frombuffer(view, ">i4", config.max_hash_slot_num, INDEX_HEADER.size)
            items: Any = np.frombuffer(view, INDEX_ITEM.dtype, config.max_index_num, items_at)
            self._files.append(
                _File(path, begin, end, begin_physical, end_physical, used_slots, max(1, count), slots, items)
            )
            self.items += max(0, count - 1)

    # Records

    def records(self, found: Scan, start: int, path: Path) -> Iterator[Finding]:
        """Every key of these records must be among the items that point at them."""
        if not self.wanted or not len(found):
            return
        first, end = int(found.key_first[0]), int(found.key_first[len(found)])
        physical = np.repeat(found.position, np.diff(found.key_first[: len(found) + 1]))
        self.keys += end - first
        begin = int(found.position[0])
        limit = int(found.position[-1]) + int(found.size[-1])
        yield from self._older(start + begin)
        codes = [np.empty(0, np.int64)]
        for file, number, items in self._until(start + limit):
            positions = items["physical_offset"].astype(np.int64) - start
            yield from self._items(file, number, items, positions, found)
            codes.append((positions - begin) << _HASH_BITS | items["key_hash"].astype(np.int64))
        wanted = (physical - begin) << _HASH_BITS | found.key_hash[first:end].astype(np.int64)
        missing = np.flatnonzero(~np.isin(wanted, np.concatenate(codes)))
        if missing.size:
            yield from self._note_missing(path, start, physical[missing])

    def _older(self, physical_offset: int) -> Iterator[Finding]:
        """Items that point before the window: into what could not be read, or before the log."""
        count, where = 0, None
        for file, number, items in self._until(physical_offset):
            old = items["physical_offset"] >= self._begin
            if old.any():
                where = where or (file, number + int(old.argmax()))
                count += int(old.sum())
        if where is not None:
            yield self._stray(where[0], where[1], count)

    def _until(self, physical_end: int) -> Iterator[tuple[_File, int, NDArray[Any]]]:
        """The next items, as long as they point before ``physical_end``."""
        while self._file < len(self._files):
            file = self._files[self._file]
            items = file.items[self._item : min(file.count, self._item + _ITEMS_AT_ONCE)]
            past = np.flatnonzero(items["physical_offset"] >= physical_end)
            taken = int(past[0]) if past.size else len(items)
            if taken:
                yield file, self._item, items[:taken]
            self._item += taken
            if past.size:
                return
            if self._item >= file.count:
                self._file, self._item = self._file + 1, 1

    def _items(
        self, file: _File, number: int, items: NDArray[Any], positions: NDArray[np.int64], found: Scan
    ) -> Iterator[Finding]:
        """Items of a window point at records, with the records' times."""
        row = np.minimum(np.searchsorted(found.position, positions), len(found) - 1)
        stray = np.flatnonzero(found.position[row] != positions)
        if stray.size:
            yield self._stray(file, number + int(stray[0]), stray.size)
        seconds = np.zeros(len(items), np.int64)
        if file.begin_timestamp > 0:
            seconds = np.clip((found.store_timestamp[row] - file.begin_timestamp) // 1000, 0, INT_MAX)
        wrong = (items["time_diff_s"] != seconds) & (found.position[row] == positions)
        if number == 1:
            # The first item counts from the end of the file before, as in RocketMQ.
            wrong[0] = False
        if wrong.any():
            at = int(wrong.argmax())
            yield self._bad(
                file.path, self._position(number + at),
                f"item {number + at} has another time than its record", f"{int(seconds[at])} s",
                f"{int(items['time_diff_s'][at])} s", count=int(wrong.sum()),
            )  # fmt: skip

    def _note_missing(self, path: Path, start: int, positions: NDArray[np.int64]) -> Iterator[Finding]:
        first = int(positions[0])
        note = self._notes_from is not None and start + first >= self._notes_from
        what = (
            "no index file holds the keys of records"
            if not self._files
            else "keys of records are not indexed"
        )
        before = self._missing
        if before is not None and before.note == note and before.what.startswith(what):
            count, place = before.count + len(positions), (before.path, before.position)
        else:
            if before is not None:
                yield before
            count, place = len(positions), (str(path), first)
        what += f", the last at physical offset {start + int(positions[-1])}"
        self._missing = Finding(
            FindingKind.MISSING_KEY, *place, what, "an item for every key", "none", count, note
        )

    # Structure

    def finish(self, log_end: int) -> Iterator[Finding | Progress]:
        """What is left over, then header and chains of every file."""
        if self._missing is not None:
            yield self._missing
        if not self._is_live:
            yield from self._older(log_end)
            left = [(file, number, len(items)) for file, number, items in self._until(_LONG_MAX)]
            if left:
                yield self._stray(left[0][0], left[0][1], sum(count for _, _, count in left))
        for number, file in enumerate(self._files):
            yield Progress("index", number, len(self._files))
            yield from self._header(file)
            yield from self._chains(file)

    def _header(self, file: _File) -> Iterator[Finding]:
        if file.count <= 1:
            return
        first, last = file.items[1], file.items[file.count - 1]
        for name, expected, found in (
            ("begin_physical", int(first["physical_offset"]), file.begin_physical),
            ("end_physical", int(last["physical_offset"]), file.end_physical),
        ):
            if expected != found:
                yield self._bad(
                    file.path, INDEX_HEADER.positions[name], f"header: {name}", str(expected), str(found)
                )
        if file.begin_timestamp > file.end_timestamp:
            yield self._bad(
                file.path,
                0,
                "header: begins after its end",
                f"at most {file.end_timestamp}",
                str(file.begin_timestamp),
            )

    def _chains(self, file: _File) -> Iterator[Finding]:
        """Every item must lead to the one before it in its slot, and every slot to its newest."""
        heads = np.zeros(len(file.slots), np.int32)
        last_physical = 0
        broken: tuple[int, int, int] | None = None
        count = 0
        for begin in range(1, file.count, _ITEMS_AT_ONCE):
            items = file.items[begin : min(file.count, begin + _ITEMS_AT_ONCE)]
            physical = items["physical_offset"].astype(np.int64)
            if (np.diff(physical, prepend=last_physical) < 0).any() or (items["key_hash"] < 0).any():
                yield self._bad(file.path, self._position(begin), "items out of the order of the log", "", "")
            last_physical = int(physical[-1])
            slot = items["key_hash"].astype(np.int64) % len(heads)
            order = np.argsort(slot, kind="stable")
            slots, numbers = slot[order], (order + begin).astype(np.int32)
            follows = np.concatenate(([False], slots[1:] == slots[:-1]))
            previous = np.where(follows, np.concatenate(([0], numbers[:-1])), heads[slots])
            heads[slots[np.append(~follows[1:], True)]] = numbers[np.append(~follows[1:], True)]
            wrong = np.flatnonzero(items["previous"][order] != previous)
            count += wrong.size
            if wrong.size and broken is None:
                at = int(wrong[0])
                broken = int(numbers[at]), int(previous[at]), int(items["previous"][order][at])
        if broken is not None:
            yield self._bad(
                file.path, self._position(broken[0]), f"item {broken[0]} breaks its chain",
                f"item {broken[1]}", f"item {broken[2]}", count=count,
            )  # fmt: skip
        yield from self._slots(file, heads)

    def _slots(self, file: _File, heads: NDArray[np.int32]) -> Iterator[Finding]:
        wrong = np.flatnonzero(file.slots != heads)
        is_written = self._is_live and file is self._files[-1]
        if is_written:
            # Beside an owner a slot may already lead to an item newer than our look at the count.
            wrong = wrong[file.slots[wrong] < file.count]
        if wrong.size:
            slot = int(wrong[0])
            yield self._bad(
                file.path, INDEX_HEADER.size + SLOT.size * slot, f"slot {slot} leads to the wrong item",
                f"item {int(heads[slot])}", f"item {int(file.slots[slot])}", count=int(wrong.size),
            )  # fmt: skip
        elif int(np.count_nonzero(heads)) != file.used_slots and not is_written:
            position = INDEX_HEADER.positions["used_slots"]
            yield self._bad(
                file.path,
                position,
                "header: used_slots",
                str(int(np.count_nonzero(heads))),
                str(file.used_slots),
            )

    def _position(self, number: int) -> int:
        return INDEX_HEADER.size + SLOT.size * self._config.max_hash_slot_num + INDEX_ITEM.size * number

    def _stray(self, file: _File, number: int, count: int) -> Finding:
        offset = int(file.items[number]["physical_offset"])
        note = self._notes_from is not None and offset >= self._notes_from
        return Finding(
            FindingKind.STRAY_KEY, str(file.path), self._position(number),
            f"index item {number} points at no record", f"a record at {offset}", "none", count, note,
        )  # fmt: skip

    def _bad(
        self,
        path: Path,
        position: int,
        what: str,
        expected: str,
        found: str,
        *,
        count: int = 1,
        note: bool = False,
    ) -> Finding:
        # After a crash the file that was being written is looked through and mended by the next start.
        note = note or (self._notes_from is not None and path.name == self._last_name)
        return Finding(FindingKind.BAD_INDEX, str(path), position, what, expected, found, count, note)
