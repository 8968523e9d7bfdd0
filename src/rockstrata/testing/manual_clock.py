"""A clock that moves only when told to.

Answers to nothing in RocketMQ, whose tests sleep. Given to stores and services by tests.
"""


class ManualClock:
    """``Clock`` for tests: ``sleep_s`` advances it, so nothing ever waits.

    The wall clock may be stepped back with ``set_now_ms``; the monotonic reading never goes back.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as last set."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds advanced since the clock was made."""
        return self._monotonic_ms / 1000

    def sleep_s(self, seconds: float) -> None:
        """Advance at once."""
        self.advance(seconds * 1000)

    def advance(self, milliseconds: float) -> None:
        """Let time pass, on both readings; fractions of a millisecond reach the monotonic one only."""
        assert milliseconds >= 0, milliseconds
        before = int(self._monotonic_ms)
        self._monotonic_ms += milliseconds
        self._now_ms += int(self._monotonic_ms) - before

    def set_now_ms(self, now_ms: int) -> None:
        """Step the wall clock, forward or back, as an operator or NTP may."""
        self._now_ms = now_ms
