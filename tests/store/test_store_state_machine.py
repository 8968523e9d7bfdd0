"""Anything in any order: puts, batches, delays, transactions, services, deletions, crashes, reads.

A plain model knows what was put and answered; every road must lead to exactly that.
"""

import random
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rockstrata.message.model import Message
from rockstrata.store.results import PutResult, PutStatus
from rockstrata.testing.forgetful_disk import PowerCut
from store.store_kit import ASYNC, SYNC, read_queue_of
from store.world import World

GROUP = "producers"
seeds = st.integers(0, 2**32)
sizes = st.sampled_from([20, 60, 60, 300, 900, 2500])
queues = st.integers(0, 3)
HOUR_MS = 3_600_000


class FullWorld(World):
    """A world that also knows of delayed and transactional messages.

    They may come twice after a crash, never too early, and never if they were rolled back.
    """

    def __init__(self, **changes) -> None:
        self.due: dict[bytes, int] = {}
        self.halves: dict[bytes, PutResult] = {}
        self.maybe: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.ended: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.crashes = 0
        super().__init__(**changes)

    def name(self, kind: str) -> bytes:
        self.count += 1
        return f"{kind} {self.count}".encode()

    def put_delayed(self, level: int) -> None:
        body = self.name("delayed")
        self.maybe.add(body)
        result = self.store.put(Message.of("later", body, delay_level=level))
        assert result.status is PutStatus.PUT_OK
        if self.is_sync:
            self.due[body] = result.store_timestamp + self.store.delay_levels_ms[level - 1]

    def deliver(self) -> None:
        self.dispatch()
        self.store.schedule.run_once()
        self.sync()
        self.dispatch()

    def prepare(self) -> None:
        body = self.name("half")
        result = self.store.transactions.prepare(Message.of("deals", body), GROUP)
        assert result.status is PutStatus.PUT_OK
        if self.is_sync:
            self.halves[body] = result

    def end(self, which: int, *, commit: bool) -> None:
        if not self.halves:
            return
        body = sorted(self.halves)[which % len(self.halves)]
        half = self.halves[body]
        if commit:
            self.maybe.add(body)
            result = self.store.transactions.commit(half, GROUP)
        else:
            result = self.store.transactions.rollback(half, GROUP)
        assert result.ok, result
        del self.halves[body]
        self.ended.add(body)
        if commit and self.is_sync:
            self.committed.add(body)

    def write_ops(self) -> None:
        self.store.transactions.ops.flush()

    def clean(self) -> None:
        """Three days later an operator asks for the old files to go."""
        self.dispatch()
        self.check_others()
        self.clock.advance(73 * HOUR_MS)
        self.store.retention.request_delete()
        self.store.retention.clean()
        self.forget_deleted()

    def forget_deleted(self) -> None:
        """Nobody asks about halves here, so they go with their files, too."""
        super().forget_deleted()
        minimum = self.store.commit_log.min_offset
        self.halves = {body: half for body, half in self.halves.items() if half.physical_offset >= minimum}

    def check_others(self) -> None:
        """Delayed and transactional messages, as far as they are in the log."""
        now = self.clock.now_ms()
        later = [m.body for m in read_queue_of(self.store, "later")]
        deals = [m.body for m in read_queue_of(self.store, "deals")]
        for body in later + deals:
            assert body in self.maybe, body
        for body in later:
            assert self.due.get(body, 0) <= now, "delivered too early"
        if not self.crashes:
            assert len(set(later)) == len(later)
            assert len(set(deals)) == len(deals)
        self.seen.update(later, deals)

    def check_delivered(self) -> None:
        """After everything had its time, whatever was acknowledged has come."""
        self.clock.advance(3 * HOUR_MS)
        for _ in range(3):
            self.store.schedule.run_once()
            self.sync()
            self.dispatch()
        self.check_others()
        assert set(self.due) <= self.seen
        assert self.committed <= self.seen
        assert not (self.seen & (self.ended - self.maybe))


def do_anything(world: FullWorld, dice: random.Random) -> None:
    """One thing that a producer, a service, an operator or the kernel may do."""
    size, queue = dice.choice([20, 60, 60, 300, 900, 2500]), dice.randrange(4)
    doings = {
        "put": (12, lambda: world.put(size, queue, dice.choice([0, 0, 0, 40, 700, 1500]))),
        "batch": (
            3,
            lambda: world.put_batch([dice.choice([20, 60, 900]) for _ in range(dice.randint(1, 8))]),
        ),
        "client batch": (1, lambda: world.put_client_batch([20, 60, 300][: dice.randint(1, 3)], queue)),
        "delay": (1, lambda: world.put_delayed(dice.randint(1, 5))),
        "prepare": (1, world.prepare),
        "end": (1, lambda: world.end(dice.randrange(9), commit=dice.random() < 0.7)),
        "ops": (1, world.write_ops),
        "dispatch": (3, world.dispatch),
        "pool": (2, world.store.commit_log.commit),
        "sync": (1, world.sync),
        "queues": (1, world.flush_queues),
        "index": (1, world.flush_index),
        "checkpoint": (1, world.save_checkpoint),
        "deliver": (1, world.deliver),
        "time": (3, lambda: world.clock.advance(dice.choice([1, 10, 1000, 60_000]))),
        "kernel": (1, lambda: world.disk.write_back(random.Random(dice.random()))),
    }
    names = list(doings)
    name = dice.choices(names, [doings[one][0] for one in names])[0]
    doings[name][1]()


class StoreMachine(RuleBasedStateMachine):
    """Rules are what producers, services, operators, kernels and power supplies do."""

    @initialize(
        mode=st.sampled_from([SYNC, SYNC, ASYNC]),
        pages=st.integers(1, 4),
        pool=st.sampled_from([0, 0, 0, 1, 3]),
        paths=st.sampled_from(["", "", "/a/log,/b/log"]),
        units=st.sampled_from([5, 20]),
    )
    def begin(self, mode, pages, pool, paths, units):
        changes = {"transient_store_pool_enable": True, "transient_store_pool_size": pool} if pool else {}
        self.world = FullWorld(
            flush_disk_type=mode,
            commit_log_file_bytes=4096 * pages,
            consume_queue_file_bytes=20 * units,
            store_path_commit_log=paths,
            max_index_num=60,
            **changes,
        )

    # Producers, services and time

    @rule(seed=seeds, count=st.integers(1, 25))
    def work(self, seed, count):
        """A while of everything at once."""
        dice = random.Random(seed)
        for _ in range(count):
            do_anything(self.world, dice)

    @rule(size=sizes, queue=queues, properties=st.sampled_from([0, 0, 700]))
    def put(self, size, queue, properties):
        self.world.put(size, queue, properties)

    @rule(batch=st.lists(sizes, min_size=1, max_size=8), queue=queues)
    def put_batch(self, batch, queue):
        self.world.put_batch(batch, queue)

    @rule(level=st.integers(1, 5), commit=st.booleans())
    def delay_and_deal(self, level, commit):
        self.world.put_delayed(level)
        self.world.prepare()
        self.world.end(level, commit=commit)

    @rule(seed=seeds)
    def the_kernel_writes_back(self, seed):
        self.world.disk.write_back(random.Random(seed))

    @rule()
    def flush(self):
        self.world.sync()
        self.world.dispatch()
        self.world.flush_queues()

    @rule()
    def delete_old_files(self):
        self.world.clean()

    # Ends

    @rule()
    def close_and_open(self):
        self.world.close()
        self.world.scrub()
        self.world.power_cut()
        self.world.reopen()
        assert self.world.store.recovery.clean
        self.check()

    @rule()
    def kill(self):
        self.world.kill()
        self.again(killed=True)

    @rule(
        seed=seeds, calls=st.integers(0, 150), doing=st.sampled_from(["work", "work", "recovery", "nothing"])
    )
    def cut_the_power(self, seed, calls, doing):
        world, dice = self.world, random.Random(seed)
        if doing == "recovery":
            world.power_cut(random.Random(seed))
        world.disk.stop_after(calls)
        with suppress(PowerCut):
            if doing == "work":
                for _ in range(60):
                    do_anything(world, dice)
            elif doing == "recovery":
                world.open()
        world.power_cut(random.Random(seed + 1))
        self.again()

    def again(self, *, killed: bool = False):
        self.world.crashes += 1
        self.world.reopen(killed=killed)
        self.check()

    def check(self):
        self.world.check()
        self.world.check_others()

    @invariant()
    def is_writable(self):
        if hasattr(self, "world"):
            assert self.world.store.flags.writable, self.world.store.flags.describe()

    def teardown(self):
        # A store left closed is one whose rule failed: that failure is the one to show.
        if hasattr(self, "world") and self.world.store.is_open:
            world = self.world
            world.store.commit_log.commit()
            world.sync()
            world.dispatch()
            self.check()
            world.check_delivered()
            world.check_writable()
            world.close()
            world.scrub()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=120, stateful_step_count=15, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
