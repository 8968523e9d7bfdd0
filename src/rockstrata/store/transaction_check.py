"""Asks producers what became of transactions they have not ended.

Answers to RocketMQ's TransactionalMessageCheckService and the check of
TransactionalMessageServiceImpl. Started by ``Transactions.start_checking``.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from rockstrata.errors import CorruptionError
from rockstrata.message.model import Message, StoredMessage
from rockstrata.message.record import decode_record
from rockstrata.service import Service
from rockstrata.store.results import GetStatus, PutResult
from rockstrata.store.topic_kinds import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from rockstrata.store.topics import TopicConfig
from rockstrata.store.transaction_messages import given_up_half, postponed_half, renewed_half
from rockstrata.store.transaction_ops import OpBatches
from rockstrata.store.transaction_rules import CheckRules, OpMap, Verdict, original_offset, times_checked

if TYPE_CHECKING:
    from rockstrata.store.local_store import LocalMessageStore

log = logging.getLogger(__name__)

Ask = Callable[[StoredMessage], None]

ROUND_MS_MAX = 60_000
OPS_PER_PULL = 32
SLEEP_WITHOUT_OPS_S = 1.0
_NOTHING_NEW = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.OFFSET_OVERFLOW_ONE)


class _Round:
    """One walk over one half queue."""

    def __init__(self, queue_id: int, began_ms: int, half: int, op: int) -> None:
        self.queue_id = queue_id
        self.began_ms = began_ms
        self.first_half = self.half = half
        self.first_op = self.next_op = op
        self.ops = OpMap(half)
        self.last_op_born_ms: int | None = None
        self.misses = 0
        self.asked = 0


class TransactionChecker(Service):
    """Every 30 s walks the half queues. Positions move when all they pass over is durable.

    ``ask`` gets the half as it was just appended again: an answer names that place. What it raises
    is logged, and the half is asked about again later.
    """

    def __init__(self, store: "LocalMessageStore", ops: OpBatches, ask: Ask) -> None:
        super().__init__()
        self.interval_s = store.config.transaction_check_interval_ms / 1000
        self._store = store
        self._clock = store.clock
        self._ops = ops
        self._ask = ask
        self._rules = CheckRules.of(store.config)
        self._is_fresh = False

    def start(self) -> None:
        """Start; the first round comes after one interval."""
        self._is_fresh = True
        super().start()

    def run_once(self) -> None:
        """One round over every half queue."""
        if self._is_fresh:
            self._is_fresh = False
            return
        for queue_id in self._store.topic_queues().get(HALF_TOPIC, []):
            self.check(queue_id)

    def check(self, queue_id: int) -> int:
        """One round over one half queue; how many halves were asked about."""
        half, op = self._position(HALF_TOPIC, queue_id), self._position(OP_HALF_TOPIC, queue_id)
        walk = _Round(queue_id, self._clock.now_ms(), half, op)
        self._pull_ops(walk)
        try:
            while not self.stopping and self._clock.now_ms() - walk.began_ms <= ROUND_MS_MAX:
                if walk.ops.take(walk.half):
                    walk.half += 1
                elif not self._step(walk):
                    break
        finally:
            self._save(walk)
        return walk.asked

    def _position(self, topic: str, queue_id: int) -> int:
        saved = self._store.consumer_offsets.query(TRANSACTION_GROUP, topic, queue_id)
        return saved if saved >= 0 else max(0, self._store.min_offset(topic, queue_id))

    def _save(self, walk: _Round) -> None:
        """Move the positions over what is settled, once it cannot be lost any more."""
        op = walk.ops.position(walk.first_op)
        if (walk.half, op) == (walk.first_half, walk.first_op):
            return
        self._store.commit_log.commit()
        self._store.commit_log.sync()
        commit = self._store.consumer_offsets.commit
        if walk.half != walk.first_half:
            commit(TRANSACTION_GROUP, HALF_TOPIC, walk.queue_id, walk.half)
        if op != walk.first_op:
            commit(TRANSACTION_GROUP, OP_HALF_TOPIC, walk.queue_id, op)

    # One half message

    def _step(self, walk: _Round) -> bool:
        """Deal with the half at ``walk.half``; False ends the round."""
        result = self._store.get(HALF_TOPIC, walk.queue_id, walk.half, 1)
        if result.status in _NOTHING_NEW:
            return False
        if result.status is not GetStatus.FOUND:
            walk.misses += 1
            walk.half = result.next_begin_offset
            return walk.misses < 2
        try:
            half = decode_record(result.records[0])
        except CorruptionError:
            log.exception("half message %d is damaged and cannot be asked about", walk.half)
            walk.half += 1
            return True
        first = original_offset(half)
        verdict = self._rules.judge(half, self._clock.now_ms(), walk.began_ms, walk.last_op_born_ms)
        if verdict in (Verdict.POSTPONE, Verdict.ASK) and first is not None and walk.ops.take(first):
            walk.half += 1
            return True
        if verdict is Verdict.ASK:
            if self._ops.is_ended(walk.queue_id, walk.half):
                # Its op message is on the way.
                self._ops.flush()
                verdict = Verdict.PULL
            elif self._pull_ops(walk):
                # Before anybody is bothered: perhaps it has just arrived.
                while self._pull_ops(walk):
                    pass
                return True
        if not self._act(walk, half, verdict):
            return False
        if verdict is not Verdict.PULL:
            walk.half += 1
        return True

    def _act(self, walk: _Round, half: StoredMessage, verdict: Verdict) -> bool:
        """Carry out a verdict; False ends the round at this half."""
        if verdict is Verdict.STOP:
            return False
        if verdict is Verdict.PULL:
            if not self._pull_ops(walk):
                self._clock.sleep_s(SLEEP_WITHOUT_OPS_S)
            return True
        if verdict is Verdict.GIVE_UP:
            log.error("nobody ended transaction %s: given up", half.unique_key or half.message_id)
            one_queue = TopicConfig(topic_name=CHECK_MAX_TIME_TOPIC, read_queue_nums=1, write_queue_nums=1)
            self._store.topics.ensure(one_queue)
            return self._append(given_up_half(half)) is not None
        if verdict is Verdict.POSTPONE:
            first = original_offset(half)
            first = half.queue_offset if first is None else first
            return self._append(postponed_half(half, first)) is not None
        renewed = renewed_half(half, (times_checked(half) or 0) + 1)
        result = self._append(renewed)
        if result is None:
            return False
        walk.asked += 1
        self._question(
            msgspec.structs.replace(
                half,
                properties=renewed.properties,
                queue_offset=result.queue_offset,
                physical_offset=result.physical_offset,
                store_timestamp=result.store_timestamp,
                record_bytes=result.record_bytes,
            )
        )
        return True

    def _append(self, message: Message) -> PutResult | None:
        """Put a message that is made durable at the end of the round; None if the store refuses."""
        result = self._store.put_without_hooks(message, wait=False)
        if not result.ok:
            log.warning("cannot append to %s: %s %s", message.topic, result.status.name, result.reason)
            return None
        return result

    def _question(self, half: StoredMessage) -> None:
        try:
            self._ask(half)
        except Exception:
            log.exception("asking about transaction %s failed", half.unique_key or half.message_id)

    def _pull_ops(self, walk: _Round) -> bool:
        """Read on in the op queue; False if nothing was found."""
        result = self._store.get(OP_HALF_TOPIC, walk.queue_id, walk.next_op, OPS_PER_PULL)
        walk.next_op = result.next_begin_offset
        walk.last_op_born_ms = None
        if result.status is not GetStatus.FOUND:
            if result.status not in _NOTHING_NEW:
                # These op messages are gone: the halves they named are asked about again.
                walk.first_op = walk.next_op
                self._store.consumer_offsets.commit(
                    TRANSACTION_GROUP, OP_HALF_TOPIC, walk.queue_id, walk.next_op
                )
            return False
        for op_offset, record in zip(result.queue_offsets, result.records, strict=True):
            op = decode_record(record)
            walk.ops.add(op_offset, op.tags, op.body)
            walk.last_op_born_ms = op.born_timestamp
        return True
