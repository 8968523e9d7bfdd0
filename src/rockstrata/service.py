"""A background service is one method, ``run_once``; starting, waking and a bounded stop are here.

Answers to RocketMQ's ServiceThread. A service that raises is kept alive and remembers the error:
a dead worker must be seen (``failure``), not guessed.
"""

import logging
import threading
from types import TracebackType
from typing import Self

from rockstrata.errors import ServiceStopError

log = logging.getLogger(__name__)


class Service:
    """Runs ``run_once`` in one thread, every ``interval_s`` or when woken.

    Tests call ``run_once`` directly, without a thread.
    """

    interval_s: float = 1.0
    stop_timeout_s: float = 10.0

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._signal = threading.Event()
        self.failure: BaseException | None = None

    @property
    def name(self) -> str:
        """Name of the thread."""
        return type(self).__name__

    @property
    def running(self) -> bool:
        """True between ``start`` and ``stop``."""
        return self._thread is not None and self._thread.is_alive()

    def run_once(self) -> None:
        """One round of work."""
        raise TypeError(f"{self.name} does not say what to do")

    def on_stop(self) -> None:
        """Last round, in the stopping thread's place, after the loop has ended."""

    def start(self) -> None:
        """Start the thread; a second start is a broken program."""
        assert self._thread is None, f"{self.name} started twice"
        self._stopping.clear()
        self._thread = threading.Thread(target=self._loop, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the next round begin at once."""
        self._signal.set()

    @property
    def stopping(self) -> bool:
        """True once ``stop`` was called: long rounds should return early."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Stop within ``stop_timeout_s`` or raise; then run ``on_stop``. Stopping twice is harmless."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        self._signal.set()
        thread.join(self.stop_timeout_s)
        if thread.is_alive():
            raise ServiceStopError(f"{self.name} did not stop in {self.stop_timeout_s} s")
        self.on_stop()

    def wait(self, seconds: float) -> None:
        """Wait for a wake-up or the time, inside a round or between two."""
        self._signal.wait(seconds)
        self._signal.clear()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run_once()
                self.failure = None
            except Exception as error:
                # Said once per cause, not once per round: a broken disk would fill the log.
                if repr(error) != repr(self.failure):
                    log.exception("%s failed; it will try again", self.name)
                self.failure = error
            if not self._stopping.is_set():
                self.wait(self.interval_s)


class ServiceGroup:
    """Services that start in order and stop in reverse; every one is stopped even if one fails."""

    def __init__(self, *services: Service) -> None:
        self.services = services

    def start(self) -> None:
        """Start all; if one cannot, those before it are stopped again."""
        started: list[Service] = []
        try:
            for service in self.services:
                service.start()
                started.append(service)
        except BaseException:
            for service in reversed(started):
                service.stop()
            raise

    def stop(self) -> None:
        """Stop all in reverse order, then raise the first error met."""
        errors: list[Exception] = []
        for service in reversed(self.services):
            try:
                service.stop()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
