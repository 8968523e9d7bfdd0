"""The seam to the file system: every byte the store reads or writes passes here.

Answers to what RocketMQ does through FileChannel, MappedByteBuffer and File. The only module that
imports mmap. ``rockstrata.testing.ForgetfulDisk`` is its treacherous twin.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from rockstrata.errors import DiskError, DiskFullError, RockstrataError, StoreLockedError

Buffer = bytes | bytearray | memoryview
PAGE_BYTES = 4096
_MADV_POPULATE_WRITE = 23  # Linux 5.14; not in the mmap module before Python 3.13.


class DiskUsage(NamedTuple):
    """Space of the file system that holds a path."""

    used_bytes: int
    usable_bytes: int

    @property
    def ratio(self) -> float:
        """Used share, rounded up to a whole percent as RocketMQ does."""
        total = self.used_bytes + self.usable_bytes
        return -(-100 * self.used_bytes // total) / 100 if total else -1.0


class DiskFile(Protocol):
    """One open file of fixed size. It closes itself when nobody refers to it any more, so a reader
    never meets a closed or re-used descriptor."""

    path: Path
    size: int

    def pread(self, position: int, length: int) -> bytes:
        """Up to ``length`` bytes at ``position``; fewer only at the end of the file."""
        ...

    def pwrite(self, position: int, data: Buffer) -> None:
        """Write all of ``data``; other readers see it at once, a power cut may undo it."""
        ...

    def sync(self) -> None:
        """Return when everything written so far survives a power cut."""
        ...

    def view(self) -> memoryview:
        """The whole file as writable shared memory; stays valid after the file is unlinked."""
        ...

    def populate(self, position: int, length: int) -> None:
        """Bring pages into the view ahead of their use. A hint: may do nothing."""
        ...

    def data_ranges(self, position: int) -> Iterator[tuple[int, int]]:
        """Ranges from ``position`` on outside of which every byte is surely zero."""
        ...


class Disk(Protocol):
    """What the store needs of a file system."""

    def create(self, path: Path, size: int, *, reserve: bool) -> DiskFile:
        """Create (or extend to) a zero-filled file of ``size`` bytes.

        ``reserve`` claims the blocks now: a later write through the view cannot meet a full disk.
        """
        ...

    def open(self, path: Path, *, writable: bool = True) -> DiskFile:
        """Open an existing file."""
        ...

    def exists(self, path: Path) -> bool: ...
    def file_bytes(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def list_files(self, path: Path) -> list[str]:
        """Names of the plain files in a directory, sorted; empty if there is no such directory."""
        ...

    def list_dirs(self, path: Path) -> list[str]:
        """Names of the sub-directories, sorted; empty if there is no such directory."""
        ...

    def read_bytes(self, path: Path) -> bytes: ...
    def write_file(self, path: Path, data: bytes) -> None:
        """Create or replace the content, synced. Not atomic: rename over for that."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None:
        """Remove a file; an absent one is no error."""
        ...

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory; an absent one is no error."""
        ...

    def make_dirs(self, path: Path) -> None: ...
    def sync_dir(self, path: Path) -> None:
        """Return when creations, renames and removals in the directory survive a power cut."""
        ...

    def usage(self, path: Path) -> DiskUsage: ...
    def lock(self, path: Path) -> "DiskLock":
        """Take RocketMQ's exclusive lock or raise ``StoreLockedError``."""
        ...


class DiskLock(Protocol):
    """An exclusive lock held until ``release``."""

    def release(self) -> None: ...


def disk_error(error: OSError, path: Path, doing: str) -> RockstrataError:
    """The typed twin of an OSError."""
    if isinstance(error, RockstrataError):
        return error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            f"disk full: cannot {doing}", path=path, hint="free space or lower fileReservedTime, then retry"
        )
    what = f"cannot {doing}: {error.strerror or error}"
    return DiskError(what, path=path, hint="check the disk and its rights")


@contextmanager
def _typed(path: Path, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, doing) from error


class PosixFile:
    """A file by descriptor, mapped on demand."""

    __slots__ = ("_address", "_fd", "_view", "_writable", "path", "size")

    def __init__(self, path: Path, fd: int, size: int, writable: bool) -> None:
        self.path = path
        self.size = size
        self._fd = fd
        self._writable = writable
        self._view: memoryview | None = None
        self._address = 0

    def __del__(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def pread(self, position: int, length: int) -> bytes:
        """Read at a position; loops over short reads."""
        try:
            data = os.pread(self._fd, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length and (data := os.pread(self._fd, length - got, position + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise disk_error(error, self.path, "read") from error

    def pwrite(self, position: int, data: Buffer) -> None:
        """Write at a position; loops over short writes."""
        try:
            done = os.pwrite(self._fd, data, position)
            while done < len(data):
                done += os.pwrite(self._fd, memoryview(data)[done:], position + done)
        except OSError as error:
            raise disk_error(error, self.path, "write") from error

    def sync(self) -> None:
        """``fdatasync``: unlike ``mmap.flush`` it lets other Python threads run."""
        with _typed(self.path, "sync"):
            os.fdatasync(self._fd)

    def view(self) -> memoryview:
        """Map the file once; the map lives as long as any view of it."""
        if self._view is None:
            with _typed(self.path, "map"):
                access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
                self._view = memoryview(mmap.mmap(self._fd, self.size, access=access))
        return self._view

    def populate(self, position: int, length: int) -> None:
        """Fault pages in with one call outside the GIL; kernels before 5.14 refuse, which is fine."""
        view = self.view()
        if not self._address:
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        start = position - position % PAGE_BYTES
        _libc.madvise(
            ctypes.c_void_p(self._address + start),
            ctypes.c_size_t(min(length, self.size - start)),
            _MADV_POPULATE_WRITE,
        )

    def data_ranges(self, position: int) -> Iterator[tuple[int, int]]:
        """What the file system has written; reserved and never written blocks are left out."""
        while position < self.size:
            try:
                start = os.lseek(self._fd, position, os.SEEK_DATA)
                end = os.lseek(self._fd, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise disk_error(error, self.path, "seek in") from error
            yield start, min(end, self.size)
            position = end


_libc = ctypes.CDLL(None, use_errno=True)
# Linux's struct flock: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


class PosixLock:
    """RocketMQ's ``lock`` file: a POSIX record lock on byte 0, which excludes a Java broker too.

    POSIX locks belong to the process, so a second store in this very process is told by a table.
    """

    _held: ClassVar[set[str]] = set()

    def __init__(self, path: Path) -> None:
        self._key = str(path.resolve())
        if self._key in PosixLock._held:
            raise StoreLockedError("store is already open in this process", path=path, hint="close it first")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._fd)
            raise StoreLockedError(
                "another process owns this store",
                path=path,
                hint="stop that broker, or read beside it (`rockstrata store get|dump|stat`)",
            ) from error
        PosixLock._held.add(self._key)
        os.pwrite(self._fd, b"lock", 0)

    @staticmethod
    def holder(path: Path) -> int | None:
        """The process that holds the lock, without taking it; 0 if it cannot be named."""
        if str(path.resolve()) in PosixLock._held:
            # Not asked of the system: closing the file would give this process's own lock back.
            return os.getpid()
        if not path.exists():
            return None
        fd = os.open(path, os.O_RDONLY)
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        finally:
            os.close(fd)
        return None if kind == fcntl.F_UNLCK else max(0, pid)

    def release(self) -> None:
        """Give the lock back; the file stays, as RocketMQ leaves it."""
        if self._fd >= 0:
            PosixLock._held.discard(self._key)
            os.close(self._fd)
            self._fd = -1


class PosixDisk:
    """The real file system."""

    def create(self, path: Path, size: int, *, reserve: bool) -> PosixFile:
        """Create at full size; a full disk removes the file again and raises."""
        with _typed(path, "create"):
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
        with _typed(path, "open"):
            fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
            return PosixFile(path, fd, os.fstat(fd).st_size, writable)

    def exists(self, path: Path) -> bool:
        """True if something is there."""
        return path.exists()

    def file_bytes(self, path: Path) -> int:
        """Length of a file."""
        with _typed(path, "look at"):
            return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        """Time of the last change, in milliseconds."""
        with _typed(path, "look at"):
            return path.stat().st_mtime_ns // 1_000_000

    def list_files(self, path: Path) -> list[str]:
        """Sorted names of plain files."""
        return self._list(path, files=True)

    def list_dirs(self, path: Path) -> list[str]:
        """Sorted names of sub-directories."""
        return self._list(path, files=False)

    def _list(self, path: Path, *, files: bool) -> list[str]:
        with _typed(path, "list"):
            try:
                with os.scandir(path) as entries:
                    return sorted(e.name for e in entries if (e.is_file() if files else e.is_dir()))
            except FileNotFoundError:
                return []

    def read_bytes(self, path: Path) -> bytes:
        """The whole content."""
        with _typed(path, "read"):
            return path.read_bytes()

    def write_file(self, path: Path, data: bytes) -> None:
        """Write and sync a small file."""
        with _typed(path, "write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Atomic replace."""
        with _typed(source, "rename"):
            source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        with _typed(path, "remove"):
            path.unlink(missing_ok=True)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory."""
        with _typed(path, "remove"):
            try:
                path.rmdir()
            except FileNotFoundError:
                return

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents."""
        with _typed(path, "create"):
            path.mkdir(parents=True, exist_ok=True)

    def sync_dir(self, path: Path) -> None:
        """fsync a directory."""
        with _typed(path, "sync"):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def usage(self, path: Path) -> DiskUsage:
        """Space where ``path``, or its nearest existing parent, lies."""
        with _typed(path, "measure"):
            while not path.exists() and path != path.parent:
                path = path.parent
            total = shutil.disk_usage(path)
            return DiskUsage(total.used, total.free)

    def lock(self, path: Path) -> PosixLock:
        """RocketMQ's store lock."""
        with _typed(path, "lock"):
            path.parent.mkdir(parents=True, exist_ok=True)
            return PosixLock(path)
