"""Java's string hash, and what the store makes of it: tag codes and index hashes.

Answers to String.hashCode, MessageExtBrokerInner.tagsString2tagsCode and IndexFile.indexKeyHashMethod.
Called by consume queues, index and filters; the kernels compute the same over bytes.
"""

import sys
from functools import cache
from typing import Any

_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
INDEX_TAG_TYPE = "T"
# Up to here a loop is as fast as a call of the kernel.
_SHORT = 6


def java_hash_code(text: str) -> int:
    """Hash over UTF-16 code units, a signed 32-bit integer."""
    if text.isascii():
        units: bytes | memoryview = text.encode()
        if "numba" in sys.modules and len(units) > _SHORT:
            return _signed(_ascii_kernel()(units))
    else:
        units = memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")
    h = 0
    for unit in units:
        h = (31 * h + unit) & 0xFFFF_FFFF
    return _signed(h)


@cache
def _ascii_kernel() -> Any:
    """Five times as fast as the loop, once numba is there."""
    from rockstrata.message.strings import kernels

    return kernels.hash_ascii


def _signed(h: int) -> int:
    return h - 0x1_0000_0000 if h & 0x8000_0000 else h


def index_hash(key: str) -> int:
    """Hash of an index key, never negative: the smallest integer has no absolute value and counts as 0."""
    h = abs(java_hash_code(key))
    return 0 if h == 0x8000_0000 else h


def index_key(topic: str, key: str) -> str:
    """What the index hashes for a word of KEYS or for UNIQ_KEY."""
    return f"{topic}#{key}"


def index_tags_key(topic: str, tags: str) -> str:
    """What the index of 5.5.0 hashes for TAGS."""
    return f"{topic}#{INDEX_TAG_TYPE}#{tags}"


def tags_code(tags: str | None) -> int:
    """The tag code of a consume-queue unit: 0 without tags."""
    return java_hash_code(tags) if tags else 0
