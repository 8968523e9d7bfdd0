"""Brings the pages in front of the writer into memory, so that puts do not stop for page faults.

Answers to no RocketMQ class; its warm-up touches whole files when they are made. Runs beside a busy
writer only: the faster it writes, the further ahead. Woken by the dispatcher.
"""

from rockstrata.service import Service
from rockstrata.store.commit_log import CommitLog
from rockstrata.store.mapped_file import MappedFile

_STEP_BYTES = 2 << 20
_AHEAD_BYTES_MAX = 48 << 20
# A page brought in is a page to be written out: only what will be used within a few rounds is.
_AHEAD_ROUNDS = 4
_IDLE_BYTES = 256 << 10


class Populator(Service):
    """Populates up to a few rounds' worth of the tail file ahead of the write position."""

    interval_s = 3600.0

    def __init__(self, log: CommitLog) -> None:
        super().__init__()
        self._log = log
        self._file: MappedFile | None = None
        self._populated = 0
        self._seen = 0

    def run_once(self) -> None:
        """Populate what the writer will reach soon; nothing if it is slow."""
        file = self._log.queue.last
        if file is None or file.buffer is not None:
            return
        if file is not self._file:
            self._file, self._populated, self._seen = file, 0, 0
        wrote = file.wrote
        pace, self._seen = wrote - self._seen, wrote
        if pace < _IDLE_BYTES:
            return
        target = min(file.size, wrote + min(_AHEAD_BYTES_MAX, pace * _AHEAD_ROUNDS))
        position = max(self._populated, wrote)
        while position < target and not self.stopping:
            step = min(_STEP_BYTES, target - position)
            file.file.populate(position, step)
            position += step
            self._populated = position
