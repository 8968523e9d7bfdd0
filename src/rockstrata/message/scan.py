"""A walk through log bytes into arrays: one row per record, with all that dispatch needs.

Answers to CommitLog.checkMessageAndReturnSize and DispatchRequest, for many records at once.
Called by the dispatcher, recovery, the offload and every reader of more than one record.
"""

import sys
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.message.topic_table import TopicTable

# Below this a walk in Python is over before numba is imported.
PYTHON_BYTES_MAX = 65_536
_RECORD_BYTES_MIN = 91
_NO_LEVELS = np.zeros(0, np.int64)


class ScanStop(IntEnum):
    """Why a scan ended."""

    LIMIT = 0
    BLANK = 1
    INCOMPLETE = 2
    BAD_MAGIC = 3
    BAD_SIZE = 4
    BAD_LENGTHS = 5
    BAD_CRC = 6
    ZERO = 7


CRC_BAD, CRC_GOOD, CRC_UNCHECKED = 0, 1, 2


# Not frozen: a frozen class takes five times as long to make, and small scans are many.
@dataclass(eq=False, slots=True)
class Scan:
    """Records found, one row each, and where and why the walk ended.

    ``key_hash[key_first[i] : key_first[i + 1]]`` are the index hashes of row i: UNIQ_KEY, each word
    of KEYS, then TAGS if asked for; none for a rollback record, which the index leaves out.
    """

    position: NDArray[np.int64]
    size: NDArray[np.int32]
    queue_id: NDArray[np.int32]
    queue_offset: NDArray[np.int64]
    physical_offset: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]
    sys_flag: NDArray[np.int32]
    topic_id: NDArray[np.int32]
    tags_code: NDArray[np.int64]
    crc_verdict: NDArray[np.uint8]
    inner_base: NDArray[np.int64]
    inner_num: NDArray[np.int32]
    multi_dispatch: NDArray[np.uint8]
    key_first: NDArray[np.int64]
    key_hash: NDArray[np.int32]
    end: int
    stop: ScanStop

    def __len__(self) -> int:
        return len(self.position)

    def rows(self, first: int, end: int) -> "Scan":
        """The rows [first, end) as views; where and why the walk ended stays."""
        columns = {name: getattr(self, name)[first:end] for name in ROW_DTYPES}
        return Scan(
            **columns,
            key_first=self.key_first[first : end + 1],
            key_hash=self.key_hash,
            end=self.end,
            stop=self.stop,
        )


# The columns with one item per record, in the order the kernel takes them.
ROW_DTYPES: dict[str, Any] = {
    "position": np.int64,
    "size": np.int32,
    "queue_id": np.int32,
    "queue_offset": np.int64,
    "physical_offset": np.int64,
    "store_timestamp": np.int64,
    "sys_flag": np.int32,
    "topic_id": np.int32,
    "tags_code": np.int64,
    "crc_verdict": np.uint8,
    "inner_base": np.int64,
    "inner_num": np.int32,
    "multi_dispatch": np.uint8,
}
_DTYPES = tuple(np.dtype(dtype) for dtype in ROW_DTYPES.values())


def scan(
    buffer: NDArray[np.uint8],
    start: int,
    limit: int,
    topics: TopicTable,
    *,
    check_crc: bool = False,
    keys: bool = True,
    tags_entry: bool = False,
    delay_levels: tuple[int, ...] = (),
    verify_record_crc: bool = False,
    max_records: int | None = None,
    stop_on_bad_crc: bool = False,
    use_kernel: bool | None = None,
) -> Scan:
    """Walk the records in ``buffer[start:limit]``; positions count from the buffer's start.

    With ``check_crc`` the body's CRC is checked, or with ``verify_record_crc`` the whole record's.
    New topics are interned in ``topics``. A record whose numbers (DELAY, INNER_NUM, INNER_BASE) do
    not parse counts as one without them.
    """
    assert 0 <= start <= limit <= len(buffer), "the region lies in the buffer"
    if max_records is None:
        max_records = (limit - start) // _RECORD_BYTES_MIN + 1
    if use_kernel is None:
        use_kernel = limit - start > PYTHON_BYTES_MAX or "numba" in sys.modules
    if not use_kernel:
        from rockstrata.message.scan_python import walk_python

        return walk_python(
            buffer, start, limit, topics, check_crc=check_crc, keys=keys, tags_entry=tags_entry,
            delay_levels=delay_levels, verify_record_crc=verify_record_crc, max_records=max_records,
            stop_on_bad_crc=stop_on_bad_crc,
        )  # fmt: skip
    from rockstrata.message import kernels as k

    assert buffer.dtype == np.uint8, "kernels walk bytes"
    assert buffer.flags.c_contiguous, "kernels walk contiguous bytes"
    if not buffer.flags.writeable:
        buffer = kernel_buffer(buffer)
    walk: Any = k.walk
    options = (
        (k.CHECK_CRC if check_crc else 0)
        | (k.RECORD_CRC if verify_record_crc else 0)
        | (k.STOP_ON_BAD_CRC if stop_on_bad_crc else 0)
        | (k.KEYS if keys else 0)
        | (k.TAGS_ENTRY if tags_entry else 0)
    )
    delays = np.array(delay_levels, np.int64) if delay_levels else _NO_LEVELS
    state = np.array([start, 0, 0, 0, 0, 0], np.int64)
    room = _rows_expected(limit - start, max_records)
    columns = [np.empty(room, dtype) for dtype in _DTYPES]
    key_first = np.empty(room + 1, np.int64)
    key_hash = np.empty(3 * room + 16 if keys else 0, np.int32)
    while True:
        walk(
            buffer, np.int64(limit), np.int64(max_records), np.int64(options), delays, state,
            *topics.arrays(), *columns, key_first, key_hash,
        )  # fmt: skip
        end, rows, key_count, stop, topic_at, topic_length = state.tolist()
        if stop == k.NEW_TOPIC:
            topics.intern(buffer[topic_at : topic_at + topic_length].tobytes())
        elif stop == k.ROWS_FULL:
            room = 2 * len(columns[0])
            columns = [_resized(column, room) for column in columns]
            key_first = _resized(key_first, room + 1)
        elif stop == k.KEYS_FULL:
            # One record has at most 32,767 bytes of properties, so at most so many keys.
            key_hash = _resized(key_hash, 2 * len(key_hash) + 32_768)
        else:
            break
    found: Any = [column[:rows] for column in columns]
    found += (key_first[: rows + 1], key_hash[:key_count], end, ScanStop(stop))
    return Scan(*found)


def kernel_buffer(data: Any) -> NDArray[np.uint8]:
    """Any bytes-like object as the array a scan takes, without copying.

    Kernels are compiled for writable arrays; bytes that are read-only are shown as writable to the
    scan, which never writes. Do not write to the result.
    """
    array = np.frombuffer(data, np.uint8)
    if array.flags.writeable:
        return array
    return np.asarray(_Writable(array))


class _Writable:
    """Shows a read-only array as a writable one, and keeps it alive."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self._array = array
        self.__array_interface__ = {
            "data": (array.__array_interface__["data"][0], False),
            "shape": array.shape,
            "typestr": "|u1",
            "version": 3,
        }


def _rows_expected(region_bytes: int, max_records: int) -> int:
    """Room for records of 256 bytes; a log of smaller ones makes the arrays grow once or twice."""
    return min(max_records, max(16, region_bytes // 256 + 1))


def _resized(array: NDArray[Any], length: int) -> NDArray[Any]:
    bigger = np.empty(length, array.dtype)
    bigger[: len(array)] = array
    return bigger
