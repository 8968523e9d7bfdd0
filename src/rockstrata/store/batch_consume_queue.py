"""The batch consume queue: 46 bytes for each inner batch of a queue, found by its base offset.

Answers to RocketMQ's BatchConsumeQueue. Written by the dispatcher for topics of type BatchCQ.
"""

from pathlib import Path

from rockstrata.layout import Layout
from rockstrata.store.disk import Buffer
from rockstrata.store.handles import FileHandles
from rockstrata.store.unit_queue import UnitQueue

BATCH_CONSUME_QUEUE_UNIT = Layout(
    "batch consume queue unit",
    ("physical_offset", "q", "where the record starts in the commit log"),
    ("size", "i", "bytes of the record"),
    ("tags_code", "q", "Java hash of the tags"),
    ("store_timestamp", "q", "ms"),
    ("base_offset", "q", "queue offset of the first message of the batch"),
    ("batch_size", "h", "messages in the batch"),
    ("compacted_offset", "i", "-1"),
    ("reserved", "i", "0"),
    size=46,
)
UNIT_BYTES = BATCH_CONSUME_QUEUE_UNIT.size


class BatchConsumeQueue(UnitQueue):
    """Units are numbered as they come; queue offsets come from ``base_offset`` and ``batch_size``."""

    def __init__(
        self, handles: FileHandles, directory: Path, topic: str, queue_id: int, file_bytes: int
    ) -> None:
        super().__init__(handles, directory, file_bytes, BATCH_CONSUME_QUEUE_UNIT)
        self.topic = topic
        self.queue_id = queue_id
        self._min_unit = 0
        self._last_physical = -1
        self._max = 0

    @property
    def min_unit(self) -> int:
        """Number of the oldest unit whose record is still in the log."""
        return self._min_unit

    @property
    def min_offset(self) -> int:
        """Oldest queue offset, -1 in an empty queue as RocketMQ has it."""
        return int(self.unit(self._min_unit)[4]) if self._min_unit < self.unit_count else -1

    @property
    def max_offset(self) -> int:
        """Offset the next message will get."""
        return self._max

    def append_batches(self, units: Buffer, max_physical: int) -> None:
        """Write units in physical order; those of records already there are left out."""
        data = memoryview(units)
        if not self.queue.files:
            self._begin(0)
        while data:
            physical, _, _, _, base, count, _, _ = self.layout.struct.unpack_from(data)
            if physical > self._last_physical:
                super().append(self.unit_count, data[:UNIT_BYTES], max_physical)
                self._last_physical, self._max = physical, base + count
            data = data[UNIT_BYTES:]

    def find_unit(self, queue_offset: int) -> int | None:
        """Number of the unit whose batch holds ``queue_offset``."""
        low, high = self._min_unit, self.unit_count
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle)[4] <= queue_offset:
                low = middle + 1
            else:
                high = middle
        if low == self._min_unit:
            return None
        _, _, _, _, base, count, _, _ = self.unit(low - 1)
        return low - 1 if queue_offset < base + count else None

    def correct_min(self, min_physical: int) -> None:
        """Move the minimum past units whose records the commit log no longer holds."""
        low, high = max(self._min_unit, self.first_unit), self.unit_count
        if low < high:
            self._min_unit = self.first_where(low, high, min_physical)

    def recover(self, *, clean: bool, whole_before: int = 0) -> None:
        """Find the end of valid units."""
        super().recover(clean=clean, whole_before=whole_before)
        self._min_unit = self.first_unit
        self._note_end()

    def truncate(self, unit_count: int) -> None:
        """Drop units from ``unit_count`` on."""
        super().truncate(unit_count)
        self._min_unit = min(self._min_unit, self.unit_count)
        self._note_end()

    def destroy(self) -> None:
        """Delete everything."""
        super().destroy()
        self._min_unit = self._max = 0
        self._last_physical = -1

    def _note_end(self) -> None:
        self._last_physical, self._max = -1, 0
        if self.unit_count > self.first_unit:
            physical, _, _, _, base, count, _, _ = self.unit(self.unit_count - 1)
            self._last_physical, self._max = physical, base + count
