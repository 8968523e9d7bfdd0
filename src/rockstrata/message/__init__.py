"""The letter: messages, their records, properties and ids. Light to import: no numpy, no numba."""

from rockstrata.message.batch import BatchElement, decode_batch, encode_batch, inner_batch, split_batch
from rockstrata.message.ids import MessageIdError, UniqueKeys, decode_message_id, encode_message_id
from rockstrata.message.model import LOOPBACK, Message, StoredMessage, host_text, pack_host, parse_host
from rockstrata.message.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MessageSizeExceededError,
    PropertiesSizeExceededError,
    decode_record,
    encode_record,
    uncompressed_body,
)
from rockstrata.message.sys_flag import CompressionType, TransactionType

__all__ = [
    "LOOPBACK",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "BatchElement",
    "CompressionType",
    "Message",
    "MessageIdError",
    "MessageSizeExceededError",
    "PropertiesSizeExceededError",
    "StoredMessage",
    "TransactionType",
    "UniqueKeys",
    "decode_batch",
    "decode_message_id",
    "decode_record",
    "encode_batch",
    "encode_message_id",
    "encode_record",
    "host_text",
    "inner_batch",
    "pack_host",
    "parse_host",
    "split_batch",
    "uncompressed_body",
]
