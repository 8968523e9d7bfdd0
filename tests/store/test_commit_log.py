"""The log itself: what is durable when, what a failed sync means, pools, paths and group commit."""

import threading
import time
from pathlib import Path

import pytest

from rockstrata.clock import SystemClock
from rockstrata.errors import CorruptionError, DiskError
from rockstrata.store.disk import DiskUsage
from rockstrata.store.group_commit import GroupCommit
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.results import GetStatus, PutStatus
from rockstrata.store.running_flags import Flag
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock
from store.store_kit import (
    ASYNC,
    NOW,
    bodies,
    letter,
    letters,
    log_path,
    open_store,
    put_all,
    records_of,
    settle,
    small_config,
)


def body_list(first: int, end: int) -> list[bytes]:
    return [letter(n).body for n in range(first, end)]


# Sync.


def test_after_a_failed_sync_no_later_sync_is_believed():
    """The kernel marks the pages it could not write as clean: the next sync succeeds, and lies."""
    disk = ForgetfulDisk()
    store = open_store(disk)
    put_all(store, letters(3))
    disk.fail("sync")
    appended = store.appender.put(letter(3))
    with pytest.raises(DiskError):
        store.commit_log.sync()

    late = store._wait_durable(letter(3), appended)

    assert late.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert store.commit_log.flushed_where == appended.physical_offset
    with pytest.raises(DiskError):
        store.commit_log.sync()


def test_the_time_in_the_checkpoint_never_runs_ahead_of_an_older_file():
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, flush_disk_type=ASYNC)
    for n in range(100):
        clock.advance(1)
        store.put(letter(n))
    assert len(store.commit_log.queue.files) > 3
    disk.fail("sync", nth=2)
    with pytest.raises(DiskError):
        store.commit_log.sync()

    first = store.commit_log.queue.files[0]
    durable = [m for m in (store.message_at(o) for o in starts(disk, first.start)) if m]
    assert store.checkpoint.physic_msg_timestamp <= durable[-1].store_timestamp + 1
    assert store.commit_log.flushed_where == 0


def starts(disk, start: int) -> list[int]:
    return [start + at for at, _ in records_of(disk.read_bytes(log_path(start)))]


def test_an_async_sync_waits_for_enough_pages():
    store = open_store(flush_disk_type=ASYNC, commit_log_file_bytes=1 << 16)
    for n in range(3):
        store.put(letter(n, body_bytes=4000))
        assert store.commit_log.sync(4) == 0
    store.put(letter(3, body_bytes=4000))
    assert store.commit_log.sync(4) == store.commit_log.max_offset


def test_sync_flush_dispatches_nothing_that_is_not_durable():
    store = open_store()
    for n in range(10):
        store.appender.put(letter(n))
    store.dispatcher.catch_up()
    assert store.max_offset("orders", 0) == 0
    store.commit_log.sync()
    store.dispatcher.catch_up()
    assert store.max_offset("orders", 0) == 10


def test_sync_flush_with_read_uncommitted_and_async_flush_dispatch_at_once():
    for changes in ({"read_uncommitted": True}, {"flush_disk_type": ASYNC}):
        store = open_store(**changes)
        for n in range(10):
            store.appender.put(letter(n))
        store.dispatcher.catch_up()
        assert store.max_offset("orders", 0) == 10


def test_a_record_that_begins_nowhere_is_an_error_and_one_outside_is_none():
    store = open_store()
    results = put_all(store, letters(3))
    with pytest.raises(CorruptionError) as caught:
        store.record_at(results[1].physical_offset + 1)
    assert caught.value.path == str(log_path())
    assert caught.value.position == results[1].physical_offset + 1
    assert store.message_by_id(results[1].message_id[:-2] + "01") is None
    for outside in (-1, results[-1].physical_offset + results[-1].record_bytes, 1 << 40):
        assert store.record_at(outside) is None
        assert store.message_at(outside) is None


# The transient pool.

POOL = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}


@pytest.mark.parametrize("batch", [False, True], ids=["one by one", "batch"])
def test_pool_messages_are_readable_only_when_committed(batch):
    store = open_store(**POOL, flush_disk_type=ASYNC)
    if batch:
        store.put_batch(letters(5))
    else:
        for n in range(5):
            store.put(letter(n))
    store.dispatcher.catch_up()
    assert store.get("orders", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.message_at(0) is None
    store.commit_log.commit()
    store.dispatcher.catch_up()
    assert bodies(store) == body_list(0, 5)


def test_a_crash_loses_only_what_was_in_the_pool():
    disk = ForgetfulDisk()
    store = open_store(disk, **POOL, flush_disk_type=ASYNC)
    for n in range(50):
        store.put(letter(n))
        if n == 29:
            store.commit_log.commit()
    with open_store(disk.kill(), **POOL, flush_disk_type=ASYNC) as after:
        assert bodies(after) == body_list(0, 30)
        put_all(after, letters(30, first=100))
        assert bodies(after) == body_list(0, 30) + body_list(100, 130)


def test_sync_puts_through_the_pool_are_durable_when_answered():
    disk = ForgetfulDisk()
    store = open_store(disk, **POOL)
    results = [store.put(letter(n)) for n in range(60)]
    assert all(r.status is PutStatus.PUT_OK for r in results)
    assert store.put_batch(letters(60, first=60)).status is PutStatus.PUT_OK
    assert bodies(open_store(disk.power_cut(), **POOL)) == body_list(0, 120)


@pytest.mark.parametrize("commits", [1, 7, 1000])
def test_an_exhausted_pool_falls_back_to_the_map_and_loses_nothing(commits):
    disk = ForgetfulDisk()
    store = open_store(disk, **POOL, flush_disk_type=ASYNC)
    for n in range(200):
        assert store.put(letter(n)).ok
        if n % commits == commits - 1:
            store.commit_log.commit()
            store.dispatcher.catch_up()
    settle(store)
    assert bodies(store) == body_list(0, 200)
    assert store.commit_log.flushed_where == store.commit_log.max_offset
    store.close()
    assert bodies(open_store(disk, flush_disk_type=ASYNC)) == body_list(0, 200)


def test_an_exhausted_pool_refuses_if_it_should_fail_fast():
    disk = ForgetfulDisk()
    store = open_store(disk, **POOL, flush_disk_type=ASYNC, fast_fail_if_no_buffer_in_store_pool=True)
    statuses = [store.put(letter(n)).status for n in range(100)]
    assert set(statuses) == {PutStatus.PUT_OK, PutStatus.CREATE_MAPPED_FILE_FAILED}
    accepted = statuses.count(PutStatus.PUT_OK)
    assert statuses == [PutStatus.PUT_OK] * accepted + [PutStatus.CREATE_MAPPED_FILE_FAILED] * (
        100 - accepted
    )
    store.commit_log.commit()
    assert store.put(letter(accepted)).ok
    settle(store)
    assert bodies(store) == body_list(0, accepted + 1)
    store.close()
    assert bodies(open_store(disk, **POOL)) == body_list(0, accepted + 1)


def test_the_checkpoint_does_not_vouch_for_what_is_still_in_the_pool():
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(disk, clock, **POOL, flush_disk_type=ASYNC)
    store.put(letter(0))
    store.commit_log.commit()
    for n in range(1, 4):
        clock.advance(10)
        store.put(letter(n))
    store.commit_log.sync()
    assert store.checkpoint.physic_msg_timestamp == NOW


def test_a_commit_never_goes_back_when_two_commit_at_once(monkeypatch):
    store = open_store(**POOL, flush_disk_type=ASYNC, commit_log_file_bytes=1 << 16)
    store.put(letter(0))
    file = store.commit_log.queue.last
    started, gate = threading.Event(), threading.Event()
    pwrite = type(file.file).pwrite

    def slow(self, position, data):
        if position == 0 and not started.is_set():
            started.set()
            gate.wait(5)
        pwrite(self, position, data)

    monkeypatch.setattr(type(file.file), "pwrite", slow)
    first = threading.Thread(target=store.commit_log.commit)
    first.start()
    started.wait(5)
    store.put(letter(1))
    second = threading.Thread(target=store.commit_log.commit)
    second.start()
    time.sleep(0.02)
    gate.set()
    first.join()
    second.join()
    assert file.committed == file.wrote


# Several paths.


class Lopsided(ForgetfulDisk):
    """Some paths are nearly full."""

    full: tuple[Path, ...] = ()

    def usage(self, path):
        return DiskUsage(95, 5) if path in self.full else DiskUsage(5, 95)


def test_log_files_take_turns_over_paths_and_skip_full_and_read_only_ones():
    disk = Lopsided()
    a, b, c = (Path(f"/{name}/log") for name in "abc")
    paths = f"{a},{b},{c}"
    with open_store(disk, store_path_commit_log=paths) as store:
        put_all(store, letters(120))
        assert {f.path.parent for f in store.commit_log.queue.files} == {a, b, c}
    before = {p: len(disk.list_files(p)) for p in (a, b, c)}
    disk.full = (b,)
    with open_store(disk, store_path_commit_log=paths, read_only_commit_log_store_paths=str(c)) as store:
        assert bodies(store) == body_list(0, 120)
        put_all(store, letters(120, first=120))
        assert bodies(store) == body_list(0, 240)
    assert len(disk.list_files(b)) == before[b]
    assert len(disk.list_files(c)) == before[c]
    assert len(disk.list_files(a)) > before[a]
    survivor = disk.power_cut()
    with open_store(survivor, store_path_commit_log=paths) as store:
        assert bodies(store) == body_list(0, 240)


def test_a_new_file_in_another_path_survives_a_power_cut():
    disk = ForgetfulDisk()
    store = open_store(disk, store_path_commit_log="/a/log,/b/log")
    count = 0
    while len(store.commit_log.queue.files) < 4:
        assert store.put(letter(count)).status is PutStatus.PUT_OK
        count += 1
    after = open_store(disk.power_cut(), store_path_commit_log="/a/log,/b/log")
    assert bodies(after) == body_list(0, count)


# Group commit.


class SlowLog:
    """A log whose sync is told when to end."""

    def __init__(self) -> None:
        self.flushed_where = 0
        self.written = 0
        self.syncs = 0
        self.gate = threading.Semaphore(0)
        self.fail = False

    def commit(self) -> None:
        pass

    def sync(self) -> int:
        end = self.written
        assert self.gate.acquire(timeout=10)
        self.syncs += 1
        if self.fail:
            raise DiskError("asked to fail")
        self.flushed_where = end
        return end


def run_waiters(group: GroupCommit, targets: list[int], timeout_s: float = 10.0):
    answers: dict[int, bool] = {}

    def wait(target):
        answers[target] = group.wait(target, timeout_s)

    threads = [threading.Thread(target=wait, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    return threads, answers


def test_many_waiters_share_a_few_syncs():
    log = SlowLog()
    group = GroupCommit(log)
    log.written = 1
    threads, answers = run_waiters(group, [1])
    while not group._syncing:
        time.sleep(0.001)
    log.written = 50
    more, later = run_waiters(group, list(range(2, 51)))
    while len(group._waiters) < 49:
        time.sleep(0.001)
    log.gate.release(10)
    for thread in threads + more:
        thread.join(10)
    assert all(answers.values())
    assert len(later) == 49
    assert all(later.values())
    assert log.syncs == 2
    assert not group._syncing
    assert not group._waiters


def test_a_failed_sync_fails_all_who_wait_and_none_hangs():
    log = SlowLog()
    group = GroupCommit(log)
    log.written, log.fail = 20, True
    threads, answers = run_waiters(group, list(range(1, 21)))
    while len(group._waiters) < 19:
        time.sleep(0.001)
    log.gate.release(20)
    for thread in threads:
        thread.join(10)
    assert answers == dict.fromkeys(range(1, 21), False)
    assert not group._syncing


@pytest.mark.parametrize("served", [False, True])
def test_an_unforeseen_error_in_a_sync_leaves_nobody_waiting(served):
    log = SlowLog()
    group = GroupCommit(log)
    if served:
        group.service.start()
    log.written = 20
    sync = log.sync

    def broken() -> int:
        if log.syncs == 1:
            log.syncs += 1
            raise AssertionError("a broken program")
        return sync()

    log.sync = broken  # type: ignore[method-assign]
    threads, answers = run_waiters(group, [1])
    while not group._syncing:
        time.sleep(0.001)
    log.written = 30
    more, later = run_waiters(group, list(range(21, 31)))
    while len(group._waiters) < 10:
        time.sleep(0.001)
    caught: list = []
    hook, threading.excepthook = threading.excepthook, lambda args: caught.append(args.exc_type)
    try:
        log.gate.release(20)
        for thread in threads + more:
            thread.join(5)
    finally:
        threading.excepthook = hook
    assert not any(thread.is_alive() for thread in threads + more)
    assert answers == {1: True}
    assert not any(later.values())
    assert not group._syncing
    log.written = 40
    assert group.wait(40, 5)
    if served:
        group.service.stop()


def test_a_waiter_who_gives_up_does_not_stop_the_others():
    log = SlowLog()
    group = GroupCommit(log)
    log.written = 1
    leader, first = run_waiters(group, [1])
    while not group._syncing:
        time.sleep(0.001)
    log.written = 3
    impatient, gone = run_waiters(group, [2], timeout_s=0.01)
    impatient[0].join(10)
    patient, stayed = run_waiters(group, [3])
    while len(group._waiters) < 1:
        time.sleep(0.001)
    log.gate.release(3)
    for thread in leader + patient:
        thread.join(10)
    assert (first[1], gone[2], stayed[3]) == (True, False, True)
    assert not group._syncing


def test_a_put_times_out_while_another_ones_sync_hangs(monkeypatch):
    store = open_store(sync_flush_timeout_ms=20)
    entered, gate, sync = threading.Event(), threading.Event(), store.commit_log.sync

    def slow():
        entered.set()
        gate.wait(10)
        return sync()

    monkeypatch.setattr(store.commit_log, "sync", slow)
    leader = threading.Thread(target=store.put, args=(letter(0),))
    leader.start()
    entered.wait(10)
    result = store.put(letter(1))
    gate.set()
    leader.join()
    assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert result.ok
    settle(store)
    assert bodies(store) == body_list(0, 2)


# Services.


def wait_until(condition, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)


def test_a_message_nobody_waits_for_is_durable_and_visible_soon(tmp_path):
    config = small_config(tmp_path)
    with open_store(PosixDisk(), SystemClock(), config=config, services=True) as store:
        began = time.monotonic()
        store.put(letter(0, properties={"WAIT": "false"}))
        wait_until(lambda: store.max_offset("orders", 0) == 1)
        assert time.monotonic() - began < 1.5


def test_messages_become_visible_by_themselves_in_every_mode(tmp_path):
    for n, changes in enumerate(({}, {"flush_disk_type": ASYNC}, POOL, POOL | {"flush_disk_type": ASYNC})):
        config = small_config(tmp_path / str(n), **changes)
        with open_store(PosixDisk(), SystemClock(), config=config, services=True) as store:
            for k in range(100):
                assert store.put(letter(k)).status is PutStatus.PUT_OK
            wait_until(lambda store=store: store.max_offset("orders", 0) == 100)
            assert bodies(store) == body_list(0, 100)
        with open_store(PosixDisk(), SystemClock(), config=config) as store:
            assert store.recovery.clean
            assert bodies(store) == body_list(0, 100)


def test_warm_up_changes_nothing_but_the_time_a_roll_takes(tmp_path):
    config = small_config(tmp_path, warm_mapped_file_enable=True)
    with open_store(PosixDisk(), SystemClock(), config=config, services=True) as store:
        for k in range(100):
            assert store.put(letter(k)).ok
    with open_store(PosixDisk(), SystemClock(), config=config) as store:
        assert bodies(store) == body_list(0, 100)


def test_a_store_that_stopped_writing_does_not_burn_the_processor(tmp_path):
    config = small_config(tmp_path, flush_disk_type=ASYNC)
    with open_store(PosixDisk(), SystemClock(), config=config, services=True) as store:
        put_all(store, letters(1))
        store.flags.set(Flag.LOGICS_QUEUE_ERROR, "test")
        store.appender.put(letter(1))
        rounds = 0
        run_once = store.dispatcher.run_once

        def counted():
            nonlocal rounds
            rounds += 1
            run_once()

        store.dispatcher.run_once = counted
        store.dispatcher.wake()
        time.sleep(0.3)
        assert rounds < 20
        store.flags.clear(Flag.LOGICS_QUEUE_ERROR)


def test_no_time_is_vouched_for_while_an_older_file_waits_in_the_pool():
    clock = ManualClock(NOW)
    disk = ForgetfulDisk(clock)
    store = open_store(
        disk, clock, transient_store_pool_enable=True, transient_store_pool_size=1, flush_disk_type=ASYNC
    )
    store.put(letter(0))
    store.commit_log.commit()
    for n in range(1, 80):
        clock.advance(10)
        store.put(letter(n))
    assert [file.buffer is None for file in store.commit_log.queue.files[:2]] == [False, True]
    store.commit_log.sync()

    assert store.checkpoint.physic_msg_timestamp == NOW
    assert store.commit_log.flushed_where == store.message_at(0).record_bytes
    store.checkpoint.flush()
    assert bodies(open_store(disk.power_cut(lambda change: True))) == body_list(0, 1)


def test_the_first_files_name_is_durable_before_there_is_a_second():
    disk = ForgetfulDisk()
    store = open_store(disk, store_path_commit_log="/a/log,/b/log", flush_disk_type=ASYNC)
    store.put_batch(letters(60))

    after = open_store(
        disk.power_cut(lambda change: change.path.parts[1] == "b"), store_path_commit_log="/a/log,/b/log"
    )

    assert bodies(after) == []
    assert after.commit_log.max_offset == 0
