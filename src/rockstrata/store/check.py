"""Checks a whole store against itself: records, consume queues, index and checkpoint, read-only.

Answers to no RocketMQ class. Works in arrays over windows of the log, in bounded memory, beside a
running owner too. Pure of printing; called by ``rockstrata store check`` and by tests.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.clock import Clock, SystemClock
from rockstrata.errors import CorruptionError
from rockstrata.message.layouts import BLANK
from rockstrata.message.scan import CRC_BAD, Scan, ScanStop, kernel_buffer, scan
from rockstrata.message.topic_table import TopicTable
from rockstrata.store.check_findings import CheckSummary, Finding, FindingKind, Progress
from rockstrata.store.check_index import IndexCheck
from rockstrata.store.check_queues import QueueCheck
from rockstrata.store.checkpoint import Checkpoint
from rockstrata.store.disk import Disk
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.posix_lock import PosixLock
from rockstrata.store.reader import StoreReader
from rockstrata.store.resync import dispatched_end, next_known_record
from rockstrata.store.store_config import StoreConfig

WINDOW_BYTES = 32 << 20
# An owner writes queue after queue, then the index: so long after a look all of it is written.
_SETTLE_S = 0.5
_WORDS = {
    ScanStop.INCOMPLETE: "record goes past its end",
    ScanStop.BAD_MAGIC: "bad magic",
    ScanStop.BAD_SIZE: "bad size",
    ScanStop.BAD_LENGTHS: "lengths contradict the size",
    ScanStop.ZERO: "zeros where a record should be",
}

Event = Finding | Progress


class StoreCheck:
    """One check of one store directory. ``summary`` is complete when ``run`` has ended."""

    def __init__(self, config: StoreConfig, *, disk: Disk | None = None, clock: Clock | None = None) -> None:
        self._config = config
        self._disk = disk or PosixDisk()
        self._clock = clock or SystemClock()
        self._is_live = isinstance(self._disk, PosixDisk) and PosixLock.holder(config.lock_path) is not None
        self._is_clean = not self._is_live and not self._disk.exists(config.abort_path)
        self.summary = CheckSummary("open" if self._is_live else "closed" if self._is_clean else "not closed")
        self._topics = TopicTable()

    def run(self) -> Iterator[Event]:
        """Findings as they are met, and progress now and then."""
        yield from self._log_files()
        reader = StoreReader(self._config, self._disk)
        checkpoint, trouble = self._checkpoint()
        if trouble is not None:
            yield trouble
        self._reader = reader
        self._dispatched = dispatched_end(reader)
        if self._is_live:
            self._clock.sleep_s(_SETTLE_S)
        self._synced_ms = checkpoint.physic_msg_timestamp if checkpoint is not None else 0
        live_end = self._dispatched if self._is_live else None
        notes_from: int | None = None
        if not self._is_live and not self._is_clean:
            # Where the next start begins to write units and index items anew.
            vouched = max(0, checkpoint.logics_physical_offset) if checkpoint is not None else 0
            notes_from = vouched - vouched % max(1, reader.log.file_bytes)
        self._queues = QueueCheck(self._config, reader, self._topics, notes_from, live_end)
        self._index = IndexCheck(self._config, self._disk, notes_from, is_live=self._is_live)
        yield from self._index.open(max(0, reader.log.min_offset))
        yield from self._walk()
        yield from self._queues.finish()
        yield from self._index.finish(self.summary.log_end)
        self.summary.units = self._queues.units
        self.summary.keys, self.summary.index_items = self._index.keys, self._index.items
        if checkpoint is not None:
            yield from self._compare_checkpoint(checkpoint)

    # Files

    def _log_files(self) -> Iterator[Finding]:
        """Names, sizes and holes of the commit log's files."""
        config = self._config
        folders = dict.fromkeys((*config.commit_log_paths, *config.read_only_commit_log_paths))
        paths = sorted(
            (folder / name for folder in folders for name in self._disk.list_files(folder)),
            key=lambda p: p.name,
        )
        expected: int | None = None
        for number, path in enumerate(paths):
            if not (path.name.isascii() and path.name.isdigit() and len(path.name) == 20):
                yield _bad_file(path, "foreign file", "a name of 20 digits", path.name)
                continue
            size = self._disk.file_bytes(path)
            if size != config.commit_log_file_bytes:
                # A file is empty for a moment after it is made; a crash then leaves it so.
                yield _bad_file(
                    path, "wrong file size", str(config.commit_log_file_bytes), str(size),
                    note=number == len(paths) - 1 and not self._is_clean and size == 0,
                )  # fmt: skip
                continue
            start = int(path.name)
            if expected is not None and start != expected:
                yield _bad_file(path, "hole before this file", f"{expected:020d}", path.name)
            expected = start + size

    def _checkpoint(self) -> tuple[Checkpoint | None, Finding | None]:
        path = self._config.checkpoint_path
        if not self._disk.exists(path):
            return None, None
        try:
            return Checkpoint(self._disk, path), None
        except CorruptionError as error:
            return None, Finding(FindingKind.BAD_CHECKPOINT, str(path), 0, str(error))

    # The log

    def _walk(self) -> Iterator[Event]:
        reader, summary = self._reader, self.summary
        starts = reader.log.starts
        summary.log_begin = starts[0] if starts else 0
        position = summary.log_end = summary.log_begin
        total = max(self._dispatched, summary.log_begin) - summary.log_begin
        for number, start in enumerate(starts):
            path = reader.log.path(start)
            if path is None or position >= start + reader.log.file_bytes:
                continue
            data = kernel_buffer(self._disk.open(path, writable=False).view())
            position = max(position, start)
            while position < start + len(data):
                yield Progress("commit log", min(position - summary.log_begin, total), total)
                step = yield from self._window(
                    path, start, position - start, data, is_last=number == len(starts) - 1
                )
                if step is None:
                    yield Progress("commit log", total, total)
                    return
                position = step

    def _window(
        self, path: Path, start: int, begin: int, data: NDArray[np.uint8], *, is_last: bool
    ) -> Generator[Event, None, int | None]:
        """Check one window; the physical offset to go on at, None at the end of the log."""
        limit = min(len(data), begin + WINDOW_BYTES)
        if self._is_live:
            limit = min(limit, self._dispatched - start)
            if begin >= limit:
                return None
        found = self._scan(data, begin, limit)
        if found.stop is ScanStop.INCOMPLETE and not len(found) and limit < len(data):
            found = self._scan(data, begin, len(data), max_records=1)
            limit = len(data)
        rows, torn = self._whole_rows(found, start)
        yield from self._records(path, start, found.rows(0, rows))
        if torn:
            yield self._tail(path, start, data, int(found.position[rows]), "body does not match its CRC")
            return None
        end = start + found.end
        if found.stop is ScanStop.LIMIT or (found.stop is ScanStop.INCOMPLETE and limit < len(data)):
            return end
        if found.stop is ScanStop.BLANK:
            yield from self._blank(path, data, found.end)
            return start + len(data) if not is_last else None
        if not self._was_durable(end):
            if data[found.end : found.end + 8].any():
                yield self._tail(path, start, data, found.end, _WORDS[found.stop])
            return None
        yield self._bad_record(path, start, data, found)
        return self._resync(end, start + len(data))

    def _scan(self, data: NDArray[np.uint8], begin: int, limit: int, max_records: int | None = None) -> Scan:
        return scan(
            data, begin, limit, self._topics, check_crc=True, keys=self._index.wanted,
            delay_levels=self._config.delay_levels_ms, max_records=max_records, use_kernel=True,
            verify_record_crc=self._config.force_verify_prop_crc,
        )  # fmt: skip

    def _whole_rows(self, found: Scan, start: int) -> tuple[int, bool]:
        """How many rows to take: a bad body in the part nobody vouches for is where the log ends."""
        for row in np.flatnonzero(found.crc_verdict == CRC_BAD).tolist():
            if not self._was_durable(start + int(found.position[row]), found.store_timestamp[row + 1 :]):
                return row, True
        return len(found), False

    def _was_durable(self, physical_offset: int, later: NDArray[np.int64] | None = None) -> bool:
        """Should there be a whole record here? As recovery decides it, so that check says what it will do.

        After a crash only the time of the last synced record is evidence: anything older was on disk.
        """
        if self._is_live or self._is_clean:
            return physical_offset < self._dispatched
        if later is not None:
            return bool((later < self._synced_ms).any())
        return self.summary.newest_timestamp < self._synced_ms

    def _records(self, path: Path, start: int, found: Scan) -> Iterator[Finding]:
        if not len(found):
            return
        summary = self.summary
        summary.records += len(found)
        summary.record_bytes += int(found.size.sum(dtype=np.int64))
        summary.newest_timestamp = max(summary.newest_timestamp, int(found.store_timestamp.max()))
        summary.log_end = start + int(found.position[-1]) + int(found.size[-1])
        for row in np.flatnonzero(found.crc_verdict == CRC_BAD).tolist():
            yield Finding(
                FindingKind.BAD_BODY, str(path), int(found.position[row]),
                f"body does not match its CRC: {self._named(found, row)}",
            )  # fmt: skip
        for row in np.flatnonzero(found.physical_offset != found.position + start).tolist():
            yield Finding(
                FindingKind.WRONG_PLACE, str(path), int(found.position[row]),
                f"record says it lies elsewhere: {self._named(found, row)}",
                str(start + int(found.position[row])), str(int(found.physical_offset[row])),
            )  # fmt: skip
        view = self._disk.open(path, writable=False) if found.multi_dispatch.any() else None
        self._queues.records(found, start, view)
        yield from self._index.records(found, start, path)

    def _named(self, found: Scan, row: int) -> str:
        topic = self._topics.names[int(found.topic_id[row])]
        return f"{topic} queue {int(found.queue_id[row])} offset {int(found.queue_offset[row])}"

    def _blank(self, path: Path, data: NDArray[np.uint8], position: int) -> Iterator[Finding]:
        size, _ = BLANK.struct.unpack(data[position : position + BLANK.size].tobytes())
        if size != len(data) - position:
            expected = str(len(data) - position)
            what = "blank of the wrong size"
            yield Finding(FindingKind.BAD_RECORD, str(path), position, what, expected, str(size))

    def _bad_record(self, path: Path, start: int, data: NDArray[np.uint8], found: Scan) -> Finding:
        head = data[found.end : found.end + 8].tobytes()
        return Finding(
            FindingKind.BAD_RECORD, str(path), found.end,
            f"{_WORDS[found.stop]} at physical offset {start + found.end}", "a record", f"bytes {head.hex()}",
        )  # fmt: skip

    def _tail(self, path: Path, start: int, data: NDArray[np.uint8], position: int, why: str) -> Finding:
        rest = np.flatnonzero(data[position : position + WINDOW_BYTES])
        count = int(rest[-1]) + 1 if rest.size else 0
        what = f"after the last whole record: {why}; " + (
            "left over, never a message" if self._is_clean else "the next start cuts it"
        )
        return Finding(
            FindingKind.TORN_TAIL, str(path), position, what, "zeros",
            f"{count} bytes from {start + position}", note=True,
        )  # fmt: skip

    def _resync(self, position: int, file_end: int) -> int:
        """Where to go on after a record that cannot be measured: at the next one a queue knows."""
        known = next_known_record(self._reader, position)
        return file_end if known is None else min(known, file_end)

    # Checkpoint

    def _compare_checkpoint(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """It may lag behind, never promise what is not there."""
        if self._is_live:
            return
        path, summary = str(self._config.checkpoint_path), self.summary
        for name in ("logics_physical_offset", "confirm_physical_offset"):
            value: Any = getattr(checkpoint, name)
            if value > summary.log_end:
                yield Finding(
                    FindingKind.BAD_CHECKPOINT, path, 0, f"{name} is ahead of the log",
                    f"at most {summary.log_end}", str(value),
                )  # fmt: skip
        for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
            value = getattr(checkpoint, name)
            if value > summary.newest_timestamp:
                yield Finding(
                    FindingKind.BAD_CHECKPOINT, path, 0, f"{name} is later than the newest record",
                    f"at most {summary.newest_timestamp}", str(value),
                )  # fmt: skip


def _bad_file(path: Path, what: str, expected: str, found: str, *, note: bool = False) -> Finding:
    return Finding(FindingKind.BAD_FILE, str(path), 0, what, expected, found, note=note)


__all__ = ["CheckSummary", "Event", "Finding", "FindingKind", "Progress", "StoreCheck"]
