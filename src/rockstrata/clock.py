"""The only door to the time: wall clock in milliseconds, monotonic seconds, local calendar.

Everything above takes a ``Clock``, so that tests own the time.
"""

import time
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where a store gets its time from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back; for intervals and deadlines."""
        ...

    def sleep_s(self, seconds: float) -> None:
        """Let at least this much time pass."""
        ...


class SystemClock:
    """The machine's own clock."""

    # The bare function: a method around it would cost a put twice as much.
    now_ns = staticmethod(time.time_ns)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        """Sleep for real."""
        time.sleep(seconds)


def local_hour(timestamp_ms: int) -> int:
    """Hour of the day in the local time zone, as `deleteWhen` counts it."""
    return datetime.fromtimestamp(timestamp_ms / 1000).hour


def local_stamp(timestamp_ms: int) -> str:
    """``yyyyMMddHHmmssSSS`` in the local time zone: the name of an index file."""
    moment = datetime.fromtimestamp(timestamp_ms // 1000)
    return f"{moment:%Y%m%d%H%M%S}{timestamp_ms % 1000:03d}"


def local_month_start_ms(timestamp_ms: int) -> int:
    """Epoch milliseconds of 00:00 on the first day of the local month; unique keys count from it."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000)
    return int(moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)


def iso_time(timestamp_ms: int) -> str:
    """Local time with zone for people to read, ``-`` for an unknown (non-positive) time."""
    if timestamp_ms <= 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")


def parse_time_ms(text: str) -> int | None:
    """Epoch milliseconds, or an ISO 8601 time (local if it names no zone); None if it is neither."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def duration_s() -> float:
    """A high-resolution reading for measuring how long something took."""
    return time.perf_counter()
