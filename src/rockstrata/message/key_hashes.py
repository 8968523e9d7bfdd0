"""Index hashes of many keys at once.

Answers to IndexFile.indexKeyHashMethod, for arrays. Called by look-ups of many keys.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.message.tags import java_hash_code

_PAD = bytes(8)


def index_hashes(prefix: str, keys: Sequence[str]) -> NDArray[np.int32]:
    """The index hash of ``prefix + key`` for each key; the prefix is hashed once."""
    joined = "".join(keys)
    if joined.isascii():
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    else:
        lengths = np.fromiter((len(key.encode()) for key in keys), np.int64, len(keys))
    return hash_blob(joined.encode(), np.cumsum(lengths, dtype=np.int64) + len(_PAD), java_hash_code(prefix))


def hash_blob(blob: bytes, ends: NDArray[np.int64], seed: int) -> NDArray[np.int32]:
    """Hashes of UTF-8 texts lying end to end; ``ends`` count from 8 before the first."""
    from rockstrata.message.strings import kernels

    data = np.frombuffer(bytearray(_PAD + blob), np.uint8)
    out = np.empty(len(ends), np.int32)
    hash_texts: Any = kernels.hash_texts
    hash_texts(data, ends, np.uint64(seed & 0xFFFF_FFFF), out)
    return out
