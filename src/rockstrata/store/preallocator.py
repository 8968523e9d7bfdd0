"""Makes the next commit-log file before it is needed, so that a put never waits for the disk.

Answers to RocketMQ's AllocateMappedFileService. Called by the commit log when it rolls.
"""

import threading

from rockstrata.clock import Clock
from rockstrata.errors import RockstrataError
from rockstrata.service import Service
from rockstrata.store.disk import PAGE_BYTES
from rockstrata.store.mapped_file import MappedFile
from rockstrata.store.mapped_file_queue import MappedFileQueue

_WARM_STEP_PAGES = 4096
_WAIT_S = 5.0


class Preallocator(Service):
    """Holds at most one file made ahead. Without its thread every file is made on the spot."""

    interval_s = 3600.0

    def __init__(self, queue: MappedFileQueue, clock: Clock, *, warm: bool) -> None:
        super().__init__()
        self._queue = queue
        self._warm = warm
        self._clock = clock
        self._wanted: int | None = None
        self._ready: MappedFile | None = None
        self._condition = threading.Condition()

    def request(self, start: int) -> None:
        """Ask for the file beginning at ``start``; a request already met or made is ignored."""
        if self.running and (self._ready is None or self._ready.start != start) and self._wanted != start:
            self._wanted = start
            self.wake()

    def take(self, start: int) -> MappedFile:
        """The file beginning at ``start``: made ahead, being made (waits up to 5 s), or made now."""
        with self._condition:
            if self.running and self._wanted == start:
                self._condition.wait_for(lambda: self._wanted != start, _WAIT_S)
            ready, self._ready = self._ready, None
        if ready is not None and ready.start == start:
            return ready
        return self._make(start)

    def run_once(self) -> None:
        """Meet the pending request, if there is one."""
        start = self._wanted
        if start is None:
            return
        made: MappedFile | None = None
        try:
            made = self._make(start)
        finally:
            # On failure too: the put that needs the file tries itself and reports the error.
            with self._condition:
                self._ready = made
                self._wanted = None
                self._condition.notify_all()

    def discard(self) -> None:
        """Remove the file made ahead: a clean exit leaves none behind."""
        ready, self._ready = self._ready, None
        if ready is not None:
            self._queue.disk.unlink(ready.path)

    def _make(self, start: int) -> MappedFile:
        file = self._queue.create(start)
        if self._warm:
            self._touch(file)
        return file

    def _touch(self, file: MappedFile) -> None:
        """Bring every page into memory, in steps, so that a stop is not held up."""
        step = _WARM_STEP_PAGES * PAGE_BYTES
        for position in range(0, file.size, step):
            if self.stopping:
                return
            try:
                file.file.populate(position, step)
            except RockstrataError:
                return
