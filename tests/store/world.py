"""A store on a treacherous disk, and beside it the plain list of what was put: they must agree.

Shared by the power-cut tests and the state machine. ``World`` drives one store through lives that
end in a clean close, a kill or a power cut; ``check`` compares every way to read with the list.
"""

import random
from dataclasses import dataclass
from typing import Any

from rockstrata.message.batch import BatchElement, encode_batch
from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.check import StoreCheck
from rockstrata.store.check_findings import Finding
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import BoundaryType, PutResult, PutStatus
from rockstrata.testing.forgetful_disk import ForgetfulDisk, Keeps, PowerCut
from rockstrata.testing.manual_clock import ManualClock
from store.store_kit import NOW, letter, open_store, read_queue_of


@dataclass
class Letter:
    """One message as it was put. Offsets are unknown (-1) if the machine stopped in the put."""

    message: Message
    physical_offset: int = -1
    queue_offset: int = -1
    is_durable: bool = False

    def __repr__(self) -> str:
        m, where = self.message, f"{self.physical_offset}, {self.queue_offset}"
        return f"Letter({m.body[:10]!r} {m.topic}/{m.queue_id} at {where}, durable={self.is_durable})"

    def is_(self, found: StoredMessage) -> bool:
        message = self.message
        return (
            (found.topic, found.queue_id, found.body) == (message.topic, message.queue_id, message.body)
            # A record checksum may follow.
            and found.properties[: len(message.properties)] == message.properties
            and len(found.properties) - len(message.properties) in (0, 20)
            and self.physical_offset in (-1, found.physical_offset)
            and self.queue_offset in (-1, found.queue_offset)
        )


class World:
    """The store under test and the letters it was given, in log order."""

    def __init__(self, disk: ForgetfulDisk | None = None, **changes: Any) -> None:
        self.clock = ManualClock(NOW)
        self.disk = disk or ForgetfulDisk(self.clock)
        self.disk.clock = self.clock
        self.changes = changes
        self.letters: list[Letter] = []
        self.count = 0
        # Letters before this place were deleted with their log files.
        self.first = 0
        self.store = self.open()

    def open(self, **more: Any) -> LocalMessageStore:
        return open_store(self.disk, self.clock, **(self.changes | more))

    @property
    def is_sync(self) -> bool:
        return self.store.commit_log.is_sync

    # Putting

    def make(self, size: int, queue: int, properties: int = 0) -> Message:
        n, self.count = self.count, self.count + 1
        more = {"filler": "x" * properties} if properties else {}
        return letter(n, f"topic{queue % 2}", queue // 2, size, properties=more)

    def put(self, size: int = 60, queue: int = 0, properties: int = 0) -> PutResult:
        message = self.make(size, queue, properties)
        self.letters.append(Letter(message))
        result = self.store.put(message)
        self._note(self.letters[-1:], [result])
        return result

    def put_batch(self, sizes: list[int], queue: int = 0, properties: int = 0) -> None:
        messages = [self.make(size, queue + n, properties) for n, size in enumerate(sizes)]
        mine = [Letter(message) for message in messages]
        self.letters += mine
        self._note(mine, list(self.store.put_batch(messages)))

    def put_client_batch(self, sizes: list[int], queue: int = 0) -> None:
        messages = [self.make(size, queue) for size in sizes]
        mine = [Letter(message) for message in messages]
        self.letters += mine
        elements = [BatchElement(0, m.body, m.properties) for m in messages]
        batch = Message(messages[0].topic, encode_batch(elements), messages[0].queue_id)
        result = self.store.put_client_batch(batch)
        self._note(mine, list(result) if result.stored else [result[0]] * len(mine))

    def _note(self, mine: list[Letter], results: list[PutResult]) -> None:
        for one, result in zip(mine, results, strict=True):
            if result.ok:
                one.physical_offset, one.queue_offset = result.physical_offset, result.queue_offset
                one.is_durable = self.is_sync and result.status is PutStatus.PUT_OK
            else:
                self.letters.remove(one)

    # What the store's services would do

    def sync(self) -> None:
        end = self.store.commit_log.sync()
        for one in self.letters:
            if 0 <= one.physical_offset < end:
                one.is_durable = True

    def dispatch(self) -> None:
        self.store.dispatcher.catch_up()

    def flush_queues(self) -> None:
        self.store._queue_flusher.flush_all()

    def flush_index(self) -> None:
        if self.store.index is not None:
            self.store.index.flush()

    def save_checkpoint(self) -> None:
        self.store.checkpoint.flush()

    # The ends of a life

    def close(self) -> None:
        self.store.close()
        for one in self.letters:
            one.is_durable = True

    def kill(self) -> None:
        """The process dies; what it wrote stays in the page cache."""
        self.disk = self.disk.kill()

    def power_cut(self, keeps: Keeps = None, tear: tuple[int, int] | None = None) -> None:
        self.disk = self.disk.power_cut(keeps, tear=tear)

    def reopen(self, *, killed: bool = False) -> None:
        """Open again; the letters that did not survive are forgotten, if they were allowed to go."""
        self.store = self.open()
        self.dispatch()
        self.forget_lost(killed=killed)

    def forget_deleted(self) -> None:
        """Retention moved the log's minimum."""
        minimum = max(0, self.store.commit_log.min_offset)
        self.first = sum(0 <= one.physical_offset < minimum for one in self.letters)

    def forget_lost(self, *, killed: bool = False) -> None:
        self.forget_deleted()
        found = self.everything()
        if killed and self.store.commit_log.pool is None:
            whole = [one for one in self.letters if one.physical_offset >= 0]
            assert len(found) >= len(whole) - self.first, "a kill costs nothing that was answered"
        expected = self.letters[self.first :]
        assert len(found) <= len(expected), (len(found), len(expected))
        for one, message in zip(expected, found, strict=False):
            assert one.is_(message), (one, describe(message))
            one.physical_offset, one.queue_offset = message.physical_offset, message.queue_offset
        lost = expected[len(found) :]
        assert not any(one.is_durable for one in lost), [one for one in lost if one.is_durable][:2]
        del self.letters[self.first + len(found) :]
        # Recovery has synced what it kept.
        for one in self.letters:
            one.is_durable = True

    # Comparing

    def everything(self) -> list[StoredMessage]:
        """Every message of every queue of ours, in log order."""
        found = [
            message
            for topic, queue_ids in self.store.topic_queues().items()
            if topic.startswith("topic")
            for queue_id in queue_ids
            for message in read_queue_of(self.store, topic, queue_id)
        ]
        return sorted(found, key=lambda message: message.physical_offset)

    def check(self) -> None:
        """Every way to read agrees with the list."""
        store = self.store
        expected = self.letters[self.first :]
        found = self.everything()
        assert len(found) == len(expected)
        by_queue: dict[tuple[str, int], list[StoredMessage]] = {}
        for one, message in zip(expected, found, strict=True):
            assert one.is_(message), (one, describe(message))
            by_queue.setdefault((message.topic, message.queue_id), []).append(message)
            assert store.message_at(message.physical_offset) == message
        for (topic, queue_id), queue in by_queue.items():
            offsets = [message.queue_offset for message in queue]
            first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            assert offsets == list(range(first, end))
            if not self.first:
                assert offsets[0] == 0
            self._check_times(topic, queue_id, queue)
        for message in random.Random(len(found)).sample(found, min(8, len(found))):
            assert store.message_by_id(message.message_id) == message
            if store.index is not None:
                assert store.query(message.topic, message.keys or "") == [message]
        assert store.query("topic0", "never put") == []
        times = [message.store_timestamp for message in found]
        assert times == sorted(times)

    def _check_times(self, topic: str, queue_id: int, queue: list[StoredMessage]) -> None:
        times = [message.store_timestamp for message in queue]
        first = queue[0].queue_offset
        for t in {times[0] - 1, times[0], times[len(times) // 2], times[-1], times[-1] + 1}:
            lower = first + sum(time < t for time in times)
            upper = first + max(0, sum(time <= t for time in times) - 1)
            assert self.store.offset_by_time(topic, queue_id, t) == lower
            assert self.store.offset_by_time(topic, queue_id, t, BoundaryType.UPPER) == upper

    def scrub(self) -> None:
        """The store is closed: its files must agree with each other."""
        check = StoreCheck(self.store.config, disk=self.disk, clock=self.clock)
        findings = [one for one in check.run() if isinstance(one, Finding) and not one.note]
        assert not findings, findings

    def check_writable(self) -> None:
        """One more letter goes in and comes out."""
        result = self.put()
        assert result.status is PutStatus.PUT_OK, result
        self.store.commit_log.commit()
        self.sync()
        self.dispatch()
        found = self.store.get(self.letters[-1].message.topic, 0, result.queue_offset).messages()
        assert self.letters[-1].is_(found[0])


def describe(found: StoredMessage) -> str:
    where = f"{found.topic}/{found.queue_id} at {found.physical_offset}, {found.queue_offset}"
    return f"{found.body[:10]!r} {where}, {found.properties.count(0)} zeros in its properties"


def run_until_stop(world: World, calls: int | None, steps: list[Any]) -> None:
    """Do the steps; the machine stops after so many disk calls, wherever that is."""
    if calls is not None:
        world.disk.stop_after(calls)
    try:
        for step in steps:
            step(world)
    except PowerCut:
        return
