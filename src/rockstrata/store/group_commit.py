"""SYNC_FLUSH: many putters share one sync.

Answers to RocketMQ's GroupCommitService, but without a thread of its own: the first putter to wait
syncs for all that came before, the next one leads the next round. So a lone putter pays for no
thread switch, and sixty-four pay for one sync together.
"""

import threading

from rockstrata.errors import DiskError
from rockstrata.store.commit_log import CommitLog


class _Waiter:
    __slots__ = ("gate", "leads", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """``wait`` returns when the log is durable up to an offset, or when it will not be in time."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._syncing = False
        self._waiters: list[_Waiter] = []

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
        failed = False
        try:
            self._log.commit()
            self._log.sync()
        except DiskError:
            # The log has set its flag; every waiter finds its target not reached.
            failed = True
        finally:
            self._hand_over(failed)

    def _hand_over(self, failed: bool) -> None:
        with self._lock:
            flushed = self._log.flushed_where
            done = [w for w in self._waiters if failed or w.target <= flushed]
            self._waiters = [w for w in self._waiters if not failed and w.target > flushed]
            if self._waiters:
                leader = self._waiters.pop(0)
                leader.leads = True
                done.append(leader)
            else:
                self._syncing = False
        for waiter in done:
            waiter.gate.release()
