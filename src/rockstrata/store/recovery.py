"""What a store does with what a crash, or a clean exit, left behind.

Answers to CommitLog.recoverNormally and recoverAbnormally. Finds the end of the log, dispatches what
the queues do not have yet, cuts what a power cut tore off, and refuses to cut what was durable.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rockstrata.errors import CorruptionError
from rockstrata.message.layouts import MAGIC_V1, MAGIC_V2
from rockstrata.message.scan import CRC_BAD, PYTHON_BYTES_MAX, Scan, ScanStop
from rockstrata.store.checkpoint import CHECKPOINT, Checkpoint
from rockstrata.store.commit_log import CommitLog, first_timestamp
from rockstrata.store.consume_queues import ConsumeQueues
from rockstrata.store.dispatcher import ROUND_BYTES, Dispatcher
from rockstrata.store.index import Index
from rockstrata.store.log_walk import LogWalk
from rockstrata.store.mapped_file import MappedFile
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.torn import looks_torn
from rockstrata.store.unit_queue import QueueGapError
from rockstrata.store.wipe import wipe

log = logging.getLogger(__name__)

_ZERO_STEP_BYTES = 4 << 20
_HEAD_BYTES = 76
# A Java broker that writes without mmap may leave a dirty page end behind a clean exit.
_CLEAN_WIPE_BYTES = 64 << 10


@dataclass
class RecoveryReport:
    """What recovery found and did."""

    clean: bool
    scanned_from: int = 0
    end: int = 0
    records: int = 0
    cut_bytes: int = 0
    last_timestamp: int = 0
    rebuilt: bool = False
    damaged: list[int] = field(default_factory=list)


class Recovery:
    """One recovery of one store. ``repair`` cuts even what was durable, where RocketMQ would."""

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        *,
        repair: bool = False,
    ) -> None:
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._repair = repair

    def run(self, *, clean: bool) -> RecoveryReport:
        """Leave log, queues, index and checkpoint agreeing, all of it durable."""
        report = RecoveryReport(clean)
        self._log.queue.load(clean=clean, may_drop=self._may_drop)
        self._queues.load(clean=clean)
        if not self._log.queue.files:
            self._without_log(clean)
            return report
        self._queues.recover(clean=clean, whole_before=0 if clean else self._unclean_file().start)
        if self._index is not None:
            self._index.load(clean, self._checkpoint)
        try:
            self._walk(report, self._start(clean))
        except QueueGapError as gap:
            # The queues lost units the checkpoint says they have. The log has them all.
            log.warning("rebuilding all consume queues and the index: %s", gap)
            report = RecoveryReport(clean, rebuilt=True)
            self._distrust_queues(0)
            self._queues.destroy()
            if self._index is not None:
                self._index.destroy()
            self._walk(report, self._log.min_offset)
        self._finish(report)
        return report

    def _without_log(self, clean: bool) -> None:
        units = sum(queue.unit_count - queue.first_unit for queue in self._queues)
        if clean and units and not self._repair:
            raise CorruptionError(
                "consume queues without a commit log", path=self._config.commit_log_paths[0],
                expected="commit log files", found=f"none, but {units} queue units",
                hint="restore the commit log or correct storePathCommitLog; "
                "to start empty, delete consumequeue/ and index/",
            )  # fmt: skip
        self._queues.destroy()
        if self._index is not None:
            self._index.load(clean, self._checkpoint)
            self._index.destroy()
        # Nothing is durable of a log that begins at 0 once more.
        for field_ in CHECKPOINT.fields:
            setattr(self._checkpoint, field_.name, 0)
        self._checkpoint.flush()

    def _may_drop(self, paths: Sequence[Path]) -> bool:
        """Do log files behind an empty or missing one hold records that are not known to be durable?"""
        disk, durable_to = self._log.queue.disk, self._checkpoint.physic_msg_timestamp
        for path in paths:
            head = disk.open(path, writable=False).pread(0, _HEAD_BYTES)
            is_record = head[4:8] in (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
            if any(head) and not (is_record and first_timestamp(head) >= durable_to):
                return False
        return True

    # Where to start

    def _start(self, clean: bool) -> int:
        minimum = self._log.min_offset
        dispatched_to = self._queues.max_physical
        if dispatched_to < 0:
            self._distrust_queues(minimum)
            return minimum
        if clean:
            log_end = self._log.queue.files[-1].end
            if dispatched_to > log_end and not self._repair:
                raise CorruptionError(
                    "consume queues point past the end of the commit log",
                    path=self._config.commit_log_paths[0], expected=f"at most {log_end}", found=dispatched_to,
                    hint="restore the missing commit log files, or run `rockstrata store check --repair`",
                )  # fmt: skip
            return max(minimum, min(self._last_dispatched_record(), log_end))
        start = self._unclean_file().start
        if self._index is not None:
            start = min(start, max(minimum, self._index.rebuild_from_physical))
        # Units past this point may be torn: they are written again from the log.
        self._distrust_queues(start)
        self._queues.truncate_physical(start)
        return start

    def _distrust_queues(self, physical_offset: int) -> None:
        """Units from here on are about to be rewritten: no crash may find them vouched for.

        The flusher vouches again when they are durable. The time is for RocketMQ 5.3.3, which has
        nothing else.
        """
        checkpoint = self._checkpoint
        if checkpoint.logics_physical_offset > physical_offset or checkpoint.logics_msg_timestamp:
            checkpoint.logics_physical_offset = min(checkpoint.logics_physical_offset, physical_offset)
            checkpoint.logics_msg_timestamp = 0
            checkpoint.flush()

    def _last_dispatched_record(self) -> int:
        """Where the newest record with a unit starts."""
        newest = 0
        for queue in self._queues:
            if queue.max_physical >= 0:
                newest = max(newest, int(queue.unit(queue.unit_count - 1)[0]))
        return newest

    def _unclean_file(self) -> MappedFile:
        """The newest file at whose start the checkpoint vouches for everything before."""
        files = self._log.queue.files
        checkpoint = self._checkpoint
        offset = checkpoint.logics_physical_offset
        for file in reversed(files[1:]):
            head = self._dispatcher.scan(file, 0, file.size, max_records=1)
            if not len(head):
                continue
            if offset > 0:
                # The time, too: RocketMQ's queues may be durable further than the log.
                if file.start <= offset and int(head.store_timestamp[0]) < checkpoint.physic_msg_timestamp:
                    return file
            elif int(head.store_timestamp[0]) <= checkpoint.min_timestamp:
                return file
        return files[0]

    # The walk

    def _walk(self, report: RecoveryReport, start: int) -> None:
        """Scan from ``start`` to the end of valid records and dispatch those without units."""
        report.scanned_from = report.end = start
        dispatched_to = self._queues.max_physical if report.clean else -1
        # A clean log ends soon after its last dispatched record; that much is read without kernels.
        first_bytes = PYTHON_BYTES_MAX if dispatched_to > 0 else ROUND_BYTES
        walk = LogWalk(self._log, self._scan, self._suspects)
        blank = after_blank = -1
        for file, found, suspect, next_position in walk.steps(start, first_bytes):
            torn = self._first_torn(file, found, suspect, report)
            self._take(report, file, found, len(found) if torn is None else torn, dispatched_to)
            if torn is not None:
                own_time = int(found.store_timestamp[torn])
                self._check_cut(report, file, int(found.position[torn]), "damaged record", own_time)
                break
            report.end = file.start + found.end if next_position is None else next_position
            if found.stop is ScanStop.BLANK:
                blank, after_blank = file.start + found.end, file.end
            elif next_position is None:
                self._check_cut(report, file, found.end, found.stop.name)
        # As in RocketMQ: a log that ends in a blank ends where the blank starts.
        if report.end == after_blank:
            report.end = blank

    def _scan(self, file: MappedFile, start: int, limit: int, max_records: int) -> Scan:
        return self._dispatcher.scan(
            file, start, limit, check_crc=self._config.check_crc_on_recover, max_records=max_records
        )

    def _take(
        self, report: RecoveryReport, file: MappedFile, found: Scan, rows: int, dispatched_to: int
    ) -> None:
        if not rows:
            return
        report.records += rows
        report.last_timestamp = max(report.last_timestamp, int(found.store_timestamp[rows - 1]))
        report.end = file.start + int(found.position[rows - 1]) + int(found.size[rows - 1])
        first = (
            int(np.searchsorted(found.position[:rows] + file.start, dispatched_to))
            if dispatched_to > 0
            else 0
        )
        if first < rows:
            self._dispatcher.dispatch(file, found.rows(first, rows))

    def _suspects(self, file: MappedFile, found: Scan) -> NDArray[np.bool_]:
        """Records that are not whole, or not in their place."""
        bad: NDArray[np.bool_] = found.crc_verdict == CRC_BAD
        bad |= found.physical_offset != found.position + file.start
        return bad | looks_torn(self._log.array(file), found, self._dispatcher.topics.names)

    def _first_torn(
        self, file: MappedFile, found: Scan, suspect: NDArray[np.bool_], report: RecoveryReport
    ) -> int | None:
        """The first record that was never durable and is not whole.

        A durable one with a bad body stays, so that offsets stay true: reading it is an error, and
        the records after it are not lost with it.
        """
        rows = np.flatnonzero(suspect).tolist()
        in_place = found.physical_offset == found.position + file.start if rows else suspect
        for row in rows:
            # What is not in its place may be a record of another life, and is evidence of nothing.
            if not self._is_durable(found.store_timestamp[row:][in_place[row:]]):
                return row
            log.error("damaged record kept at %s:%d", file.path, int(found.position[row]))
            report.damaged.append(file.start + int(found.position[row]))
        return None

    def _is_durable(self, timestamps: NDArray[np.int64]) -> bool:
        """Was a record on disk before the crash, given its store time and of those after it?

        Only the time of the last synced record is evidence. The queues' offset in the checkpoint is
        not: RocketMQ's queues may be durable further than the log they point into.
        """
        return bool((timestamps < self._checkpoint.physic_msg_timestamp).any())

    def _check_cut(
        self, report: RecoveryReport, file: MappedFile, position: int, what: str, own_time: int = 0
    ) -> None:
        """Cutting the log at ``position`` must lose nothing that was known to be durable."""
        if self._repair:
            return
        checkpoint = self._checkpoint
        durable = max(report.last_timestamp, own_time) < checkpoint.physic_msg_timestamp
        if report.clean:
            # A clean exit left everything durable; bytes past the last unit are no records.
            end = max(self._queues.max_physical, checkpoint.logics_physical_offset)
            durable = durable or file.start + position < end
        data = self._log.array(file)
        if durable and data[position : position + _ZERO_STEP_BYTES].any():
            raise CorruptionError(
                f"damaged commit log ({what})", path=file.path, position=position,
                expected="a record that was on disk before", found="bytes that are none",
                hint="restore the file from a copy, or run `rockstrata store check --repair` "
                "to cut the log here and lose what follows",
            )  # fmt: skip

    # The end

    def _finish(self, report: RecoveryReport) -> None:
        end = report.end
        report.cut_bytes = self._cut(end, _CLEAN_WIPE_BYTES if report.clean else self._log.file_bytes)
        self._queues.truncate_physical(end)
        if self._index is not None:
            self._index.truncate_physical(end)
        self._queues.correct_min(self._log.min_offset)
        for queue in self._queues:
            queue.drop_if_empty()
        # After a crash any file may hold bytes that only the page cache has; syncing a clean one is cheap.
        for file in self._log.queue.files[-2:] if report.clean else self._log.queue.files:
            file.flush()
        self._log.queue.sync_dirs()
        self._log.flushed_where = end
        self._dispatcher.position = end
        if report.last_timestamp == 0 and self._queues.max_physical > 0:
            report.last_timestamp = self._last_timestamp()
        self._dispatcher.last_timestamp = report.last_timestamp
        # Queues and index become durable in their own time. Until then the checkpoint does not move
        # on, so a crash finds them rebuilt from the log once more.
        for queue in self._queues:
            self._queues.mark_dirty(queue)
        checkpoint = self._checkpoint
        checkpoint.physic_msg_timestamp = report.last_timestamp
        checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, report.last_timestamp)
        checkpoint.logics_physical_offset = min(checkpoint.logics_physical_offset, end)
        checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, report.last_timestamp)
        checkpoint.confirm_physical_offset = end
        checkpoint.flush()

    def _last_timestamp(self) -> int:
        newest = -1
        for queue in self._queues:
            if queue.max_physical >= 0:
                physical, size = queue.unit(queue.unit_count - 1)[:2]
                newest = max(newest, self._log.store_timestamp(int(physical), int(size)))
        return max(0, newest)

    def _cut(self, end: int, wipe_bytes: int) -> int:
        """Truncate the log and wipe what follows: a later scan must not find an old record there."""
        self._log.queue.truncate_to(end)
        file = self._log.queue.last
        if file is None or file.wrote >= file.size:
            return 0
        return wipe(file.file, file.wrote, file.wrote + wipe_bytes)
