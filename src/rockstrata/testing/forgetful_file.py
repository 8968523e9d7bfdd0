"""An open file of the forgetful disk.

The twin of ``store.disk.PosixFile``; answers to nothing in RocketMQ. Made by ForgetfulDisk alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rockstrata.errors import DiskError
from rockstrata.store.disk import Buffer
from rockstrata.testing.forgetful_inode import Inode

if TYPE_CHECKING:
    from rockstrata.testing.forgetful_disk import ForgetfulDisk


class ForgetfulFile:
    """``DiskFile`` in memory; it stays valid when its name is removed."""

    def __init__(self, disk: "ForgetfulDisk", path: Path, inode: Inode, size: int, writable: bool) -> None:
        self.path = path
        self.size = size
        self._disk = disk
        self._inode = inode
        self._writable = writable

    def pread(self, position: int, length: int) -> bytes:
        """Bytes as they are now."""
        with self._disk.called("pread", self.path):
            return bytes(self._inode.volatile[position : position + length])

    def pwrite(self, position: int, data: Buffer) -> None:
        """Write into the page cache; past the end the file grows."""
        half = bytes(data[: len(data) // 2])
        with self._disk.called("pwrite", self.path, halfway=lambda: self._put(position, half)):
            self._put(position, data)

    def _put(self, position: int, data: Buffer) -> None:
        if not self._writable:
            raise DiskError("cannot write: opened for reading", path=self.path)
        if not len(data):
            return
        end = position + len(data)
        self._disk.claim(self.path, self._inode, end)
        self._inode.grow(end, self.path)
        self._inode.write(position, data)
        self._inode.modified_ms = self._disk.clock.now_ms()

    def sync(self) -> None:
        """Save the content; a sync that is asked to fail gives up the dirty pages."""
        try:
            with self._disk.called("sync", self.path):
                if self._inode.volatile != self._inode.durable:
                    self._inode.modified_ms = self._disk.clock.now_ms()
                self._disk.synced(self._inode)
        except DiskError:
            self._inode.give_up()
            raise

    def view(self) -> memoryview:
        """The content itself."""
        with self._disk.called("view", self.path):
            view = memoryview(self._inode.volatile)[: self.size]
            return view if self._writable else view.toreadonly()

    def is_linked(self) -> bool:
        """Is the name still this file's?"""
        with self._disk.called("is_linked", self.path):
            return self._disk.holds(self.path, self._inode)

    def populate(self, position: int, length: int) -> None:
        """Nothing to do: all is in memory."""

    def data_ranges(self, position: int) -> Iterator[tuple[int, int]]:
        """Everything: nothing is known to be zero without looking."""
        if position < self.size:
            yield position, self.size
