"""The consume queue: 20 bytes for each message of a queue, unit n for queue offset n.

Answers to RocketMQ's ConsumeQueue. Written by the dispatcher, read by every read of a queue.
"""

from pathlib import Path

from rockstrata.layout import Layout
from rockstrata.store.handles import FileHandles
from rockstrata.store.unit_queue import UnitQueue

CONSUME_QUEUE_UNIT = Layout(
    "consume queue unit",
    ("physical_offset", "q", "where the record starts in the commit log"),
    ("size", "i", "bytes of the record"),
    ("tags_code", "q", "Java hash of the tags; delivery time in the delay topic"),
    size=20,
)
UNIT_BYTES = CONSUME_QUEUE_UNIT.size


class ConsumeQueue(UnitQueue):
    """Queue offsets [min_offset, max_offset) can be read."""

    def __init__(
        self, handles: FileHandles, directory: Path, topic: str, queue_id: int, file_bytes: int
    ) -> None:
        super().__init__(handles, directory, file_bytes, CONSUME_QUEUE_UNIT)
        self.topic = topic
        self.queue_id = queue_id
        self._min = 0

    @property
    def min_offset(self) -> int:
        """Oldest queue offset whose record is still in the log; equals max_offset when none is."""
        return self._min

    @property
    def max_offset(self) -> int:
        """Offset the next message will get."""
        return self.unit_count

    def append(self, number: int, units: bytes | bytearray | memoryview, max_physical: int) -> None:
        """As ``UnitQueue.append``; a queue that begins with this unit has it as its minimum."""
        is_first = not self.queue.files
        super().append(number, units, max_physical)
        if is_first:
            self._min = number

    def _start_over(self, number: int) -> None:
        super()._start_over(number)
        self._min = min(self._min, number)

    def correct_min(self, min_physical: int) -> None:
        """Move the minimum past units whose records the commit log no longer holds."""
        low, high = max(self._min, self.first_unit), self.unit_count
        if low < high:
            self._min = self.first_where(low, high, min_physical)
        elif self._min > high:
            self._min = high

    def recover(self, *, clean: bool, whole_before: int = 0) -> None:
        """Find the end; the minimum starts at the first file until ``correct_min`` moves it."""
        super().recover(clean=clean, whole_before=whole_before)
        self._min = self.first_unit

    def truncate(self, unit_count: int) -> None:
        """Drop units; the minimum never lies past the end."""
        super().truncate(unit_count)
        self._min = min(self._min, self.unit_count)

    def destroy(self) -> None:
        """Delete everything; the queue starts anew."""
        super().destroy()
        self._min = 0
