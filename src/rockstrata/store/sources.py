"""What a read needs of a log and of a queue: the live store and the read-only reader both give it.

Answers to no RocketMQ class. Implemented by CommitLog, ConsumeQueue and BatchConsumeQueue, and by
their read-only twins in ``reader``.
"""

from typing import Any, NamedTuple, Protocol

from rockstrata.layout import Layout
from rockstrata.store.results import Record


class Window(NamedTuple):
    """A part of the log in memory: physical offsets [start, end), ``view[0]`` being ``start``."""

    start: int
    end: int
    view: memoryview


class LogSource(Protocol):
    """Records by physical offset."""

    @property
    def file_bytes(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    def read(self, physical_offset: int, size: int) -> Record | None:
        """Bytes of a record, None if they are not in the log."""
        ...

    def read_record(self, physical_offset: int) -> Record | None: ...
    def store_timestamp(self, physical_offset: int, size: int) -> int:
        """Store time of a record, -1 if it is not in the log."""
        ...

    def in_memory(self, physical_offset: int) -> bool: ...
    def window(self, physical_offset: int) -> Window | None:
        """The mapped file that holds an offset; None if it is better read piece by piece."""
        ...


class QueueSource(Protocol):
    """Units of one queue by number."""

    topic: str
    queue_id: int

    @property
    def layout(self) -> Layout: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def unit_count(self) -> int: ...
    def unit(self, number: int) -> tuple[Any, ...]: ...
    def units(self, number: int, count: int) -> bytes:
        """Up to ``count`` units, as far as their file goes."""
        ...


class BatchQueueSource(QueueSource, Protocol):
    """Units of a batch queue, each for several queue offsets."""

    @property
    def min_unit(self) -> int: ...
    def find_unit(self, queue_offset: int) -> int | None:
        """Number of the unit whose batch holds ``queue_offset``."""
        ...
