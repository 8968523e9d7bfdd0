"""Client batches: many small messages in one body, stored apart or as one inner batch.

Answers to RocketMQ's MessageDecoder.encodeMessages/decodeMessages and MessageExtBatch.
Called by the send handler and by the store's put of a batch.
"""

import struct
from collections.abc import Iterable

import msgspec

from rockstrata.errors import IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message import sys_flag
from rockstrata.message.crc import body_crc
from rockstrata.message.layouts import BATCH_ELEMENT_BYTES_MIN, BATCH_ELEMENT_HEAD
from rockstrata.message.model import Message, StoredMessage
from rockstrata.message.record import PropertiesSizeExceededError, uncompressed_body
from rockstrata.message.text import java_integer

INNER_BATCH_FLAGS = sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP
# INNER_NUM is read as a 16-bit integer.
INNER_BATCH_MESSAGES_MAX = 32_767

_SHORT = struct.Struct(">h")


class BatchElement(msgspec.Struct, frozen=True, gc=False):
    """What a client batch says of one message; all else is shared by the batch."""

    flag: int
    body: bytes
    properties: bytes = b""


def encode_batch(messages: Iterable[Message | BatchElement]) -> bytes:
    """Messages as one client batch; of each only flag, body and properties are kept."""
    parts = []
    for message in messages:
        size = BATCH_ELEMENT_BYTES_MIN + len(message.body) + len(message.properties)
        if len(message.properties) > props.PROPERTIES_BYTES_MAX:
            raise PropertiesSizeExceededError(
                "properties too long",
                expected=f"at most {props.PROPERTIES_BYTES_MAX} bytes",
                found=len(message.properties),
            )
        try:
            parts.append(BATCH_ELEMENT_HEAD.struct.pack(size, 0, 0, message.flag, len(message.body)))
        except struct.error as error:
            raise IllegalMessageError("a field does not fit its place", found=str(error)) from error
        parts += (message.body, _SHORT.pack(len(message.properties)), message.properties)
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchElement]:
    """The elements of a client batch; every byte must belong to one."""
    elements = []
    position = 0
    while position < len(data):
        left = len(data) - position
        if left < BATCH_ELEMENT_BYTES_MIN:
            raise IllegalMessageError(
                "batch is cut short", position=position, expected=BATCH_ELEMENT_BYTES_MIN, found=left
            )
        size, _, _, flag, body_length = BATCH_ELEMENT_HEAD.struct.unpack_from(data, position)
        body_at = position + BATCH_ELEMENT_HEAD.size
        if not BATCH_ELEMENT_BYTES_MIN <= size <= left:
            raise IllegalMessageError(
                "bad size of a batch element",
                position=position,
                expected=f"{BATCH_ELEMENT_BYTES_MIN} to {left}",
                found=size,
            )
        variable = size - BATCH_ELEMENT_BYTES_MIN
        if not 0 <= body_length <= variable:
            raise IllegalMessageError(
                "bad batch body length", position=position, expected=f"0 to {variable}", found=body_length
            )
        properties_at = body_at + body_length + 2
        properties_length = _SHORT.unpack_from(data, properties_at - 2)[0]
        if properties_length != variable - body_length:
            raise IllegalMessageError(
                "bad properties length in a batch",
                position=position,
                expected=variable - body_length,
                found=properties_length,
            )
        position += size
        elements.append(
            BatchElement(flag, bytes(data[body_at : properties_at - 2]), bytes(data[properties_at:position]))
        )
    return elements


def check_batch(message: Message) -> None:
    """Refuse what an ordinary batch cannot be: part of a transaction, or delayed."""
    if message.sys_flag & sys_flag.TRANSACTION_MASK:
        raise IllegalMessageError("a batch cannot be part of a transaction", found=hex(message.sys_flag))
    delay = props.find(message.properties, props.DELAY)
    if delay is not None and (java_integer(delay, 32) or 0) > 0:
        raise IllegalMessageError("a batch cannot be delayed", found=f"DELAY {delay}")


def split_batch(message: Message) -> list[Message]:
    """An ordinary batch as messages of their own: the batch's own properties are discarded."""
    check_batch(message)
    return [
        Message(
            message.topic,
            element.body,
            message.queue_id,
            element.properties,
            element.flag,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            message.store_host,
            message.reconsume_times,
        )
        for element in decode_batch(message.body)
    ]


def inner_batch(message: Message) -> Message:
    """A client batch to be stored as one record; INNER_BASE is set when it is put."""
    count = len(decode_batch(message.body))
    if not 1 <= count <= INNER_BATCH_MESSAGES_MAX:
        raise IllegalMessageError(
            "bad number of messages in a batch", expected=f"1 to {INNER_BATCH_MESSAGES_MAX}", found=count
        )
    return msgspec.structs.replace(
        message,
        sys_flag=message.sys_flag | INNER_BATCH_FLAGS,
        properties=props.put(message.properties, props.INNER_NUM, str(count)),
    )


def unwrap_inner_batch(stored: StoredMessage) -> list[StoredMessage]:
    """The messages inside a stored inner batch, with consecutive queue offsets, as consumers see them."""
    if not stored.sys_flag & sys_flag.INNER_BATCH:
        return [stored]
    flags = stored.sys_flag & ~(INNER_BATCH_FLAGS | sys_flag.COMPRESSED)
    return [
        msgspec.structs.replace(
            stored,
            body=element.body,
            properties=element.properties,
            flag=element.flag,
            sys_flag=flags,
            queue_offset=stored.queue_offset + number,
            body_crc=body_crc(element.body),
        )
        for number, element in enumerate(decode_batch(uncompressed_body(stored)))
    ]
