"""Every way to read a store: by queue offset, physical offset, message id, key and time.

Answers to the reading half of DefaultMessageStore. Shared by the live store and the read-only
reader, which differ only in where their bytes come from.
"""

from typing import Protocol

from rockstrata.errors import RockstrataError
from rockstrata.message.ids import decode_message_id
from rockstrata.message.model import StoredMessage
from rockstrata.message.record import decode_record
from rockstrata.store import key_query, time_search
from rockstrata.store.message_filter import MessageFilter
from rockstrata.store.queue_read import MAX_PULL_BYTES, ReadLimits, read_queue
from rockstrata.store.results import BoundaryType, GetResult, GetStatus, Record
from rockstrata.store.sources import LogSource, QueueSource

_LONG_MAX = 2**63 - 1


class QueueTable(Protocol):
    """Queues by topic and id."""

    def get(self, topic: str, queue_id: int) -> QueueSource | None: ...
    def topics(self) -> dict[str, list[int]]: ...


class KeyIndex(Protocol):
    """The hash index of keys."""

    def query_offsets(
        self, topic: str, key: str, max_num: int, begin: int, end: int, index_type: str | None = None
    ) -> list[int]: ...


class StoreReads:
    """Reads over a log, a table of queues and an index."""

    def __init__(
        self, limits: ReadLimits, max_query: int, log: LogSource, queues: QueueTable, index: KeyIndex | None
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._limits = limits
        self._max_query = max_query

    # By queue offset

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int = 32,
        *,
        max_bytes: int = MAX_PULL_BYTES,
        message_filter: MessageFilter | None = None,
    ) -> GetResult:
        """Messages of a queue from an offset on."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            # RocketMQ makes the queue object on demand, so an unknown queue is an empty one.
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        return read_queue(
            self._log,
            queue,
            queue_offset,
            max_count,
            self._limits,
            max_bytes=max_bytes,
            message_filter=message_filter,
        )

    def topic_queues(self) -> dict[str, list[int]]:
        """Queue ids of every topic."""
        return self._queues.topics()

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Oldest readable queue offset; 0 for a queue that does not exist, -1 in an empty batch queue."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset after the last readable message; 0 for a queue that does not exist."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def physical_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where a queue's message lies in the log; 0 if it is not there, as RocketMQ answers."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return 0
        number = time_search.unit_number(queue, queue_offset)
        return 0 if number is None else int(queue.unit(number)[0])

    # By physical offset and id

    def record_at(self, physical_offset: int) -> Record | None:
        """The bytes of the record at a physical offset; None outside the log."""
        if not 0 <= self._log.min_offset <= physical_offset < self._log.max_offset:
            return None
        return self._log.read_record(physical_offset)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message at a physical offset; None outside the log."""
        record = self.record_at(physical_offset)
        return None if record is None else decode_record(record, base=physical_offset)

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """The message with this offset id, None if it is not (or no longer) here.

        An id whose offset lies inside another record is nobody's: None, not an error.
        """
        _, physical_offset = decode_message_id(message_id)
        try:
            message = self.message_at(physical_offset)
        except RockstrataError:
            if self._is_record_start(physical_offset):
                raise
            return None
        return message if message is not None and message.physical_offset == physical_offset else None

    def _is_record_start(self, physical_offset: int) -> bool:
        """Does any queue have a unit for a record at this very offset?"""
        for topic, queue_ids in self._queues.topics().items():
            for queue_id in queue_ids:
                queue = self._queues.get(topic, queue_id)
                if queue is None:
                    continue
                low, high = time_search.unit_range(queue)
                end = high
                while low < high:
                    middle = (low + high) // 2
                    low, high = (
                        (middle + 1, high) if queue.unit(middle)[0] < physical_offset else (low, middle)
                    )
                if low < end and queue.unit(low)[0] == physical_offset:
                    return True
        return False

    # By key

    def query(
        self,
        topic: str,
        key: str,
        max_num: int = 32,
        begin: int = 0,
        end: int = _LONG_MAX,
        *,
        by_tag: bool = False,
    ) -> list[StoredMessage]:
        """The newest messages with a key (a word of KEYS, or the unique key) in a time range."""
        index = self._index
        if index is None:
            return []
        kind = key_query.TAG_INDEX if by_tag else None

        def offsets(topic: str, key: str, count: int, begin: int, end: int) -> list[int]:
            return index.query_offsets(topic, key, count, begin, end, kind)

        limit = min(max_num, self._max_query)
        return key_query.query_messages(self._log, offsets, topic, key, limit, begin, end, by_tag=by_tag)

    # By time

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Queue offset for a store time; 0 for a queue that does not exist."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else time_search.offset_by_time(self._log, queue, timestamp, boundary)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of one message, -1 if it is not there."""
        queue = self._queues.get(topic, queue_id)
        return -1 if queue is None else time_search.time_of(self._log, queue, queue_offset)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Store time of a queue's oldest message, -1 if it has none."""
        queue = self._queues.get(topic, queue_id)
        return -1 if queue is None else time_search.time_of(self._log, queue, queue.min_offset)

    # Counting

    def message_count(self, topic: str, queue_id: int) -> int:
        """Readable messages of a queue."""
        return max(0, self.max_offset(topic, queue_id) - max(0, self.min_offset(topic, queue_id)))

    def estimate_message_count(
        self,
        topic: str,
        queue_id: int,
        first_offset: int,
        end_offset: int,
        message_filter: MessageFilter | None = None,
    ) -> int:
        """About how many of the messages [first_offset, end_offset) pass the filter.

        As in RocketMQ an interval that begins before the queue's minimum is moved there with its
        length, and without a filter, or without units to look at, the answer is the length.
        """
        first_offset = max(0, first_offset)
        if first_offset >= end_offset:
            return 0
        if message_filter is None:
            return end_offset - first_offset
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        from rockstrata.store import count_estimate

        shift = max(0, queue.min_offset - first_offset)
        count = count_estimate.estimate_count(
            queue,
            first_offset + shift,
            end_offset + shift,
            message_filter,
            max_units=self._limits.estimate_units,
            max_matches=self._limits.estimate_matches,
        )
        return end_offset - first_offset if count == count_estimate.UNKNOWN else count
