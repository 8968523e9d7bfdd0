"""Puts many messages of many topics and queues with one kernel call.

Answers to RocketMQ's CommitLog.asyncPutMessages, which takes one topic and queue. Called by the
store; shares lock, tail and offsets with the appender of single messages.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rockstrata.errors import DiskError, IllegalMessageError
from rockstrata.message import sys_flag
from rockstrata.message.model import Message
from rockstrata.message.packed import PackedMessages, pack_batch, pack_messages
from rockstrata.message.record import PropertiesSizeExceededError
from rockstrata.store.appender import Appender
from rockstrata.store.batch_result import BatchPutResult
from rockstrata.store.commit_log import BLANK_BYTES
from rockstrata.store.queue_offsets import TopicOffsets
from rockstrata.store.results import PutResult, PutStatus
from rockstrata.store.running_flags import Flag

_RARE_BITS = sys_flag.TRANSACTION_MASK | sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP
# Parts of DELAY and the TIMER_ names, and of the INNER_ names.
_RARE_MARKS = (b"DEL", b"INNER_")
# What is encoded before it is written; a larger record goes alone.
_WRITE_BYTES = 1 << 20


class BatchAppender:
    """The many-message entry of the commit log. Thread-safe."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._array: NDArray[np.uint8] = np.empty(0, np.uint8)

    def put(self, messages: Sequence[Message]) -> BatchPutResult | None:
        """Append messages in order; one that cannot be encoded refuses all of them.

        None, and nothing stored, if some message needs more than encoding: a delay, a transaction,
        an inner batch, light queues. Those go one by one.
        """
        appender = self._appender
        try:
            packed = pack_messages(
                messages, appender.store_host, append_crc=appender.append_crc,
                max_message_bytes=appender.max_message_bytes,
            )  # fmt: skip
            topics = self._topics(packed)
        except IllegalMessageError as error:
            return BatchPutResult.refused(len(messages), refusal_of(error))
        if self._is_rare(packed, topics):
            return None
        return self._append(packed, topics, together=False)

    def _topics(self, packed: PackedMessages) -> list[TopicOffsets]:
        if len(packed) and packed.queue_id.min() < 0:
            raise IllegalMessageError("a queue id cannot be negative", found=int(packed.queue_id.min()))
        return [self._appender.offsets.topic(name) for name in packed.topic_names]

    @staticmethod
    def _is_rare(packed: PackedMessages, topics: list[TopicOffsets]) -> bool:
        if (packed.sys_flag & _RARE_BITS).any() or any(topic.is_batch for topic in topics):
            return True
        if packed.is_plain:
            return False
        wire = packed.properties.tobytes()
        return any(mark in wire for mark in _RARE_MARKS)

    def put_client_batch(self, message: Message) -> BatchPutResult:
        """Append the elements of a client batch, all in one file or none."""
        appender = self._appender
        try:
            packed = pack_batch(
                message, appender.store_host, append_crc=appender.append_crc,
                max_message_bytes=appender.max_message_bytes,
            )  # fmt: skip
            topics = self._topics(packed)
        except IllegalMessageError as error:
            return BatchPutResult.refused(1, refusal_of(error))
        return self._append(packed, topics, together=True)

    def _append(
        self, packed: PackedMessages, topics: list[TopicOffsets], *, together: bool
    ) -> BatchPutResult:
        appender = self._appender
        groups = _Groups(packed)
        count = len(packed)
        positions = np.empty(count, np.int64)
        physical = np.empty(count, np.int64)
        total = int(packed.sizes.sum(dtype=np.int64))
        done = 0
        refusal: PutResult | None = None
        with appender.log.lock:
            now = appender.timestamp()
            queue_offset = groups.offsets(topics)
            try:
                while done < count:
                    room = total if together else int(packed.sizes[done])
                    refusal = appender.make_room(room, now)
                    if refusal is not None:
                        break
                    file = appender.tail
                    assert file is not None
                    limit = min(
                        file.size - file.wrote, max(room, _WRITE_BYTES) + BLANK_BYTES, total + BLANK_BYTES
                    )
                    out = self._scratch(limit)
                    base = file.start + file.wrote
                    written = packed.write(
                        out, 0, limit, base_physical_offset=base,
                        queue_offset=queue_offset, store_timestamp=now, positions=positions, first=done,
                    )  # fmt: skip
                    last = done + written - 1
                    end = int(positions[last]) + int(packed.sizes[last])
                    file.put_bytes(file.wrote, out[:end])
                    np.add(positions[done : last + 1], base, out=physical[done : last + 1])
                    appender.wrote(file, file.wrote + end, now)
                    done += written
            except DiskError as error:
                appender.log.flags.set(Flag.NOT_WRITABLE, f"write failed: {error}")
                refusal = PutResult(PutStatus.UNKNOWN_ERROR, reason=str(error))
            finally:
                # Whatever happened: offsets that stand in the log are taken.
                groups.advance(topics, done, queue_offset)
        return BatchPutResult(
            count, done, physical, queue_offset, packed.sizes, now, packed.store_host, refusal
        )

    def _scratch(self, size: int) -> NDArray[np.uint8]:
        """Memory to encode into: small enough to stay in the processor's cache. Callers hold the lock.

        One write of it costs less than the page faults of encoding into the map.
        """
        if len(self._array) < size:
            self._array = np.empty(size, np.uint8)
        return self._array


class _Groups:
    """Messages of one call by queue, in order: who gets which of the next offsets."""

    def __init__(self, packed: PackedMessages) -> None:
        key = (packed.topic_row.astype(np.int64) << 32) | packed.queue_id.astype(np.uint32)
        self._order = np.argsort(key, kind="stable")
        ordered = key[self._order]
        edge = np.empty(len(ordered), bool)
        edge[:1] = True
        np.not_equal(ordered[1:], ordered[:-1], out=edge[1:])
        self._starts = np.flatnonzero(edge)
        self._lengths = np.diff(self._starts, append=len(ordered))
        self._keys = ordered[self._starts].tolist()

    def offsets(self, topics: list[TopicOffsets]) -> NDArray[np.int64]:
        """The queue offset of each message. Callers hold the lock."""
        bases = [topics[key >> 32].offsets.get(_queue_id(key), 0) for key in self._keys]
        shift = np.repeat(np.array(bases, np.int64) - self._starts, self._lengths)
        result = np.empty(len(self._order), np.int64)
        result[self._order] = shift + np.arange(len(self._order))
        return result

    def advance(self, topics: list[TopicOffsets], done: int, queue_offset: NDArray[np.int64]) -> None:
        """Take the offsets of the first ``done`` messages."""
        if done == len(self._order):
            lasts = self._order[self._starts + self._lengths - 1]
            for key, last in zip(self._keys, queue_offset[lasts].tolist(), strict=True):
                topics[key >> 32].offsets[_queue_id(key)] = last + 1
            return
        for key, start, length in zip(self._keys, self._starts, self._lengths, strict=True):
            rows = self._order[start : start + length]
            taken = rows[rows < done]
            if len(taken):
                topics[key >> 32].offsets[_queue_id(key)] = int(queue_offset[taken[-1]]) + 1


def _queue_id(key: int) -> int:
    """The signed queue id in the low half of a group's key."""
    return ((key & 0xFFFF_FFFF) ^ 0x8000_0000) - 0x8000_0000


def refusal_of(error: IllegalMessageError) -> PutResult:
    """The status of a message that cannot be encoded."""
    exceeded = isinstance(error, PropertiesSizeExceededError)
    return PutResult(
        PutStatus.PROPERTIES_SIZE_EXCEEDED if exceeded else PutStatus.MESSAGE_ILLEGAL, reason=str(error)
    )
