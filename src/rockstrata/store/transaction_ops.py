"""Op messages: they say which half messages are ended, many in one.

Answers to RocketMQ's TransactionalOpBatchService and MessageQueueOpContext. Fed by the transactions;
one of the store's services.
"""

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from rockstrata.service import Service
from rockstrata.store.topic_kinds import OP_HALF_TOPIC
from rockstrata.store.transaction_messages import OP_SEPARATOR, op_message

if TYPE_CHECKING:
    from rockstrata.store.local_store import LocalMessageStore

log = logging.getLogger(__name__)

QUEUE_LIMIT = 20_000


class _Waiting:
    """Ended halves of one half queue, in the order they ended."""

    def __init__(self) -> None:
        self.offsets: dict[int, None] = {}
        self.characters = 0
        self.since_s = 0.0
        # Written, but perhaps not yet readable: offset of the op message, and what it says.
        self.written: deque[tuple[int, frozenset[int]]] = deque()


class OpBatches(Service):
    """Writes an op message when 4096 characters wait, or the oldest end has waited 3 s."""

    def __init__(self, store: "LocalMessageStore") -> None:
        super().__init__()
        self._store = store
        self._clock = store.clock
        self._max_characters = store.config.transaction_op_msg_max_bytes
        self._longest_s = store.config.transaction_op_batch_interval_ms / 1000
        self.interval_s = self._longest_s
        self._queues: dict[int, _Waiting] = {}
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()

    def add(self, queue_id: int, half_offset: int) -> bool:
        """This half is ended. False if that can neither be remembered nor written: it will be asked about.

        A full queue is written at once, in the caller's thread.
        """
        with self._lock:
            waiting = self._queues.setdefault(queue_id, _Waiting())
            is_full = len(waiting.offsets) >= QUEUE_LIMIT
        if is_full and not self._write(queue_id):
            return False
        with self._lock:
            if not waiting.offsets:
                waiting.since_s = self._clock.monotonic_s()
            if half_offset not in waiting.offsets:
                waiting.offsets[half_offset] = None
                waiting.characters += _characters(half_offset)
            wakes = waiting.characters >= self._max_characters
        if wakes:
            self.wake()
        return True

    def is_ended(self, queue_id: int, half_offset: int) -> bool:
        """Was this half ended here, by an op message that cannot be read yet?"""
        with self._lock:
            waiting = self._queues.get(queue_id)
            if waiting is None:
                return False
            self._forget_readable(queue_id, waiting)
            return half_offset in waiting.offsets or any(half_offset in said for _, said in waiting.written)

    def run_once(self) -> None:
        """Write what is due, and sleep until the next is."""
        now_s = self._clock.monotonic_s()
        self.interval_s = self._longest_s
        for queue_id, waiting in tuple(self._queues.items()):
            while waiting.offsets:
                due_in_s = waiting.since_s + self._longest_s - now_s
                if waiting.characters < self._max_characters and due_in_s > 0:
                    self.interval_s = min(self.interval_s, due_in_s)
                    break
                if not self._write(queue_id):
                    break

    def flush(self) -> bool:
        """Write everything that waits; False if the store refuses."""
        return all(self._write_all(queue_id) for queue_id in tuple(self._queues))

    def on_stop(self) -> None:
        """Leave nothing unsaid."""
        self.flush()

    def _write_all(self, queue_id: int) -> bool:
        while self._queues[queue_id].offsets:
            if not self._write(queue_id):
                return False
        return True

    def _write(self, queue_id: int) -> bool:
        """One op message with the oldest ends; they wait on if it is refused."""
        with self._write_lock:
            waiting = self._queues[queue_id]
            with self._lock:
                chosen = self._oldest(waiting)
            if not chosen:
                return True
            message = op_message(queue_id, chosen, self._store.appender.store_host)
            result = self._store.put_without_hooks(message)
            if not result.ok:
                log.warning("cannot write an op message: %s %s", result.status.name, result.reason)
                return False
            with self._lock:
                for half_offset in chosen:
                    del waiting.offsets[half_offset]
                waiting.characters -= len(message.body)
                waiting.since_s = self._clock.monotonic_s()
                self._forget_readable(queue_id, waiting)
                waiting.written.append((result.queue_offset, frozenset(chosen)))
            return True

    def _oldest(self, waiting: _Waiting) -> list[int]:
        chosen: list[int] = []
        characters = 0
        for half_offset in waiting.offsets:
            if characters >= self._max_characters:
                break
            chosen.append(half_offset)
            characters += _characters(half_offset)
        return chosen

    def _forget_readable(self, queue_id: int, waiting: _Waiting) -> None:
        readable = self._store.max_offset(OP_HALF_TOPIC, queue_id)
        while waiting.written and waiting.written[0][0] < readable:
            waiting.written.popleft()


def _characters(half_offset: int) -> int:
    return len(str(half_offset)) + len(OP_SEPARATOR)
