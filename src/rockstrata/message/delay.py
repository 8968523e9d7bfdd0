"""Delay levels: parsing the setting, and the delivery time that stands in the tag code.

Answers to DefaultMessageStore.parseDelayLevel and computeDeliverTimestamp.
Called by the scan (tag code of delayed messages) and by the schedule service.
"""

import re

from rockstrata.errors import ConfigError
from rockstrata.message.text import java_integer

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_MS = 1000

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,15})([smhd])")
_DELAY_MS_MAX = (1 << 63) - 1


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level of ``messageDelayLevel``; level n is item n - 1."""
    levels = []
    for word in text.split():
        match = _LEVEL.fullmatch(word)
        delay_ms = int(match[1]) * _UNIT_MS[match[2]] if match else -1
        if not 0 <= delay_ms <= _DELAY_MS_MAX:
            raise ConfigError("bad messageDelayLevel", expected="words such as 1s 5m 2h 1d", found=repr(word))
        levels.append(delay_ms)
    if not levels:
        raise ConfigError("bad messageDelayLevel", expected="at least one level", found=repr(text))
    return tuple(levels)


def clamp_level(levels: tuple[int, ...], level: int) -> int:
    """A level no greater than there are."""
    return min(level, len(levels))


def deliver_timestamp(levels: tuple[int, ...], level: int, store_timestamp: int) -> int:
    """When a message of this level is due; an unknown level waits a second."""
    delay_ms = levels[level - 1] if 1 <= level <= len(levels) else UNKNOWN_LEVEL_MS
    return _wrap(store_timestamp + delay_ms)


def delayed_tags_code(levels: tuple[int, ...], delay: str | None, store_timestamp: int) -> int | None:
    """Tag code of a record of the schedule topic by its DELAY, or None to use its tags."""
    level = java_integer(delay, 32) if delay else None
    if level is None or (level := clamp_level(levels, level)) <= 0:
        return None
    return deliver_timestamp(levels, level, store_timestamp)


def _wrap(value: int) -> int:
    """64-bit arithmetic, as a damaged time stamp may overflow it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
