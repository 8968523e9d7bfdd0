"""Reads a store that another process owns, a live Python or Java broker, and never writes.

Answers to no RocketMQ class. The command line's look-ups and the Spark side stand on this. It needs
no configuration: file sizes are seen, queues are found by their directories.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from rockstrata.errors import ConfigError, CorruptionError
from rockstrata.message.layouts import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from rockstrata.store.commit_log import first_timestamp
from rockstrata.store.disk import Disk
from rockstrata.store.handles import FileHandles
from rockstrata.store.index_reader import IndexReader
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.queue_read import MAX_PULL_BYTES, ReadLimits
from rockstrata.store.reader_files import ReaderFiles
from rockstrata.store.reader_queues import ReaderBatchQueue, ReaderQueue
from rockstrata.store.reads import StoreReads
from rockstrata.store.sources import Window
from rockstrata.store.store_config import StoreConfig

_HEAD = struct.Struct(">iI")
# A reader is not a consumer's broker: the client's count is the limit, and bytes bound memory.
_LIMITS = ReadLimits(MAX_PULL_BYTES, 1 << 20, MAX_PULL_BYTES, 1 << 20, 16_000, 1)
_MAX_QUERY = 1 << 16


class ReaderLog(ReaderFiles):
    """Records by physical offset; a record that is not whole is not there."""

    @property
    def min_offset(self) -> int:
        """First byte of the oldest file, -1 without one."""
        starts = self.starts
        return starts[0] if starts else -1

    @property
    def max_offset(self) -> int:
        """End of the newest file: an upper bound, since only queues say what is whole."""
        self.refresh()
        starts = self.starts
        return starts[-1] + self.file_bytes if starts else 0

    def in_memory(self, physical_offset: int) -> bool:
        """One set of limits for all: see ``_LIMITS``."""
        return True

    def window(self, physical_offset: int) -> Window | None:
        """Never: a file truncated by its owner under a map would kill this process."""
        return None

    def read(self, physical_offset: int, size: int) -> bytes | None:
        """The record's bytes, None if they are not (or no longer) all there."""
        data = self.pread(physical_offset, size)
        return data if data is not None and len(data) == size else None

    def read_record(self, physical_offset: int) -> bytes | None:
        """The record that starts here, by its own size; None past the written end."""
        head = self.read(physical_offset, _HEAD.size)
        if head is None or head == bytes(_HEAD.size):
            return None
        size, magic = _HEAD.unpack(head)
        room = self.file_bytes - physical_offset % self.file_bytes
        if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_BYTES_MIN <= size <= room:
            raise CorruptionError(
                "no record starts here", position=physical_offset,
                expected=f"{MAGIC_V1:#x} or {MAGIC_V2:#x}", found=f"{magic:#x}, size {size}",
            )  # fmt: skip
        return self.read(physical_offset, size)

    def store_timestamp(self, physical_offset: int, size: int) -> int:
        """Store time of a record, -1 if it is not there."""
        head = self.pread(physical_offset, 76)
        if head is None or len(head) < 76 or size < RECORD_BYTES_MIN:
            return -1
        return first_timestamp(head)


class ReaderQueues:
    """Queues found by their directories."""

    def __init__(self, config: StoreConfig, handles: FileHandles, log: ReaderLog) -> None:
        self._config = config
        self._handles = handles
        self._log = log
        self._table: dict[tuple[str, int], ReaderQueue] = {}

    def topics(self) -> dict[str, list[int]]:
        """Queue ids of every topic, looked up now."""
        found: dict[str, set[int]] = {}
        for root in (self._config.consume_queue_dir, self._config.batch_consume_queue_dir):
            for topic in self._handles.disk.list_dirs(root):
                for name in self._handles.disk.list_dirs(root / topic):
                    if name.isascii() and name.isdigit():
                        found.setdefault(topic, set()).add(int(name))
        return {topic: sorted(ids) for topic, ids in sorted(found.items())}

    def get(self, topic: str, queue_id: int) -> ReaderQueue | None:
        """The queue, or None if it has no directory."""
        known = self._table.get((topic, queue_id))
        if known is not None:
            return known
        for root, kind in (
            (self._config.consume_queue_dir, ReaderQueue),
            (self._config.batch_consume_queue_dir, ReaderBatchQueue),
        ):
            directory = root / topic / str(queue_id)
            if "/" not in topic and self._handles.disk.exists(directory):
                queue = kind(self._handles, directory, topic, queue_id, self._log)
                return self._table.setdefault((topic, queue_id), queue)
        return None


@dataclass(frozen=True)
class QueueRange:
    """What a queue holds: offsets [min, max)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class StoreReader(StoreReads):
    """All reads of a store, beside its owner. Use from one thread; opening costs a directory list."""

    def __init__(self, config: StoreConfig, disk: Disk | None = None) -> None:
        disk = disk or PosixDisk()
        if not disk.exists(config.root):
            raise ConfigError(
                "no store here", path=config.root, hint="give the directory that holds commitlog/"
            )
        self.config = config
        self.disk = disk
        handles = FileHandles(disk, writable=False)
        paths = (*config.commit_log_paths, *config.read_only_commit_log_paths)
        self.log = ReaderLog(handles, tuple(dict.fromkeys(paths)), None)
        self.queues = ReaderQueues(config, handles, self.log)
        index = IndexReader(disk, config.index_dir, config.max_hash_slot_num, config.max_index_num)
        super().__init__(_LIMITS, _MAX_QUERY, self.log, self.queues, index)

    @staticmethod
    def open(root: Path | str, disk: Disk | None = None) -> "StoreReader":
        """A reader on a store directory with RocketMQ's own layout."""
        return StoreReader(StoreConfig(store_path_root_dir=str(root)), disk)

    def ranges(self) -> list[QueueRange]:
        """Every queue with what it holds now."""
        result = []
        for topic, queue_ids in self.topic_queues().items():
            for queue_id in queue_ids:
                queue = self.queues.get(topic, queue_id)
                if queue is not None:
                    result.append(QueueRange(topic, queue_id, queue.min_offset, queue.max_offset))
        return result
