"""Transactional messages: prepared as halves, committed to their topic, or rolled back.

Answers to RocketMQ's TransactionalMessageService and EndTransactionProcessor. ``store.transactions``;
called by the broker and by any Python program.
"""

import logging
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from rockstrata.errors import CorruptionError, IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.keepers import unfinished
from rockstrata.store.put_hooks import real_address
from rockstrata.store.results import PutResult, PutStatus
from rockstrata.store.topic_kinds import HALF_TOPIC
from rockstrata.store.transaction_check import Ask, TransactionChecker
from rockstrata.store.transaction_messages import committed_message, half_message
from rockstrata.store.transaction_ops import OpBatches
from rockstrata.store.transaction_rules import CheckRules

if TYPE_CHECKING:
    from rockstrata.store.local_store import LocalMessageStore

log = logging.getLogger(__name__)

_KEEPER = "half messages"


class Half(Protocol):
    """Where a half lies: the result of ``prepare``, the message a check asks about, or a position."""

    @property
    def physical_offset(self) -> int:
        """Place in the commit log."""
        ...

    @property
    def queue_offset(self) -> int:
        """Place in the half queue."""
        ...


class HalfPosition(NamedTuple):
    """Where a half lies, as a producer's answer says it."""

    physical_offset: int
    queue_offset: int


class EndStatus(Enum):
    """Outcome of a commit or rollback."""

    OK = "the transaction is ended"
    NOT_FOUND = "no message lies there"
    NOT_A_HALF = "the message there is not a half message"
    TOO_LATE = "the producer's own time is over: it will be asked"
    WRONG_GROUP = "the half belongs to another producer group"
    WRONG_QUEUE_OFFSET = "the half has another queue offset"
    REFUSED = "the store refused the committed message"


class EndResult(msgspec.Struct, frozen=True):
    """How a transaction ended, or why it did not. ``put`` is the put of the committed message."""

    status: EndStatus
    half: StoredMessage | None = None
    put: PutResult | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True if the transaction is ended."""
        return self.status is EndStatus.OK


class Transactions:
    """Transactions of one store. Thread-safe.

    A committed message may come twice if the store crashes just after the commit; it never gets lost.
    """

    def __init__(self, store: "LocalMessageStore") -> None:
        self._store = store
        self._rules = CheckRules.of(store.config)
        self.ops = OpBatches(store)
        self.checker: TransactionChecker | None = None

    def prepare(self, message: Message, producer_group: str | None = None) -> PutResult:
        """Store a half message; consumers see nothing until it is committed.

        The group is that of the PGROUP property if not given. A delay begins with the commit.
        """
        group = producer_group or props.find(message.properties, props.PRODUCER_GROUP)
        if not group:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="a half message needs a producer group")
        # What could not be committed must not be prepared.
        hooked = self._store.hooks.apply(message)
        if isinstance(hooked, PutResult):
            return hooked
        try:
            self._store.offsets.topic(message.topic)
            half = half_message(message, group)
        except IllegalMessageError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        return self._store.put_without_hooks(half)

    def commit(self, half: Half, producer_group: str, *, from_check: bool = False) -> EndResult:
        """Let consumers see the message. ``from_check``: the producer was asked."""
        found = self._find(half, producer_group, from_check)
        if found.half is None:
            return found
        address = real_address(found.half.properties)
        assert address is not None
        result = self._store.put(committed_message(found.half, *address))
        if not result.ok:
            return EndResult(EndStatus.REFUSED, found.half, result, f"{result.status.name} {result.reason}")
        self._end(found.half)
        return EndResult(EndStatus.OK, found.half, result)

    def rollback(self, half: Half, producer_group: str, *, from_check: bool = False) -> EndResult:
        """Forget the message: nobody will see it, nobody will be asked about it."""
        found = self._find(half, producer_group, from_check)
        if found.half is not None:
            self._end(found.half)
        return found

    def _end(self, half: StoredMessage) -> None:
        if not self.ops.add(half.queue_id, half.queue_offset):
            log.error(
                "the end of half message %d cannot be written: it will be asked about", half.queue_offset
            )

    def _find(self, where: Half, producer_group: str, from_check: bool) -> EndResult:
        """The half with status OK, or the reason why it may not be ended."""
        try:
            half = self._store.message_at(where.physical_offset)
        except CorruptionError:
            if self._store.physical_offset(HALF_TOPIC, 0, where.queue_offset) == where.physical_offset:
                raise
            half = None
        if half is None or half.physical_offset != where.physical_offset:
            return EndResult(EndStatus.NOT_FOUND, reason=f"physical offset {where.physical_offset}")
        if half.topic != HALF_TOPIC or real_address(half.properties) is None:
            return EndResult(EndStatus.NOT_A_HALF, reason=f"topic {half.topic}")
        if not from_check and self._rules.is_too_late(half, self._store.clock.now_ms()):
            return EndResult(EndStatus.TOO_LATE, reason=f"born at {half.born_timestamp}")
        group = half.find_property(props.PRODUCER_GROUP)
        if group != producer_group:
            return EndResult(EndStatus.WRONG_GROUP, reason=f"group {group}, not {producer_group}")
        if half.queue_offset != where.queue_offset:
            return EndResult(
                EndStatus.WRONG_QUEUE_OFFSET, reason=f"offset {half.queue_offset}, not {where.queue_offset}"
            )
        return EndResult(EndStatus.OK, half)

    # Checking and stopping

    def start_checking(self, ask: Ask) -> TransactionChecker:
        """Ask about halves that stay open; the answer is ``commit`` or ``rollback`` with ``from_check``."""
        assert self.checker is None, "already checking"
        checker = TransactionChecker(self._store, self.ops, ask)
        checker.start()
        self.checker = checker
        # Only while somebody asks: else nothing moves the positions, and the log would be kept for ever.
        keeper = unfinished(self._store.queues, self._store.consumer_offsets)
        self._store.retention.keep(_KEEPER, keeper)
        return checker

    def stop_checking(self) -> None:
        """Ask no more."""
        checker, self.checker = self.checker, None
        self._store.retention.release(_KEEPER)
        if checker is not None:
            checker.stop()

    def stop(self) -> None:
        """Stop asking and write what is still to be said. The store calls it before it closes."""
        self.stop_checking()
        self.ops.stop()
        self.ops.flush()
