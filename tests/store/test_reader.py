"""The reader beside a writer that rolls and deletes files: whole records only, and never a write.

Run as a script this file is the writer.
"""

import json
import os
import random
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockstrata.errors import ConfigError, CorruptionError
from rockstrata.message.batch import BatchElement, encode_batch, inner_batch, unwrap_inner_batch
from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.message_filter import TagFilter
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.reader import QueueRange, StoreReader
from rockstrata.store.results import BoundaryType, GetStatus
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.topics import TopicConfig
from store.store_kit import ASYNC, bodies, letter, letters, put_all, queue_path, settle, small_config

BATCH_TOPIC, BATCH = "batches", 4
SIMPLE_QUEUES = [("topic0", 0), ("topic0", 1), ("topic1", 0)]
QUEUES = [*SIMPLE_QUEUES, (BATCH_TOPIC, 0)]
KEPT_FILES = 4
OLD_S = 1_000_000_000


# The writer


def live_config(root: Path) -> StoreConfig:
    return small_config(
        root,
        commit_log_file_bytes=16 << 10,
        consume_queue_file_bytes=400,
        flush_disk_type=ASYNC,
        delete_when=";".join(map(str, range(24))),
        delete_commit_log_files_interval_ms=0,
        delete_consume_queue_files_interval_ms=0,
        max_index_num=200,
    )


def body_of(topic: str, queue_id: int, queue_offset: int) -> bytes:
    name = f"{topic}/{queue_id}/{queue_offset};"
    return name.encode() + random.Random(name).randbytes(queue_offset * 37 % 400)


def make_batch_topic(store: LocalMessageStore) -> None:
    config = TopicConfig(topic_name=BATCH_TOPIC, attributes={"queue.type": "BatchCQ"})
    store.topics.create_or_update(config)


def put_next(store: LocalMessageStore, topic: str, queue_id: int, queue_offset: int) -> int:
    """The message (or batch) that gets this offset; the offset after it."""
    if topic != BATCH_TOPIC:
        body = body_of(topic, queue_id, queue_offset)
        assert store.put(Message.of(topic, body, queue_id=queue_id, keys=f"k{queue_offset}", tags="t")).ok
        return queue_offset + 1
    end = queue_offset + BATCH
    elements = [BatchElement(0, body_of(topic, queue_id, n)) for n in range(queue_offset, end)]
    assert store.put(inner_batch(Message(topic, encode_batch(elements), queue_id))).ok
    return end


def write(root: Path) -> None:
    """Put, roll and delete until told to stop."""
    ends = dict.fromkeys(QUEUES, 0)
    luck = random.Random(3)
    deleted = 0
    os.set_blocking(0, False)
    with LocalMessageStore.open(live_config(root)) as store:
        make_batch_topic(store)
        print("ready", flush=True)
        while sys.stdin.buffer.raw.read(1) is None:  # type: ignore[attr-defined]
            for _ in range(200):
                queue = luck.choice(QUEUES)
                ends[queue] = put_next(store, *queue, ends[queue])
            settle(store)
            store._queue_flusher.flush_all()
            for file in store.commit_log.queue.files[:-KEPT_FILES]:
                os.utime(file.path, (OLD_S, OLD_S))
            deleted += store.retention.clean()
    print(json.dumps([deleted, [[*queue, end] for queue, end in ends.items()]]), flush=True)


# Beside a live writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, __file__, str(tmp_path / "store")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def check_messages(queue: tuple[str, int], messages: list[StoredMessage]) -> list[int]:
    """They are this queue's, each in its place; their offsets."""
    offsets = []
    for message in messages:
        for inner in unwrap_inner_batch(message):
            assert (inner.topic, inner.queue_id) == queue
            assert inner.body == body_of(*queue, inner.queue_offset)
            offsets.append(inner.queue_offset)
    return offsets


class Follower:
    """One reader and where it is in each queue."""

    def __init__(
        self, root: Path, luck: random.Random, seen: set[tuple[str, int]], *, from_the_oldest: bool
    ) -> None:
        self.root = root
        # Queues that are surely not empty; all followers know.
        self.seen = seen
        self.luck = luck
        self.from_the_oldest = from_the_oldest
        self.reader = StoreReader(live_config(root))
        self.offsets = dict.fromkeys(QUEUES, 0)
        self.ends = dict.fromkeys(QUEUES, 0)
        self.minima = dict.fromkeys(QUEUES, 0)
        self.statuses: Counter[GetStatus] = Counter()

    def step(self) -> None:
        queue = self.luck.choice(QUEUES)
        reader = self.reader
        minimum, end = reader.min_offset(*queue), reader.max_offset(*queue)
        assert end >= self.ends[queue], "a queue does not shrink"
        self.ends[queue] = end
        if minimum >= 0:
            assert minimum >= self.minima[queue], "its minimum does not go back"
            self.minima[queue] = minimum
        if self.from_the_oldest:
            # What is about to be deleted.
            self.offsets[queue] = max(0, minimum)
        messages = self.read(queue, self.luck.choice((1, 8, 100)))
        if self.luck.random() < 0.2:
            self._look_up(queue, messages)

    def read(self, queue: tuple[str, int], count: int) -> list[StoredMessage]:
        offset = self.offsets[queue]
        result = self.reader.get(*queue, offset, count)
        self.statuses[result.status] += 1
        self.offsets[queue] = result.next_begin_offset
        assert result.next_begin_offset >= offset
        assert bool(result.records) == (result.status is GetStatus.FOUND)
        if result.status is GetStatus.NO_MESSAGE_IN_QUEUE:
            assert queue not in self.seen
        messages = result.messages()
        found = check_messages(queue, messages)
        if found:
            self.seen.add(queue)
        assert found == sorted(set(found))
        self._only_deleted_ones_are_missing(queue, set(range(offset, result.next_begin_offset)) - set(found))
        return messages

    def _only_deleted_ones_are_missing(self, queue: tuple[str, int], missing: set[int]) -> None:
        if missing:
            assert max(missing) < StoreReader(live_config(self.root)).min_offset(*queue)

    def _look_up(self, queue: tuple[str, int], messages: list[StoredMessage]) -> None:
        reader = self.reader
        reader.ranges()
        for boundary in BoundaryType:
            reader.offset_by_time(*queue, int(time.time() * 1000) - 200, boundary)
        if messages:
            one = self.luck.choice(messages)
            assert reader.message_at(one.physical_offset) in (one, None)
            assert reader.message_by_id(one.message_id) in (one, None)
            if one.keys:
                found = [m for m in reader.query(one.topic, one.keys) if m.queue_id == one.queue_id]
                assert found in ([one], [])


def test_beside_a_writer_that_rolls_and_deletes_only_whole_messages_are_seen(
    tmp_path: Path, writer: subprocess.Popen[str]
) -> None:
    root = tmp_path / "store"
    luck = random.Random(4)
    seen: set[tuple[str, int]] = set()
    tail = Follower(root, luck, seen, from_the_oldest=False)
    oldest = Follower(root, luck, seen, from_the_oldest=True)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        tail.step()
        oldest.step()
        if luck.random() < 0.01:
            # One that has no open files to lean on.
            oldest = Follower(root, luck, seen, from_the_oldest=True)
    answer, _ = writer.communicate("x", timeout=30)
    deleted, ends = json.loads(answer.splitlines()[-1])

    assert deleted > 10
    assert tail.statuses[GetStatus.FOUND] > 20
    for topic, queue_id, end in ends:
        queue = (topic, queue_id)
        assert tail.reader.max_offset(*queue) == end
        # What is left is read to the very end.
        while tail.offsets[queue] < end:
            tail.read(queue, 32)


# A quiet store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalMessageStore]:
    config = small_config(tmp_path / "store")
    with LocalMessageStore.open(config, start_services=False) as store:
        yield store


def reader_of(store: LocalMessageStore, **more: Any) -> StoreReader:
    return StoreReader(store.config, **more)


def test_a_reader_answers_as_the_store_does(store: LocalMessageStore) -> None:
    results = put_all(store, letters(60))
    put_all(store, letters(5, 60, topic="bills", queue_id=2))
    reader = reader_of(store)

    assert bodies(reader) == bodies(store) == [letter(n).body for n in range(60)]
    assert reader.ranges() == [QueueRange("bills", 2, 0, 5), QueueRange("orders", 0, 0, 60)]
    assert reader.topic_queues() == {"bills": [2], "orders": [0]}
    for n in (0, 17, 59):
        place = results[n].physical_offset
        assert reader.message_at(place) == store.message_at(place)
        assert reader.query("orders", f"key{n}") == store.query("orders", f"key{n}") != []
        assert reader.message_by_id(results[n].message_id) == store.message_at(place)
        assert reader.physical_offset("orders", 0, n) == place
        assert reader.store_time("orders", 0, n) == results[n].store_timestamp
    time_ms = results[30].store_timestamp
    for boundary in BoundaryType:
        expected = store.offset_by_time("orders", 0, time_ms, boundary)
        assert reader.offset_by_time("orders", 0, time_ms, boundary) == expected
    tags = TagFilter("tag1")
    assert reader.get("orders", 0, 0, message_filter=tags).queue_offsets == list(range(1, 20, 3))
    end = results[-1].physical_offset + 100_000
    for outside in (end, -1, 1 << 50):
        assert reader.message_at(outside) is None


def test_a_reader_sees_what_comes_after_it_was_opened(store: LocalMessageStore) -> None:
    reader = reader_of(store)
    assert reader.get("orders", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    for n in range(70):
        put_all(store, [letter(n)])
        assert reader.max_offset("orders", 0) == n + 1
        assert reader.get("orders", 0, n).messages()[0].body == letter(n).body
        assert reader.get("orders", 0, n + 1).status is GetStatus.OFFSET_OVERFLOW_ONE


def test_what_is_not_dispatched_is_not_there_yet(store: LocalMessageStore) -> None:
    put_all(store, letters(3))
    store.put(letter(3))
    reader = reader_of(store)
    assert reader.max_offset("orders", 0) == 3
    settle(store)
    assert reader.max_offset("orders", 0) == 4


def test_an_empty_store_and_unknown_queues_are_empty(store: LocalMessageStore) -> None:
    reader = reader_of(store)

    assert reader.ranges() == []
    assert reader.topic_queues() == {}
    assert reader.query("orders", "key0") == []
    assert reader.message_at(0) is None
    put_all(store, letters(3))
    for topic, queue_id in (("nobody", 0), ("orders", 1), ("orders", -1), ("../orders", 0), ("", 0)):
        result = reader.get(topic, queue_id, 0)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert reader.max_offset(topic, queue_id) == 0
    assert reader.max_offset("orders", 0) == 3


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no store here"):
        StoreReader.open(tmp_path / "nowhere")


def test_a_batch_queue_is_read_at_any_offset(store: LocalMessageStore) -> None:
    make_batch_topic(store)
    end = 0
    for _ in range(25):
        end = put_next(store, BATCH_TOPIC, 0, end)
    settle(store)
    reader = reader_of(store)

    assert (reader.min_offset(BATCH_TOPIC, 0), reader.max_offset(BATCH_TOPIC, 0)) == (0, end)
    for offset in range(end):
        base = offset - offset % BATCH
        result = reader.get(BATCH_TOPIC, 0, offset, 1)
        assert (result.queue_offsets, result.next_begin_offset) == ([base], base + BATCH)
        assert check_messages((BATCH_TOPIC, 0), result.messages()) == list(range(base, base + BATCH))
        assert reader.physical_offset(BATCH_TOPIC, 0, offset) == result.messages()[0].physical_offset
    assert reader.get(BATCH_TOPIC, 0, end).status is GetStatus.OFFSET_OVERFLOW_ONE


# Halves


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("shown", ["physical offset", "size", "physical offset and size", "nothing"])
def test_a_half_written_unit_is_not_there_yet(store: LocalMessageStore, shown: str) -> None:
    put_all(store, letters(6))
    path = queue_path(root=store.config.root)
    whole = path.read_bytes()[5 * 20 : 6 * 20]
    physical, size, _ = CONSUME_QUEUE_UNIT.struct.unpack(whole)
    physical = physical if "physical" in shown else 0
    half = CONSUME_QUEUE_UNIT.struct.pack(physical, size if "size" in shown else 0, 0)
    write_at(path, 5 * 20, half)
    reader = reader_of(store)

    assert reader.max_offset("orders", 0) == 5
    result = reader.get("orders", 0, 0)
    assert (result.queue_offsets, result.next_begin_offset) == ([0, 1, 2, 3, 4], 5)
    assert reader.get("orders", 0, 5).status is GetStatus.OFFSET_OVERFLOW_ONE

    write_at(path, 5 * 20, whole)
    assert reader.get("orders", 0, 5).messages()[0].body == letter(5).body


@pytest.mark.parametrize("known_bytes", range(0, 42, 6))
def test_a_half_written_batch_unit_is_not_there_yet(store: LocalMessageStore, known_bytes: int) -> None:
    make_batch_topic(store)
    end = 0
    for _ in range(3):
        end = put_next(store, BATCH_TOPIC, 0, end)
    settle(store)
    path = store.config.batch_consume_queue_dir / BATCH_TOPIC / "0" / f"{0:020d}"
    at = 2 * BATCH_CONSUME_QUEUE_UNIT.size
    whole = path.read_bytes()[at : at + BATCH_CONSUME_QUEUE_UNIT.size]
    write_at(path, at, whole[:known_bytes].ljust(len(whole), b"\0"))
    reader = reader_of(store)

    assert reader.max_offset(BATCH_TOPIC, 0) == 2 * BATCH
    assert reader.get(BATCH_TOPIC, 0, 2 * BATCH).status is GetStatus.OFFSET_OVERFLOW_ONE
    write_at(path, at, whole)
    assert reader.max_offset(BATCH_TOPIC, 0) == end


def test_a_half_written_record_is_not_there_yet(store: LocalMessageStore) -> None:
    results = put_all(store, letters(3))
    path = store.config.commit_log_paths[0] / f"{0:020d}"
    end = results[-1].physical_offset + results[-1].record_bytes
    # The size is the first thing to be seen of the next one.
    write_at(path, end, (0).to_bytes(4, "big"))
    assert reader_of(store).message_at(end) is None


def test_a_damaged_record_is_an_error_and_never_no_message(store: LocalMessageStore) -> None:
    results = put_all(store, letters(5))
    path = store.config.commit_log_paths[0] / f"{0:020d}"
    place = results[2].physical_offset
    good = path.read_bytes()[place : place + results[2].record_bytes]
    for position in (2, 4, 100):
        bad = bytearray(good)
        bad[position] ^= 0x40
        write_at(path, place, bytes(bad))
        reader = reader_of(store)
        with pytest.raises(CorruptionError):
            reader.get("orders", 0, 2).messages()
        with pytest.raises(CorruptionError):
            reader.message_at(place)
        with pytest.raises(CorruptionError):
            reader.query("orders", "key2")
        assert reader.get("orders", 0, 3).messages()[0].body == letter(3).body
    write_at(path, place, good)


# Files that vanish


def test_a_log_file_that_vanishes_is_a_status_and_no_exception(store: LocalMessageStore) -> None:
    results = put_all(store, letters(60))
    folder = store.config.commit_log_paths[0]
    size = store.config.commit_log_file_bytes
    reader = reader_of(store)
    assert reader.min_offset("orders", 0) == 0
    (folder / f"{0:020d}").unlink()
    second = next(n for n, result in enumerate(results) if result.physical_offset >= size)

    # It had looked before the file went.
    result = reader.get("orders", 0, 0, 5)
    assert result.status in (GetStatus.MESSAGE_WAS_REMOVING, GetStatus.FOUND)
    assert all(offset >= second for offset in result.queue_offsets)
    # Now it knows.
    assert reader.min_offset("orders", 0) == second
    result = reader.get("orders", 0, 0)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, second)
    assert reader.get("orders", 0, second).messages()[0].body == letter(second).body
    assert reader.message_at(0) is None
    assert reader.query("orders", "key0") == []
    assert reader.message_by_id(results[0].message_id) is None
    assert reader.store_time("orders", 0, 0) == -1


class OldestGoes(PosixDisk):
    """The oldest file of every directory is deleted after it was listed."""

    def file_bytes(self, path: Path) -> int:
        if int(path.name) == 0:
            path.unlink(missing_ok=True)
        return super().file_bytes(path)


def test_the_size_of_files_is_learnt_from_one_that_stays(store: LocalMessageStore) -> None:
    results = put_all(store, letters(60))
    reader = reader_of(store, disk=OldestGoes())
    first = next(n for n, result in enumerate(results) if result.physical_offset >= 4096)

    assert reader.log.file_bytes == 4096
    assert reader.min_offset("orders", 0) == max(20, first)
    assert reader.max_offset("orders", 0) == 60


def test_all_log_files_may_vanish(store: LocalMessageStore) -> None:
    put_all(store, letters(60))
    reader = reader_of(store)
    assert reader.max_offset("orders", 0) == 60
    for path in store.config.commit_log_paths[0].iterdir():
        path.unlink()
    assert reader.get("orders", 0, 0).status is GetStatus.MESSAGE_WAS_REMOVING
    assert reader.message_at(0) is None
    assert reader.query("orders", "key3") == []


def test_a_queue_without_any_log_is_a_status_too(store: LocalMessageStore) -> None:
    put_all(store, letters(60))
    for path in store.config.commit_log_paths[0].iterdir():
        path.unlink()
    result = reader_of(store).get("orders", 0, 0)
    assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 20)


def test_a_batch_queue_file_that_vanishes_moves_the_minimum(store: LocalMessageStore) -> None:
    make_batch_topic(store)
    end = 0
    for _ in range(25):
        end = put_next(store, BATCH_TOPIC, 0, end)
    settle(store)
    reader = reader_of(store)
    assert reader.queues.get(BATCH_TOPIC, 0) is not None
    (store.config.batch_consume_queue_dir / BATCH_TOPIC / "0" / f"{0:020d}").unlink()

    # Ten units of four messages were in it.
    assert (reader.min_offset(BATCH_TOPIC, 0), reader.max_offset(BATCH_TOPIC, 0)) == (40, end)
    assert reader.get(BATCH_TOPIC, 0, 0).next_begin_offset == 40
    assert reader.get(BATCH_TOPIC, 0, 43).queue_offsets[0] == 40


def test_a_queue_file_that_vanishes_is_a_status_and_no_exception(store: LocalMessageStore) -> None:
    put_all(store, letters(60))
    fresh, known = reader_of(store), reader_of(store)
    assert known.get("orders", 0, 0).queue_offsets[0] == 0
    assert fresh.queues.get("orders", 0) is not None
    queue_path(root=store.config.root).unlink()

    for reader in (fresh, known):
        result = reader.get("orders", 0, 0)
        assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, 20)
        assert reader.get("orders", 0, 20).messages()[0].body == letter(20).body
    assert fresh.min_offset("orders", 0) == 20
    assert fresh.offset_by_time("orders", 0, 0) == 20


# Never a write


def picture(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file: its mode, its time, its bytes."""
    found = {}
    for path in sorted(root.rglob("*")):
        facts = path.stat()
        data = path.read_bytes() if stat.S_ISREG(facts.st_mode) else b""
        found[str(path)] = (facts.st_mode, facts.st_mtime_ns, data)
    return found


class ReadOnlyDisk(PosixDisk):
    """Says no to everything that could change a file."""

    def open(self, path: Path, *, writable: bool = True) -> Any:
        assert not writable, path
        return super().open(path, writable=False)

    def refuse(self, *args: Any, **options: Any) -> Any:
        raise AssertionError(f"a reader wrote: {args}")

    create = write_file = rename = unlink = remove_dir = make_dirs = sync_dir = lock = refuse


def test_a_reader_never_writes(store: LocalMessageStore) -> None:
    put_all(store, letters(60))
    make_batch_topic(store)
    put_next(store, BATCH_TOPIC, 0, 0)
    settle(store)
    before = picture(store.config.root)

    reader = reader_of(store, disk=ReadOnlyDisk())
    assert len(bodies(reader)) == 60
    assert reader.get(BATCH_TOPIC, 0, 0).message_count == BATCH
    reader.ranges()
    assert reader.query("orders", "key7")
    assert reader.query("orders", "tag0", by_tag=True) == store.query("orders", "tag0", by_tag=True)
    assert reader.message_at(0) is not None
    reader.offset_by_time("orders", 0, 1)
    reader.estimate_message_count("orders", 0, 0, 60, TagFilter("tag1"))

    assert picture(store.config.root) == before


def test_a_reader_works_on_files_it_may_not_write(store: LocalMessageStore) -> None:
    put_all(store, letters(30))
    paths = [store.config.root, *store.config.root.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        reader = reader_of(store)
        assert bodies(reader) == [letter(n).body for n in range(30)]
        assert reader.query("orders", "key7")[0].body == letter(7).body
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_file_still_being_made_is_not_there_yet(store: LocalMessageStore) -> None:
    put_all(store, letters(5))
    root = store.config.root
    last = max(store.config.commit_log_paths[0].iterdir())
    (last.parent / f"{int(last.name) + 4096:020d}").write_bytes(b"")
    queue_path(start=400, root=root).write_bytes(b"\0" * 10)
    (last.parent / "notes.txt").write_text("mine")
    try:
        reader = reader_of(store)
        assert bodies(reader) == [letter(n).body for n in range(5)]
        assert reader.message_at(int(last.name) + 4096) is None
    finally:
        (last.parent / f"{int(last.name) + 4096:020d}").unlink()
        queue_path(start=400, root=root).unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
