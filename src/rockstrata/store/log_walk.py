"""Walks the log scan by scan, the next one already under way while the last is dealt with.

Answers to the loops of CommitLog.recoverNormally and recoverAbnormally. Used by recovery.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rockstrata.message.scan import Scan, ScanStop
from rockstrata.store.commit_log import CommitLog
from rockstrata.store.dispatcher import ROUND_BYTES, ROUND_RECORDS
from rockstrata.store.mapped_file import MappedFile

# (file, start, limit, most records) -> the records there.
ScanCall = Callable[[MappedFile, int, int, int], Scan]
# (file, records) -> which of them are suspect.
DoubtCall = Callable[[MappedFile, Scan], NDArray[np.bool_]]


class Step(NamedTuple):
    """Records of a part of one file, and where the walk goes on: None where it cannot."""

    file: MappedFile
    found: Scan
    suspect: NDArray[np.bool_]
    next_position: int | None


class LogWalk:
    """Scans from a physical offset until something ends the log."""

    def __init__(self, log: CommitLog, scan: ScanCall, doubt: DoubtCall) -> None:
        self._log = log
        self._scan = scan
        self._doubt = doubt

    def steps(self, position: int, first_bytes: int) -> Iterator[Step]:
        """Every step in order; the first reads ``first_bytes``, which may be few.

        A second thread scans ahead in a log of many rounds: the kernel does not need the GIL.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="LogWalk") as ahead:
            step = self._step(position, first_bytes)
            while step is not None:
                coming: Future[Step | None] | None = None
                following = step.next_position
                if following is not None and following - position >= ROUND_BYTES // 2:
                    coming = ahead.submit(self._step, following, ROUND_BYTES)
                yield step
                if following is None:
                    return
                position = following
                step = coming.result() if coming is not None else self._step(position, ROUND_BYTES)

    def _step(self, position: int, most_bytes: int) -> Step | None:
        """None where the log has no file."""
        file = self._log.queue.find(position)
        if file is None:
            return None
        begin = position - file.start
        limit = min(file.size, begin + most_bytes)
        found = self._scan(file, begin, limit, ROUND_RECORDS)
        if found.stop is ScanStop.INCOMPLETE and limit < file.size and not len(found):
            # A record larger than a round.
            limit = file.size
            found = self._scan(file, begin, limit, 1)
        return Step(file, found, self._doubt(file, found), self._next(file, found, limit))

    def _next(self, file: MappedFile, found: Scan, limit: int) -> int | None:
        if found.stop is ScanStop.BLANK:
            return file.end if self._log.queue.find(file.end) is not None else None
        if found.stop is ScanStop.LIMIT or (found.stop is ScanStop.INCOMPLETE and limit < file.size):
            return file.start + found.end
        return None
