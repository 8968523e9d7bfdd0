"""Many messages as arrays, written into a log buffer by one kernel call.

Answers to MessageExtEncoder.encode for MessageExtBatch, with any mixture of topics and queues.
Called by the store's put of many messages, under the put lock: what can be prepared before is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rockstrata.errors import IllegalMessageError
from rockstrata.message.batch import check_batch, decode_batch, split_batch
from rockstrata.message.crc import RECORD_CRC_BYTES
from rockstrata.message.model import Message
from rockstrata.message.properties import PROPERTIES_BYTES_MAX
from rockstrata.message.record import (
    HEAD_ROOM_BYTES,
    MAX_MESSAGE_BYTES,
    V2_TOPIC_BYTES_MAX,
    MessageSizeExceededError,
    encode_record,
    record_version,
    stored_properties,
)
from rockstrata.message.scan import kernel_buffer
from rockstrata.message.sys_flag import BORN_HOST_V6, STORE_HOST_V6

T = TypeVar("T")
_SHARED_BY_BATCH = (
    "topic_row", "born_host_row", "store_host_row", "version", "queue_id", "sys_flag",
    "born_timestamp", "reconsume_times",
)  # fmt: skip


@dataclass(eq=False, slots=True)
class PackedMessages:
    """Messages checked and laid out for the encoder; ``sizes`` are those of their records."""

    bodies: NDArray[np.uint8]
    body_start: NDArray[np.int64]
    body_length: NDArray[np.int64]
    properties: NDArray[np.uint8]
    properties_start: NDArray[np.int64]
    properties_length: NDArray[np.int64]
    topic_names: tuple[str, ...]
    topics: NDArray[np.uint8]
    topic_start: NDArray[np.int64]
    topic_length: NDArray[np.int64]
    topic_row: NDArray[np.int32]
    hosts: NDArray[np.uint8]
    born_host_row: NDArray[np.int32]
    store_host_row: NDArray[np.int32]
    version: NDArray[np.int32]
    queue_id: NDArray[np.int32]
    flag: NDArray[np.int32]
    sys_flag: NDArray[np.int32]
    born_timestamp: NDArray[np.int64]
    reconsume_times: NDArray[np.int32]
    prepared_offset: NDArray[np.int64]
    sizes: NDArray[np.int32]
    append_crc: bool
    # No message's properties hold a name that a put acts on, as far as the messages say.
    is_plain: bool = False

    def __len__(self) -> int:
        return len(self.sizes)

    def store_host(self, number: int) -> bytes:
        """The store host of message ``number``, as its record holds it."""
        row = int(self.store_host_row[number])
        length = 20 if self.sys_flag[number] & STORE_HOST_V6 else 8
        return self.hosts[20 * row : 20 * row + length].tobytes()

    def write(
        self,
        out: NDArray[np.uint8],
        position: int,
        file_end: int,
        *,
        base_physical_offset: int,
        queue_offset: NDArray[np.int64],
        store_timestamp: int,
        positions: NDArray[np.int64],
        first: int = 0,
    ) -> int:
        """Write messages from ``first`` on to ``out[position:file_end]``; the number written.

        ``base_physical_offset`` is the address of ``out[0]`` in the log. Stops before the first
        record that does not leave room for a blank; ``positions[n]`` is where message n went.
        """
        from rockstrata.message import kernels

        assert 0 <= position <= file_end <= len(out), "the room lies in the buffer"
        assert out.flags.c_contiguous, "kernels write contiguous bytes"
        assert out.flags.writeable, "the buffer can be written"
        assert len(queue_offset) == len(positions) == len(self), "one item per message"
        encode_records: Any = kernels.encode_records
        return int(
            encode_records(
                self.bodies, self.body_start, self.body_length,
                self.properties, self.properties_start, self.properties_length,
                self.topics, self.topic_start, self.topic_length, self.topic_row,
                self.hosts, self.born_host_row, self.store_host_row,
                self.version, self.queue_id, self.flag, self.sys_flag, self.born_timestamp,
                self.reconsume_times, self.prepared_offset, queue_offset,
                np.int64(store_timestamp), self.append_crc, out, np.int64(position), np.int64(file_end),
                np.int64(base_physical_offset), np.int64(first), positions, self.sizes,
            )
        )  # fmt: skip


def pack_messages(
    messages: Sequence[Message],
    store_host: bytes,
    *,
    append_crc: bool = False,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> PackedMessages:
    """Lay messages out for ``PackedMessages.write``; raises what ``encode_record`` would."""
    try:
        return _pack(messages, store_host, append_crc, max_message_bytes)
    except (OverflowError, ValueError):
        # The reference encoder knows which message is wrong, and why.
        for message in messages:
            encode_record(
                message, queue_offset=0, physical_offset=0, store_timestamp=0, store_host=store_host,
                append_crc=append_crc, max_message_bytes=max_message_bytes,
            )  # fmt: skip
        raise


def pack_batch(
    message: Message,
    store_host: bytes,
    *,
    append_crc: bool = False,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> PackedMessages:
    """Lay out the elements of an ordinary batch, as ``split_batch`` has them, without copying them."""
    if len(message.body) > max_message_bytes:
        found = len(message.body)
        raise MessageSizeExceededError("batch too long", expected=f"at most {max_message_bytes}", found=found)
    if append_crc:
        elements = split_batch(message)
        return pack_messages(elements, store_host, append_crc=True, max_message_bytes=max_message_bytes)
    from rockstrata.message import kernels

    check_batch(message)
    batch_elements: Any = kernels.batch_elements
    data = kernel_buffer(message.body)
    # Room for elements of 512 bytes: arrays for the smallest would cost more than the parsing.
    room, count = len(data) // 512 + 16, -2
    while count == -2:
        spans = [np.empty(room, np.int64) for _ in range(4)]
        flag = np.empty(room, np.int32)
        count = int(batch_elements(data, *spans, flag))
        room *= 8
    if count < 0:
        decode_batch(message.body)
        raise AssertionError("the kernel and decode_batch disagree about a batch")
    body_start, body_length, properties_start, properties_length = (span[:count] for span in spans)
    one = pack_messages([msgspec.structs.replace(message, body=b"", properties=b"")], store_host)
    sizes = one.sizes[0] + body_length + properties_length
    return PackedMessages(
        bodies=data,
        body_start=body_start,
        body_length=body_length,
        properties=data,
        properties_start=properties_start,
        properties_length=properties_length,
        flag=flag[:count],
        prepared_offset=np.zeros(count, np.int64),
        sizes=sizes.astype(np.int32),
        topic_names=one.topic_names,
        topics=one.topics,
        topic_start=one.topic_start,
        topic_length=one.topic_length,
        hosts=one.hosts,
        append_crc=False,
        is_plain=False,
        **{name: np.repeat(getattr(one, name), count) for name in _SHARED_BY_BATCH},
    )


def _pack(
    messages: Sequence[Message], store_host: bytes, append_crc: bool, max_message_bytes: int
) -> PackedMessages:
    (
        topic, bodies, queue_id, properties, flag, flags, born_timestamp, born_host, own_host,
        reconsume_times, prepared_offset, is_plain,
    ) = zip(*map(msgspec.structs.astuple, messages), strict=True) if messages else ((),) * 12  # fmt: skip
    if append_crc:
        properties = tuple(stored_properties(m, True) + bytes(RECORD_CRC_BYTES) for m in messages)
    body_length, properties_length = _lengths(bodies), _lengths(properties)

    topic_rows: dict[str, int] = {}
    topic_row = _rows(topic, topic_rows)
    topics = [name.encode() for name in topic_rows]
    topic_length = _lengths(topics)
    version = _ints([record_version(name) for name in topics])[topic_row]

    host_rows: dict[bytes, int] = {}
    born_host_row = _rows(born_host, host_rows)
    if _is_constant(own_host):
        own_host = (own_host[0] or store_host,) * len(own_host)
    else:
        own_host = tuple(host or store_host for host in own_host)
    store_host_row = _rows(own_host, host_rows)
    if any(len(host) not in {8, 20} for host in host_rows):
        raise IllegalMessageError("bad host", expected="8 or 20 bytes")
    host_length = _lengths(list(host_rows))
    born_length, store_length = host_length[born_host_row], host_length[store_host_row]
    sys_flag = _ints(flags) & ~0x30
    if host_length.max(initial=8) > 8:
        v6 = (born_length == 20) * BORN_HOST_V6 | (store_length == 20) * STORE_HOST_V6
        sys_flag |= v6.astype(np.int32)

    sizes = body_length + properties_length
    sizes += born_length
    sizes += store_length
    sizes += (topic_length + 74)[topic_row]
    sizes += version
    # No part is longer than the whole: most batches need no closer look.
    if len(messages) and sizes.max() > min(max_message_bytes, PROPERTIES_BYTES_MAX):
        _check_lengths(sizes, body_length, properties_length, topic_length, max_message_bytes)
    return PackedMessages(
        bodies=_blob(bodies),
        body_start=_starts(body_length),
        body_length=body_length,
        properties=_blob(properties),
        properties_start=_starts(properties_length),
        properties_length=properties_length,
        topic_names=tuple(topic_rows),
        topics=_blob(topics),
        topic_start=_starts(topic_length),
        topic_length=topic_length,
        topic_row=topic_row,
        hosts=_blob([host.ljust(20, b"\0") for host in host_rows]),
        born_host_row=born_host_row,
        store_host_row=store_host_row,
        version=version,
        queue_id=_ints(queue_id),
        flag=_ints(flag),
        sys_flag=sys_flag,
        born_timestamp=_longs(born_timestamp),
        reconsume_times=_ints(reconsume_times),
        prepared_offset=_longs(prepared_offset),
        sizes=sizes.astype(np.int32),
        append_crc=append_crc,
        is_plain=all(is_plain),
    )


def _check_lengths(
    sizes: NDArray[np.int64],
    body_length: NDArray[np.int64],
    properties_length: NDArray[np.int64],
    topic_length: NDArray[np.int64],
    max_message_bytes: int,
) -> None:
    if (
        body_length.max() > max_message_bytes
        or sizes.max() > max_message_bytes + HEAD_ROOM_BYTES
        or properties_length.max() > PROPERTIES_BYTES_MAX
        or topic_length.max() > V2_TOPIC_BYTES_MAX
    ):
        raise IllegalMessageError("a message is too long")


def _is_constant(values: Sequence[Any]) -> bool:
    """Most columns are; counting costs a tenth of converting."""
    return bool(values) and values.count(values[0]) == len(values)


def _rows(values: Sequence[T], table: dict[T, int]) -> NDArray[np.int32]:
    """The row of each value in ``table``, which takes in new ones."""
    if _is_constant(values):
        return np.full(len(values), table.setdefault(values[0], len(table)), np.int32)
    for value in dict.fromkeys(values):
        table.setdefault(value, len(table))
    return np.fromiter(map(table.__getitem__, values), np.int32, len(values))


def _ints(values: Sequence[int]) -> NDArray[np.int32]:
    if _is_constant(values):
        return np.full(len(values), values[0], np.int32)
    return np.fromiter(values, np.int32, len(values))


def _longs(values: Sequence[int]) -> NDArray[np.int64]:
    if _is_constant(values):
        return np.full(len(values), values[0], np.int64)
    return np.fromiter(values, np.int64, len(values))


def _lengths(parts: Sequence[bytes]) -> NDArray[np.int64]:
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _blob(parts: Sequence[bytes]) -> NDArray[np.uint8]:
    # A bytearray, so that the array is writable: kernels are compiled for writable arrays only.
    joined: Any = bytearray().join(parts)
    return np.frombuffer(joined, np.uint8)
