"""Every call to the disk fails once: nothing acknowledged is lost, nothing is invented, nobody hangs."""

from collections import Counter
from contextlib import suppress

import pytest

from rockstrata.errors import DiskError, DiskFullError
from rockstrata.store.results import PutStatus
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock
from store.store_kit import ASYNC, NOW, SYNC, bodies, letter, letters, open_store, settle
from store.world import World

CHANGES = {"max_index_num": 20, "consume_queue_file_bytes": 100, "max_hash_slot_num": 5}
WRITING = ["create", "pwrite", "sync", "sync_dir", "write_file", "rename", "unlink", "make_dirs"]
LOOKING = ["open", "view", "pread", "exists", "file_bytes", "list_files", "list_dirs", "read_bytes", "usage"]


def scenario(world: World) -> None:
    """A short life with everything in it. Trouble is met as a broker would: note it, go on."""
    steps = [
        *[lambda n=n: world.put(queue=n % 3) for n in range(12)],
        world.dispatch,
        lambda: world.put_batch([60] * 30),
        world.dispatch,
        world.flush_queues,
        world.flush_index,
        lambda: world.put_client_batch([60, 60, 300]),
        *[lambda n=n: world.put(300, queue=n % 3) for n in range(6)],
        world.sync,
        world.dispatch,
        world.save_checkpoint,
        lambda: world.put(2500),
        world.dispatch,
    ]
    for step in steps:
        world.clock.advance(3)
        with suppress(DiskError):
            step()
    world.store.flags.describe()


def calls_of(mode) -> Counter[str]:
    world = World(flush_disk_type=mode, **CHANGES)
    before = Counter(world.disk.calls)
    scenario(world)
    world.close()
    return Counter(world.disk.calls) - before


@pytest.mark.parametrize("mode", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("kind", WRITING + LOOKING)
def test_a_call_that_fails_costs_nothing_that_was_acknowledged(kind, mode):
    total = calls_of(mode)[kind]
    errors = [DiskError, DiskFullError] if kind in ("create", "pwrite", "write_file") else [DiskError]
    # Not all of hundreds of alike ones; the second error starts between two of the first.
    step = max(1, total // (12 if kind in WRITING else 5))
    for shift, error in enumerate(errors):
        for nth in range(1 + shift * step // 2, total + 1, step):
            world = World(flush_disk_type=mode, **CHANGES)
            world.disk.fail(kind, nth=nth, error=error)
            scenario(world)
            live = world.disk
            for end in (live.power_cut, live.kill):
                world.disk = end()
                world.store = world.open()
                world.dispatch()
                mine = list(world.letters)
                world.forget_lost()
                world.check()
                world.check_writable()
                world.letters = mine
                for one in mine:
                    one.is_durable = False


@pytest.mark.parametrize("mode", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_disk_that_stays_broken_is_survived_by_what_it_had(mode):
    for kind in WRITING:
        world = World(flush_disk_type=mode, **CHANGES)
        for n in range(10):
            world.put(queue=n % 3)
        world.sync()
        world.disk.fail(kind, nth=3, times=10**6)
        scenario(world)
        world.disk = world.disk.power_cut()
        world.reopen()
        world.check()
        world.check_writable()


@pytest.mark.parametrize("kind", WRITING + LOOKING)
def test_a_start_that_fails_can_be_tried_again(kind):
    """Also a recovery with work to do: torn tail, queues behind the log."""
    world = World(flush_disk_type=ASYNC, **CHANGES)
    scenario(world)
    world.sync()
    left = world.disk.power_cut(lambda change: "consumequeue" not in change.path.parts)
    reference = left.kill()
    before = Counter(reference.calls)
    store = open_store(reference, world.clock, **world.changes)
    total = (Counter(reference.calls) - before)[kind]
    expected = bodies(store, "topic0"), bodies(store, "topic1"), bodies(store, "topic0", 1)
    for nth in range(1, total + 1, max(1, total // 12)):
        disk = left.kill()
        disk.fail(kind, nth=nth)
        try:
            store = open_store(disk, world.clock, **world.changes)
        except DiskError:
            store = open_store(disk, world.clock, **world.changes)
        assert (bodies(store, "topic0"), bodies(store, "topic1"), bodies(store, "topic0", 1)) == expected


def test_a_quota_reached_in_the_middle_of_life_and_lifted_later():
    clock = ManualClock(NOW)
    for quota in range(20_000, 80_000, 7_000):
        disk = ForgetfulDisk(clock, quota_bytes=quota)
        store = open_store(disk, clock, max_hash_slot_num=5, max_index_num=20)
        acked = []
        for n in range(300):
            if store.put(letter(n)).status is PutStatus.PUT_OK:
                acked.append(letter(n).body)
            if n % 10 == 9:
                with suppress(DiskError):
                    settle(store)
        for after in (disk.power_cut(), disk.kill()):
            after.quota_bytes = None
            with open_store(after, clock, max_hash_slot_num=5, max_index_num=20) as again:
                assert bodies(again) == acked
                assert again.put_batch(letters(20, first=1000)).ok
