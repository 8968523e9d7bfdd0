"""The local message store: one directory, owned by one process, interchangeable with RocketMQ's.

Answers to DefaultMessageStore. Composes log, queues, index and services; opens them in order and
closes them in reverse. Called by the broker, the tier, the command line and any Python program.
"""

import logging
import os
import random as random_module
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rockstrata.clock import Clock, SystemClock
from rockstrata.errors import StoreClosedError
from rockstrata.message.model import pack_host
from rockstrata.service import Service, ServiceGroup
from rockstrata.store import topic_removal
from rockstrata.store.appender import Appender
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
from rockstrata.store.handles import FileHandles
from rockstrata.store.index import Index
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.puts import StorePuts
from rockstrata.store.queue_offsets import QueueOffsets
from rockstrata.store.queue_read import ReadLimits
from rockstrata.store.reads import StoreReads
from rockstrata.store.recovery import Recovery, RecoveryReport
from rockstrata.store.retention import Retention
from rockstrata.store.running_flags import Flag, RunningFlags
from rockstrata.store.schedule import ScheduleService
from rockstrata.store.store_config import BrokerRole, StoreConfig
from rockstrata.store.topics import QueueType, Topics
from rockstrata.store.transactions import Transactions

log = logging.getLogger(__name__)


class LocalMessageStore(StoreReads, StorePuts):
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
            config, self.handles, self.flags, self.checkpoint, memory_bytes=_memory_bytes()
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
        self.flags.mark(Flag.SLAVE, on=config.broker_role is BrokerRole.SLAVE)
        self._log_flusher = CommitLogFlusher(config, self.commit_log, self.dispatcher, clock)
        StorePuts.__init__(
            self, config, clock, self.flags, self.appender, self.dispatcher, self._log_flusher.wake
        )
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
        config = self.config
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
        if self.commit_log.is_sync:
            services.append(self.group_commit.service)
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
        self.appender.close()
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
