"""The checkpoint file: up to where log, queues and index are known to be on disk.

Answers to RocketMQ's StoreCheckpoint. Written by the flushers and the index, read by recovery.
"""

import logging
import threading
from pathlib import Path

from rockstrata.errors import CorruptionError
from rockstrata.layout import Layout
from rockstrata.store.disk import Disk, DiskFile

log = logging.getLogger(__name__)

CHECKPOINT = Layout(
    "checkpoint",
    ("physic_msg_timestamp", "q", "Store time of the last commit-log record known to be flushed."),
    ("logics_msg_timestamp", "q", "Store time up to which consume queues are flushed."),
    ("index_msg_timestamp", "q", "End time of the last index file that was full and flushed."),
    ("master_flushed_offset", "q", "A slave's note of its master's flushed position."),
    ("confirm_physical_offset", "q", "Confirm offset; decides nothing outside controller mode."),
    ("logics_physical_offset", "q", "Physical offset up to which consume queues are flushed; 5.5.0 only."),
    size=48,
)
CHECKPOINT_BYTES = 4096
_SAFETY_MS = 3_000
_LATEST_MS = 253_402_300_799_999  # The last millisecond of the year 9999.


class Checkpoint:
    """Six numbers that never promise more than is durable.

    All are hints: zero is always a legal value and only makes recovery look further back. So a file
    that is missing or empty is legal, a time stamp of no possible year is read as 0 with a warning,
    and RocketMQ 5.3.3's five numbers are six whose last is 0. Only a file cut off inside the numbers
    raises CorruptionError: neither RocketMQ nor a crash leaves that behind.

    Set the attributes from any thread; ``flush`` makes them durable.
    """

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_physical_offset: int
    logics_physical_offset: int

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._file: DiskFile | None = None
        self._flushed = bytes(CHECKPOINT.size)
        self._lock = threading.Lock()
        self._load()

    def _load(self) -> None:
        if self._disk.exists(self._path):
            data = self._disk.open(self._path, writable=False).pread(0, CHECKPOINT.size)
            if 0 < len(data) < CHECKPOINT.size:
                raise CorruptionError(
                    "checkpoint cut off",
                    path=self._path,
                    expected=f"0 or at least {CHECKPOINT.size} bytes",
                    found=len(data),
                    hint="delete it: recovery will then scan the whole commit log",
                )
            self._flushed = data or self._flushed
        for field, value in zip(CHECKPOINT.fields, CHECKPOINT.struct.unpack(self._flushed), strict=True):
            if field.name.endswith("_timestamp") and value > _LATEST_MS:
                log.warning("checkpoint %s: %s %d is no time, taken as 0", self._path, field.name, value)
                value = 0
            setattr(self, field.name, value)

    @property
    def min_timestamp(self) -> int:
        """Records stored before this were flushed in log and queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS)

    def flush(self) -> None:
        """Write and sync, if anything changed. One sector, hence wholly or not at all."""
        with self._lock:
            data = CHECKPOINT.struct.pack(*(getattr(self, field.name) for field in CHECKPOINT.fields))
            if self._file is None:
                self._file = self._disk.create(self._path, CHECKPOINT_BYTES, reserve=True)
                self._disk.sync_dir(self._path.parent)
            elif data == self._flushed:
                return
            self._file.pwrite(0, data)
            self._file.sync()
            self._flushed = data

    def __repr__(self) -> str:
        return f"Checkpoint({', '.join(f'{f.name}={getattr(self, f.name)}' for f in CHECKPOINT.fields)})"
