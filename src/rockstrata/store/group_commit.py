"""SYNC_FLUSH: many putters share one sync.

Answers to RocketMQ's GroupCommitService. The first putter to wait syncs for all that came before, so a
lone one pays for no thread switch; a service takes over while there are many.
"""

import threading

from rockstrata.errors import DiskError
from rockstrata.service import Service
from rockstrata.store.commit_log import CommitLog


class _Waiter:
    __slots__ = ("gate", "leads", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """``wait`` returns when the log is durable up to an offset, or when it will not be in time.

    One putter syncs in its own thread. When others have come meanwhile, the service goes on syncing
    for as long as there are any: nobody's turn waits for a thread to wake up. Without the service the
    first of them leads the next round.
    """

    def __init__(self, log: CommitLog) -> None:
        self.service = GroupCommitService(self)
        self._log = log
        self._lock = threading.Lock()
        self._syncing = False
        self._handed_over = False
        self._waiters: list[_Waiter] = []

    def sync_for_waiters(self) -> None:
        """Sync until nobody waits, if a putter has handed over. The service's part."""
        while self._handed_over:
            self._lead()

    def wait(self, target: int, timeout_s: float) -> bool:
        """True once everything before physical offset ``target`` survives a power cut."""
        with self._lock:
            if self._log.flushed_where >= target:
                return True
            me = _Waiter(target)
            if self._syncing:
                self._waiters.append(me)
            else:
                self._syncing = me.leads = True
        if not me.leads and not self._await_turn(me, timeout_s):
            return self._log.flushed_where >= target
        if me.leads:
            self._lead()
        return self._log.flushed_where >= target

    def _await_turn(self, me: _Waiter, timeout_s: float) -> bool:
        if me.gate.acquire(timeout=timeout_s):
            return True
        with self._lock:
            if me in self._waiters:
                self._waiters.remove(me)
                return False
        # Released between the time-out and the lock: the turn is ours and must be taken.
        me.gate.acquire()
        return True

    def _lead(self) -> None:
        failed = True
        try:
            self._log.commit()
            self._log.sync()
            failed = False
        except DiskError:
            # The log has set its flag; every waiter finds its target not reached.
            pass
        finally:
            # Whatever was raised: nobody may go on waiting for a leader who is gone.
            self._hand_over(failed)

    def _hand_over(self, failed: bool) -> None:
        with self._lock:
            flushed = self._log.flushed_where
            done = [w for w in self._waiters if failed or w.target <= flushed]
            self._waiters = [w for w in self._waiters if not failed and w.target > flushed]
            self._syncing = bool(self._waiters)
            was_ours, self._handed_over = self._handed_over, self._syncing and self.service.running
            if self._syncing and not self._handed_over:
                leader = self._waiters.pop(0)
                leader.leads = True
                done.insert(0, leader)
        if self._handed_over and not was_ours:
            self.service.wake()
        for waiter in done:
            waiter.gate.release()


class GroupCommitService(Service):
    """The thread that syncs while putters are many."""

    interval_s = 3600.0

    def __init__(self, group: GroupCommit) -> None:
        super().__init__()
        self._group = group

    def run_once(self) -> None:
        """Sync until nobody waits."""
        self._group.sync_for_waiters()

    def on_stop(self) -> None:
        """Leave nobody waiting."""
        self._group.sync_for_waiters()
