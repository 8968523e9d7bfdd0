"""A directory (or several) of equal-size files that together are one address space.

Answers to RocketMQ's MappedFileQueue and MultiPathMappedFileQueue. One writer; readers see an
immutable snapshot of the file list, so files may be rolled and deleted under them.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rockstrata.errors import CorruptionError, ForeignFileError
from rockstrata.store.disk import Disk
from rockstrata.store.handles import FileHandles
from rockstrata.store.mapped_file import MappedFile

_CHUNK_BYTES = 1 << 20


def file_name(start: int) -> str:
    """20 digits, as RocketMQ names files by the offset of their first byte."""
    return f"{start:020d}"


class MappedFileQueue:
    """Files sorted by their start; all of ``file_bytes``."""

    def __init__(
        self,
        handles: FileHandles,
        directories: Sequence[Path],
        file_bytes: int,
        *,
        reserve: bool = False,
        read_only: Iterable[Path] = (),
        is_full: Callable[[Path], bool] = lambda path: False,
        sync_levels: int = 1,
        rebuildable: bool = False,
    ) -> None:
        self.disk: Disk = handles.disk
        self.file_bytes = file_bytes
        self.directories = tuple(directories)
        self.files: tuple[MappedFile, ...] = ()
        self.by_start: dict[int, MappedFile] = {}
        self._handles = handles
        self._reserve = reserve
        self._read_only = frozenset(read_only)
        self._is_full = is_full
        self._sync_levels = sync_levels
        self._rebuildable = rebuildable
        self._unsynced_dirs: set[Path] = set()
        # The writer adds at the end while retention deletes at the start.
        self._list_lock = threading.Lock()

    # Loading

    def load(
        self, *, clean: bool = True, may_drop: Callable[[Sequence[Path]], bool] = lambda rest: False
    ) -> None:
        """Find the files. All cursors start at the full size; recovery moves them.

        An empty last file is removed (a crash at creation leaves one), after an unclean exit also one
        that is short and all zeros. After an unclean exit an empty or missing one before others is
        removed with them, if they are rebuilt anyway or ``may_drop`` says so: a power cut may save the
        names of several new files and not all their sizes, or in several directories not all their
        names. A name that is no number, or another length, is refused: nothing is guessed and nothing
        is deleted.
        """
        found = sorted(
            (name, directory)
            for directory in {*self.directories, *self._read_only}
            for name in self.disk.list_files(directory)
        )
        files: list[MappedFile] = []
        if not clean:
            # Who made or removed files may have died before that was durable.
            self._unsynced_dirs.update(path for path in self.directories if self.disk.exists(path))
        for n, (name, directory) in enumerate(found):
            path = directory / name
            if not (name.isascii() and name.isdigit() and len(name) == 20):
                raise ForeignFileError(
                    "foreign file among the store's",
                    path=path,
                    expected="a name of 20 digits",
                    found=name,
                    hint="move it away and start again",
                )
            length = self.disk.file_bytes(path)
            follows = not files or files[-1].end >= int(name)
            is_last = n == len(found) - 1
            is_unborn = length == 0 or (not clean and is_last and self._is_unborn(path, length))
            if is_unborn or not follows:
                rest = [directory / name for name, directory in found[n:]]
                is_leftover = is_unborn and is_last
                if is_leftover or (not clean and self._may_drop(rest, may_drop)):
                    self._remove(rest)
                    break
            self._check(path, int(name), length, files)
            file = MappedFile(path, int(name), self.file_bytes, self._handles)
            file.set_cursors(self.file_bytes)
            files.append(file)
            if not clean:
                self._unsynced_dirs.update(tuple(path.parents)[: self._sync_levels])
        self._publish(files)

    def _is_unborn(self, path: Path, length: int) -> bool:
        """Was the file being made when the process died? Reserving a large one takes several steps."""
        if length >= self.file_bytes:
            return False
        file = self.disk.open(path, writable=False)
        return not any(
            any(file.pread(at, min(_CHUNK_BYTES, end - at)))
            for first, end in file.data_ranges(0)
            for at in range(first, end, _CHUNK_BYTES)
        )

    def _may_drop(self, paths: Sequence[Path], may_drop: Callable[[Sequence[Path]], bool]) -> bool:
        # Only what a crash can leave behind: a file of any other size is somebody else's.
        sizes = {self.disk.file_bytes(path) for path in paths}
        return sizes <= {0, self.file_bytes} and (self._rebuildable or may_drop(paths))

    def _remove(self, paths: list[Path]) -> None:
        """Last one first, so that a crash leaves no hole; durably, so that none comes back."""
        for path in reversed(paths):
            self.disk.unlink(path)
        for directory in {path.parent for path in paths}:
            self.disk.sync_dir(directory)

    def _check(self, path: Path, start: int, length: int, before: list[MappedFile]) -> None:
        if length != self.file_bytes:
            raise ForeignFileError(
                "wrong file size",
                path=path,
                expected=self.file_bytes,
                found=length,
                hint="set the file size the store was written with, or restore the file from a copy",
            )
        if start % self.file_bytes:
            raise ForeignFileError(
                "file name is not a multiple of the file size",
                path=path,
                expected=f"k × {self.file_bytes}",
                found=start,
                hint="set the file size the store was written with",
            )
        if before and before[-1].start == start:
            raise ForeignFileError(
                "the same file twice",
                path=path,
                found=str(before[-1].path),
                hint="keep the newer copy, move the other away",
            )
        if before and before[-1].end != start:
            raise CorruptionError(
                "missing file",
                path=path,
                expected=file_name(before[-1].end),
                found=path.name,
                hint="restore the missing file from a copy, or move the files before the hole away",
            )

    def _publish(self, files: Iterable[MappedFile]) -> None:
        self.files = tuple(files)
        self.by_start = {file.start: file for file in self.files}

    # Asking

    @property
    def first(self) -> MappedFile | None:
        """Oldest file."""
        return self.files[0] if self.files else None

    @property
    def last(self) -> MappedFile | None:
        """Newest file."""
        return self.files[-1] if self.files else None

    @property
    def min_offset(self) -> int:
        """Start of the oldest file, -1 if there is none."""
        return self.files[0].start if self.files else -1

    @property
    def max_offset(self) -> int:
        """End of readable data, 0 if there is none."""
        files = self.files
        return files[-1].start + files[-1].readable if files else 0

    @property
    def wrote_offset(self) -> int:
        """End of appended data, readable or not yet."""
        files = self.files
        return files[-1].start + files[-1].wrote if files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds ``offset``."""
        return self.by_start.get(offset - offset % self.file_bytes)

    @property
    def total_bytes(self) -> int:
        """Bytes on disk, reserved ones included."""
        return len(self.files) * self.file_bytes

    # Growing

    def next_path(self, start: int) -> Path:
        """Where the file beginning at ``start`` belongs: paths take turns, full ones are skipped."""
        open_paths = [d for d in self.directories if d not in self._read_only]
        usable = sorted(d for d in open_paths if not self._is_full(d)) or sorted(open_paths)
        return usable[(start // self.file_bytes) % len(usable)] / file_name(start)

    def create(self, start: int) -> MappedFile:
        """Create the file on disk without adding it; the preallocator does this ahead of time."""
        path = self.next_path(start)
        self._handles.put(path, self.disk.create(path, self.file_bytes, reserve=self._reserve))
        return MappedFile(path, start, self.file_bytes, self._handles)

    def add(self, file: MappedFile) -> None:
        """Append a created file to the address space."""
        last = self.last
        assert last is None or last.end == file.start, (last, file)
        # The directories may be as new as the file: their own names must survive too.
        self._unsynced_dirs.update(tuple(file.path.parents)[: self._sync_levels])
        with self._list_lock:
            self._publish((*self.files, file))

    # Making durable

    def sync_dirs(self) -> None:
        """Make the names of new files durable; called before their content counts as flushed."""
        while self._unsynced_dirs:
            directory = self._unsynced_dirs.pop()
            try:
                self.disk.sync_dir(directory)
            except BaseException:
                self._unsynced_dirs.add(directory)
                raise

    # Shrinking

    def truncate_to(self, offset: int) -> None:
        """Drop files beginning at or after ``offset`` and set the cursors of the one that holds it.

        An ``offset`` at a file's very start drops that file too, unless it is the only one.
        """
        with self._list_lock:
            files = self.files
            keep = [
                file for file in files if file.start < offset or (file is files[0] and file.start == offset)
            ]
            if keep and offset < keep[-1].end:
                keep[-1].set_cursors(offset - keep[-1].start)
            self._publish(keep)
        self._erase_all(files[len(keep) :])

    def delete_first(self, file: MappedFile) -> bool:
        """Delete ``file`` if it is the oldest; readers that hold its view keep it.

        A file that cannot be deleted stays in the list: skipping it would leave a hole after it.
        """
        with self._list_lock:
            if not self.files or self.files[0] is not file:
                return False
            self._publish(self.files[1:])
        try:
            self._erase(file)
        except BaseException:
            with self._list_lock:
                self._publish((file, *self.files))
            raise
        return True

    def holds(self, file: MappedFile) -> bool:
        """False once ``file`` was deleted: a reader that came too late asks this."""
        return self.by_start.get(file.start) is file

    def destroy(self) -> None:
        """Delete all files."""
        with self._list_lock:
            files = self.files
            self._publish(())
        self._erase_all(files)

    def discard(self, file: MappedFile) -> None:
        """Delete a file that was created but never added."""
        assert not self.holds(file), file
        self._erase(file)

    def _erase_all(self, files: Sequence[MappedFile]) -> None:
        """Delete files from the last one backwards: a crash in between must not leave a hole."""
        for file in reversed(files):
            self._erase(file)
            # Else a file that was cut off could come back after a power cut, behind newer data.
            self._unsynced_dirs.add(file.path.parent)
            if len(self.directories) > 1:
                self.sync_dirs()

    def _erase(self, file: MappedFile) -> None:
        # In this order: a reader between the two must not bring the handle back.
        self.disk.unlink(file.path)
        self._handles.forget(file.path)
