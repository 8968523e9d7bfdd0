"""Every way to put: one message, many, a client batch; each waits for the disk if it must.

Answers to DefaultMessageStore.asyncPutMessage(s) and handleDiskFlush. The writing half of the local
store, as ``reads`` is the reading half.
"""

from collections.abc import Callable, Sequence

from rockstrata.clock import Clock
from rockstrata.message.model import Message
from rockstrata.store.appender import Appender
from rockstrata.store.batch_appender import BatchAppender
from rockstrata.store.batch_result import BatchPutResult
from rockstrata.store.dispatcher import Dispatcher
from rockstrata.store.fast_put import Put, fast_put
from rockstrata.store.group_commit import GroupCommit
from rockstrata.store.put_hooks import PutHooks
from rockstrata.store.results import PutResult, PutStatus
from rockstrata.store.running_flags import PUT_GATE, Flag, RunningFlags
from rockstrata.store.store_config import StoreConfig

_OWN_PUT_GATE = PUT_GATE & ~int(Flag.DISK_FULL)


class StorePuts:
    """Puts over an appender. All methods are thread-safe."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        flags: RunningFlags,
        appender: Appender,
        dispatcher: Dispatcher,
        wake_flusher: Callable[[], None],
    ) -> None:
        self.clock = clock
        self.flags = flags
        self.appender = appender
        self.dispatcher = dispatcher
        self.batch_appender = BatchAppender(appender)
        self.group_commit = GroupCommit(appender.log)
        self.hooks = PutHooks(config.delay_levels_ms, appender.offsets.topic)
        self._is_sync = appender.log.is_sync
        self._sync_timeout_s = config.sync_flush_timeout_ms / 1000
        self._busy_timeout_ms = config.os_page_cache_busy_timeout_ms
        self._wake_flusher = wake_flusher
        is_fast = not (self._is_sync or appender.append_crc)
        self.put: Put = fast_put(appender, flags, dispatcher, clock, self._put) if is_fast else self._put
        """Store one message; with SYNC_FLUSH it is durable when this returns PUT_OK."""

    def _put(self, message: Message) -> PutResult:
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
        if self.flags.bits & Flag.CLOSED:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="the store is closed")
        if self.flags.bits & Flag.SLAVE:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="brokerRole is SLAVE")
        if not self.flags.writable:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=self.flags.describe())
        busy_since = self.appender.busy_since_ms
        if busy_since and self.clock.now_ms() - busy_since > self._busy_timeout_ms:
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
            self._wake_flusher()
        return result
