"""Follows the log and writes consume queues and index, within about a millisecond of a put.

Answers to RocketMQ's ReputMessageService and its dispatchers. Records are scanned into arrays; no
Python object is made per message. Also the engine of recovery, which drives ``dispatch`` itself.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rockstrata.clock import Clock
from rockstrata.errors import CorruptionError, DiskError
from rockstrata.message.record import decode_record
from rockstrata.message.scan import Scan, ScanStop, scan
from rockstrata.message.topic_table import TopicTable
from rockstrata.service import Service
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT, BatchConsumeQueue
from rockstrata.store.commit_log import CommitLog
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT, UNIT_BYTES
from rockstrata.store.consume_queues import ConsumeQueues
from rockstrata.store.index import Index
from rockstrata.store.multi_dispatch import light_entries
from rockstrata.store.running_flags import Flag, RunningFlags
from rockstrata.store.store_config import StoreConfig

if TYPE_CHECKING:
    from rockstrata.store.mapped_file import MappedFile

log = logging.getLogger(__name__)

# What one round scans at most: keeps a round, and so a stop, short.
ROUND_BYTES = 32 << 20
ROUND_RECORDS = 65_536
PACE_S = 0.001
_REST_TIMES = 12
_REST_S_MAX = 0.004
_HURRY_BYTES = 8 << 20
_FEW = 64
_ROLLBACK_OR_PREPARED = 0x4


class Arrival(NamedTuple):
    """New messages of one queue, as listeners hear of them: offsets [first, end)."""

    topic: str
    queue_id: int
    first_offset: int
    end_offset: int


Listener = Callable[[list[Arrival]], None]


class Dispatcher(Service):
    """One thread. ``position`` is the physical offset up to which everything is dispatched."""

    interval_s = 0.5

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        flags: RunningFlags,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.position = 0
        self.last_timestamp = 0
        self.idle = False
        # Confirm offset at the last look. Bytes before it that were not dispatched could not be.
        self._seen = 0
        self.listeners: list[Listener] = []
        self.topics = TopicTable()
        # A round passes the gate, then holds the lock: see paused.
        self._gate, self._lock = threading.RLock(), threading.RLock()
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._delays = config.delay_levels_ms
        self._clock = clock
        self._verify_record_crc = config.force_verify_prop_crc
        self._light = config.enable_lmq and config.enable_multi_dispatch

    @property
    def behind_bytes(self) -> int:
        """Bytes that may be dispatched and are not yet."""
        return max(0, self._log.confirm_offset - self.position)

    def run_once(self) -> None:
        """Catch up with the confirm offset, at most one round a millisecond.

        A round costs the same for one record as for hundreds, and while it needs the GIL no put runs.
        So it rests for some times as long as it took, unless much has come meanwhile.
        """
        while not self.stopping:
            began = self._clock.monotonic_s()
            if not self._step():
                break
            took = self._clock.monotonic_s() - began
            if self.behind_bytes < _HURRY_BYTES:
                self._clock.sleep_s(max(PACE_S - took, min(took * _REST_TIMES, _REST_S_MAX)))
        # Set before the last look: a put after the look sees it and wakes this thread.
        self.idle = True
        if self._log.confirm_offset > self._seen:
            self.wake()

    def wait(self, seconds: float) -> None:
        """Sleep until a put wakes this thread."""
        super().wait(seconds)
        self.idle = False

    def catch_up(self, end: int = 2**63 - 1) -> None:
        """Dispatch everything there is, in the caller's thread; before ``end``, if writers go on."""
        while self.position < end and self._step():
            pass

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep other threads' rounds out: for who removes queues. ``catch_up`` works inside."""
        # The gate holds up the next round, else a busy dispatcher would never leave the lock free.
        with self._gate, self._lock:
            yield

    def _step(self) -> bool:
        """One round; False when there is nothing (more) to do."""
        with self._gate:
            pass
        with self._lock:
            return self._round()

    def _round(self) -> bool:
        self._seen = end = self._log.confirm_offset
        self.position = max(self.position, self._log.min_offset)
        if self.position >= end or not self._flags.dispatchable:
            return False
        file = self._log.queue.find(self.position)
        if file is None:
            return False
        start = self.position - file.start
        limit = min(end - file.start, file.readable, start + ROUND_BYTES)
        found = self.scan(file, start, limit)
        if found.position.size:
            try:
                self.dispatch(file, found)
            except CorruptionError as error:
                self._flags.set(Flag.LOGICS_QUEUE_ERROR, str(error))
                raise
        before = self.position
        self.position = file.start + found.end
        if found.stop is ScanStop.BLANK:
            self.position = file.end
        elif found.stop not in (ScanStop.LIMIT, ScanStop.INCOMPLETE):
            self._stop_at(file, found)
        elif found.stop is ScanStop.INCOMPLETE and limit == start + ROUND_BYTES and not found.position.size:
            # A record larger than a round.
            found = self.scan(file, start, min(end - file.start, file.readable))
            self.dispatch(file, found)
            self.position = file.start + found.end
        if file.wrote * 2 >= file.size:
            self._log.preallocator.request(file.end)
        return self.position > before

    def _stop_at(self, file: "MappedFile", found: Scan) -> None:
        reason = f"{found.stop.name} at {file.path}:{found.end}"
        self._flags.set(Flag.LOGICS_QUEUE_ERROR, f"the log cannot be read on: {reason}")
        raise CorruptionError(
            f"dispatch met a bad record ({found.stop.name})", path=file.path, position=found.end,
            hint="run `rockstrata store check`",
        )  # fmt: skip

    def scan(
        self,
        file: "MappedFile",
        start: int,
        limit: int,
        *,
        check_crc: bool = False,
        max_records: int = ROUND_RECORDS,
    ) -> Scan:
        """Records of [start, limit) of a file, as arrays."""
        return scan(
            self._log.array(file),
            start,
            limit,
            self.topics,
            check_crc=check_crc,
            keys=self._index is not None,
            tags_entry=True,
            delay_levels=self._delays,
            verify_record_crc=self._verify_record_crc,
            max_records=max_records,
        )

    def dispatch(self, file: "MappedFile", found: Scan) -> None:
        """Write units and index entries of scanned records, then tell the listeners."""
        try:
            arrivals = self._to_queues(file, found)
            if self._index is not None:
                self._to_index(file, found)
        except DiskError as error:
            self._flags.set(Flag.LOGICS_QUEUE_ERROR, str(error))
            raise
        self.last_timestamp = int(found.store_timestamp[-1])
        for listener in self.listeners:
            try:
                listener(arrivals)
            except Exception:
                # A listener's trouble is its own: messages must go on becoming visible.
                log.exception("listener %r failed", listener)

    def _to_index(self, file: "MappedFile", found: Scan) -> None:
        assert self._index is not None
        try:
            self._index.add(
                found.position + file.start,
                found.store_timestamp,
                found.key_first,
                found.key_hash,
                found.sys_flag,
            )
        except DiskError as error:
            self._flags.set(Flag.INDEX_FILE_ERROR, str(error))
            raise

    def _to_queues(self, file: "MappedFile", found: Scan) -> list[Arrival]:
        import numpy as np

        if len(found) <= _FEW:
            return self._few_to_queues(file, found)
        visible = np.flatnonzero((found.sys_flag & _ROLLBACK_OR_PREPARED) == 0)
        if not visible.size:
            return []
        key = (found.topic_id[visible].astype(np.int64) << 32) | found.queue_id[visible].astype(np.uint32)
        order = visible[np.argsort(key, kind="stable")]
        units = np.empty(order.size, CONSUME_QUEUE_UNIT.dtype)
        units["physical_offset"] = found.position[order] + file.start
        units["size"] = found.size[order]
        units["tags_code"] = found.tags_code[order]
        topic_ids, queue_ids = found.topic_id[order], found.queue_id[order]
        offsets = found.queue_offset[order]
        # A run also ends where offsets jump: a topic made again after its deletion starts over.
        is_edge = (np.diff(topic_ids) != 0) | (np.diff(queue_ids) != 0) | (np.diff(offsets) != 1)
        edges = np.flatnonzero(is_edge) + 1
        data = memoryview(units.view(np.uint8))  # type: ignore[arg-type]
        arrivals = []
        first = 0
        for end in [*edges.tolist(), order.size]:
            queue = self._queues.ensure(self.topics.names[int(topic_ids[first])], int(queue_ids[first]))
            last = order[end - 1]
            max_physical = int(found.position[last]) + file.start + int(found.size[last])
            if isinstance(queue, BatchConsumeQueue):
                before = queue.max_offset
                self._to_batch_queue(queue, file, found, order[first:end])
                if queue.max_offset > before:
                    arrivals.append(Arrival(queue.topic, queue.queue_id, before, queue.max_offset))
            else:
                begin = int(offsets[first])
                queue.append(begin, data[first * UNIT_BYTES : end * UNIT_BYTES], max_physical)
                arrivals.append(Arrival(queue.topic, queue.queue_id, begin, begin + end - first))
            self._queues.mark_dirty(queue)
            first = end
        if self._light and found.multi_dispatch.any():
            self._to_light_queues(file, found, arrivals)
        return arrivals

    def _few_to_queues(self, file: "MappedFile", found: Scan) -> list[Arrival]:
        """The same for a handful of records: sorting arrays costs more than going through them."""
        rows: dict[tuple[int, int], list[int]] = {}
        keys = zip(found.sys_flag.tolist(), found.topic_id.tolist(), found.queue_id.tolist(), strict=True)
        for row, (flags, topic_id, queue_id) in enumerate(keys):
            if not flags & _ROLLBACK_OR_PREPARED:
                rows.setdefault((topic_id, queue_id), []).append(row)
        positions, sizes, codes, offsets = (
            column.tolist() for column in (found.position, found.size, found.tags_code, found.queue_offset)
        )
        arrivals: list[Arrival] = []
        pack = CONSUME_QUEUE_UNIT.struct.pack
        for (topic_id, queue_id), mine in rows.items():
            queue = self._queues.ensure(self.topics.names[topic_id], queue_id)
            if isinstance(queue, BatchConsumeQueue):
                before = queue.max_offset
                self._to_batch_queue(queue, file, found, mine)
                if queue.max_offset > before:
                    arrivals.append(Arrival(queue.topic, queue_id, before, queue.max_offset))
            else:
                first = 0
                for end in range(1, len(mine) + 1):
                    if end == len(mine) or offsets[mine[end]] != offsets[mine[end - 1]] + 1:
                        run = mine[first:end]
                        units = b"".join(pack(file.start + positions[n], sizes[n], codes[n]) for n in run)
                        begin = offsets[run[0]]
                        queue.append(begin, units, file.start + positions[run[-1]] + sizes[run[-1]])
                        arrivals.append(Arrival(queue.topic, queue_id, begin, begin + len(run)))
                        first = end
            self._queues.mark_dirty(queue)
        if self._light and found.multi_dispatch.any():
            self._to_light_queues(file, found, arrivals)
        return arrivals

    def _to_batch_queue(
        self, queue: BatchConsumeQueue, file: "MappedFile", found: Scan, rows: "object"
    ) -> None:
        import numpy as np

        rows_array = np.asarray(rows)
        # As in Java: a record without batch marks has no place in a batch queue.
        rows_array = rows_array[(found.inner_base[rows_array] >= 0) & (found.inner_num[rows_array] > 0)]
        if not rows_array.size:
            log.warning(
                "record of batch topic %s without INNER_BASE and INNER_NUM is not dispatched", queue.topic
            )
            return
        units = np.zeros(rows_array.size, BATCH_CONSUME_QUEUE_UNIT.dtype)
        units["physical_offset"] = found.position[rows_array] + file.start
        units["size"] = found.size[rows_array]
        units["tags_code"] = found.tags_code[rows_array]
        units["store_timestamp"] = found.store_timestamp[rows_array]
        units["base_offset"] = found.inner_base[rows_array]
        units["batch_size"] = found.inner_num[rows_array]
        units["compacted_offset"] = -1
        last = rows_array[-1]
        queue.append_batches(units.tobytes(), int(found.position[last]) + file.start + int(found.size[last]))

    def _to_light_queues(self, file: "MappedFile", found: Scan, arrivals: list[Arrival]) -> None:
        import numpy as np

        view = file.file.view()
        for row in np.flatnonzero(found.multi_dispatch).tolist():
            position, size = int(found.position[row]), int(found.size[row])
            record = decode_record(view[position : position + size], check_crc=False)
            unit = CONSUME_QUEUE_UNIT.struct.pack(file.start + position, size, int(found.tags_code[row]))
            for name, queue_offset in light_entries(record.properties):
                queue = self._queues.ensure(name, 0)
                assert not isinstance(queue, BatchConsumeQueue)
                queue.append(queue_offset, unit, file.start + position + size)
                self._queues.mark_dirty(queue)
                arrivals.append(Arrival(name, 0, queue_offset, queue_offset + 1))
