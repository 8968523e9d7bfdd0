"""Deletes what is old: log files by age and space, then queue and index files by the log's minimum.

Answers to CleanCommitLogService, CleanConsumeQueueService and CorrectLogicOffsetService. A service
of the local store; ``retention_rules`` decides, keepers (the tier, delayed messages) may object.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rockstrata.clock import Clock, iso_time, local_hour
from rockstrata.service import Service
from rockstrata.store.batch_consume_queue import BatchConsumeQueue
from rockstrata.store.commit_log import CommitLog
from rockstrata.store.consume_queues import ConsumeQueues, Queue
from rockstrata.store.disk import Disk
from rockstrata.store.dispatcher import Dispatcher
from rockstrata.store.index import Index
from rockstrata.store.keepers import Keeper
from rockstrata.store.mapped_file import MappedFile
from rockstrata.store.retention_rules import Cause, LogFile, Need, Readings, Stay, Verdict, choose, judge
from rockstrata.store.running_flags import Flag, RunningFlags
from rockstrata.store.store_config import StoreConfig

log = logging.getLogger(__name__)

MANUAL_ROUNDS = 20
_FIRST_ROUND_S = 60.0
_CORRECT_BATCH_S = 300.0
_HOUR_MS = 3_600_000


class Plan(NamedTuple):
    """What a round would do: delete ``doomed``, and say why the next file stays."""

    verdict: Verdict
    doomed: tuple[MappedFile, ...]
    kept_because: str
    fill: str


class Retention(Service):
    """Looks at the disks every 10 s, from the start; deletes from the first minute on.

    ``status`` says in a line why the oldest file is still there.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        dispatcher: Dispatcher,
        flags: RunningFlags,
    ) -> None:
        super().__init__()
        self.interval_s = config.clean_resource_interval_ms / 1000
        self.status = "no round yet"
        self._config = config
        self._disk = disk
        self._clock = clock
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._flags = flags
        self._keepers: dict[str, Keeper] = {}
        self._manual_rounds = 0
        self._ignore_keepers = False
        self._unsynced: set[Path] = set()
        self._followed_to = -1
        self._first_s = clock.monotonic_s() + _FIRST_ROUND_S
        self._corrected_s = clock.monotonic_s()
        # Without a thread the clock sleeps, so that tests own the time; in the thread a stop ends it.
        self._pause: Callable[[float], None] = clock.sleep_s

    # Asking for more, or for less

    def keep(self, name: str, lowest_needed: Keeper) -> None:
        """Let no log file go that reaches past the offset ``lowest_needed`` returns.

        Not even when the disk is full: puts are refused then, and the reason names the keeper.
        """
        self._keepers = {**self._keepers, name: lowest_needed}

    def release(self, name: str) -> None:
        """Drop a keeper; an unknown one is no error."""
        self._keepers = {key: keeper for key, keeper in self._keepers.items() if key != name}

    def request_delete(self, *, ignore_keepers: bool = False) -> None:
        """Delete expired files in the next 20 rounds, whatever the hour.

        With ``ignore_keepers`` also what a keeper needs, hence what is in no other place; every file
        that goes this way is named in the log before it goes.
        """
        log.warning(
            "an operator asked to delete expired files%s", ", needed or not" if ignore_keepers else ""
        )
        self._ignore_keepers = ignore_keepers
        self._manual_rounds = MANUAL_ROUNDS
        self.wake()

    # Rounds

    def start(self) -> None:
        """Start the thread."""
        self._pause = self.wait
        super().start()

    def run_once(self) -> None:
        """A round, or in the first minute only a look at the disks."""
        if self._clock.monotonic_s() < self._first_s:
            self._tell(self.plan())
        else:
            self.clean()

    def clean(self) -> int:
        """One round, now; how many log files went."""
        plan = self.plan()
        self._tell(plan)
        deleted = self._delete(plan)
        if self._manual_rounds:
            self._manual_rounds -= 1
            self._ignore_keepers = self._ignore_keepers and self._manual_rounds > 0
        if deleted:
            self._tell(self.plan())
        self._follow()
        self._correct_batch_queues()
        return deleted

    def plan(self) -> Plan:
        """What a round would do at this moment; changes nothing."""
        config, now_ms = self._config, self._clock.now_ms()
        readings, fill = self._read_disks(local_hour(now_ms))
        verdict = judge(config, readings)
        need = self._need(ignore_keepers=self._ignore_keepers)
        # One more than can go: the last one here never goes.
        files = self._log.queue.files[: config.delete_file_batch_max + 2]
        facts = [LogFile(file.start, file.end, self._disk.modified_ms(file.path)) for file in files]
        reserved_ms = config.file_reserved_time_hours * _HOUR_MS
        count, stay = choose(
            facts, verdict, need, now_ms=now_ms, reserved_ms=reserved_ms, limit=config.delete_file_batch_max
        )
        because = "the log is empty"
        if count < len(files):
            because = f"{files[count].path.name} stays: {stay.value}"
            if stay is Stay.NEEDED:
                because += f", {need.who} from {need.physical_offset} on"
            elif stay in (Stay.FRESH, Stay.NO_CAUSE):
                because += f"; expiry {iso_time(facts[count].modified_ms + reserved_ms)}"
        return Plan(verdict, files[:count], because, fill)

    def _read_disks(self, hour: int) -> tuple[Readings, str]:
        config = self._config
        usages = [(self._disk.usage(path), path) for path in config.commit_log_paths]
        usage, path = min(usages, key=lambda pair: pair[0].ratio)
        queue_ratio = self._disk.usage(config.consume_queue_dir).ratio
        fill = f"{path} is {usage.ratio:.0%} full"
        if queue_ratio > usage.ratio:
            fill = f"{config.consume_queue_dir} is {queue_ratio:.0%} full"
        share = None
        if config.replicas_per_disk_partition > 1:
            share_bytes = (usage.used_bytes + usage.usable_bytes) / config.replicas_per_disk_partition
            share = self._own_bytes() / share_bytes if share_bytes else -1.0
        return Readings(hour, usage.ratio, queue_ratio, share, self._manual_rounds > 0), fill

    def _own_bytes(self) -> int:
        own = self._log.queue.total_bytes + sum(queue.queue.total_bytes for queue in self._queues)
        return own + sum(file.file.size for file in (self._index.files if self._index else ()))

    def _need(self, *, ignore_keepers: bool) -> Need:
        """The lowest need. Nobody may lift those of the store itself: what is not dispatched or not
        durable, or whose queue units are not, would lose messages or a queue's position."""
        needs = [
            Need(self._dispatcher.position, "the dispatcher needs it"),
            Need(self._log.flushed_where, "it is not durable"),
            Need(self._log.checkpoint.logics_physical_offset, "its queue units are not durable"),
        ]
        if not ignore_keepers:
            for name, keeper in self._keepers.items():
                try:
                    needs.append(Need(keeper(), f"kept for {name}"))
                except Exception as error:
                    needs.append(Need(-1, f"kept for {name}, which failed: {error!r}"))
        return min(needs)

    def _tell(self, plan: Plan) -> None:
        """Set or clear the disk-full flag and the status line."""
        config, full = self._config, plan.verdict.is_full
        if full:
            reason = f"{plan.fill}, puts are refused above {config.disk_warning_level:.0%}"
            if not plan.doomed:
                reason += f"; nothing can be deleted: {plan.kept_because}"
            self._flags.set(Flag.DISK_FULL, reason)
        elif full is False:
            self._flags.clear(Flag.DISK_FULL)
        pressed = plan.verdict.causes & {Cause.SPACE, Cause.FORCED, Cause.FULL}
        if pressed and not plan.doomed and plan.kept_because != self.status:
            log.warning("%s and nothing can be deleted: %s", plan.fill, plan.kept_because)
        self.status = plan.kept_because

    # The commit log

    def _delete(self, plan: Plan) -> int:
        if not plan.doomed:
            return 0
        override = self._ignore_keepers
        if override:
            self._announce(plan.doomed)
        why = ", ".join(sorted(cause.value for cause in plan.verdict.causes))
        deleted = 0
        for file in plan.doomed:
            if deleted:
                self._pause(self._config.delete_commit_log_files_interval_ms / 1000)
            # Asked again: a keeper may have come, or gone back, during the pause.
            if self.stopping or file.end > self._need(ignore_keepers=override).physical_offset:
                break
            # Its removal is durable before the next one's: the log must never have a hole.
            self._sync_removals()
            if not self._log.queue.delete_first(file):
                break
            self._unsynced.add(file.path.parent)
            log.info("deleted %s: %s", file.path, why)
            deleted += 1
        self._sync_removals()
        return deleted

    def _announce(self, doomed: tuple[MappedFile, ...]) -> None:
        need = self._need(ignore_keepers=False)
        for file in doomed:
            objection = (
                f"although {need.who} from {need.physical_offset} on" if file.end > need[0] else "unneeded"
            )
            log.warning(
                "operator override: deleting %s, physical offsets [%d, %d), %s",
                file.path, file.start, file.end, objection,
            )  # fmt: skip

    def _sync_removals(self) -> None:
        for directory in tuple(self._unsynced):
            self._disk.sync_dir(directory)
            self._unsynced.discard(directory)

    # What follows the log's minimum

    def _follow(self) -> None:
        """Delete queue and index files before the log's minimum, if it has moved."""
        minimum = self._log.min_offset
        if minimum <= self._followed_to:
            return
        for queue in self._queues:
            if self.stopping:
                return
            if self._shorten(queue, minimum):
                self._pause(self._config.delete_consume_queue_files_interval_ms / 1000)
        if self._index is not None:
            self._index.delete_expired(minimum)
        self._followed_to = minimum

    def _correct_batch_queues(self) -> None:
        """Every five minutes, moved or not, as RocketMQ does."""
        now_s = self._clock.monotonic_s()
        if now_s - self._corrected_s >= _CORRECT_BATCH_S:
            self._corrected_s = now_s
            for queue in self._queues:
                if isinstance(queue, BatchConsumeQueue):
                    self._shorten(queue, self._log.min_offset)

    @staticmethod
    def _shorten(queue: Queue, minimum: int) -> int:
        # The minimum first: who reads it afterwards does not ask for units that are gone.
        queue.correct_min(minimum)
        return queue.delete_files_before(minimum)
