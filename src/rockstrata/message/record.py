"""One record of the log, encoded and decoded: the readable reference of the format.

Answers to RocketMQ's MessageExtEncoder, MessageDecoder.decode and MessageVersion.
Called for single messages; whatever touches many records is a scan (scan.py) or a kernel.
"""

import struct
from functools import lru_cache
from pathlib import Path

from rockstrata.errors import CorruptionError, IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message import sys_flag
from rockstrata.message.compression import decompress
from rockstrata.message.crc import RECORD_CRC_BYTES, Buffer, append_record_crc, body_crc, crc32
from rockstrata.message.layouts import (
    BLANK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    RECORD_HEADS,
    record_fixed_bytes,
)
from rockstrata.message.model import Message, StoredMessage
from rockstrata.message.properties import PROPERTIES_BYTES_MAX

__all__ = [
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "RECORD_BYTES_MIN",
    "MessageSizeExceededError",
    "PropertiesSizeExceededError",
    "decode_record",
    "encode_blank",
    "encode_record",
    "record_fixed_bytes",
    "record_version",
    "stored_properties",
    "uncompressed_body",
]

MAX_MESSAGE_BYTES = 4_194_304
# What a record may hold beside a body of the greatest size.
HEAD_ROOM_BYTES = 65_536
V1_TOPIC_BYTES_MAX = 127
V2_TOPIC_BYTES_MAX = 32_767
BLANK_BYTES = BLANK.size

_SYS_FLAG_AT = 36
# By the lengths of born and store host: IPv6 bits of the system flag, bytes of the head and its packer.
_HEADS = {
    (8 + 12 * (bits & 1), 8 + 12 * (bits >> 1)): (bits << 4, layout.size, layout.struct.pack)
    for bits, layout in enumerate(RECORD_HEADS)
}
_TOPIC_LENGTHS = {1: struct.Struct(">b"), 2: struct.Struct(">h")}
_SHORT = struct.Struct(">h")
_SIZE_MAGIC = struct.Struct(">iI")
_INT = struct.Struct(">i")


class MessageSizeExceededError(IllegalMessageError):
    """The body, or the whole record, is longer than the store allows."""


class PropertiesSizeExceededError(IllegalMessageError):
    """The properties take more than 32,767 bytes."""


def record_version(topic: str | bytes) -> int:
    """The version a topic needs: 2 when its length does not fit a signed byte."""
    return 1 if len(topic if isinstance(topic, bytes) else topic.encode()) <= V1_TOPIC_BYTES_MAX else 2


@lru_cache(maxsize=8192)
def _topic_field(topic: str, version: int | None) -> tuple[int, bytes, int]:
    """The magic of the record, the topic with its length before it, and the bytes both take."""
    try:
        raw = topic.encode()
    except UnicodeEncodeError as error:
        raise IllegalMessageError("topic is not valid Unicode", found=repr(topic)) from error
    if version is None:
        version = record_version(raw)
    bytes_max = V1_TOPIC_BYTES_MAX if version == 1 else V2_TOPIC_BYTES_MAX
    if len(raw) > bytes_max:
        raise IllegalMessageError(
            f"topic too long for a V{version} record", expected=f"at most {bytes_max} bytes", found=len(raw)
        )
    field = _TOPIC_LENGTHS[version].pack(len(raw)) + raw
    return MAGIC_V1 if version == 1 else MAGIC_V2, field, len(field)


def stored_properties(message: Message, append_crc: bool) -> bytes:
    """The properties as the record holds them, without the CRC that will follow."""
    if not append_crc:
        return message.properties
    kept = props.remove(message.properties, props.CRC32)
    return kept + b"\x02" if kept and not kept.endswith(b"\x02") else kept


def encode_record(
    message: Message,
    *,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    store_host: bytes,
    version: int | None = None,
    append_crc: bool = False,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> bytes:
    """The record of a message; ``store_host`` is used when the message names none.

    The IPv6 bits of the system flag follow the hosts; a born time of 0 becomes the store time.
    """
    magic, topic, topic_bytes = _topic_field(message.topic, version)
    body = message.body
    body_length = len(body)
    properties = message.properties
    properties_length = len(properties)
    if append_crc:
        properties = stored_properties(message, True)
        properties_length = len(properties) + RECORD_CRC_BYTES
    if properties_length > PROPERTIES_BYTES_MAX:
        raise PropertiesSizeExceededError(
            "properties too long", expected=f"at most {PROPERTIES_BYTES_MAX} bytes", found=properties_length
        )
    born_host, host = message.born_host, message.store_host or store_host
    head_of_hosts = _HEADS.get((len(born_host), len(host)))
    if head_of_hosts is None:
        raise IllegalMessageError(
            "bad host", expected="8 or 20 bytes", found=f"born {born_host.hex()}, store {host.hex()}"
        )
    host_bits, head_bytes, pack_head = head_of_hosts
    size = head_bytes + body_length + topic_bytes + 2 + properties_length
    if body_length > max_message_bytes or size > max_message_bytes + HEAD_ROOM_BYTES:
        raise MessageSizeExceededError(
            "message too long",
            expected=f"a body of at most {max_message_bytes} bytes in a record of {HEAD_ROOM_BYTES} more",
            found=f"body {body_length}, record {size}",
        )
    try:
        head = pack_head(
            size,
            magic,
            crc32(body) & 0x7FFF_FFFF,
            message.queue_id,
            message.flag,
            queue_offset,
            physical_offset,
            message.sys_flag & ~0x30 | host_bits,
            message.born_timestamp or store_timestamp,
            born_host,
            store_timestamp,
            host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body_length,
        )
    except struct.error as error:
        raise IllegalMessageError("a field does not fit its place", found=str(error)) from error
    record = b"".join((head, body, topic, _SHORT.pack(properties_length), properties))
    return record + append_record_crc(record) if append_crc else record


def encode_blank(blank_bytes: int) -> bytes:
    """The eight bytes that end a file of which so many bytes are left."""
    return BLANK.struct.pack(blank_bytes, MAGIC_BLANK)


def decode_record(
    buffer: Buffer,
    position: int = 0,
    *,
    check_crc: bool = True,
    path: Path | str | None = None,
    base: int = 0,
) -> StoredMessage:
    """The record at ``position``; errors name ``base + position`` of ``path``."""
    where = base + position
    left = len(buffer) - position
    if position < 0 or left < RECORD_BYTES_MIN:
        raise CorruptionError(
            "incomplete record", path=path, position=where, expected=f"{RECORD_BYTES_MIN} bytes", found=left
        )
    size, magic = _SIZE_MAGIC.unpack_from(buffer, position)
    if magic == MAGIC_V1:
        version = 1
    elif magic == MAGIC_V2:
        version = 2
    else:
        raise CorruptionError(
            "a blank where a record should be" if magic == MAGIC_BLANK else "bad record magic",
            path=path,
            position=where,
            expected=f"{MAGIC_V1:#x} or {MAGIC_V2:#x}",
            found=f"{magic:#x}",
        )
    flags: int = _INT.unpack_from(buffer, position + _SYS_FLAG_AT)[0]
    layout = RECORD_HEADS[(flags >> 4) & 3]
    fixed = layout.size + version + 2
    if not fixed <= size <= left:
        raise CorruptionError(
            "bad record size", path=path, position=where, expected=f"{fixed} to {left}", found=size
        )
    (
        _, _, crc, queue_id, flag, queue_offset, physical_offset, _, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared_transaction_offset, body_length,
    ) = layout.struct.unpack_from(buffer, position)  # fmt: skip
    variable = size - fixed
    body_at = position + layout.size
    if not 0 <= body_length <= variable:
        raise CorruptionError(
            "bad body length", path=path, position=where, expected=f"0 to {variable}", found=body_length
        )
    topic_at = body_at + body_length
    topic_length: int = _TOPIC_LENGTHS[version].unpack_from(buffer, topic_at)[0]
    topic_at += version
    if not 0 <= topic_length <= variable - body_length:
        raise CorruptionError(
            "bad topic length",
            path=path,
            position=where,
            expected=f"0 to {variable - body_length}",
            found=topic_length,
        )
    properties_at = topic_at + topic_length
    properties_length: int = _SHORT.unpack_from(buffer, properties_at)[0]
    properties_at += 2
    if properties_length != variable - body_length - topic_length:
        raise CorruptionError(
            "bad properties length",
            path=path,
            position=where,
            expected=variable - body_length - topic_length,
            found=properties_length,
        )
    body = bytes(buffer[body_at : body_at + body_length])
    if check_crc and body_length and body_crc(body) != crc:
        raise CorruptionError(
            "body does not match its CRC", path=path, position=where, expected=crc, found=body_crc(body)
        )
    raw_topic = bytes(buffer[topic_at : topic_at + topic_length])
    try:
        topic = raw_topic.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(
            "topic is not UTF-8", path=path, position=where, found=raw_topic.hex()
        ) from error
    return StoredMessage(
        topic,
        body,
        queue_id,
        bytes(buffer[properties_at : properties_at + properties_length]),
        flag,
        flags,
        born_timestamp,
        born_host,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        queue_offset,
        physical_offset,
        store_timestamp,
        crc,
        size,
        version,
    )


def uncompressed_body(stored: StoredMessage) -> bytes:
    """The body as the producer wrote it, whatever way it was compressed."""
    if not stored.sys_flag & sys_flag.COMPRESSED:
        return stored.body
    return decompress(stored.body, stored.sys_flag)
