"""CRC-32 of bodies and, when asked for, of whole records.

Answers to UtilAll.crc32 and MessageDecoder.createCrc32.
Called by record, batch and the scan; the kernels call the same C function.
"""

import zlib
from collections.abc import Callable
from typing import Any

from rockstrata.message.properties import CRC32

Buffer = bytes | bytearray | memoryview


def _fastest() -> Callable[..., int]:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.crc32
    fast: Any = isal_zlib.crc32
    return fast  # type: ignore[no-any-return]


crc32 = _fastest()

_PREFIX = CRC32.encode() + b"\x01"
RECORD_CRC_BYTES = len(_PREFIX) + 10 + 1


def body_crc(body: Buffer) -> int:
    """The CRC a record holds of its body: 31 bits."""
    return crc32(body) & 0x7FFF_FFFF


def record_crc_property(crc: int) -> bytes:
    """The property that ends a record with CRC: ten digits, the least significant first."""
    return _PREFIX + f"{crc:010d}"[::-1].encode() + b"\x02"


def append_record_crc(record: Buffer) -> bytes:
    """The CRC property for a record given without its last 20 bytes."""
    return record_crc_property(body_crc(record))


def verify_record_crc(record: Buffer) -> bool:
    """Whether a whole record ends in the right CRC property; False if it has none."""
    if len(record) < RECORD_CRC_BYTES:
        return False
    split = len(record) - RECORD_CRC_BYTES
    return bytes(record[split:]) == record_crc_property(body_crc(record[:split]))
