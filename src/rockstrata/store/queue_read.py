"""Reading a queue from an offset on, with every status and next offset RocketMQ gives.

Answers to DefaultMessageStore.getMessage. Works on any log and queue source; the records stay bytes.
"""

import struct
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from rockstrata.errors import CorruptionError
from rockstrata.message.layouts import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT, UNIT_BYTES
from rockstrata.store.message_filter import MessageFilter
from rockstrata.store.results import GetResult, GetStatus, Record
from rockstrata.store.sources import BatchQueueSource, LogSource, QueueSource, Window
from rockstrata.store.store_config import StoreConfig

MAX_PULL_BYTES = 128 << 20
_HEAD = struct.Struct(">iI")
_PHYSICAL_OFFSET = struct.Struct(">q")
_NO_WINDOW = Window(0, 0, memoryview(b""))
_INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class ReadLimits:
    """How much one read may bring, from memory and from disk."""

    bytes_in_memory: int
    count_in_memory: int
    bytes_on_disk: int
    count_on_disk: int
    scan_bytes: int
    scan_files: int
    # Units, and matching units, looked at before a count is estimated.
    estimate_units: int = 20_000
    estimate_matches: int = 5_000

    @staticmethod
    def of(config: StoreConfig) -> "ReadLimits":
        """The limits a store is configured with."""
        return ReadLimits(
            config.max_transfer_bytes_in_memory,
            config.max_transfer_count_in_memory,
            config.max_transfer_bytes_on_disk,
            config.max_transfer_count_on_disk,
            config.max_filter_message_bytes,
            config.travel_cq_file_num_when_get_message,
            config.max_consume_queue_scan,
            config.sample_count_threshold,
        )


def read_queue(
    log: LogSource,
    queue: QueueSource,
    queue_offset: int,
    max_count: int,
    limits: ReadLimits,
    *,
    max_bytes: int = MAX_PULL_BYTES,
    message_filter: MessageFilter | None = None,
) -> GetResult:
    """Messages from ``queue_offset`` on, as many as the limits allow; the first one always."""
    minimum, maximum = queue.min_offset, queue.max_offset
    if maximum == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, minimum, maximum)
    if queue_offset < minimum:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
    if queue_offset == maximum:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, minimum, maximum)
    if queue_offset > maximum:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, maximum, minimum, maximum)
    pull = _Pull(log, queue, queue_offset, max_count, limits, max_bytes, message_filter)
    return pull.run(minimum, maximum)


class _Pull:
    """One read under way."""

    def __init__(
        self,
        log: LogSource,
        queue: QueueSource,
        queue_offset: int,
        max_count: int,
        limits: ReadLimits,
        max_bytes: int,
        message_filter: MessageFilter | None,
    ) -> None:
        self.log = log
        self.queue = queue
        self.first = queue_offset
        self.max_count = max_count
        self.limits = limits
        self.max_bytes = min(max(max_bytes, 100), MAX_PULL_BYTES)
        self.filter = message_filter
        self.next = queue_offset
        self.status = GetStatus.NO_MATCHED_MESSAGE
        self.records: list[Record] = []
        self.offsets: list[int] = []
        self.count = 0
        self.bytes = 0
        self.filtered = 0
        self.last_physical = 0
        self.full = False

    def run(self, minimum: int, maximum: int) -> GetResult:
        is_batch = self.queue.layout is BATCH_CONSUME_QUEUE_UNIT
        scan = self._scan_batches if is_batch else self._scan_units
        for _ in range(max(1, self.limits.scan_files)):
            before = self.next
            if not scan():
                self.status = GetStatus.OFFSET_FOUND_NULL
                self.next = self._next_file()
            if self.records or self.next >= maximum or self.full or self.next == before:
                break
        log_end = self.log.max_offset
        return GetResult(
            self.status, self.next, minimum, maximum, self.records, self.offsets, self.count, self.bytes,
            self.filtered, bool(self.records) and not self.log.in_memory(self.last_physical) and log_end > 0,
        )  # fmt: skip

    def _next_file(self) -> int:
        if self.queue.layout is BATCH_CONSUME_QUEUE_UNIT:
            # Units do not tell offsets: the new minimum if a file went meanwhile, else RocketMQ's 0.
            minimum = self.queue.min_offset
            return minimum if minimum > self.next else 0
        per_file = self.queue.file_bytes // self.queue.layout.size
        return self.next - self.next % per_file + per_file

    def _units_wanted(self) -> int:
        unit_bytes = self.queue.layout.size
        scan_bytes = max(self.limits.scan_bytes, min(self.max_count, _INT_MAX // unit_bytes) * unit_bytes)
        units = -(-scan_bytes // unit_bytes)
        # Without a filter every unit is a message: no need to read far.
        return (
            units
            if self.filter is not None
            else min(units, max(1, self.max_count, self.limits.count_in_memory))
        )

    def _scan_units(self) -> bool:
        """Walk the units of one file; False if there are none at this offset."""
        number = self.next
        data = self.queue.units(number, self._units_wanted())
        if not data:
            return False
        if self.filter is None and "numba" in sys.modules and self._take_all(data):
            return True
        log, limits, records, offsets = self.log, self.limits, self.records, self.offsets
        physical = _PHYSICAL_OFFSET.unpack_from(data)[0]
        in_memory = log.in_memory(physical)
        byte_limit = min(limits.bytes_in_memory if in_memory else limits.bytes_on_disk, self.max_bytes)
        count_limit = min(self.max_count, limits.count_in_memory if in_memory else limits.count_on_disk)
        window = log.window(physical) or _NO_WINDOW
        start, end, view = window
        head = _HEAD.unpack_from
        message_filter = self.filter
        skip_to = 0
        # Of the last message that was not taken, as long as none is.
        status = self.status
        count, total = self.count, self.bytes
        for physical, size, tags_code in CONSUME_QUEUE_UNIT.struct.iter_unpack(data):
            if count and (count >= count_limit or total + size > byte_limit):
                self.full = True
                break
            number += 1
            if physical < skip_to:
                continue
            if message_filter is not None and not message_filter.matches_unit(tags_code):
                status = GetStatus.NO_MATCHED_MESSAGE
                continue
            if not start <= physical < end:
                start, end, view = log.window(physical) or _NO_WINDOW
            at = physical - start
            record: Record | None
            if start <= physical and physical + size <= end and size > 0:
                record = view[at : at + size]
            else:
                record = log.read(physical, size)
                if record is None:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                    # A reader's log may have no file at all, hence no size.
                    file_bytes = log.file_bytes or 1
                    skip_to = physical - physical % file_bytes + file_bytes
                    continue
            # The unit and the record must agree: a queue may be damaged too.
            found, magic = head(record)
            if found != size or (magic != MAGIC_V1 and magic != MAGIC_V2):  # noqa: PLR1714 - twice as fast.
                raise _no_record(size, physical, found, magic)
            if message_filter is not None and not message_filter.matches_record(record):
                status = GetStatus.NO_MATCHED_MESSAGE
                self.filtered += 1
                continue
            records.append(record)
            offsets.append(number - 1)
            count += 1
            total += size
            self.last_physical = physical
        self.status = GetStatus.FOUND if records else status
        self.next, self.count, self.bytes = number, count, total
        return True

    def _take_all(self, data: bytes) -> bool:
        """Units that are all wanted and all in one mapped file, without looking at each in Python.

        False, and nothing taken, if it is not as simple as that.
        """
        count = len(data) // UNIT_BYTES
        fields = _many_units(count).unpack(data)
        physicals, sizes = fields[::3], fields[1::3]
        window = self.log.window(physicals[0])
        total = sum(sizes)
        if (
            window is None
            or count > min(self.max_count, self.limits.count_in_memory)
            or total > min(self.limits.bytes_in_memory, self.max_bytes)
            or min(sizes) < RECORD_BYTES_MIN
            or min(physicals) < window.start
            or max(physicals) + max(sizes) > window.end
        ):
            return False
        start, _, view = window
        if not _units_agree()(data, _array(view), start):
            return False
        self.records = [
            view[at - start : at - start + size] for at, size in zip(physicals, sizes, strict=True)
        ]
        self.offsets = list(range(self.next, self.next + count))
        self.next += count
        self.count, self.bytes, self.last_physical = count, total, physicals[-1]
        self.full = count >= self.max_count
        self.status = GetStatus.FOUND
        return True

    def _scan_batches(self) -> bool:
        """Walk batch units: each stands for several queue offsets."""
        queue = cast(BatchQueueSource, self.queue)
        number = queue.find_unit(self.next)
        if number is None:
            return False
        limits = self.limits
        status = self.status
        for fields in BATCH_CONSUME_QUEUE_UNIT.struct.iter_unpack(queue.units(number, self._units_wanted())):
            physical, size, tags_code, _, base, batch, _, _ = fields
            in_memory = self.log.in_memory(physical)
            count_limit = limits.count_in_memory if in_memory else limits.count_on_disk
            byte_limit = min(limits.bytes_in_memory if in_memory else limits.bytes_on_disk, self.max_bytes)
            if self.records and (
                self.count + batch > self.max_count
                or self.bytes + size > byte_limit
                or self.count >= count_limit
            ):
                self.full = True
                break
            self.next = base + batch
            if self.filter is not None and not self.filter.matches_unit(tags_code):
                status = GetStatus.NO_MATCHED_MESSAGE
                continue
            record = self.log.read(physical, size)
            if record is None:
                status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            _check(record, size, physical)
            if self.filter is not None and not self.filter.matches_record(record):
                status = GetStatus.NO_MATCHED_MESSAGE
                self.filtered += 1
                continue
            self.records.append(record)
            self.offsets.append(base)
            self.count += batch
            self.bytes += size
            self.last_physical = physical
        self.status = GetStatus.FOUND if self.records else status
        return True


@cache
def _units_agree() -> Any:
    from rockstrata.store import kernels

    return kernels.units_agree


def _array(view: Any) -> Any:
    import numpy as np

    return np.frombuffer(view, np.uint8)


@cache
def _many_units(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


def _check(record: Record, size: int, physical_offset: int) -> None:
    found, magic = _HEAD.unpack_from(record)
    if found != size or magic not in (MAGIC_V1, MAGIC_V2):
        raise _no_record(size, physical_offset, found, magic)


def _no_record(size: int, physical_offset: int, found: int, magic: int) -> CorruptionError:
    return CorruptionError(
        "consume queue points at no record",
        position=physical_offset,
        expected=f"a record of {size} bytes",
        found=f"size {found}, magic {magic:#x}",
        hint="run `rockstrata store check`",
    )
