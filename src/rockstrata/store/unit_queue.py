"""A file queue of fixed-size units, numbered from 0: what both kinds of consume queue are made of.

Answers to the file handling of RocketMQ's ConsumeQueue and BatchConsumeQueue. Units are read and
written through descriptors: a store may have a hundred thousand queues, too many to map.
"""

from pathlib import Path
from typing import Any

from rockstrata.errors import CorruptionError, DiskError
from rockstrata.layout import Layout
from rockstrata.store.disk import Buffer
from rockstrata.store.handles import FileHandles
from rockstrata.store.mapped_file_queue import MappedFileQueue

# Readers of RocketMQ skip a unit of this size at physical offset 0: it fills a queue that does not
# start at 0, before its first message.
PRE_BLANK_SIZE = 0x7FFF_FFFF
_RECOVER_FILES = 3
_CHECK_UNITS = 16_384


class QueueGapError(CorruptionError):
    """A unit would leave a hole before it."""


class UnitQueue:
    """Units [0, ``unit_count``), of which those below the first file's start are gone.

    One writer. ``physical_offset`` must be the first field of the layout and ``size`` the second.
    """

    def __init__(self, handles: FileHandles, directory: Path, file_bytes: int, layout: Layout) -> None:
        assert file_bytes % layout.size == 0, (file_bytes, layout.size)
        self.directory = directory
        self.layout = layout
        self.queue = MappedFileQueue(handles, (directory,), file_bytes, sync_levels=4, rebuildable=True)
        self.file_bytes = file_bytes
        # End of the last record that has a unit, -1 if none.
        self.max_physical = -1
        self._unit_bytes = layout.size
        self._blank = (0, PRE_BLANK_SIZE, *([0] * (len(layout.fields) - 2)))

    def load(self, *, clean: bool = True) -> None:
        """Find the files; ``recover`` then finds the end."""
        self.queue.load(clean=clean)

    @property
    def unit_count(self) -> int:
        """Number of the next unit to be written."""
        return self.queue.wrote_offset // self._unit_bytes

    @property
    def first_unit(self) -> int:
        """Number of the oldest unit that still has a file, 0 if there is no file."""
        return max(0, self.queue.min_offset) // self._unit_bytes

    def unit(self, number: int) -> tuple[Any, ...]:
        """One unit; the number must be in [first_unit, unit_count).

        One whose file was deleted meanwhile reads as a pre-blank unit: before everything in the log.
        """
        data = self.units(number, 1)
        if len(data) != self._unit_bytes:
            if not self.queue.files or number < self.first_unit:
                return self._blank
            raise CorruptionError(
                f"{self.layout.name} {number} is missing",
                path=self.directory,
                position=number * self._unit_bytes,
                hint="run `rockstrata store check`",
            )
        return self.layout.struct.unpack(data)

    def units(self, number: int, count: int) -> bytes:
        """Up to ``count`` units from ``number``, as far as their file and the queue go."""
        offset = number * self._unit_bytes
        file = self.queue.find(offset)
        if file is None:
            return b""
        position = offset - file.start
        length = min(count * self._unit_bytes, file.wrote - position)
        try:
            return file.file.pread(position, length) if length > 0 else b""
        except DiskError:
            if self.queue.holds(file):
                raise
            return b""

    def append(self, number: int, units: Buffer, max_physical: int) -> None:
        """Write units from ``number`` on. Units already there are left alone; a gap is refused.

        The refusal keeps offsets true: RocketMQ would write at the end and so shift every later one.
        A unit below the end for a record newer than all others means that the topic was deleted and
        made again: the queue starts over there.
        """
        size = self._unit_bytes
        data = memoryview(units)
        if not self.queue.files:
            self._begin(number)
        end = self.unit_count
        if number > end:
            raise QueueGapError(
                "gap in a consume queue", path=self.directory, position=end * size,
                expected=f"unit {end}", found=f"unit {number}",
                hint="stop the store and delete this queue's directory: the next start rebuilds it",
            )  # fmt: skip
        if number < end and self.layout.struct.unpack_from(data)[0] >= self.max_physical >= 0:
            self._start_over(number)
            end = number
        data = data[(end - number) * size :]
        while data:
            file = self.queue.last
            assert file is not None
            if file.is_full:
                file = self.queue.create(file.end)
                self.queue.add(file)
            part = data[: file.size - file.wrote]
            file.write_at(file.wrote, part)
            data = data[len(part) :]
        self.max_physical = max(self.max_physical, max_physical)

    def _start_over(self, number: int) -> None:
        if number < self.first_unit:
            self.queue.destroy()
            self._begin(number)
        else:
            self.truncate(number)

    def _begin(self, number: int) -> None:
        """Create the first file where ``number`` belongs, with pre-blank units before it."""
        offset = number * self._unit_bytes
        file = self.queue.create(offset - offset % self.file_bytes)
        self.queue.add(file)
        position = offset - file.start
        if position:
            file.write_at(0, self.layout.struct.pack(*self._blank) * (position // self._unit_bytes))

    def first_where(self, low: int, high: int, minimum_physical: int) -> int:
        """The first unit in [low, high) of a record at or after ``minimum_physical``, else ``high``.

        Pre-blank units count as before everything.
        """
        while low < high:
            middle = (low + high) // 2
            physical, size = self.unit(middle)[:2]
            if physical < minimum_physical or (physical == 0 and size == PRE_BLANK_SIZE):
                low = middle + 1
            else:
                high = middle
        return low

    # Recovery

    def recover(self, *, clean: bool, whole_before: int = 0) -> None:
        """Find the end of valid units. After a clean exit they have no holes, so a bisection does.

        After an unclean one there may be holes, but none among units of records before
        ``whole_before``.
        """
        files = self.queue.files
        if not files:
            return
        start = max(0, len(files) - _RECOVER_FILES)
        while not clean and start > 0 and not self._begins_before(files[start].start, whole_before):
            start -= 1
        for file in files[start:]:
            count = file.size // self._unit_bytes
            valid = self._valid_prefix(file.start, count, clean=clean)
            if valid < count:
                self.queue.truncate_to(file.start + valid * self._unit_bytes)
                self._zero_tail()
                break
        self._note_max_physical()

    def _begins_before(self, start: int, physical_offset: int) -> bool:
        """Is the unit at byte ``start`` one of a record before ``physical_offset``?"""
        physical, size = self.unit(start // self._unit_bytes)[:2]
        return bool(size > 0 and 0 <= physical < physical_offset)

    def _valid_prefix(self, start: int, count: int, *, clean: bool) -> int:
        import numpy as np

        first = start // self._unit_bytes
        if clean:
            low, high = 0, count
            while low < high:
                middle = (low + high) // 2
                physical, size = self.unit(first + middle)[:2]
                low, high = (middle + 1, high) if physical >= 0 and size > 0 else (low, middle)
            return low
        for begin in range(0, count, _CHECK_UNITS):
            data = self.units(first + begin, min(_CHECK_UNITS, count - begin))
            units = np.frombuffer(data, self.layout.dtype)
            bad = (units["physical_offset"] < 0) | (units["size"] <= 0)
            if bad.any():
                return begin + int(bad.argmax())
        return count

    def truncate(self, unit_count: int) -> None:
        """Drop the units from ``unit_count`` on, and their bytes: recovery must not find them again."""
        if unit_count < self.unit_count:
            self.queue.truncate_to(unit_count * self._unit_bytes)
            self._zero_tail()
            self._note_max_physical()

    def truncate_physical(self, end: int) -> None:
        """Drop the units of records at or after physical offset ``end``."""
        low, count = self.first_unit, self.unit_count
        if low < count:
            physical, size = self.unit(count - 1)[:2]
            if physical >= end and not (physical == 0 and size == PRE_BLANK_SIZE):
                self.truncate(self.first_where(low, count, end))

    def _zero_tail(self) -> None:
        """Wipe what follows the last unit; what was never written is not even read."""
        file = self.queue.last
        if file is None or file.is_full:
            return
        for first, end in file.file.data_ranges(file.wrote):
            rest = file.file.pread(first, end - first)
            if rest.count(0) != len(rest):
                file.file.pwrite(first, bytes(len(rest)))
                # Below 0: the zeros must become durable even if no unit is left before them.
                file.flushed = -1

    def _note_max_physical(self) -> None:
        self.max_physical = -1
        count = self.unit_count
        if count > self.first_unit:
            physical, size = self.unit(count - 1)[:2]
            if size != PRE_BLANK_SIZE:
                self.max_physical = physical + size

    # Retention and durability

    def flush(self, least_pages: int = 0) -> None:
        """Make the units durable."""
        if least_pages == 0:
            self._sync_dirs()
        for file in self.queue.files:
            if not file.can_flush(least_pages):
                continue
            try:
                self.queue.sync_dirs()
                file.flush()
            except DiskError:
                # A file deleted meanwhile, by retention or with its topic, has nothing to lose.
                if self.queue.holds(file):
                    raise

    def _sync_dirs(self) -> None:
        """Make removals durable too: files that were cut off must not come back."""
        try:
            self.queue.sync_dirs()
        except DiskError:
            if self.queue.disk.exists(self.directory):
                raise

    def drop_if_empty(self) -> None:
        """Delete the file of a queue without units: RocketMQ would take its first zeros for one."""
        if self.queue.files and self.unit_count == 0:
            self.queue.destroy()

    def delete_files_before(self, minimum_physical: int) -> int:
        """Delete files whose last unit points before ``minimum_physical``, never the last file."""
        deleted = 0
        for file in self.queue.files[:-1]:
            physical = self.unit(file.end // self._unit_bytes - 1)[0]
            if physical >= minimum_physical or not self.queue.delete_first(file):
                break
            deleted += 1
        return deleted

    def destroy(self) -> None:
        """Delete every file, durably, and the directory if nobody put anything else into it."""
        disk = self.queue.disk
        self.queue.destroy()
        self._sync_dirs()
        self.max_physical = -1
        if not disk.list_files(self.directory) and not disk.list_dirs(self.directory):
            disk.remove_dir(self.directory)
