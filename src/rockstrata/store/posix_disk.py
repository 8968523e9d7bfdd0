"""The real file system behind the store's disk seam.

Answers to what RocketMQ does through java.io.File. The default of every store; tests may bring
another.
"""

import os
import shutil
from pathlib import Path

from rockstrata.store.disk import DiskUsage, typed_errors
from rockstrata.store.posix_file import PosixFile
from rockstrata.store.posix_lock import PosixLock


class PosixDisk:
    """The real file system."""

    def create(self, path: Path, size: int, *, reserve: bool) -> PosixFile:
        """Create at full size; a full disk removes the file again and raises."""
        with typed_errors(path, "create"):
            path.parent.mkdir(parents=True, exist_ok=True)
            existed = path.exists()
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if reserve:
                    os.posix_fallocate(fd, 0, size)
                elif os.fstat(fd).st_size < size:
                    os.ftruncate(fd, size)
            except OSError:
                os.close(fd)
                if not existed:
                    path.unlink(missing_ok=True)
                raise
            return PosixFile(path, fd, size, writable=True)

    def open(self, path: Path, *, writable: bool = True) -> PosixFile:
        """Open an existing file at its present size."""
        with typed_errors(path, "open"):
            fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
            return PosixFile(path, fd, os.fstat(fd).st_size, writable)

    def exists(self, path: Path) -> bool:
        """True if something is there."""
        return path.exists()

    def file_bytes(self, path: Path) -> int:
        """Length of a file."""
        with typed_errors(path, "look at"):
            return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        """Time of the last change, in milliseconds."""
        with typed_errors(path, "look at"):
            return path.stat().st_mtime_ns // 1_000_000

    def list_files(self, path: Path) -> list[str]:
        """Sorted names of plain files."""
        return self._list(path, files=True)

    def list_dirs(self, path: Path) -> list[str]:
        """Sorted names of sub-directories."""
        return self._list(path, files=False)

    def _list(self, path: Path, *, files: bool) -> list[str]:
        with typed_errors(path, "list"):
            try:
                with os.scandir(path) as entries:
                    return sorted(e.name for e in entries if (e.is_file() if files else e.is_dir()))
            except FileNotFoundError:
                return []

    def read_bytes(self, path: Path) -> bytes:
        """The whole content."""
        with typed_errors(path, "read"):
            return path.read_bytes()

    def write_file(self, path: Path, data: bytes) -> None:
        """Write and sync a small file."""
        with typed_errors(path, "write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Atomic replace."""
        with typed_errors(source, "rename"):
            source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        with typed_errors(path, "remove"):
            path.unlink(missing_ok=True)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory."""
        with typed_errors(path, "remove"):
            try:
                path.rmdir()
            except FileNotFoundError:
                return

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents."""
        with typed_errors(path, "create"):
            path.mkdir(parents=True, exist_ok=True)

    def sync_dir(self, path: Path) -> None:
        """fsync a directory."""
        with typed_errors(path, "sync"):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def usage(self, path: Path) -> DiskUsage:
        """Space where ``path``, or its nearest existing parent, lies."""
        with typed_errors(path, "measure"):
            while not path.exists() and path != path.parent:
                path = path.parent
            total = shutil.disk_usage(path)
            return DiskUsage(total.used, total.free)

    def lock(self, path: Path) -> PosixLock:
        """RocketMQ's store lock."""
        with typed_errors(path, "lock"):
            path.parent.mkdir(parents=True, exist_ok=True)
            return PosixLock(path)
