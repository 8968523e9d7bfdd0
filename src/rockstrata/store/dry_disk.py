"""A disk on which everything can be tried and nothing changes: reads are real, writes stay in memory.

Answers to no RocketMQ class. ``plan_repair`` opens a store on it, so that what a repair would cut is
known, exactly, before anything is cut.
"""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from rockstrata.errors import DiskError
from rockstrata.store.disk import Buffer, DiskFile, DiskLock, DiskUsage
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.posix_file import PosixFile
from rockstrata.store.recovery import RecoveryReport
from rockstrata.store.store_config import StoreConfig


class DryFile:
    """A real file whose changes are private to this process; the disk keeps those that have any."""

    def __init__(self, disk: "DryDisk", real: PosixFile) -> None:
        self.path = real.path
        self.size = real.size
        self._disk = disk
        self._real = real
        self._view: memoryview | None = None

    def pread(self, position: int, length: int) -> bytes:
        """From the private copy if there is one."""
        if self._view is None:
            return self._real.pread(position, length)
        return bytes(self._view[position : position + length])

    def pwrite(self, position: int, data: Buffer) -> None:
        """Into the private copy."""
        self.view()[position : position + len(data)] = data

    def sync(self) -> None:
        """Nothing to do."""

    def view(self) -> memoryview:
        """Mapped copy-on-write: only changed pages take memory."""
        if self._view is None:
            import numpy as np

            self._view = memoryview(np.memmap(self._real.path, np.uint8, mode="c"))  # type: ignore[arg-type]
            self._disk.keep(self)
        return self._view

    def populate(self, position: int, length: int) -> None:
        """Nothing to do."""

    def is_linked(self) -> bool:
        """Of the real file."""
        return self._real.is_linked()

    def data_ranges(self, position: int) -> Iterator[tuple[int, int]]:
        """Of the real file; everything once there are changes."""
        if self._view is None:
            return self._real.data_ranges(position)
        return iter([(position, self.size)])


class DryDisk:
    """Overlays the file system with what was made, changed and removed here."""

    def __init__(self) -> None:
        self._real = PosixDisk()
        self._scratch = tempfile.TemporaryDirectory(prefix="rockstrata-dry-")
        self._names = itertools.count()
        self._kept: dict[Path, DiskFile] = {}
        self._gone: set[Path] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kept.clear()
        self._scratch.cleanup()

    def keep(self, file: DiskFile) -> None:
        """Remember a file with changes."""
        self._kept[file.path] = file

    def create(self, path: Path, size: int, *, reserve: bool) -> DiskFile:
        """An existing file as it is, or a new one in a scratch directory."""
        if self.exists(path) and self.file_bytes(path) >= size:
            return self.open(path)
        file = self._real.create(Path(self._scratch.name) / str(next(self._names)), size, reserve=False)
        self._put(path, file)
        return file

    def open(self, path: Path, *, writable: bool = True) -> DiskFile:
        """The file with the changes made so far."""
        if path in self._kept:
            return self._kept[path]
        if path in self._gone:
            raise DiskError("cannot open: removed", path=path)
        return DryFile(self, self._real.open(path, writable=False))

    def _put(self, path: Path, file: DiskFile) -> None:
        self._gone.discard(path)
        self._kept[path] = file

    def exists(self, path: Path) -> bool:
        """Made here, or there and not removed here."""
        return path in self._kept or (path not in self._gone and self._real.exists(path))

    def file_bytes(self, path: Path) -> int:
        """Length of a file."""
        return self._kept[path].size if path in self._kept else self._real.file_bytes(path)

    def modified_ms(self, path: Path) -> int:
        """Time of the last change on the real disk, 0 for what was made here."""
        return 0 if path in self._kept and not self._real.exists(path) else self._real.modified_ms(path)

    def list_files(self, path: Path) -> list[str]:
        """Real names without those removed, and those made here."""
        names = {n for n in self._real.list_files(path) if path / n not in self._gone}
        return sorted(names | {kept.name for kept in self._kept if kept.parent == path})

    def list_dirs(self, path: Path) -> list[str]:
        """Real names, and those of directories something was made in."""
        made = {kept.relative_to(path).parts[0] for kept in self._kept if path in kept.parents[1:]}
        return sorted({n for n in self._real.list_dirs(path) if path / n not in self._gone} | made)

    def read_bytes(self, path: Path) -> bytes:
        """The whole content."""
        file = self.open(path)
        return file.pread(0, file.size)

    def write_file(self, path: Path, data: bytes) -> None:
        """New content, in the scratch directory."""
        scratch = Path(self._scratch.name) / str(next(self._names))
        scratch.write_bytes(data)
        self._put(path, self._real.open(scratch))

    def rename(self, source: Path, target: Path) -> None:
        """Move within the overlay."""
        file = self.open(source)
        self.unlink(source)
        self._put(target, file)

    def unlink(self, path: Path) -> None:
        """Hide a file."""
        self._kept.pop(path, None)
        self._gone.add(path)

    def remove_dir(self, path: Path) -> None:
        """Hide a directory."""
        self._gone.add(path)

    def make_dirs(self, path: Path) -> None:
        """Directories are where files are."""

    def sync_dir(self, path: Path) -> None:
        """Nothing to do."""

    def usage(self, path: Path) -> DiskUsage:
        """Of the real disk."""
        return self._real.usage(path)

    def lock(self, path: Path) -> DiskLock:
        """The real lock: a plan made beside an owner would be out of date at once."""
        return self._real.lock(path)


def plan_repair(config: StoreConfig) -> RecoveryReport:
    """What opening the store with ``repair=True`` would do. Takes the lock meanwhile, changes nothing."""
    with DryDisk() as disk:
        store = LocalMessageStore.open(config, disk=disk, start_services=False, repair=True)
        report = store.recovery
        store.close()
    return report
