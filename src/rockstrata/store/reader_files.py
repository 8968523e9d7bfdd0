"""The files of a directory that somebody else rolls and deletes while we look.

Answers to no RocketMQ class. Base of the reader's log and queues: lists, opens read-only, reads with
pread, and takes a file that is gone as gone.
"""

from pathlib import Path

from rockstrata.errors import DiskError
from rockstrata.store.disk import Disk
from rockstrata.store.handles import FileHandles


class ReaderFiles:
    """Equal-size files named by their first byte's offset, in one or several directories."""

    def __init__(self, handles: FileHandles, directories: tuple[Path, ...], file_bytes: int | None) -> None:
        self._handles = handles
        self._disk: Disk = handles.disk
        self._directories = directories
        self._file_bytes = file_bytes
        self._paths: dict[int, Path] = {}
        self.refresh()

    @property
    def file_bytes(self) -> int:
        """Size of each file; learnt from the first file if it was not given, 0 before there is one."""
        return self._file_bytes or 0

    @property
    def starts(self) -> list[int]:
        """First offsets of the files, oldest first."""
        return sorted(self._paths)

    def path(self, start: int) -> Path | None:
        """The file that begins at ``start``, None if it is not there."""
        return self._paths.get(start)

    def refresh(self) -> None:
        """Look again. A file of another size is still being made and not there yet."""
        found: dict[int, Path] = {}
        for directory in self._directories:
            for name in self._disk.list_files(directory):
                if name.isascii() and name.isdigit() and len(name) == 20:
                    found[int(name)] = directory / name
        if self._file_bytes is None:
            # The oldest one may be gone already, the newest one still be empty.
            sizes = (self._size(found[start]) for start in sorted(found))
            self._file_bytes = next((size for size in sizes if size > 0), None)
        paths: dict[int, Path] = {}
        for start, path in found.items():
            # The size of a file never changes once it is there: known ones are not asked again.
            if self._paths.get(start) == path or self._size(path) == self._file_bytes:
                paths[start] = path
        for start, path in self._paths.items():
            if start not in paths:
                self._handles.forget(path)
        self._paths = paths

    def _size(self, path: Path) -> int:
        try:
            return self._disk.file_bytes(path)
        except DiskError:
            return -1

    def pread(self, offset: int, length: int) -> bytes | None:
        """Bytes at an address, within one file; None if the file is not there (any more)."""
        if not self._file_bytes:
            # Nothing was there when we looked last.
            self.refresh()
            if not self._file_bytes:
                return None
        start = offset - offset % self._file_bytes
        path = self._paths.get(start)
        if path is None:
            self.refresh()
            path = self._paths.get(start)
            if path is None:
                return None
        position = offset - start
        length = min(length, self._file_bytes - position)
        try:
            return self._handles.get(path).pread(position, length)
        except DiskError:
            if self._disk.exists(path):
                raise
            # Older ones are gone with it: who asks for the oldest must not be sent to them.
            self.refresh()
            return None
