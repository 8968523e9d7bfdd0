"""Zeroes what lies behind the end of valid data: a later scan must not find old bytes there.

Answers to no RocketMQ class, which leaves them. Used by recovery for the log and the index.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rockstrata.store.disk import DiskFile

_STEP_BYTES = 4 << 20


def wipe(file: DiskFile, position: int, stop: int | None = None) -> int:
    """Zero the bytes [position, stop) of a mapped file; returns how far the last non-zero one lay.

    Blocks that were never written are not even read, and zeros are not written over zeros: the file
    stays as sparse as it is.
    """
    stop = file.size if stop is None else min(stop, file.size)
    view: Any = file.view()
    data: NDArray[np.uint8] = np.frombuffer(view, np.uint8)
    reach = 0
    for first, last in file.data_ranges(position):
        for begin in range(first, min(last, stop), _STEP_BYTES):
            part = data[begin : min(last, stop, begin + _STEP_BYTES)]
            if part.any():
                reach = begin - position + int(np.flatnonzero(part)[-1]) + 1
                part[:] = 0
    return reach
