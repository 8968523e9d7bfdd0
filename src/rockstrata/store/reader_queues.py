"""Consume queues of a store that somebody else writes: only whole units, only of whole records.

Answers to no RocketMQ class; the read-only twins of ConsumeQueue and BatchConsumeQueue.
"""

from pathlib import Path
from typing import Any

from rockstrata.errors import CorruptionError
from rockstrata.layout import Layout
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.record import decode_record
from rockstrata.message.tags import tags_code
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT
from rockstrata.store.handles import FileHandles
from rockstrata.store.reader_files import ReaderFiles
from rockstrata.store.sources import LogSource
from rockstrata.store.unit_queue import PRE_BLANK_SIZE

_TAGS_CODE = 2


class ReaderQueue(ReaderFiles):
    """Units of a simple queue, as far as they are whole."""

    layout: Layout = CONSUME_QUEUE_UNIT

    def __init__(
        self, handles: FileHandles, directory: Path, topic: str, queue_id: int, log: LogSource,
        file_bytes: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(handles, (directory,), file_bytes)
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self._log = log
        self._known_end = 0
        self._known_min = 0

    def units(self, number: int, count: int) -> bytes:
        """Up to ``count`` whole units, as far as their file and the visible end go."""
        count = min(count, self.unit_count - number)
        size = self.layout.size
        data = self.pread(number * size, count * size) if count > 0 else None
        if data is None:
            return b""
        # While the owner recovers, units that were there are written once more.
        whole = next(
            (n for n, fields in enumerate(self.layout.struct.iter_unpack(data[: len(data) // size * size]))
             if fields[1] <= 0),
            len(data) // size,
        )  # fmt: skip
        return data[: whole * size]

    def unit(self, number: int) -> tuple[Any, ...]:
        """One unit; one whose file is gone reads as a pre-blank unit: before everything in the log."""
        fields = self._peek(number)
        if fields is None:
            if not self.starts or number < self._first_unit():
                return (0, PRE_BLANK_SIZE, *([0] * (len(self.layout.fields) - 2)))
            raise CorruptionError(
                f"{self.layout.name} {number} is missing", path=self.directory,
                position=number * self.layout.size, hint="run `rockstrata store check`",
            )  # fmt: skip
        return fields

    @property
    def unit_count(self) -> int:
        """Number after the last whole unit; grows as the owner writes."""
        while True:
            first = self._first_unit()
            end = self._whole_end(max(self._known_end, first))
            # If the oldest file went while we looked, we looked at nothing.
            if self._first_unit() == first:
                break
        if end > self._known_end and not self._is_settled(end - 1):
            end -= 1
        self._known_end = max(self._known_end, end)
        return self._known_end

    def _whole_end(self, end: int) -> int:
        """Gallop, then bisect: units are written in order, so validity is a prefix."""
        step = 1
        while self._is_whole(end + step - 1):
            end += step
            step *= 2
        while step:
            if self._is_whole(end + step - 1):
                end += step
            step //= 2
        return end

    @property
    def max_offset(self) -> int:
        """Offset after the last readable message."""
        return self.unit_count

    @property
    def min_offset(self) -> int:
        """Oldest offset whose record is still in the log."""
        high = self.unit_count
        low = min(high, max(self._known_min, self._first_unit()))
        minimum = self._log.min_offset
        while low < high:
            middle = (low + high) // 2
            fields = self._peek(middle)
            if fields is None or fields[0] < minimum or _is_blank(fields):
                low = middle + 1
            else:
                high = middle
        self._known_min = low
        return low

    def _first_unit(self) -> int:
        starts = self.starts
        return starts[0] // self.layout.size if starts else 0

    def _peek(self, number: int) -> tuple[Any, ...] | None:
        data = self.pread(number * self.layout.size, self.layout.size) if number >= 0 else None
        return self.layout.struct.unpack(data) if data is not None and len(data) == self.layout.size else None

    def _is_whole(self, number: int) -> bool:
        fields = self._peek(number)
        return fields is not None and fields[0] >= 0 and fields[1] > 0

    def _is_settled(self, number: int) -> bool:
        """Is the newest unit wholly written? It must agree with its record, tags included."""
        fields = self._peek(number)
        if fields is None:
            return False
        if _is_blank(fields):
            return True
        record = self._log.read(fields[0], fields[1])
        if record is None:
            # Too old to be checked means too old to be half-written.
            return bool(fields[0] < self._log.min_offset)
        try:
            message = decode_record(record, check_crc=False)
        except CorruptionError:
            return False
        if message.topic != self.topic:
            # A light queue's unit points at a record of another topic.
            return True
        if self.topic == SCHEDULE_TOPIC:
            return bool(fields[_TAGS_CODE])
        return bool(fields[_TAGS_CODE] == tags_code(message.tags))


class ReaderBatchQueue(ReaderQueue):
    """Units of a batch queue."""

    layout = BATCH_CONSUME_QUEUE_UNIT

    @property
    def min_unit(self) -> int:
        """Number of the oldest unit whose record is still in the log."""
        return ReaderQueue.min_offset.fget(self)  # type: ignore[attr-defined, no-any-return]

    @property
    def min_offset(self) -> int:
        """Oldest queue offset, -1 in an empty queue."""
        while True:
            number = self.min_unit
            if number >= self.unit_count:
                return -1
            fields = self._peek(number)
            # It may have gone in between: then there is another minimum.
            if fields is not None:
                return int(fields[4])

    @property
    def max_offset(self) -> int:
        """Offset after the last message of the last batch."""
        count = self.unit_count
        if not count:
            return 0
        _, _, _, _, base, size, _, _ = self.unit(count - 1)
        return int(base + size)

    def find_unit(self, queue_offset: int) -> int | None:
        """Number of the unit whose batch holds ``queue_offset``."""
        first, high = self.min_unit, self.unit_count
        low = first
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.unit(middle)[4] <= queue_offset else (low, middle)
        if low == first:
            return None
        _, _, _, _, base, size, _, _ = self.unit(low - 1)
        return low - 1 if queue_offset < base + size else None

    def _is_whole(self, number: int) -> bool:
        fields = self._peek(number)
        return fields is not None and fields[0] >= 0 and fields[1] > 0 and fields[4] >= 0 and fields[5] > 0

    def _is_settled(self, number: int) -> bool:
        fields = self._peek(number)
        # The last field but one is -1 in every whole unit, and is written last.
        return fields is not None and fields[6] == -1


def _is_blank(fields: tuple[Any, ...]) -> bool:
    return bool(fields[0] == 0 and fields[1] == PRE_BLANK_SIZE)
