"""RocketMQ's ``lock`` file, taken so that a Java broker is excluded too.

Answers to the file lock of DefaultMessageStore.start. Made by ``PosixDisk``.
"""

import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import ClassVar

from rockstrata.errors import StoreLockedError

# Linux's struct flock: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


class PosixLock:
    """RocketMQ's ``lock`` file: a POSIX record lock on byte 0, which excludes a Java broker too.

    POSIX locks belong to the process, so a second store in this very process is told by a table. They
    go when any descriptor of the file is closed, so nobody may open it between two looks at the table.
    """

    _held: ClassVar[set[str]] = set()
    _table: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._key = str(path.resolve())
        with PosixLock._table:
            self._fd = self._take(path)
            PosixLock._held.add(self._key)

    def _take(self, path: Path) -> int:
        if self._key in PosixLock._held:
            raise StoreLockedError("store is already open in this process", path=path, hint="close it first")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(fd)
            raise StoreLockedError(
                "another process owns this store",
                path=path,
                hint="stop that broker, or read beside it (`rockstrata store get|dump|stat`)",
            ) from error
        try:
            os.pwrite(fd, b"lock", 0)
        except OSError:
            os.close(fd)
            raise
        return fd

    @staticmethod
    def holder(path: Path) -> int | None:
        """The process that holds the lock, without taking it; 0 if it cannot be named."""
        with PosixLock._table:
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
        with PosixLock._table:
            if self._fd >= 0:
                PosixLock._held.discard(self._key)
                os.close(self._fd)
                self._fd = -1
