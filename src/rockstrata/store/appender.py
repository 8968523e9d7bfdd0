"""Puts one message into the log: assign its offsets, encode, write, all under one lock.

Answers to RocketMQ's CommitLog.asyncPutMessage and its append callback. The common case is written
out in one place because a function call costs as much as a field of the record; everything rare
(record CRC, inner batches, light queues) goes through ``encode_record``.
"""

import struct

import msgspec

from rockstrata.clock import Clock
from rockstrata.errors import DiskError, IllegalMessageError, StoreStateError
from rockstrata.message import properties as props
from rockstrata.message import sys_flag
from rockstrata.message.crc import crc32
from rockstrata.message.layouts import RECORD_HEADS
from rockstrata.message.model import Message
from rockstrata.message.record import (
    HEAD_ROOM_BYTES,
    PropertiesSizeExceededError,
    encode_blank,
    encode_record,
)
from rockstrata.message.text import java_integer
from rockstrata.store.commit_log import BLANK_BYTES, CommitLog
from rockstrata.store.mapped_file import MappedFile
from rockstrata.store.multi_dispatch import MultiDispatch
from rockstrata.store.queue_offsets import QueueOffsets, TopicOffsets
from rockstrata.store.results import AppendStatus, PutResult, PutStatus
from rockstrata.store.running_flags import Flag
from rockstrata.store.store_config import StoreConfig

_HEAD_V4 = RECORD_HEADS[0].struct
_PROPERTIES_LENGTH = struct.Struct(">h")
_PUT_OK = PutStatus.PUT_OK
_NEGATIVE_QUEUE = "a queue id cannot be negative"


class Appender:
    """The writing end of the commit log. ``put`` is thread-safe."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        offsets: QueueOffsets,
        clock: Clock,
        store_host: bytes,
    ) -> None:
        self.offsets = offsets
        self.log = log
        self.store_host = store_host
        self.busy_since_ms = 0
        self.max_message_bytes = config.max_message_bytes
        self.append_crc = config.enabled_append_prop_crc
        self._multi_dispatch = (
            MultiDispatch(offsets) if config.enable_lmq and config.enable_multi_dispatch else None
        )
        self._lock = log.lock
        self._now_ms = clock.now_ms
        self.tail: MappedFile | None = None
        self._closed = False
        self.last_timestamp = 0

    def attach(self, last_timestamp: int) -> None:
        """After recovery: append where the log now ends, never with an older time than it holds."""
        self.tail = self.log.tail()
        self.last_timestamp = last_timestamp

    def close(self) -> None:
        """Refuse from now on what passed the store's own gate before it was closed."""
        with self._lock:
            self._closed = True
            self.tail = None

    def timestamp(self) -> int:
        """The store time of what is appended next; it never decreases. Callers hold the lock."""
        return max(self._now_ms(), self.last_timestamp)

    def wrote(self, file: MappedFile, position: int, timestamp: int) -> None:
        """Records up to ``position`` are in place: let readers see them. Callers hold the lock."""
        file.wrote = position
        # Last: who syncs reads the time first, so it is that of a record which counts.
        file.store_timestamp = self.last_timestamp = timestamp

    def put(self, message: Message) -> PutResult:
        """Append one message. Durable only after the log is synced past ``physical_offset``."""
        topic = self.offsets.topics.get(message.topic)
        properties = message.properties
        host = message.store_host or self.store_host
        if (
            topic is None
            or topic.version != 1
            or self.append_crc
            or message.sys_flag
            or len(message.born_host) + len(host) != 16
            or (not message.is_plain and b"INNER_" in properties)
        ):
            return self._put_rare(message)
        body = message.body
        length = len(body)
        # 91 = a V1 record with IPv4 hosts around empty body, topic and properties.
        size = 90 + length + len(topic.prefix) + len(properties)
        if length > self.max_message_bytes or size > self.max_message_bytes + HEAD_ROOM_BYTES:
            return self._too_large(length, size)
        if len(properties) > props.PROPERTIES_BYTES_MAX:
            return self._properties_too_large(len(properties))
        crc = crc32(body) & 0x7FFF_FFFF
        queue_id = message.queue_id
        with self._lock:
            queue_offset = topic.offsets.get(queue_id)
            if queue_offset is None:
                if queue_id < 0:
                    return _illegal(_NEGATIVE_QUEUE)
                queue_offset = 0
            now = self._now_ms()
            now = max(now, self.last_timestamp)
            file = self.tail
            if file is None or file.size - file.wrote < size + BLANK_BYTES:
                refusal = self.make_room(size, now)
                if refusal is not None:
                    return refusal
                file = self.tail
                assert file is not None
            position = file.wrote
            physical_offset = file.start + position
            try:
                record = b"".join(
                    (
                        _HEAD_V4.pack(
                            size, topic.magic, crc, queue_id, message.flag, queue_offset, physical_offset,
                            0, message.born_timestamp or now, message.born_host, now, host,
                            message.reconsume_times, message.prepared_transaction_offset, length,
                        ),
                        body,
                        topic.prefix,
                        _PROPERTIES_LENGTH.pack(len(properties)),
                        properties,
                    )
                )  # fmt: skip
            except struct.error as error:
                return _illegal(f"a field does not fit its place: {error}")
            file.target[position : position + size] = record  # type: ignore[index]
            file.wrote = position + size
            file.store_timestamp = self.last_timestamp = now
            topic.offsets[queue_id] = queue_offset + 1
        return PutResult(_PUT_OK, physical_offset, queue_offset, size, now, host)

    def _put_rare(self, message: Message) -> PutResult:
        try:
            topic = self.offsets.topic(message.topic)
            count = self._entries(message, topic)
        except IllegalMessageError as error:
            return _illegal(str(error))
        if message.queue_id < 0:
            return _illegal(_NEGATIVE_QUEUE)
        host = message.store_host or self.store_host
        in_queue = sys_flag.is_in_consume_queue(message.sys_flag)
        with self.log.lock:
            now = self.timestamp()
            # Prepared and rollback records hold queue offset 0 and take none.
            queue_offset = topic.offsets.get(message.queue_id, 0) if in_queue else 0
            if topic.is_batch and in_queue and message.sys_flag & sys_flag.INNER_BATCH:
                message = msgspec.structs.replace(
                    message, properties=props.put(message.properties, props.INNER_BASE, str(queue_offset))
                )
            try:
                light = self._multi_dispatch.plan(message) if self._multi_dispatch is not None else None
                if light is not None:
                    message = light.message
                record = self._encode(message, topic, queue_offset, 0, now)
                refusal = self.make_room(len(record), now)
                if refusal is not None:
                    return refusal
                file = self.tail
                assert file is not None
                assert file.target is not None
                position = file.wrote
                record = self._encode(message, topic, queue_offset, file.start + position, now)
            except PropertiesSizeExceededError as error:
                return self._refused(
                    PutStatus.PROPERTIES_SIZE_EXCEEDED, AppendStatus.PROPERTIES_SIZE_EXCEEDED, str(error)
                )
            except IllegalMessageError as error:
                return self._refused(
                    PutStatus.MESSAGE_ILLEGAL, AppendStatus.MESSAGE_SIZE_EXCEEDED, str(error)
                )
            file.target[position : position + len(record)] = record
            self.wrote(file, position + len(record), now)
            if in_queue:
                topic.offsets[message.queue_id] = queue_offset + count
            if light is not None:
                light.commit()
        return PutResult(_PUT_OK, file.start + position, queue_offset, len(record), now, host, count)

    def _encode(
        self, message: Message, topic: TopicOffsets, queue_offset: int, physical_offset: int, now: int
    ) -> bytes:
        return encode_record(
            message,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            store_timestamp=now,
            store_host=self.store_host,
            version=topic.version,
            append_crc=self.append_crc,
            max_message_bytes=self.max_message_bytes,
        )

    @staticmethod
    def _entries(message: Message, topic: TopicOffsets) -> int:
        """How many queue offsets the message takes; contradictions between its marks raise."""
        number = props.find(message.properties, props.INNER_NUM)
        is_inner = bool(message.sys_flag & sys_flag.INNER_BATCH)
        if number is not None and not is_inner:
            raise IllegalMessageError("INNER_NUM without the inner-batch flag", found=number)
        if is_inner and not topic.is_batch:
            raise IllegalMessageError(
                "inner batch for a topic that is not of type BatchCQ", found=topic.topic
            )
        if not is_inner:
            return 1
        count = java_integer(number or "1", 16)
        if count is None or count < 1:
            raise IllegalMessageError("bad INNER_NUM", expected="1 to 32767", found=number)
        return count

    def make_room(self, size: int, now: int) -> PutResult | None:
        """Leave ``_tail`` with room for ``size`` bytes and a blank; a refusal says why it cannot.

        Called with the lock held.
        """
        if self._closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="the store is closed")
        if size + BLANK_BYTES > self.log.file_bytes:
            return self._refused(
                PutStatus.MESSAGE_ILLEGAL, AppendStatus.END_OF_FILE,
                f"record of {size} bytes is larger than a commit log file of {self.log.file_bytes}",
            )  # fmt: skip
        file = self.tail or self.log.tail()
        if file is not None and file.size - file.wrote < size + BLANK_BYTES:
            assert file.target is not None
            file.target[file.wrote : file.wrote + BLANK_BYTES] = encode_blank(file.size - file.wrote)
            file.wrote = file.size
            file = None
        if file is None:
            self.tail = None
            self.busy_since_ms = now
            self.log.flags.mark(Flag.PUT_LOCK_BUSY, on=True)
            try:
                file = self.log.roll()
            except (DiskError, StoreStateError) as error:
                return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, reason=str(error))
            finally:
                self.busy_since_ms = 0
                self.log.flags.mark(Flag.PUT_LOCK_BUSY, on=False)
        self.tail = file
        return None

    def _too_large(self, length: int, size: int) -> PutResult:
        limit = self.max_message_bytes
        return self._refused(
            PutStatus.MESSAGE_ILLEGAL,
            AppendStatus.MESSAGE_SIZE_EXCEEDED,
            f"body of {length} bytes (record {size}) exceeds maxMessageSize {limit}",
        )

    def _properties_too_large(self, length: int) -> PutResult:
        return self._refused(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            AppendStatus.PROPERTIES_SIZE_EXCEEDED,
            f"properties of {length} bytes exceed {props.PROPERTIES_BYTES_MAX}",
        )

    @staticmethod
    def _refused(status: PutStatus, append_status: AppendStatus, reason: str) -> PutResult:
        return PutResult(status, refused_by=append_status, reason=reason)


def _illegal(reason: str) -> PutResult:
    return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
