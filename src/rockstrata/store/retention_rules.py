"""When log files may go, and which: the rules of retention as pure functions, tested as tables.

Answers to the decisions inside CleanCommitLogService (isTimeToDelete, isSpaceToDelete) and
MappedFileQueue.deleteExpiredFileByTime. Called by ``Retention``, which does the I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rockstrata.store.store_config import StoreConfig


class Cause(Enum):
    """Why files are deleted now."""

    HOUR = "it is the hour of deleteWhen"
    MANUAL = "an operator asked for it"
    SPACE = "the disk fills up"
    FORCED = "the disk is nearly full"
    FULL = "the disk is full"


class Stay(Enum):
    """Why the oldest file that was not chosen stays."""

    NO_CAUSE = "nothing is deleted at this hour"
    NEWEST = "the newest file always stays"
    FRESH = "it has not expired"
    NEEDED = "it is still needed"
    LIMIT = "the round has its number"


@dataclass(frozen=True)
class Readings:
    """What one round looks at. Ratios are used shares from 0 to 1, negative if they are unknown.

    ``log_ratio`` is that of the least used commit log path. ``share_ratio`` is this store's size over
    its share of the disk, None if the disk is its own.
    """

    hour: int
    log_ratio: float
    queue_ratio: float
    share_ratio: float | None = None
    is_manual: bool = False


@dataclass(frozen=True)
class Verdict:
    """What a round may do.

    ``at_once``: files that have not expired go too. ``is_full``: True refuses puts, False allows
    them, None leaves it as it is (between the two levels, so that it does not flutter).
    """

    causes: frozenset[Cause]
    at_once: bool
    is_full: bool | None


class LogFile(NamedTuple):
    """A file of the log, [start, end)."""

    start: int
    end: int
    modified_ms: int


class Need(NamedTuple):
    """Somebody needs the log from a physical offset on."""

    physical_offset: int
    who: str


def judge(config: StoreConfig, readings: Readings) -> Verdict:
    """Look at the hour, at the disks and at the operator's wish."""
    causes = set()
    if readings.hour in config.delete_hours:
        causes.add(Cause.HOUR)
    if readings.is_manual:
        causes.add(Cause.MANUAL)
    space = _space_cause(config, readings)
    if space is not None:
        causes.add(space)
    fill = max(readings.log_ratio, readings.queue_ratio)
    is_full: bool | None = True
    if fill <= config.disk_warning_level:
        is_full = False if fill <= config.disk_clean_forcibly_level else None
    return Verdict(
        causes=frozenset(causes),
        at_once=config.clean_file_forcibly_enable and space in (Cause.FORCED, Cause.FULL),
        is_full=is_full,
    )


def _space_cause(config: StoreConfig, readings: Readings) -> Cause | None:
    ratios = (readings.log_ratio, readings.queue_ratio)
    if max(ratios) > config.disk_warning_level:
        return Cause.FULL
    if max(ratios) > config.disk_clean_forcibly_level:
        return Cause.FORCED
    share = readings.share_ratio
    if share is not None:
        if share > config.logical_disk_space_clean_forcibly_threshold:
            return Cause.FORCED
        return Cause.SPACE if share > config.disk_max_used_level else None
    if min(ratios) < 0 or max(ratios) > config.disk_max_used_level:
        return Cause.SPACE
    return None


def choose(
    files: Sequence[LogFile], verdict: Verdict, need: Need, *, now_ms: int, reserved_ms: int, limit: int
) -> tuple[int, Stay]:
    """How many of the oldest files go, and why the next one stays.

    ``files`` are all of the log, oldest first, or more than ``limit`` of them. Deletion never leaves a
    hole: it ends at the first file that must stay.
    """
    if not verdict.causes:
        return 0, Stay.NO_CAUSE
    for count, file in enumerate(files[:-1]):
        if count >= limit:
            return count, Stay.LIMIT
        if not verdict.at_once and file.modified_ms + reserved_ms > now_ms:
            return count, Stay.FRESH
        if file.end > need.physical_offset:
            return count, Stay.NEEDED
    return max(0, len(files) - 1), Stay.NEWEST
