"""Message properties in wire form: ``name 0x01 value 0x02`` and so on, read without a dictionary.

Answers to RocketMQ's MessageConst, MessageDecoder's property functions and MessageUtils.
Called by everyone who reads or changes one property of a message.
"""

from collections.abc import Mapping
from functools import lru_cache

from rockstrata.errors import IllegalMessageError
from rockstrata.message.text import java_text

KEYS = "KEYS"
TAGS = "TAGS"
UNIQUE_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
CLUSTER = "CLUSTER"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
DUP_INFO = "DUP_INFO"
CRC32 = "__CRC32#"

TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
SHARDING_KEY = "__SHARDINGKEY"
LITE_TOPIC = "__LITE_TOPIC"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
POP_CK = "POP_CK"
MESSAGE_TYPE = "MSG_TYPE"

TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"

KEY_SEPARATOR = " "
# Names that change what a put does: delays, timers, inner batches, light queues.
ACTED_ON = frozenset(
    (
        DELAY,
        TIMER_DELAY_SEC,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        TIMER_DEL_UNIQKEY,
        INNER_NUM,
        INNER_BASE,
        INNER_MULTI_DISPATCH,
        INNER_MULTI_QUEUE_OFFSET,
    )
)
PROPERTIES_BYTES_MAX = 32_767

_NAME_END = b"\x01"
_VALUE_END = b"\x02"


def _pair(name: str, value: str) -> bytes:
    """One property encoded; what cannot be read back as one is refused."""
    try:
        raw_name, raw_value = name.encode(), value.encode()
    except UnicodeEncodeError as error:
        raise IllegalMessageError(f"property {name!r} is not valid Unicode", found=repr(value)) from error
    if not raw_name or any(b in raw_name or b in raw_value for b in (_NAME_END, _VALUE_END)):
        raise IllegalMessageError(
            f"property {name!r} cannot be stored",
            expected="a name, and no character U+0001 or U+0002",
            found=f"{name!r}: {value!r}",
        )
    return raw_name + _NAME_END + raw_value + _VALUE_END


def encode(properties: Mapping[str, str | None]) -> bytes:
    """Properties in wire form; a value of None is left out."""
    return b"".join(_pair(name, value) for name, value in properties.items() if value is not None)


def decode(data: bytes) -> dict[str, str]:
    """All properties; pieces without a name or a value are dropped, later duplicates win."""
    table: dict[str, str] = {}
    for piece in data.split(_VALUE_END):
        name, _, value = piece.partition(_NAME_END)
        if name and value:
            table[java_text(name)] = java_text(value)
    return table


@lru_cache(maxsize=1024)
def _pattern(name: str) -> bytes | None:
    """What a piece of that name begins with; None if no bytes, or more than one spelling, read so."""
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        return None
    # U+FFFD may stand for any malformed byte.
    if not raw or _NAME_END in raw or _VALUE_END in raw or "\ufffd" in name:
        return None
    return raw + _NAME_END


def find(data: bytes, name: str) -> str | None:
    """One property, as ``decode(data).get(name)`` would give it, without the dictionary."""
    pattern = _pattern(name)
    if pattern is None:
        return decode(data).get(name)
    end = len(data)
    while (at := data.rfind(pattern, 0, end)) >= 0:
        end = at
        if at == 0 or data[at - 1] == 2:
            start = at + len(pattern)
            stop = data.find(_VALUE_END, start)
            value = data[start:] if stop < 0 else data[start:stop]
            if value:
                return java_text(value)
    return None


def remove(data: bytes, name: str) -> bytes:
    """The properties without any of that name; a piece that merely contains the name stays."""
    pattern = _pattern(name)
    if pattern is not None and pattern not in data:
        return data
    kept = []
    start = 0
    while start < len(data):
        end = data.find(_VALUE_END, start) + 1 or len(data)
        piece = data[start:end]
        start = end
        if pattern is not None:
            named = piece.startswith(pattern)
        else:
            piece_name, separator, _ = piece.partition(_NAME_END)
            named = bool(separator) and java_text(piece_name) == name
        if not named:
            kept.append(piece)
    return b"".join(kept)


def put(data: bytes, name: str, value: str) -> bytes:
    """The properties with ``name`` set to ``value``, replacing every earlier one."""
    rest = remove(data, name)
    if rest and not rest.endswith(_VALUE_END):
        rest += _VALUE_END
    return rest + _pair(name, value)
