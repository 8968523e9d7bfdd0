"""What the store may do right now, as bits that services set and clear.

Answers to RocketMQ's RunningFlags; the bit values are RocketMQ's.
"""

import logging
import threading
from enum import IntFlag

log = logging.getLogger(__name__)


class Flag(IntFlag):
    """Reasons not to read, write or dispatch."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64
    # Ours, beyond RocketMQ's: one look at the bits must be enough for a put.
    CLOSED = 128
    SLAVE = 256
    PUT_LOCK_BUSY = 512


_WRITE_STOPPERS = int(~Flag.NOT_READABLE & 0x7F)
# What a put must look into: it cannot go on, or only perhaps.
PUT_GATE = _WRITE_STOPPERS | int(Flag.CLOSED | Flag.SLAVE | Flag.PUT_LOCK_BUSY)
_DISPATCH_STOPPERS = int(
    Flag.NOT_WRITABLE | Flag.LOGICS_QUEUE_ERROR | Flag.INDEX_FILE_ERROR | Flag.LOGIC_DISK_FULL
)


class RunningFlags:
    """The bits, and for each set bit the reason a person needs."""

    def __init__(self) -> None:
        self.bits = 0
        self.reasons: dict[Flag, str] = {}
        self._lock = threading.Lock()

    def set(self, flag: Flag, reason: str) -> None:
        """Set a bit; logged once, when it changes."""
        with self._lock:
            if not self.bits & flag:
                log.error("store flag %s set: %s", flag.name, reason)
            self.bits |= int(flag)
            self.reasons[flag] = reason

    def clear(self, flag: Flag) -> None:
        """Clear a bit."""
        with self._lock:
            if self.bits & flag:
                log.warning("store flag %s cleared", flag.name)
            self.bits &= ~int(flag)
            self.reasons.pop(flag, None)

    def mark(self, flag: Flag, *, on: bool) -> None:
        """Set or clear a bit that is nobody's trouble, without a word."""
        with self._lock:
            self.bits = self.bits | int(flag) if on else self.bits & ~int(flag)

    @property
    def readable(self) -> bool:
        """May messages be read?"""
        return not self.bits & Flag.NOT_READABLE

    @property
    def writable(self) -> bool:
        """May messages be put?"""
        return not self.bits & _WRITE_STOPPERS

    @property
    def dispatchable(self) -> bool:
        """May consume queues be written? A full commit-log disk does not stop them."""
        return not self.bits & _DISPATCH_STOPPERS

    def describe(self) -> str:
        """The set bits with their reasons, for people."""
        return "; ".join(f"{flag.name}: {why}" for flag, why in self.reasons.items()) or "none"
