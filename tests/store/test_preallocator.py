"""The file made ahead: taken once, discarded at the end, and never one that is in the log."""

import threading
import time
from pathlib import Path

import pytest

from rockstrata.clock import SystemClock
from rockstrata.errors import DiskFullError, StoreStateError
from rockstrata.store import preallocator as module
from rockstrata.store.handles import FileHandles
from rockstrata.store.mapped_file_queue import MappedFileQueue
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.preallocator import Preallocator
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from store.store_kit import ASYNC, letters, open_store, small_config

DIR = Path("/store/commitlog")
SIZE = 4096


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


@pytest.fixture
def queue(disk) -> MappedFileQueue:
    return MappedFileQueue(FileHandles(disk), (DIR,), SIZE, reserve=True)


@pytest.fixture
def preallocator(queue):
    service = Preallocator(queue, warm=False)
    service.start()
    yield service
    service.stop()


def wait_until(condition, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.001)


def files(disk) -> list[int]:
    return [int(name) for name in disk.list_files(DIR)]


def test_a_file_asked_for_is_made_ahead_and_taken(disk, queue, preallocator):
    preallocator.request(0)
    wait_until(lambda: files(disk) == [0])
    creates = disk.calls["create"]

    queue.add(preallocator.take(0))

    assert disk.calls["create"] == creates


def test_a_file_that_was_taken_away_is_made_again(disk, queue, preallocator):
    # A RocketMQ started by mistake beside us deletes it while loading, before it sees the lock.
    preallocator.request(0)
    wait_until(lambda: files(disk) == [0])
    disk.unlink(DIR / f"{0:020d}")

    queue.add(preallocator.take(0))

    assert files(disk) == [0]


def test_without_its_thread_files_are_made_on_the_spot(disk, queue):
    service = Preallocator(queue, warm=False)
    service.request(0)
    assert files(disk) == []
    queue.add(service.take(0))
    assert files(disk) == [0]


def test_a_clean_end_removes_only_the_file_nobody_took(disk, queue, preallocator):
    queue.add(preallocator.take(0))
    preallocator.request(SIZE)
    wait_until(lambda: files(disk) == [0, SIZE])

    preallocator.discard()

    assert files(disk) == [0]


def test_a_late_request_for_a_file_of_the_log_changes_nothing(disk, queue, preallocator):
    """A dispatcher that lags asks for files which the log has long had."""
    for start in (0, SIZE, 2 * SIZE):
        queue.add(preallocator.take(start))
    for start in (0, SIZE, 2 * SIZE):
        preallocator.request(start)
        preallocator.run_once()

    preallocator.discard()

    assert files(disk) == [0, SIZE, 2 * SIZE]
    queue.add(preallocator.take(3 * SIZE))


def test_a_file_taken_but_not_yet_added_is_not_made_again(disk, queue, preallocator):
    taken = preallocator.take(0)
    preallocator.request(0)
    preallocator.run_once()
    preallocator.discard()

    assert files(disk) == [0]
    queue.add(taken)


def test_a_lagging_dispatcher_does_not_cost_a_log_file(tmp_path):
    config = small_config(tmp_path, flush_disk_type=ASYNC)
    for round_number in range(6):
        store = open_store(PosixDisk(), SystemClock(), config=config, services=True)
        store.put_batch(letters(200, first=200 * round_number))
        wait_until(lambda store=store: not store.dispatcher.behind_bytes)
        time.sleep(0.005)
        store.close()

    with open_store(PosixDisk(), SystemClock(), config=config) as store:
        assert store.max_offset("orders", 0) == 1200
        starts = [file.start for file in store.commit_log.queue.files]
        assert starts == list(range(0, len(starts) * SIZE, SIZE))


def test_a_failure_to_make_ahead_is_reported_by_the_put_that_needs_the_file(disk, queue, preallocator):
    disk.fail("create", error=DiskFullError)
    preallocator.request(0)
    wait_until(lambda: preallocator.failure is not None)

    assert preallocator.take(0).start == 0


def test_a_file_that_takes_too_long_is_not_made_twice(disk, queue, preallocator, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_S", 0.05)
    gate, entered, create = threading.Event(), threading.Event(), queue.create

    def slow(start):
        entered.set()
        gate.wait(5)
        return create(start)

    monkeypatch.setattr(queue, "create", slow)
    preallocator.request(0)
    entered.wait(5)
    with pytest.raises(StoreStateError, match="not ready"):
        preallocator.take(0)
    gate.set()

    file = preallocator.take(0)

    queue.add(file)
    assert disk.calls["create"] == 1


def test_warming_up_stops_when_the_service_stops(queue):
    service = Preallocator(queue, warm=True)
    service.start()
    service.stop()
    assert service.take(0).start == 0
