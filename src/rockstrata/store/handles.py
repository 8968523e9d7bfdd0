"""Open files, at most so many at a time: a store may have more queue files than descriptors.

Eviction only forgets a file; it closes when its last user is done with it. Used by every
``MappedFile`` that is not pinned.
"""

import resource
import threading
from collections import OrderedDict
from pathlib import Path

from rockstrata.store.disk import Disk, DiskFile


def default_limit() -> int:
    """Half of the process's descriptors, at most 4096; the rest is for sockets and Spark."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(4096, soft // 2)) if soft != resource.RLIM_INFINITY else 4096


class FileHandles:
    """Least-recently-used cache of open files."""

    def __init__(self, disk: Disk, limit: int | None = None, *, writable: bool = True) -> None:
        self.disk = disk
        self._limit = limit or default_limit()
        self._writable = writable
        self._files: OrderedDict[Path, DiskFile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: Path) -> DiskFile:
        """The open file; opened now if it is not."""
        with self._lock:
            file = self._files.get(path)
            # A reader is not told when the owner removes a file and makes it again, as a recovery does.
            if file is not None and (self._writable or file.is_linked()):
                self._files.move_to_end(path)
                return file
            file = self.disk.open(path, writable=self._writable)
            self._keep(path, file)
            return file

    def put(self, path: Path, file: DiskFile) -> None:
        """Remember a file that was just created."""
        with self._lock:
            self._keep(path, file)

    def forget(self, path: Path) -> None:
        """Drop a file, because it was deleted or will be replaced."""
        with self._lock:
            self._files.pop(path, None)

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self._files.clear()

    def _keep(self, path: Path, file: DiskFile) -> None:
        self._files[path] = file
        while len(self._files) > self._limit:
            self._files.popitem(last=False)
