"""The bits of a record's system flag: compression, transaction type, IPv6 hosts, inner batch.

Answers to RocketMQ's MessageSysFlag and CompressionType.
Called by record and batch, by the store (transactions, dispatch) and by the broker.
"""

from enum import IntEnum

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_TYPE_MASK = 0x700


class TransactionType(IntEnum):
    """What a record is in a transaction; prepared and rollback never enter a consume queue."""

    NOT_TYPE = 0
    PREPARED_TYPE = 0x4
    COMMIT_TYPE = 0x8
    ROLLBACK_TYPE = 0xC


class CompressionType(IntEnum):
    """How a compressed body was compressed; the value stands in bits 8 to 10."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(flags: int) -> TransactionType:
    """The transaction bits as a name."""
    return TransactionType(flags & TRANSACTION_MASK)


def with_transaction_type(flags: int, kind: TransactionType) -> int:
    """The flags with other transaction bits."""
    return flags & ~TRANSACTION_MASK | kind


def is_in_consume_queue(flags: int) -> bool:
    """Whether a record with these flags gets a queue offset and a consume-queue unit."""
    return flags & TRANSACTION_MASK in {TransactionType.NOT_TYPE, TransactionType.COMMIT_TYPE}


def compression_type(flags: int) -> CompressionType | None:
    """The kind of compression, None for a number no release defines; 0 is zlib of old clients."""
    number = (flags & COMPRESSION_TYPE_MASK) >> 8
    if number == 0:
        return CompressionType.ZLIB
    return CompressionType(number) if number <= CompressionType.ZLIB else None


def host_bits(born_host: bytes, store_host: bytes) -> int:
    """The two IPv6 bits that these packed hosts ask for."""
    return (BORN_HOST_V6 if len(born_host) == 20 else 0) | (STORE_HOST_V6 if len(store_host) == 20 else 0)
