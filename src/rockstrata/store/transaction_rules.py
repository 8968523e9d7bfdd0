"""What to do with a half message nobody has ended: the decisions of a check, without any I/O.

Answers to the rules in RocketMQ's TransactionalMessageServiceImpl and TransactionalMessageUtil.
Called by the transaction checker and, for late answers, by the transactions.
"""

from dataclasses import dataclass
from enum import Enum

from rockstrata.message import properties as props
from rockstrata.message.model import StoredMessage
from rockstrata.message.text import java_integer
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.transaction_messages import OP_SEPARATOR, REMOVE_TAG


class Verdict(Enum):
    """What the checker does with a half message."""

    GIVE_UP = "copy it to TRANS_CHECK_MAX_TIME_TOPIC and go on"
    STOP = "too young: end the round here"
    POSTPONE = "its producer asked for more time: append it again and go on"
    ASK = "append it again, ask the producer and go on"
    PULL = "its end may be among op messages not yet read: read on and look again"


@dataclass(frozen=True)
class CheckRules:
    """The settings a check goes by."""

    timeout_ms: int
    check_max: int
    reserved_ms: int

    @staticmethod
    def of(config: StoreConfig) -> "CheckRules":
        """The rules a store is configured with."""
        return CheckRules(
            config.transaction_timeout_ms,
            config.transaction_check_max,
            config.file_reserved_time_hours * 3_600_000,
        )

    def judge(self, half: StoredMessage, now_ms: int, began_ms: int, last_op_born_ms: int | None) -> Verdict:
        """The verdict in a round that began at ``began_ms``.

        ``last_op_born_ms`` belongs to the last op message of the last pull, None if that had none.
        """
        age_ms = now_ms - half.born_timestamp
        times = times_checked(half)
        if (times is not None and times >= self.check_max) or age_ms > self.reserved_ms:
            return Verdict.GIVE_UP
        if half.store_timestamp >= began_ms:
            return Verdict.STOP
        text = half.find_property(props.CHECK_IMMUNITY_TIME)
        immune_ms = self.timeout_ms
        if text is not None:
            seconds = java_integer(text, 64)
            immune_ms = self.timeout_ms if seconds is None or seconds == -1 else seconds * 1000
            if age_ms <= immune_ms:
                return Verdict.POSTPONE
        elif 0 <= age_ms <= immune_ms:
            return Verdict.STOP
        if last_op_born_ms is None:
            needs_check = age_ms > immune_ms
        else:
            needs_check = last_op_born_ms - began_ms > self.timeout_ms
        return Verdict.ASK if needs_check or age_ms <= -1 else Verdict.PULL

    def is_too_late(self, half: StoredMessage, now_ms: int) -> bool:
        """May a producer no longer end this half by itself, because it will be asked?

        Only where the producer set the time of the first question.
        """
        text = half.find_property(props.CHECK_IMMUNITY_TIME)
        if not text:
            return False
        return now_ms - half.born_timestamp > immunity_ms(text, self.timeout_ms)


def immunity_ms(text: str | None, timeout_ms: int) -> int:
    """CHECK_IMMUNITY_TIME_IN_SECONDS in milliseconds, never less than the time-out."""
    seconds = java_integer(text, 64) if text else None
    return max((seconds or 0) * 1000, timeout_ms)


def times_checked(half: StoredMessage) -> int | None:
    """How often the producer was asked: None if never, -1 if the property is no number."""
    text = half.find_property(props.TRANSACTION_CHECK_TIMES)
    if text is None:
        return None
    number = java_integer(text, 32)
    return -1 if number is None else number


def original_offset(half: StoredMessage) -> int | None:
    """Half queue offset of the first copy, if this is a copy that names it."""
    text = half.find_property(props.TRANSACTION_PREPARED_QUEUE_OFFSET)
    number = java_integer(text, 64) if text else None
    return number if number is not None and number >= 0 else None


class OpMap:
    """The ended halves that op messages name, and which op messages have been used up.

    ``minimum`` is the half position at the start of the round: halves below it are settled.
    """

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum
        self._op_of: dict[int, int] = {}
        self._left: dict[int, set[int]] = {}
        self._done: set[int] = set()
        # Ended halves below the minimum: a copy further on may name one as its original.
        self._settled: set[int] = set()

    def add(self, op_offset: int, tags: str | None, body: bytes) -> None:
        """Take in one op message. One of another kind, or with nothing left to say, is used up."""
        offsets = parse_op_body(body) if tags == REMOVE_TAG else set()
        self._settled |= {offset for offset in offsets if offset < self._minimum}
        offsets = {offset for offset in offsets if offset >= self._minimum}
        for offset in offsets:
            self._op_of[offset] = op_offset
        if offsets:
            self._left[op_offset] = offsets
        else:
            self._done.add(op_offset)

    def take(self, half_offset: int) -> bool:
        """Is this half ended? Then its op message need not say so again."""
        op_offset = self._op_of.pop(half_offset, None)
        if op_offset is None:
            return half_offset in self._settled
        left = self._left[op_offset]
        left.discard(half_offset)
        if not left:
            del self._left[op_offset]
            self._done.add(op_offset)
        return True

    def position(self, op_offset: int) -> int:
        """``op_offset`` moved over the op messages that are used up, as far as there is no gap."""
        while op_offset in self._done:
            op_offset += 1
        return op_offset


def parse_op_body(body: bytes) -> set[int]:
    """The half queue offsets of an op message; what is no number is passed over."""
    words = body.decode("utf-8", "replace").split(OP_SEPARATOR)
    numbers = (java_integer(word, 64) for word in words)
    return {number for number in numbers if number is not None and number >= 0}
