"""The seam to the file system: every byte the store reads or writes passes here.

Answers to what RocketMQ does through FileChannel, MappedByteBuffer and File. ``PosixDisk`` is the
real one, ``rockstrata.testing.ForgetfulDisk`` its treacherous twin.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from rockstrata.errors import DiskError, DiskFullError, RockstrataError

Buffer = bytes | bytearray | memoryview
PAGE_BYTES = 4096


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

    def is_linked(self) -> bool:
        """False once the name was removed, or belongs to another file."""
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
def typed_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn every OSError of the block into its typed twin."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, doing) from error
