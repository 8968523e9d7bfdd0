"""The walk in plain Python: for a command that looks at a few records and must answer at once.

Answers to the same RocketMQ methods as scan.py, and is the reference its kernel is tested against.
Called by scan.py for small regions when numba is not imported.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.message import properties as props
from rockstrata.message.crc import RECORD_CRC_BYTES, body_crc
from rockstrata.message.crc import verify_record_crc as record_crc_is_good
from rockstrata.message.delay import SCHEDULE_TOPIC, delayed_tags_code
from rockstrata.message.layouts import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    RECORD_HEADS,
    record_fixed_bytes,
)
from rockstrata.message.scan import (
    CRC_BAD,
    CRC_GOOD,
    CRC_UNCHECKED,
    ROW_DTYPES,
    Scan,
    ScanStop,
)
from rockstrata.message.sys_flag import TransactionType, transaction_type
from rockstrata.message.tags import index_hash, index_key, index_tags_key, tags_code
from rockstrata.message.text import java_integer
from rockstrata.message.topic_table import TopicTable

_SIZE_MAGIC = struct.Struct(">iI")
_INT = struct.Struct(">i")
_TOPIC_LENGTHS = {1: struct.Struct(">b"), 2: struct.Struct(">h")}
_SHORT = struct.Struct(">h")


def walk_python(
    buffer: NDArray[np.uint8],
    start: int,
    limit: int,
    topics: TopicTable,
    *,
    check_crc: bool,
    keys: bool,
    tags_entry: bool,
    delay_levels: tuple[int, ...],
    verify_record_crc: bool,
    max_records: int,
    stop_on_bad_crc: bool,
) -> Scan:
    """What ``scan`` promises, record by record."""
    view = buffer.data
    rows: list[tuple[Any, ...]] = []
    key_first = [0]
    key_hash: list[int] = []
    at = start
    stop = ScanStop.LIMIT
    while at < limit and len(rows) < max_records:
        found = _measure(view, at, limit)
        if isinstance(found, ScanStop):
            stop = found
            break
        size, flags, body_length, topic_at, topic_length, properties_length = found
        (
            _, _, crc, queue_id, _, queue_offset, physical_offset, _, _, _, store_timestamp, _, _, _, _,
        ) = RECORD_HEADS[(flags >> 4) & 3].struct.unpack_from(view, at)  # fmt: skip
        verdict = CRC_UNCHECKED
        if check_crc and verify_record_crc:
            good = properties_length >= RECORD_CRC_BYTES and record_crc_is_good(view[at : at + size])
            verdict = CRC_GOOD if good else CRC_BAD
        elif check_crc:
            body_at = at + RECORD_HEADS[(flags >> 4) & 3].size
            body = view[body_at : body_at + body_length]
            verdict = CRC_GOOD if body_length == 0 or body_crc(body) == crc else CRC_BAD
        if verdict == CRC_BAD and stop_on_bad_crc:
            stop = ScanStop.BAD_CRC
            break
        topic_id = topics.intern(bytes(view[topic_at : topic_at + topic_length]))
        topic = topics.names[topic_id]
        table = props.decode(bytes(view[at + size - properties_length : at + size]))
        tags = table.get(props.TAGS)
        code = (
            delayed_tags_code(delay_levels, table.get(props.DELAY), store_timestamp)
            if topic == SCHEDULE_TOPIC
            else None
        )
        base = java_integer(table.get(props.INNER_BASE, ""), 64)
        rows.append((
            at, size, queue_id, queue_offset, physical_offset, store_timestamp, flags, topic_id,
            tags_code(tags) if code is None else code,
            verdict,
            -1 if base is None else base,
            java_integer(table.get(props.INNER_NUM, ""), 16) or 0,
            props.INNER_MULTI_DISPATCH in table,
        ))  # fmt: skip
        if keys and transaction_type(flags) is not TransactionType.ROLLBACK_TYPE:
            key_hash += _key_hashes(topic, table, tags_entry)
        key_first.append(len(key_hash))
        at += size
    columns = list(zip(*rows, strict=True)) or [()] * len(ROW_DTYPES)
    arrays: dict[str, Any] = {
        name: np.array(column, dtype)
        for (name, dtype), column in zip(ROW_DTYPES.items(), columns, strict=True)
    }
    return Scan(
        **arrays,
        key_first=np.array(key_first, np.int64),
        key_hash=np.array(key_hash, np.int32),
        end=at,
        stop=stop,
    )


def _measure(view: memoryview, at: int, limit: int) -> ScanStop | tuple[int, int, int, int, int, int]:
    """Size, flags, body length, topic position and length, properties length; or what is wrong."""
    left = limit - at
    if left < 8:
        return ScanStop.INCOMPLETE
    size, magic = _SIZE_MAGIC.unpack_from(view, at)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        if magic == MAGIC_BLANK:
            return ScanStop.BLANK
        return ScanStop.ZERO if magic == 0 and size == 0 else ScanStop.BAD_MAGIC
    if size < RECORD_BYTES_MIN:
        return ScanStop.BAD_SIZE
    if size > left:
        return ScanStop.INCOMPLETE
    version = 1 if magic == MAGIC_V1 else 2
    flags: int = _INT.unpack_from(view, at + 36)[0]
    variable = size - record_fixed_bytes(flags, version)
    if variable < 0:
        return ScanStop.BAD_SIZE
    body_at = at + RECORD_HEADS[(flags >> 4) & 3].size
    body_length: int = _INT.unpack_from(view, body_at - 4)[0]
    if not 0 <= body_length <= variable:
        return ScanStop.BAD_LENGTHS
    topic_at = body_at + body_length + version
    topic_length: int = _TOPIC_LENGTHS[version].unpack_from(view, topic_at - version)[0]
    if not 0 <= topic_length <= variable - body_length:
        return ScanStop.BAD_LENGTHS
    properties_length: int = _SHORT.unpack_from(view, topic_at + topic_length)[0]
    if properties_length != variable - body_length - topic_length:
        return ScanStop.BAD_LENGTHS
    return size, flags, body_length, topic_at, topic_length, properties_length


def _key_hashes(topic: str, table: dict[str, str], tags_entry: bool) -> list[int]:
    """Index hashes in the order the index is built."""
    hashes = []
    if unique_key := table.get(props.UNIQUE_KEY):
        hashes.append(index_hash(index_key(topic, unique_key)))
    for word in table.get(props.KEYS, "").split(props.KEY_SEPARATOR):
        if word:
            hashes.append(index_hash(index_key(topic, word)))
    if tags_entry and (tags := table.get(props.TAGS)):
        hashes.append(index_hash(index_tags_key(topic, tags)))
    return hashes
