"""What puts and reads answer: RocketMQ's status names, and the facts that go with them.

Answers to PutMessageStatus, AppendMessageStatus, PutMessageResult, GetMessageStatus and
GetMessageResult.
"""

from enum import Enum

import msgspec

from rockstrata.errors import CorruptionError
from rockstrata.message.ids import encode_message_id
from rockstrata.message.model import StoredMessage
from rockstrata.message.record import decode_record

Record = memoryview | bytes


class PutStatus(Enum):
    """Outcome of a put, as clients of RocketMQ know it."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class AppendStatus(Enum):
    """Outcome of the append itself; a put is "ok" when this is PUT_OK, even if a flush timed out."""

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went, or why it did not."""

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    record_bytes: int = 0
    store_timestamp: int = 0
    store_host: bytes = b""
    message_count: int = 1
    refused_by: AppendStatus | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True if the message is in the log (it may still not be durable: see ``status``)."""
        return self.physical_offset >= 0

    @property
    def append_status(self) -> AppendStatus | None:
        """Outcome of the append; None if it was not tried."""
        return AppendStatus.PUT_OK if self.ok else self.refused_by

    @property
    def message_id(self) -> str:
        """The offset message id; empty if nothing was stored."""
        return encode_message_id(self.store_host, self.physical_offset) if self.ok else ""


class GetStatus(Enum):
    """Outcome of a read by queue offset."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class GetResult(msgspec.Struct, frozen=True):
    """Records found, undecoded, with the next offset to ask for.

    ``records`` may be views of the mapped log: they stay valid after the file is deleted.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[Record] = []
    queue_offsets: list[int] = []
    message_count: int = 0
    total_bytes: int = 0
    filtered_count: int = 0
    suggest_pulling_from_slave: bool = False

    def messages(self, *, check_crc: bool = True) -> list[StoredMessage]:
        """The records decoded; a damaged one raises ``CorruptionError``."""
        messages = [decode_record(record, check_crc=check_crc) for record in self.records]
        for message, record in zip(messages, self.records, strict=True):
            if message.record_bytes != len(record):
                raise CorruptionError(
                    "consume queue and record disagree",
                    position=message.physical_offset,
                    expected=f"a record of {len(record)} bytes",
                    found=message.record_bytes,
                    hint="run `rockstrata store check`",
                )
        return messages


class BoundaryType(Enum):
    """Which of several equally old messages a search by time gives."""

    LOWER = "LOWER"
    UPPER = "UPPER"
