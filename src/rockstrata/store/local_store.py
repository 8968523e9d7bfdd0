"""The local message store: one directory, owned by one process, interchangeable with RocketMQ's.

Answers to DefaultMessageStore. Composes log, queues, index and services; opens them in order and
closes them in reverse. Called by the broker, the tier, the command line and any Python program.
"""

import logging
import os
import random as random_module
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rockstrata.clock import Clock, SystemClock
from rockstrata.errors import StoreClosedError
from rockstrata.message.model import Message, pack_host
from rockstrata.service import Service, ServiceGroup
from rockstrata.store import topic_removal
from rockstrata.store.appender import Appender
from rockstrata.store.batch_appender import BatchAppender
from rockstrata.store.batch_result import BatchPutResult
from rockstrata.store.checkpoint import Checkpoint
from rockstrata.store.commit_log import CommitLog
from rockstrata.store.config_file import ConfigFile
from rockstrata.store.consume_queues import ConsumeQueues
from rockstrata.store.consumer_offsets import ConsumerOffsets, ConsumerOffsetSaver
from rockstrata.store.disk import Disk
from rockstrata.store.dispatcher import Dispatcher, Listener
from rockstrata.store.flusher import (
    CheckpointFlusher,
    CommitLogCommitter,
    CommitLogFlusher,
    ConsumeQueueFlusher,
    IndexSealer,
)
from rockstrata.store.group_commit import GroupCommit
from rockstrata.store.handles import FileHandles
from rockstrata.store.index import Index
from rockstrata.store.populator import Populator
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.put_hooks import PutHooks
from rockstrata.store.queue_offsets import QueueOffsets
from rockstrata.store.queue_read import ReadLimits
from rockstrata.store.reads import StoreReads
from rockstrata.store.recovery import Recovery, RecoveryReport
from rockstrata.store.results import PutResult, PutStatus
from rockstrata.store.retention import Retention
from rockstrata.store.running_flags import PUT_GATE, Flag, RunningFlags
from rockstrata.store.schedule import ScheduleService
from rockstrata.store.store_config import BrokerRole, StoreConfig
from rockstrata.store.topics import QueueType, Topics
from rockstrata.store.transactions import Transactions

log = logging.getLogger(__name__)

_OWN_PUT_GATE = PUT_GATE & ~int(Flag.DISK_FULL)


class LocalMessageStore(StoreReads):
    """Open with ``LocalMessageStore.open``; close it, or use it as a context manager.

    All methods are thread-safe. With ``start_services=False`` nothing runs by itself: tests drive
    ``dispatcher.catch_up()`` and ``commit_log.sync()``.
    """

    def __init__(self, config: StoreConfig, disk: Disk, clock: Clock, random: random_module.Random) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self.random = random
        self.flags = RunningFlags()
        self._closed = True
        self._opened = False
        self._house = ExitStack()
        self.topics = Topics(ConfigFile(config.config_dir / "topics.json", disk), clock)
        self.consumer_offsets = ConsumerOffsets(
            ConfigFile(config.config_dir / "consumerOffset.json", disk), clock,
            version_step=config.consumer_offset_update_version_step,
        )  # fmt: skip
        self.delay_levels_ms = config.delay_levels_ms

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
        start_services: bool = True,
        repair: bool = False,
    ) -> Self:
        """Take the directory, recover it, and start. ``repair`` lets recovery cut durable damage."""
        store = cls(config, disk or PosixDisk(), clock or SystemClock(), random or random_module.Random())
        with ExitStack() as house:
            store._enter(house, start_services=start_services, repair=repair)
            store._house = house.pop_all()
        store._closed, store._opened = False, True
        return store

    def _enter(self, house: ExitStack, *, start_services: bool, repair: bool) -> None:
        config, disk, clock = self.config, self.disk, self.clock
        disk.make_dirs(config.root)
        # Before anything is read: recovery writes, and must not do so beside a running broker.
        house.callback(disk.lock(config.lock_path).release)
        clean = self._begin_running()
        if clean:
            house.callback(self._unmark_if_not_opened)
        self.topics.load()
        self.consumer_offsets.load()
        self.checkpoint = Checkpoint(disk, config.checkpoint_path)
        self.handles = FileHandles(disk)
        house.callback(self.handles.clear)
        is_batch = self._is_batch_topic
        self.commit_log = CommitLog(
            config, self.handles, clock, self.flags, self.checkpoint, memory_bytes=_memory_bytes()
        )
        self.queues = ConsumeQueues(config, self.handles, is_batch)
        # Without threads the index syncs full files itself.
        sealer = self._index_sealer = IndexSealer(self.flags)
        on_full = sealer.wake if start_services else None
        if config.message_index_enable:
            sealer.index = Index(config, disk, clock, self.checkpoint, on_full)
        self.index = sealer.index
        self.dispatcher = Dispatcher(config, self.commit_log, self.queues, self.index, self.flags, clock)
        self.recovery: RecoveryReport = Recovery(
            config, self.commit_log, self.queues, self.index, self.dispatcher, self.checkpoint, repair=repair
        ).run(clean=clean)
        self.offsets = QueueOffsets(is_batch)
        for queue in self.queues:
            self.offsets.set(queue.topic, queue.queue_id, queue.max_offset)
        self.appender = Appender(
            config, self.commit_log, self.offsets, clock, pack_host(*config.store_host())
        )
        self.appender.attach(self.recovery.last_timestamp)
        self.batch_appender = BatchAppender(self.appender)
        self.group_commit = GroupCommit(self.commit_log)
        self.hooks = PutHooks(self.delay_levels_ms, self.offsets.topic)
        self._sync_timeout_s = config.sync_flush_timeout_ms / 1000
        self._is_sync = self.commit_log.is_sync
        self.flags.mark(Flag.SLAVE, on=config.broker_role is BrokerRole.SLAVE)
        StoreReads.__init__(
            self, ReadLimits.of(config), config.max_msgs_num_batch, self.commit_log, self.queues, self.index
        )
        self._queue_flusher = ConsumeQueueFlusher(
            config, self.commit_log, self.queues, self.dispatcher, self.checkpoint, self.flags, clock
        )
        self.retention = Retention(
            config, disk, clock, self.commit_log, self.queues, self.index, self.dispatcher, self.flags
        )
        self.schedule = ScheduleService(self)
        self.schedule.load()
        self.transactions = Transactions(self)
        self._services = ServiceGroup(*self._make_services())
        house.callback(self._end_running)
        if start_services:
            self._services.start()
            house.callback(self._services.stop)

    def _make_services(self) -> list[Service]:
        """In the order they start; they stop in reverse, so writers before flushers."""
        config, clock = self.config, self.clock
        self._log_flusher = CommitLogFlusher(config, self.commit_log, self.dispatcher, clock)
        services: list[Service] = [
            CheckpointFlusher(self.checkpoint),
            ConsumerOffsetSaver(self.consumer_offsets, config.flush_consumer_offset_interval_ms),
            self._queue_flusher,
            self.dispatcher,
            self._log_flusher,
            self.commit_log.preallocator,
            self._index_sealer,
            self.retention,
        ]
        if not self.commit_log.is_sync:
            # Pages brought in are dirty: a sync would write them with every put.
            populator = Populator(self.commit_log)
            self.dispatcher.after_round.append(populator.wake)
            services.append(populator)
        if self.commit_log.pool is not None:
            services.append(CommitLogCommitter(config, self.commit_log, self.dispatcher))
        if config.broker_role is not BrokerRole.SLAVE:
            services += [self.schedule, self.transactions.ops]
        return services

    # Running and stopped

    def _begin_running(self) -> bool:
        """Mark the directory as in use; True if the last owner left it in order."""
        path = self.config.abort_path
        clean = not self.disk.exists(path)
        if clean:
            self.disk.write_file(path, str(os.getpid()).encode())
            self.disk.sync_dir(path.parent)
        return clean

    def _unmark_if_not_opened(self) -> None:
        """A store that could not be opened is as clean as it was."""
        if not self._opened:
            self.disk.unlink(self.config.abort_path)

    def _end_running(self) -> None:
        """Leave everything dispatched and durable, and say so by removing ``abort``."""
        self.commit_log.commit()
        self.commit_log.sync()
        self.dispatcher.catch_up()
        self._queue_flusher.flush_all()
        if self.index is not None:
            self.index.flush()
        self.commit_log.close()
        self.schedule.persist()
        self.consumer_offsets.persist()
        self.checkpoint.flush()
        if self.flags.writable and not self.dispatcher.behind_bytes:
            self.disk.unlink(self.config.abort_path)
            self.disk.sync_dir(self.config.root)
        else:
            log.error("the next start will recover: %s", self.flags.describe())

    def close(self) -> None:
        """Stop in order and hand the directory over. Closing twice is harmless."""
        if not self._closed:
            try:
                self.transactions.stop()
            finally:
                self._closed = True
                self.flags.mark(Flag.CLOSED, on=True)
                self._house.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """True until ``close``."""
        return not self._closed

    def check_open(self) -> None:
        """Raise if the store was closed."""
        if self._closed:
            raise StoreClosedError("the store is closed", path=self.config.root)

    def _is_batch_topic(self, topic: str) -> bool:
        return self.topics.queue_type(topic) is QueueType.BATCH

    # Putting

    def put(self, message: Message) -> PutResult:
        """Store one message; with SYNC_FLUSH it is durable when this returns PUT_OK."""
        if self.flags.bits & PUT_GATE:
            refusal = self._refusal()
            if refusal is not None:
                return refusal
        if not message.is_plain and b"DEL" in message.properties:
            hooked = self.hooks.apply(message)
            if isinstance(hooked, PutResult):
                return hooked
            message = hooked
        result = self.appender.put(message)
        if self._is_sync:
            return self._wait_durable(message, result)
        if self.dispatcher.idle:
            self.dispatcher.wake()
        return result

    def put_without_hooks(self, message: Message, *, wait: bool = True) -> PutResult:
        """Store a message as it stands, even one with a delay: for the store's own services.

        Without ``wait`` it is in the log only; call ``wait_durable`` after the last of several. A full
        disk does not refuse it: what is delivered or settled is what retention waits for.
        """
        if self.flags.bits & _OWN_PUT_GATE:
            refusal = self._refusal()
            if refusal is not None:
                return refusal
        result = self.appender.put(message)
        if wait and self._is_sync:
            return self._wait_durable(message, result)
        if self.dispatcher.idle:
            self.dispatcher.wake()
        return result

    def wait_durable(self, end: int) -> bool:
        """With SYNC_FLUSH, wait until the log is durable up to physical offset ``end``."""
        durable = not self._is_sync or self.group_commit.wait(end, self._sync_timeout_s)
        if self.dispatcher.idle:
            self.dispatcher.wake()
        return durable

    def put_batch(self, messages: Sequence[Message]) -> BatchPutResult:
        """Store many messages of any topics and queues, in order; a result for each.

        A message that cannot be stored refuses the whole call, unless some message needs more than
        encoding (a delay, a transaction): then they are put, and answered, one by one.
        """
        refusal = self._refusal()
        if refusal is not None:
            return BatchPutResult.refused(len(messages), refusal)
        result = self.batch_appender.put(messages)
        if result is None:
            return BatchPutResult.of([self.put(message) for message in messages])
        return self._wait_batch(result)

    def put_client_batch(self, message: Message) -> BatchPutResult:
        """Store a message whose body is a client batch: one record each, in one file."""
        refusal = self._refusal()
        if refusal is not None:
            return BatchPutResult.refused(1, refusal)
        return self._wait_batch(self.batch_appender.put_client_batch(message))

    def _wait_batch(self, result: BatchPutResult) -> BatchPutResult:
        if not self.wait_durable(result.end_offset):
            return result.with_status(PutStatus.FLUSH_DISK_TIMEOUT)
        return result

    def _refusal(self) -> PutResult | None:
        if self._closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="the store is closed")
        if self.flags.bits & Flag.SLAVE:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="brokerRole is SLAVE")
        if not self.flags.writable:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=self.flags.describe())
        busy_since = self.appender.busy_since_ms
        if busy_since and self.clock.now_ms() - busy_since > self.config.os_page_cache_busy_timeout_ms:
            return PutResult(PutStatus.OS_PAGE_CACHE_BUSY, reason=f"put lock held since {busy_since}")
        return None

    def _wait_durable(self, message: Message, result: PutResult) -> PutResult:
        if not result.ok:
            return result
        end = result.physical_offset + result.record_bytes
        if self.hooks.waits(message):
            durable = self.group_commit.wait(end, self._sync_timeout_s)
            if self.dispatcher.idle:
                self.dispatcher.wake()
            if not durable:
                reason = self.flags.describe() if self.flags.bits else "sync did not finish in time"
                return PutResult(
                    PutStatus.FLUSH_DISK_TIMEOUT, result.physical_offset, result.queue_offset,
                    result.record_bytes, result.store_timestamp, result.store_host, result.message_count,
                    reason=reason,
                )  # fmt: skip
        else:
            self._log_flusher.wake()
        return result

    # Removing

    def delete_topics(self, topics: Iterable[str], *, forget: bool = True) -> int:
        """Delete topics with their queues and, unless told not to forget, their settings and offsets."""
        self.check_open()
        return topic_removal.delete_topics(self, topics, forget=forget)

    def clean_unused_topics(self, keep: Collection[str]) -> int:
        """Delete all topics but these, the system's and light ones."""
        self.check_open()
        return topic_removal.clean_unused_topics(self, keep)

    def clean_expired_queues(self, spare: Collection[str] = ()) -> int:
        """Delete queues without any message left in the log; they start again at offset 0."""
        self.check_open()
        return topic_removal.clean_expired_queues(self, spare)

    # Listening

    def add_listener(self, listener: Listener) -> None:
        """Be told of new messages as they become readable, from the dispatcher's thread."""
        self.dispatcher.listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Stop being told."""
        self.dispatcher.listeners.remove(listener)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
