"""The kit our tests use, and yours may: a disk that forgets, a clock that waits."""

from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock

__all__ = ["ForgetfulDisk", "ManualClock"]
