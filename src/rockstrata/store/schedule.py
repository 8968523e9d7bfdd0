"""Delivers delayed messages: from their level's queue of SCHEDULE_TOPIC_XXXX to their own topic.

Answers to RocketMQ's ScheduleMessageService. One of the store's services; others only ask it how far
it has come.
"""

import logging
from typing import TYPE_CHECKING, Any

from rockstrata.errors import CorruptionError
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.model import Message
from rockstrata.message.record import decode_record
from rockstrata.service import Service
from rockstrata.store.config_file import ConfigFile
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT, ConsumeQueue
from rockstrata.store.delay_offsets import FILE_NAME, DelayOffsets
from rockstrata.store.keepers import undelivered
from rockstrata.store.put_hooks import real_address
from rockstrata.store.store_config import BrokerRole
from rockstrata.store.topic_kinds import HALF_TOPIC

if TYPE_CHECKING:
    from rockstrata.store.local_store import LocalMessageStore

log = logging.getLogger(__name__)

FIRST_DELAY_S = 1.0
PAUSE_S = 10.0
# Units looked at, and messages put, before one sync.
BATCH_UNITS = 4096
_LONG_MAX = 2**63 - 1


class _Level:
    """One delay level at work."""

    def __init__(self, level: int, delay_ms: int) -> None:
        self.level = level
        self.queue_id = level - 1
        self.delay_ms = delay_ms
        self.paused_until_s = 0.0
        self.refusal = ""
        # The first unit that was not due, and its time: until then there is nothing to read.
        self.next_unit = -1
        self.next_due_ms = 0

    def is_due(self, due_ms: int, now_ms: int) -> bool:
        """A time further ahead than the whole delay is a clock's error: deliver now."""
        return not now_ms < due_ms <= now_ms + self.delay_ms


class ScheduleService(Service):
    """Every 100 ms delivers what is due. At least once: after a crash some may come again.

    A level's offset moves when its messages are in the log, and is saved when they are durable.
    """

    interval_s = 0.1

    def __init__(self, store: "LocalMessageStore") -> None:
        super().__init__()
        config, self._clock = store.config, store.clock
        self._store = store
        self._levels = [_Level(n, delay_ms) for n, delay_ms in enumerate(store.delay_levels_ms, 1)]
        self.offsets = DelayOffsets(
            ConfigFile(config.config_dir / FILE_NAME, store.disk),
            store.clock,
            version_step=config.delay_offset_update_version_step,
        )
        self._save_every_s = config.flush_delay_offset_interval_ms / 1000
        self._next_save_s = store.clock.monotonic_s() + self._save_every_s
        self._begin_s = 0.0
        self._delivered_end = 0
        self._undelivered = undelivered(store.queues, self._next_offset)
        if config.broker_role is not BrokerRole.SLAVE:
            store.retention.keep("delayed messages", self.lowest_needed)

    def load(self) -> None:
        """Read the saved offsets and bring them into their queues. Call after recovery."""
        self.offsets.load()
        for level in self._levels:
            self._position(level, self._queue(level))

    def start(self) -> None:
        """Start; the first round comes a second later."""
        self._begin_s = self._clock.monotonic_s() + FIRST_DELAY_S
        super().start()

    def run_once(self) -> None:
        """Deliver what is due on every level; a level that fails rests while the others go on."""
        now_s = self._clock.monotonic_s()
        if now_s < self._begin_s or not self._store.is_open:
            return
        failure: Exception | None = None
        for level in self._levels:
            if now_s >= level.paused_until_s and not self.stopping:
                try:
                    self._deliver_due(level)
                except Exception as error:
                    level.paused_until_s = now_s + PAUSE_S
                    failure = failure or error
        if now_s >= self._next_save_s:
            self._next_save_s = now_s + self._save_every_s
            self.persist()
        if failure is not None:
            raise failure

    def on_stop(self) -> None:
        """Save where the last round came to."""
        self.persist()

    def lowest_needed(self) -> int:
        """Physical offset of the oldest message not delivered, or not durably. Retention asks."""
        lowest = self._undelivered()
        return lowest if self._make_durable() else 0

    def persist(self) -> None:
        """Save the offsets if they moved, after making durable what they call delivered."""
        if self.offsets.changed and self._make_durable():
            self.offsets.persist()

    def _make_durable(self) -> bool:
        """Sync what was delivered so far; False if that is not possible."""
        commit_log, end = self._store.commit_log, self._delivered_end
        if commit_log.flushed_where < end:
            commit_log.commit()
            return commit_log.sync() >= end
        return True

    def _next_offset(self, level: int) -> int:
        """Of a level that is no longer configured nothing will be delivered."""
        return (self.offsets.get(level) or 0) if level <= len(self._levels) else _LONG_MAX

    def progress(self) -> dict[int, tuple[int, int]]:
        """For each level that has messages: next offset to deliver, and the end of its queue."""
        found = {}
        for level in self._levels:
            queue = self._queue(level)
            if queue is not None:
                found[level.level] = (self.offsets.get(level.level) or 0, queue.max_offset)
        return found

    # One level

    def _queue(self, level: _Level) -> ConsumeQueue | None:
        queue = self._store.queues.get(SCHEDULE_TOPIC, level.queue_id)
        return queue if isinstance(queue, ConsumeQueue) else None

    def _position(self, level: _Level, queue: ConsumeQueue | None) -> int:
        """The level's next offset; one that its queue cannot have jumps to the nearer end."""
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        saved = self.offsets.get(level.level)
        offset = min(max(saved or 0, low), high)
        if saved is not None and offset != saved:
            log.error(
                "delay level %d was at offset %d; its queue has %d to %d, going on at %d",
                level.level, saved, low, high, offset,
            )  # fmt: skip
            self.offsets.set(level.level, offset)
        return offset

    def _deliver_due(self, level: _Level) -> None:
        queue = self._queue(level)
        offset = self._position(level, queue)
        while queue is not None and offset < queue.max_offset and not self.stopping:
            now_ms = self._clock.now_ms()
            if offset == level.next_unit and not level.is_due(level.next_due_ms, now_ms):
                return
            due = self._due_units(level, queue, offset, now_ms)
            done = self._deliver(level, due, offset)
            offset += done
            if not due or done < len(due):
                return

    @staticmethod
    def _due_units(level: _Level, queue: ConsumeQueue, offset: int, now_ms: int) -> list[tuple[Any, ...]]:
        """Units from ``offset`` up to the first that is not due, which is noted."""
        import numpy as np

        units = np.frombuffer(queue.units(offset, BATCH_UNITS), CONSUME_QUEUE_UNIT.dtype)
        times = units["tags_code"]
        waits = (times > now_ms) & (times <= min(now_ms + level.delay_ms, _LONG_MAX))
        count = int(waits.argmax()) if waits.any() else len(units)
        if count < len(units):
            level.next_unit, level.next_due_ms = offset + count, int(times[count])
        due: list[tuple[Any, ...]] = units[:count].tolist()
        return due

    def _deliver(self, level: _Level, units: list[tuple[Any, ...]], first: int) -> int:
        """Put the messages of these units; how many are done with, in order."""
        done = end = 0
        try:
            for physical_offset, size, _ in units:
                message = self._time_up(physical_offset, size)
                if message is not None:
                    result = self._store.put_without_hooks(message, wait=False)
                    if not result.ok:
                        self._refused(level, f"{result.status.name} {result.reason}")
                        break
                    end = result.physical_offset + result.record_bytes
                done += 1
        finally:
            if end:
                # One sync for all. Should it fail, the offsets are not saved: see persist.
                self._store.wait_durable(end)
            self._delivered_end = max(self._delivered_end, end)
            for offset in range(first, first + done):
                self.offsets.set(level.level, offset + 1)
        if done == len(units):
            level.refusal = ""
        return done

    @staticmethod
    def _refused(level: _Level, reason: str) -> None:
        # Said once per cause: it is tried again ten times a second.
        if reason != level.refusal:
            log.warning("delay level %d cannot deliver and will try again: %s", level.level, reason)
            level.refusal = reason

    def _time_up(self, physical_offset: int, size: int) -> Message | None:
        """The message as it goes to its own topic, properties unchanged; None if it cannot be sent."""
        record = self._store.commit_log.read(physical_offset, size)
        if record is None:
            log.warning("the delayed message at %d is no longer in the log", physical_offset)
            return None
        try:
            stored = decode_record(record, base=physical_offset)
        except CorruptionError:
            log.exception("a delayed message is damaged and will not be delivered")
            return None
        address = real_address(stored.properties)
        if address is None or address[0] == HALF_TOPIC:
            log.error("the delayed message at %d has no topic to go to: %s", physical_offset, address)
            return None
        return Message(
            address[0],
            stored.body,
            address[1],
            stored.properties,
            stored.flag,
            stored.sys_flag,
            stored.born_timestamp,
            stored.born_host,
            stored.store_host,
            stored.reconsume_times,
        )
