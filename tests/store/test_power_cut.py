"""Power cuts at any moment, keeping any of the pages not synced: nothing acknowledged is missing."""

import os
import random
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rockstrata.testing.forgetful_disk import PowerCut
from store.store_kit import ASYNC, SYNC
from store.world import World, run_until_stop

SEEDS = int(os.environ.get("ROCKSTRATA_POWER_CUT_SEEDS", "60"))
FIRST_SEED = int(os.environ.get("ROCKSTRATA_POWER_CUT_FIRST_SEED", "0"))
queues = st.integers(0, 3)
sizes = st.sampled_from([20, 60, 60, 60, 300, 900, 2500])
fillers = st.sampled_from([0, 0, 0, 0, 40, 700, 1500])


@st.composite
def steps(draw):
    """One thing a producer, a service or the kernel does, as a function of the world."""
    kind = draw(
        st.sampled_from(
            ["put"] * 6
            + ["batch", "dispatch"] * 2
            + ["client batch", "queues", "index", "checkpoint", "sync", "time", "kernel"]
        )
    )
    if kind == "put":
        arguments = draw(sizes), draw(queues), draw(fillers)
        return lambda world: world.put(*arguments)
    if kind == "batch":
        batch = draw(st.lists(sizes, min_size=1, max_size=8)), draw(queues), draw(fillers)
        return lambda world: world.put_batch(*batch)
    if kind == "client batch":
        elements = draw(st.lists(st.sampled_from([20, 60, 300]), min_size=1, max_size=5)), draw(queues)
        return lambda world: world.put_client_batch(*elements)
    if kind == "time":
        milliseconds = draw(st.integers(1, 5000))
        return lambda world: world.clock.advance(milliseconds)
    if kind == "kernel":
        seed = draw(st.integers(0, 2**32))
        return lambda world: world.disk.write_back(random.Random(seed))
    return {
        "dispatch": World.dispatch,
        "queues": World.flush_queues,
        "index": World.flush_index,
        "checkpoint": World.save_checkpoint,
        "sync": World.sync,
    }[kind]


lives = st.lists(
    st.tuples(
        st.lists(steps(), max_size=14), st.one_of(st.none(), st.integers(0, 120)), st.integers(0, 2**32)
    ),
    min_size=1,
    max_size=4,
)


def live(world: World, lived) -> None:
    for doings, calls, seed in lived:
        run_until_stop(world, calls, doings)
        world.power_cut(random.Random(seed))
        world.reopen()
        world.check()
    world.check_writable()
    world.close()
    world.scrub()
    world.reopen()
    assert world.store.recovery.clean
    world.check()


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(lives, st.integers(1, 3))
def test_acknowledged_messages_survive_any_power_cut(lived, file_pages):
    live(World(flush_disk_type=SYNC, commit_log_file_bytes=4096 * file_pages), lived)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(lives, st.integers(1, 3))
def test_what_survives_an_asynchronous_store_is_a_prefix_of_its_log(lived, file_pages):
    live(World(flush_disk_type=ASYNC, commit_log_file_bytes=4096 * file_pages), lived)


# Long lives by seed: more happens in them than in the examples above, and they shrink to nothing.


def anything(world: World, dice: random.Random) -> None:
    size, queue, filler = (
        dice.choice([20, 60, 60, 60, 300, 900, 2500]),
        dice.randrange(4),
        dice.choice([0, 0, 0, 40, 700, 1500]),
    )  # fmt: skip
    kinds = ["put"] * 6 + ["batch", "dispatch"] * 2
    kinds += ["client batch", "queues", "index", "checkpoint", "sync", "pool", "time", "kernel"]
    match dice.choice(kinds):
        case "put":
            world.put(size, queue, filler)
        case "batch":
            world.put_batch(dice.choices([20, 60, 300, 900, 2500], k=dice.randint(1, 8)), queue, filler)
        case "client batch":
            world.put_client_batch(dice.choices([20, 60, 300], k=dice.randint(1, 5)), queue)
        case "time":
            world.clock.advance(dice.randint(1, 5000))
        case "kernel":
            world.disk.write_back(random.Random(dice.random()))
        case "dispatch":
            world.dispatch()
        case "queues":
            world.flush_queues()
        case "index":
            world.flush_index()
        case "checkpoint":
            world.save_checkpoint()
        case "sync":
            world.sync()
        case "pool":
            world.store.commit_log.commit()


def world_of(dice: random.Random) -> World:
    changes: dict = {}
    if dice.random() < 0.25:
        changes |= {"transient_store_pool_enable": True, "transient_store_pool_size": dice.randint(1, 3)}
    if dice.random() < 0.25:
        changes["store_path_commit_log"] = "/a/log,/b/log"
    if dice.random() < 0.2:
        changes["enabled_append_prop_crc"] = True
    return World(
        flush_disk_type=dice.choice([SYNC, ASYNC]),
        commit_log_file_bytes=4096 * dice.randint(1, 3),
        consume_queue_file_bytes=dice.choice([40, 100, 400, 2000]),
        **changes,
    )


def end_of_life(world: World, dice: random.Random) -> str:
    """How it ends: cut, killed, or closed and cut; the machine may stop in the close itself."""
    end = "cut" if world.disk._stopped else dice.choice(["cut"] * 5 + ["kill", "close"])
    if end == "close":
        try:
            world.close()
            world.power_cut()
        except PowerCut:
            end = "cut"
    if end == "cut":
        world.power_cut(random.Random(dice.random()))
    elif end == "kill":
        world.kill()
    return end


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_long_lives_with_crashes_in_work_close_and_recovery(seed):
    dice = random.Random(seed)
    world = world_of(dice)
    for _ in range(dice.randint(1, 6)):
        doings = [lambda one: anything(one, dice)] * dice.randint(0, dice.choice([5, 40, 80]))
        run_until_stop(world, dice.choice([None, dice.randint(0, 400)]), doings)
        end = end_of_life(world, dice)
        for _ in range(dice.choice([0, 0, 1, 3])):
            world.disk.stop_after(dice.randint(0, 150))
            with suppress(PowerCut):
                world.open()
            world.power_cut(random.Random(dice.random()))
            end = "cut"
        world.reopen(killed=end == "kill")
        world.check()
    world.check_writable()
    world.close()
    world.scrub()
    world.reopen()
    assert world.store.recovery.clean
    world.check()
