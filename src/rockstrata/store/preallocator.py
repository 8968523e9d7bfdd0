"""Makes the next commit-log file before it is needed, so that a put never waits for the disk.

Answers to RocketMQ's AllocateMappedFileService. Called by the commit log when it rolls.
"""

import logging
import threading

from rockstrata.errors import RockstrataError, StoreStateError
from rockstrata.service import Service
from rockstrata.store.disk import PAGE_BYTES
from rockstrata.store.mapped_file import MappedFile
from rockstrata.store.mapped_file_queue import MappedFileQueue

log = logging.getLogger(__name__)

_WARM_STEP_PAGES = 4096
_WAIT_S = 5.0


class Preallocator(Service):
    """Holds at most one file made ahead. Without its thread every file is made on the spot.

    A file belongs to whoever took it: what is in the log is never made, and never discarded, again.
    """

    interval_s = 3600.0

    def __init__(self, queue: MappedFileQueue, *, warm: bool) -> None:
        super().__init__()
        self._queue = queue
        self._warm = warm
        self._wanted: int | None = None
        self._making = False
        self._ready: MappedFile | None = None
        self._taken = -1
        self._condition = threading.Condition()

    def request(self, start: int) -> None:
        """Ask for the file beginning at ``start``; one that is there, or asked for, is ignored."""
        with self._condition:
            if not self.running or self._wanted is not None or self._is_there(start):
                return
            self._wanted = start
        self.wake()

    def take(self, start: int) -> MappedFile:
        """The file beginning at ``start``: made ahead, being made (waits up to 5 s), or made now."""
        with self._condition:
            if self._wanted == start and (self._making or self.running):
                self._condition.wait_for(lambda: self._wanted != start, _WAIT_S)
                if self._wanted == start:
                    # Two makers of one file would be in each other's way.
                    raise StoreStateError(
                        f"the next commit log file was not ready in {_WAIT_S} s",
                        path=self._queue.next_path(start),
                        hint="it is still being made: retry; is the disk slow?",
                    )
            ready, self._ready = self._ready, None
            self._taken = max(self._taken, start)
        assert ready is None or ready.start == start, (ready, start)
        if ready is not None and not self._queue.disk.exists(ready.path):
            # What goes into a deleted file is lost. A RocketMQ started here by mistake deletes it.
            log.error("%s was deleted by somebody else; made again", ready.path)
            ready = None
        return ready if ready is not None else self._make(start)

    def run_once(self) -> None:
        """Meet the pending request, if there is one."""
        with self._condition:
            start = self._wanted
            if start is None or self._is_there(start):
                self._settle(None)
                return
            self._making = True
        made: MappedFile | None = None
        try:
            made = self._make(start)
        finally:
            # On failure too: the put that needs the file tries itself and reports the error.
            with self._condition:
                self._settle(made)

    def _settle(self, made: MappedFile | None) -> None:
        self._ready = made or self._ready
        self._wanted = None
        self._making = False
        self._condition.notify_all()

    def _is_there(self, start: int) -> bool:
        """Is the file in the log, on its way into it, or ready?"""
        last = self._queue.last
        return (
            start <= self._taken
            or (last is not None and start < last.end)
            or (self._ready is not None and self._ready.start == start)
        )

    def discard(self) -> None:
        """Remove the file made ahead: a clean exit leaves none behind."""
        with self._condition:
            ready, self._ready = self._ready, None
        if ready is not None:
            self._queue.discard(ready)

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
