"""A reader that outlives the owner: it sees what the next one writes, in files made anew."""

from pathlib import Path

import pytest

from rockstrata.clock import SystemClock
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.posix_lock import PosixLock
from rockstrata.store.reader import StoreReader
from rockstrata.store.results import GetStatus
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from store.store_kit import (
    ASYNC,
    ROOT,
    bodies,
    letter,
    letters,
    open_store,
    put_all,
    queue_path,
    small_config,
)


def die(store) -> None:
    """The owner is gone without a word; only its lock went with it."""
    store._house.pop_all()
    if isinstance(store.disk, ForgetfulDisk):
        store.disk.unlock(store.config.lock_path)
    else:
        PosixLock._held.discard(str(store.config.lock_path.resolve()))


@pytest.fixture(params=["forgetful", "posix"])
def place(request, tmp_path) -> tuple[Path, object]:
    return (ROOT, ForgetfulDisk()) if request.param == "forgetful" else (tmp_path, PosixDisk())


def test_a_reader_follows_over_a_crash_of_the_owner(place):
    root, disk = place
    config = small_config(root, flush_disk_type=ASYNC)
    store = open_store(disk, SystemClock(), config=config)
    put_all(store, letters(30))
    # The file made ahead, which the next owner removes and makes again.
    ahead = store.commit_log.queue.last.end
    store.commit_log.queue.create(ahead)
    reader = StoreReader(config, disk)
    assert len(bodies(reader)) == 30
    assert reader.record_at(ahead) is None
    die(store)

    with open_store(disk, SystemClock(), config=config) as after:
        put_all(after, letters(60, first=30))
        assert bodies(reader) == bodies(after) == [letter(n).body for n in range(90)]
        assert reader.message_at(ahead) == after.message_at(ahead)


def test_units_that_are_being_written_again_are_not_there_for_the_moment():
    disk = ForgetfulDisk()
    store = open_store(disk)
    put_all(store, letters(15))
    reader = StoreReader(store.config, disk)
    assert len(bodies(reader)) == 15
    file = disk.open(queue_path())
    units = file.pread(0, 300)
    file.pwrite(5 * 20, bytes(200))
    assert [m.body for m in reader.get("orders", 0, 0).messages()] == [letter(n).body for n in range(5)]
    assert reader.get("orders", 0, 7).status is GetStatus.OFFSET_FOUND_NULL
    file.pwrite(0, units)
    assert len(bodies(reader)) == 15
