"""Records a power cut has torn although their body is whole: the body's CRC covers nothing else.

Answers to no RocketMQ class, which takes such a record for whole. Used by recovery. What is missing
reads as zeros, because the log is written into zeros: a disk loses sectors, a kill the end of a copy.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.message.scan import Scan

# What a disk writes at once, or not at all.
SECTOR_BYTES = 512
_V2_LAST_BYTE = 0xAB


def looks_torn(data: NDArray[np.uint8], found: Scan, topics: Sequence[str]) -> NDArray[np.bool_]:
    """For each record of a file's bytes: does it miss a sector, or the end, of topic or properties?

    Zeros of the properties' own are not taken for a loss, unless they end them or fill a sector.
    """
    torn = tails_by_kernel(data, found) if "numba" in sys.modules else tails_by_numpy(data, found)
    named = np.array(["\0" in name for name in topics], bool)
    return torn | named[found.topic_id] if named.any() else torn


def tails_by_kernel(data: NDArray[np.uint8], found: Scan) -> NDArray[np.bool_]:
    """Losses behind the body, for many records."""
    from rockstrata.store import kernels

    torn = np.zeros(len(found), bool)
    torn_tails: Any = kernels.torn_tails
    torn_tails(data, found.position, found.size, found.sys_flag, torn)
    return torn


def tails_by_numpy(data: NDArray[np.uint8], found: Scan) -> NDArray[np.bool_]:
    """The same for few, without numba."""
    if not len(found):
        return np.zeros(0, bool)
    ends = found.position + found.size
    begins, has_properties = _after_body(data, found)
    torn: NDArray[np.bool_] = has_properties & (data[ends - 1] == 0)
    for row in np.flatnonzero((ends - begins >= SECTOR_BYTES) & ~torn).tolist():
        begin, end = int(begins[row]), int(ends[row])
        # The sector the body ends in holds the topic's length, too, which was seen to be right.
        first = -(-begin // SECTOR_BYTES) * SECTOR_BYTES
        torn[row] = any(
            not data[at : min(at + SECTOR_BYTES, end)].any() for at in range(first, end, SECTOR_BYTES)
        )
    return torn


def _after_body(data: NDArray[np.uint8], found: Scan) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the body of each record ends, hence its topic begins; and whether it has properties."""
    flags = found.sys_flag.astype(np.int64)
    length_at = found.position + 84 + 12 * ((flags >> 4) & 1) + 12 * ((flags >> 5) & 1)
    length = np.zeros(len(found), np.int64)
    for n in range(4):
        length = length << 8 | data[length_at + n]
    begins: NDArray[np.int64] = length_at + 4 + length
    is_v2 = data[found.position + 7] == _V2_LAST_BYTE
    first, second = data[begins].astype(np.int64), data[begins + 1].astype(np.int64)
    topic_bytes = np.where(is_v2, 2 + (first << 8 | second), 1 + first)
    return begins, found.position + found.size > begins + topic_bytes + 2
