"""A real file by its descriptor, mapped on demand.

Answers to RocketMQ's DefaultMappedFile where it touches the operating system. The only module that
imports mmap. Made by ``PosixDisk``.
"""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from rockstrata.store.disk import PAGE_BYTES, Buffer, disk_error, typed_errors

_MADV_POPULATE_WRITE = 23  # Linux 5.14; not in the mmap module before Python 3.13.
_libc = ctypes.CDLL(None, use_errno=True)


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

    def is_linked(self) -> bool:
        """A file without a name has no links: nobody makes hard links here."""
        with typed_errors(self.path, "look at"):
            return os.fstat(self._fd).st_nlink > 0

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
        with typed_errors(self.path, "sync"):
            os.fdatasync(self._fd)

    def view(self) -> memoryview:
        """Map the file once; the map lives as long as any view of it."""
        if self._view is None:
            with typed_errors(self.path, "map"):
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
