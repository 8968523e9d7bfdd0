"""Power cuts at any moment, keeping any of the pages not synced: nothing acknowledged is missing."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.store_kit import ASYNC, SYNC
from store.world import World, run_until_stop

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


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(lives, st.integers(1, 3))
def test_acknowledged_messages_survive_any_power_cut(lived, file_pages):
    live(World(flush_disk_type=SYNC, commit_log_file_bytes=4096 * file_pages), lived)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(lives, st.integers(1, 3))
def test_what_survives_an_asynchronous_store_is_a_prefix_of_its_log(lived, file_pages):
    live(World(flush_disk_type=ASYNC, commit_log_file_bytes=4096 * file_pages), lived)
