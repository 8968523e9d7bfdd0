"""The pure rules of retention, row by row."""

import pytest

from rockstrata.store.retention_rules import (
    Cause,
    LogFile,
    Need,
    Readings,
    Stay,
    Verdict,
    choose,
    judge,
)
from rockstrata.store.store_config import StoreConfig

CONFIG = StoreConfig(delete_when="04;16")
POLITE = StoreConfig(delete_when="04", clean_file_forcibly_enable=False)
HOUR, MANUAL, SPACE, FORCED, FULL = Cause
NOBODY = Need(2**63 - 1, "nobody")
DUE = Verdict(frozenset({HOUR}), at_once=False, is_full=False)
AT_ONCE = Verdict(frozenset({FORCED}), at_once=True, is_full=None)


@pytest.mark.parametrize(
    ("config", "readings", "causes", "at_once", "is_full"),
    [
        (CONFIG, Readings(3, 0.10, 0.10), set(), False, False),
        (CONFIG, Readings(4, 0.10, 0.10), {HOUR}, False, False),
        (CONFIG, Readings(16, 0.10, 0.10), {HOUR}, False, False),
        (CONFIG, Readings(3, 0.10, 0.10, is_manual=True), {MANUAL}, False, False),
        (CONFIG, Readings(4, 0.80, 0.10, is_manual=True), {HOUR, MANUAL, SPACE}, False, False),
        # The levels themselves are still all right; a hundredth above is not.
        (CONFIG, Readings(3, 0.75, 0.75), set(), False, False),
        (CONFIG, Readings(3, 0.76, 0.10), {SPACE}, False, False),
        (CONFIG, Readings(3, 0.10, 0.76), {SPACE}, False, False),
        (CONFIG, Readings(3, 0.85, 0.10), {SPACE}, False, False),
        (CONFIG, Readings(3, 0.86, 0.10), {FORCED}, True, None),
        (CONFIG, Readings(3, 0.10, 0.86), {FORCED}, True, None),
        (CONFIG, Readings(3, 0.90, 0.10), {FORCED}, True, None),
        (CONFIG, Readings(3, 0.91, 0.10), {FULL}, True, True),
        (CONFIG, Readings(3, 0.10, 0.91), {FULL}, True, True),
        (CONFIG, Readings(3, -1.0, 0.10), {SPACE}, False, False),
        (CONFIG, Readings(3, 0.10, -1.0), {SPACE}, False, False),
        # Forbidden to delete what has not expired, a full disk still refuses puts.
        (POLITE, Readings(3, 0.86, 0.10), {FORCED}, False, None),
        (POLITE, Readings(3, 0.95, 0.10), {FULL}, False, True),
        # A shared disk: this store's share counts, but the disk's own levels come first.
        (CONFIG, Readings(3, 0.80, 0.80, share_ratio=0.50), set(), False, False),
        (CONFIG, Readings(3, 0.10, 0.10, share_ratio=0.76), {SPACE}, False, False),
        (CONFIG, Readings(3, 0.10, 0.10, share_ratio=0.81), {FORCED}, True, False),
        (CONFIG, Readings(3, 0.91, 0.10, share_ratio=0.10), {FULL}, True, True),
        # Levels outside RocketMQ's bounds are brought back into them.
        (
            StoreConfig(disk_space_warning_level_ratio=99, disk_space_clean_forcibly_ratio=99),
            Readings(3, 0.91, 0.10),
            {FULL},
            True,
            True,
        ),
        (StoreConfig(disk_max_used_space_ratio=1), Readings(3, 0.09, 0.09), set(), False, False),
    ],
)
def test_a_round_is_judged_by_hour_space_and_wish(config, readings, causes, at_once, is_full):
    assert judge(config, readings) == Verdict(frozenset(causes), at_once, is_full)


def files(*ages):
    """Files of 100 bytes, last changed so long before time 1000."""
    return [LogFile(100 * n, 100 * n + 100, 1000 - age) for n, age in enumerate(ages)]


@pytest.mark.parametrize(
    ("verdict", "ages", "need", "limit", "expected"),
    [
        (Verdict(frozenset(), False, False), (99, 99, 0), NOBODY, 10, (0, Stay.NO_CAUSE)),
        (DUE, (), NOBODY, 10, (0, Stay.NEWEST)),
        (DUE, (99,), NOBODY, 10, (0, Stay.NEWEST)),
        (DUE, (99, 99, 99), NOBODY, 10, (2, Stay.NEWEST)),
        # Age 50 is what is reserved: it has just expired.
        (DUE, (50, 49, 99, 0), NOBODY, 10, (1, Stay.FRESH)),
        (DUE, (49, 99, 99, 0), NOBODY, 10, (0, Stay.FRESH)),
        (AT_ONCE, (1, 1, 1, 0), NOBODY, 10, (3, Stay.NEWEST)),
        (AT_ONCE, (1, 1, 1, 0), NOBODY, 2, (2, Stay.LIMIT)),
        (AT_ONCE, (1, 1, 1, 0), NOBODY, 3, (3, Stay.NEWEST)),
        # A file goes only if it lies wholly before what is needed.
        (AT_ONCE, (1, 1, 1, 0), Need(0, "x"), 10, (0, Stay.NEEDED)),
        (AT_ONCE, (1, 1, 1, 0), Need(199, "x"), 10, (1, Stay.NEEDED)),
        (AT_ONCE, (1, 1, 1, 0), Need(200, "x"), 10, (2, Stay.NEEDED)),
        (DUE, (99, 99, 99, 99), Need(150, "x"), 10, (1, Stay.NEEDED)),
        (DUE, (99, 1, 99, 99), Need(150, "x"), 10, (1, Stay.FRESH)),
    ],
)
def test_the_oldest_files_go_up_to_the_first_that_must_stay(verdict, ages, need, limit, expected):
    assert choose(files(*ages), verdict, need, now_ms=1000, reserved_ms=50, limit=limit) == expected
