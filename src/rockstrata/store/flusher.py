"""Services that make bytes durable in their own time, with RocketMQ's intervals.

Answers to FlushRealTimeService, CommitRealTimeService, FlushConsumeQueueService and the checkpoint
timer. Started by the local store.
"""

from rockstrata.clock import Clock
from rockstrata.errors import DiskError
from rockstrata.service import Service
from rockstrata.store.checkpoint import Checkpoint
from rockstrata.store.commit_log import CommitLog
from rockstrata.store.consume_queues import ConsumeQueues
from rockstrata.store.dispatcher import Dispatcher
from rockstrata.store.index import Index
from rockstrata.store.running_flags import Flag, RunningFlags
from rockstrata.store.store_config import StoreConfig


class CommitLogFlusher(Service):
    """Syncs the commit log; every now and then whatever little there is."""

    def __init__(self, config: StoreConfig, log: CommitLog, dispatcher: Dispatcher, clock: Clock) -> None:
        super().__init__()
        self.interval_s = config.flush_interval_commit_log_ms / 1000
        # With SYNC_FLUSH only what is durable is visible: who does not wait must not wait for pages.
        self._least_pages = 0 if log.is_sync else config.flush_commit_log_least_pages
        self._dispatcher = dispatcher
        self._thorough_s = config.flush_commit_log_thorough_interval_ms / 1000
        self._log = log
        self._clock = clock
        self._last_thorough_s = clock.monotonic_s()

    def run_once(self) -> None:
        """Sync if enough is dirty, or if the last thorough sync is long ago."""
        now = self._clock.monotonic_s()
        thorough = now >= self._last_thorough_s + self._thorough_s
        if thorough:
            self._last_thorough_s = now
        before = self._log.flushed_where
        if self._log.sync(0 if thorough else self._least_pages) > before and self._log.is_sync:
            self._dispatcher.wake()

    def on_stop(self) -> None:
        """Leave nothing unsynced."""
        self._log.commit()
        self._log.sync()


class CommitLogCommitter(Service):
    """Writes pool buffers to their files; only then can messages be read."""

    def __init__(self, config: StoreConfig, log: CommitLog, dispatcher: Dispatcher) -> None:
        super().__init__()
        self.interval_s = config.commit_interval_commit_log_ms / 1000
        self._log = log
        self._dispatcher = dispatcher

    def run_once(self) -> None:
        """Commit everything appended so far."""
        self._log.commit()
        self._dispatcher.wake()

    def on_stop(self) -> None:
        """Leave nothing in a buffer."""
        self._log.commit()


class ConsumeQueueFlusher(Service):
    """Syncs consume queues, and says in the checkpoint how far they are durable."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        flags: RunningFlags,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.interval_s = config.flush_interval_consume_queue_ms / 1000
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough_s = config.flush_consume_queue_thorough_interval_ms / 1000
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._flags = flags
        self._clock = clock
        self._last_thorough_s = clock.monotonic_s()

    def run_once(self) -> None:
        """Sync queues with enough dirty pages; every minute all of them."""
        now = self._clock.monotonic_s()
        if now >= self._last_thorough_s + self._thorough_s:
            self._last_thorough_s = now
            self.flush_all()
        else:
            self._flush(self._least_pages)

    def flush_all(self) -> None:
        """Sync everything, then move the checkpoint to what was dispatched before the sync began.

        Not past what is durable of the log: a crash may cut the log there, and records of other queues
        would take the place of those the units point to. And never after a failed sync.
        """
        position = min(self._dispatcher.position, self._log.flushed_where)
        timestamp = self._dispatcher.last_timestamp
        self._flush(0)
        if self._flags.bits & Flag.LOGICS_QUEUE_ERROR:
            return
        checkpoint = self._checkpoint
        checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, timestamp)
        checkpoint.logics_physical_offset = max(checkpoint.logics_physical_offset, position)
        checkpoint.flush()

    def on_stop(self) -> None:
        """Leave nothing unsynced."""
        self.flush_all()

    def _flush(self, least_pages: int) -> None:
        try:
            self._queues.flush(least_pages)
        except OSError as error:
            self._flags.set(Flag.LOGICS_QUEUE_ERROR, f"consume queue sync failed: {error}")
            raise


class CheckpointFlusher(Service):
    """Writes the checkpoint every second."""

    interval_s = 1.0

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        self._checkpoint = checkpoint

    def run_once(self) -> None:
        """Write it out."""
        self._checkpoint.flush()


class IndexSealer(Service):
    """Syncs index files that have filled up: half a gigabyte that no dispatch should wait for."""

    interval_s = 3600.0

    def __init__(self, flags: RunningFlags) -> None:
        super().__init__()
        self._flags = flags
        self.index: Index | None = None

    def run_once(self) -> None:
        """Seal what is full; the index wakes this service."""
        if self.index is None:
            return
        try:
            self.index.seal()
        except DiskError as error:
            self._flags.set(Flag.INDEX_FILE_ERROR, f"index sync failed: {error}")
            raise
