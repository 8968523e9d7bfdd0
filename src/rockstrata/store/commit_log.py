"""The log itself: files, reading, rolling, and making bytes durable.

Answers to RocketMQ's CommitLog without its append callback, which is in ``appender``. Called by the
appender, the dispatcher, recovery, retention and every read.
"""

import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rockstrata.errors import CorruptionError, DiskError
from rockstrata.message.layouts import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from rockstrata.store.checkpoint import Checkpoint
from rockstrata.store.handles import FileHandles
from rockstrata.store.mapped_file import MappedFile
from rockstrata.store.mapped_file_queue import MappedFileQueue
from rockstrata.store.preallocator import Preallocator
from rockstrata.store.results import Record
from rockstrata.store.running_flags import Flag, RunningFlags
from rockstrata.store.sources import Window
from rockstrata.store.store_config import FlushDiskType, StoreConfig
from rockstrata.store.transient_pool import TransientPool

if TYPE_CHECKING:
    import numpy as np

_HEAD = struct.Struct(">iI")
_STORE_TIMESTAMP = struct.Struct(">q")
BLANK_BYTES = 8


def first_timestamp(head: bytes) -> int:
    """Store time in the first 76 bytes of a record."""
    # A born host of IPv6 (bit 0x10 of the system flag at 36) moves the field by 12.
    return int(_STORE_TIMESTAMP.unpack_from(head, 68 if head[39] & 0x10 else 56)[0])


class CommitLog:
    """One writer (the holder of ``lock``), any number of readers."""

    def __init__(
        self,
        config: StoreConfig,
        handles: FileHandles,
        flags: RunningFlags,
        checkpoint: Checkpoint,
        memory_bytes: int,
    ) -> None:
        self.config = config
        self.flags = flags
        self.checkpoint = checkpoint
        self.queue = MappedFileQueue(
            handles,
            config.commit_log_paths,
            config.commit_log_file_bytes,
            reserve=True,
            read_only=config.read_only_commit_log_paths,
            is_full=self._path_is_full,
            sync_levels=2,
        )
        self.file_bytes = config.commit_log_file_bytes
        self.lock = threading.Lock()
        self.pool = TransientPool(config) if config.transient_store_pool_enable else None
        self.preallocator = Preallocator(self.queue, warm=config.warm_mapped_file_enable)
        self.flushed_where = 0
        self.is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._in_memory_bytes = memory_bytes * config.access_message_in_memory_max_ratio // 100
        self._sync_lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._failure: DiskError | None = None

    def _path_is_full(self, path: Path) -> bool:
        ratio = self.queue.disk.usage(path).ratio
        return ratio > self.config.disk_clean_forcibly_level

    # Where things stand

    @property
    def min_offset(self) -> int:
        """Oldest physical offset, -1 without any file."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """End of what can be read."""
        return self.queue.max_offset

    @property
    def confirm_offset(self) -> int:
        """Highest offset that may be dispatched and so seen by consumers and by the tier."""
        if self.is_sync and not self.config.read_uncommitted:
            return self.flushed_where
        return self.queue.max_offset

    def in_memory(self, physical_offset: int) -> bool:
        """RocketMQ's estimate: is this near enough to the end to be in the page cache?"""
        return self.queue.max_offset - physical_offset <= self._in_memory_bytes

    # Rolling; callers hold the lock

    def roll(self) -> MappedFile:
        """Begin the next file and let the preallocator make the one after it."""
        last = self.queue.last
        start = last.end if last is not None else 0
        file = self.preallocator.take(start)
        file.pin(self.pool.borrow() if self.pool is not None else None)
        self.queue.add(file)
        if last is None:
            # Were only the second file's name durable, retention would seem to have deleted the first.
            self.queue.sync_dirs()
        if last is not None and last.buffer is None:
            last.unpin()
        return file

    def tail(self) -> MappedFile | None:
        """The file to append to, pinned, or None when a new one is needed."""
        last = self.queue.last
        if last is None or last.is_full:
            return None
        if last.target is None:
            buffer = self.pool.borrow() if self.pool is not None else None
            if buffer is not None:
                buffer[: last.wrote] = last.file.pread(0, last.wrote)
            last.pin(buffer)
        return last

    # Reading

    def read(self, physical_offset: int, size: int) -> Record | None:
        """The bytes of a record, or None if they are not (or no longer, or not yet) in the log.

        Near the end of the log a view of the map; further back a copy, because a page fault in a
        map would stop every thread of this process for the time of a disk read.
        """
        file = self.queue.find(physical_offset)
        if file is None:
            return None
        position = physical_offset - file.start
        if position + size > file.readable or size <= 0:
            return None
        try:
            if self.in_memory(physical_offset):
                return file.file.view()[position : position + size]
            data = file.file.pread(position, size)
        except DiskError:
            if self.queue.holds(file):
                raise
            # Retention deleted the file after it was found.
            return None
        return data if len(data) == size else None

    def window(self, physical_offset: int) -> Window | None:
        """The mapped file around an offset near the end of the log; None further back."""
        file = self.queue.find(physical_offset)
        if file is None or not self.in_memory(physical_offset):
            return None
        try:
            return Window(file.start, file.start + file.readable, file.file.view())
        except DiskError:
            if self.queue.holds(file):
                raise
            return None

    def read_record(self, physical_offset: int) -> Record | None:
        """The record that starts here, by its own size; None outside the log.

        An offset inside the log where no record starts raises ``CorruptionError``.
        """
        head = self.read(physical_offset, 8)
        if head is None:
            return None
        size, magic = _HEAD.unpack(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < RECORD_BYTES_MIN:
            file = self.queue.find(physical_offset)
            raise CorruptionError(
                "no record starts here",
                path=file.path if file else None,
                position=physical_offset % self.file_bytes,
                expected=f"{MAGIC_V1:#x} or {MAGIC_V2:#x}",
                found=f"{magic:#x}, size {size}",
                hint="run `rockstrata store check`",
            )
        record = self.read(physical_offset, size)
        if record is None:
            # Its head was there, and only whole records are: gone with its file, or its size is wrong.
            file = self.queue.find(physical_offset)
            if file is not None:
                raise CorruptionError(
                    "record goes past the end of the log",
                    path=file.path,
                    position=physical_offset % self.file_bytes,
                    expected=f"at most {file.readable - physical_offset % self.file_bytes} bytes",
                    found=size,
                    hint="run `rockstrata store check`",
                )
        return record

    def store_timestamp(self, physical_offset: int, size: int) -> int:
        """Store time of a record without decoding it, -1 if it is not in the log."""
        if size < RECORD_BYTES_MIN:
            return -1
        file = self.queue.find(physical_offset)
        if file is None or physical_offset - file.start + size > file.readable:
            return -1
        try:
            head = file.file.pread(physical_offset - file.start, 76)
        except DiskError:
            if self.queue.holds(file):
                raise
            return -1
        return first_timestamp(head)

    def array(self, file: MappedFile) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        """A whole file as an array for kernels."""
        import numpy as np

        return np.frombuffer(file.file.view(), np.uint8)

    # Making durable

    def commit(self) -> None:
        """Move pool buffers into their files; without a pool there is nothing to do."""
        if self.pool is None:
            return
        # Committer, group commit and shutdown may come at once: a buffer has one reader at a time, and
        # is given back once.
        with self._commit_lock:
            for file in self.queue.files:
                if file.buffer is not None:
                    file.commit()
                    if file.is_full and file.committed >= file.wrote:
                        buffer = file.unpin()
                        if buffer is not None:
                            self.pool.give_back(buffer)

    def sync(self, least_pages: int = 0) -> int:
        """Make the log durable up to what is readable now; returns the durable offset.

        An error stops all writes, and every later sync is the same error: the kernel takes pages it
        failed to write for clean, so nobody knows what reached the disk.
        """
        with self._sync_lock:
            if self._failure is not None:
                raise self._failure
            durable = self.flushed_where
            try:
                # Oldest first, and up to one that is not wholly durable (its end may still be in a pool
                # buffer): the time of a synced record says that everything before it is durable.
                for file in self._not_durable():
                    self._sync_file(file, least_pages)
                    durable = file.start + file.flushed
                    if file.flushed < self.file_bytes:
                        break
            except DiskError as error:
                self._failure = error
                self.flags.set(Flag.NOT_WRITABLE, f"sync failed: {error}")
                raise
            self.flushed_where = durable
            return durable

    def _not_durable(self) -> tuple[MappedFile, ...]:
        """The newest files, from the first that is not wholly durable on. Most often the last one."""
        files = self.queue.files
        first = len(files)
        while first > 0 and files[first - 1].flushed < self.file_bytes:
            first -= 1
        return files[first:]

    def _sync_file(self, file: MappedFile, least_pages: int) -> None:
        # Read before the sync: a record appended meanwhile must not count.
        timestamp = file.readable_timestamp
        if file.can_flush(least_pages):
            self.queue.sync_dirs()
            file.flush()
            self.checkpoint.physic_msg_timestamp = max(self.checkpoint.physic_msg_timestamp, timestamp)

    def close(self) -> None:
        """Sync everything and drop the file made ahead of time."""
        self.commit()
        self.sync()
        self.preallocator.discard()
