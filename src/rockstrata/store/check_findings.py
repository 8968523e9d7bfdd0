"""What a check tells: findings, how far it is, and a summary at the end.

Answers to no RocketMQ class. Made by check and its parts, printed by the command line.
"""

from enum import Enum

import msgspec


class FindingKind(Enum):
    """What is wrong; the value is for people."""

    BAD_FILE = "bad file"
    BAD_RECORD = "bad record"
    BAD_BODY = "bad body"
    WRONG_PLACE = "record of another place"
    TORN_TAIL = "torn tail"
    MISSING_UNIT = "record without unit"
    WRONG_UNIT = "wrong unit"
    STRAY_UNIT = "unit without record"
    NO_QUEUE = "no queue"
    BAD_INDEX = "bad index"
    MISSING_KEY = "key not indexed"
    STRAY_KEY = "index item without record"
    BAD_CHECKPOINT = "bad checkpoint"


class Finding(msgspec.Struct, frozen=True):
    """One thing wrong at a position of a file, or ``count`` of the same in a row.

    ``note`` marks what is not damage: the next start puts it right by itself, or it was meant.
    """

    kind: FindingKind
    path: str
    position: int
    what: str
    expected: str = ""
    found: str = ""
    count: int = 1
    note: bool = False


class Progress(msgspec.Struct, frozen=True):
    """``done`` of ``total`` of a stage."""

    stage: str
    done: int
    total: int


class CheckSummary(msgspec.Struct):
    """What was looked at."""

    state: str = ""
    log_begin: int = 0
    log_end: int = 0
    records: int = 0
    record_bytes: int = 0
    units: int = 0
    keys: int = 0
    index_items: int = 0
    newest_timestamp: int = 0
