"""A writer killed with SIGKILL again and again on one directory loses nothing it acknowledged.

Run as a script this file is the writer's nursery: it has imported everything and forks a writer for
each round, so that a round costs its recovery and its puts, not an interpreter's start.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.check import StoreCheck
from rockstrata.store.check_findings import Finding
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import PutStatus
from rockstrata.store.store_config import FlushDiskType, StoreConfig
from store.store_kit import read_queue_of

SINGLES, BATCHES = range(4), range(4, 6)
BATCH = 7
TOPICS, QUEUES = 3, 4
ROUNDS = int(os.environ.get("ROCKSTRATA_KILL_ROUNDS", "50"))

# (round, thread, number): who wrote a message.
Name = tuple[int, int, int]


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=str(root),
        broker_ip="127.0.0.1",
        commit_log_file_bytes=256 << 10,
        consume_queue_file_bytes=4_000,
        max_hash_slot_num=500,
        max_index_num=2_000,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        flush_interval_consume_queue_ms=50,
        # A nearly full disk is not the subject.
        disk_max_used_space_ratio=95,
        clean_file_forcibly_enable=False,
    )


def message_of(name: Name) -> Message:
    text = "-".join(map(str, name))
    luck = random.Random(text)
    body = text.encode() + b";" + luck.randbytes(luck.choice((0, 20, 200, 900)))
    return Message.of(
        f"topic{luck.randrange(TOPICS)}",
        body,
        queue_id=luck.randrange(QUEUES),
        keys=text,
        tags=f"tag{name[1]}",
    )


def name_of(message: StoredMessage) -> Name:
    number, thread, n = message.body.split(b";", 1)[0].split(b"-")
    return int(number), int(thread), int(n)


# The writer


def write(store: LocalMessageStore, acks: int, number: int, thread: int) -> None:
    """Put for ever; one line for each message that is durable."""
    n = 0
    while True:
        names = [(number, thread, n + k) for k in range(BATCH if thread in BATCHES else 1)]
        messages = [message_of(name) for name in names]
        results = list(store.put_batch(messages)) if thread in BATCHES else [store.put(messages[0])]
        if any(result.status is not PutStatus.PUT_OK for result in results):
            os.write(2, f"{results}\n".encode())
            os._exit(3)
        lines = [
            f"{number} {thread} {n + k} {result.queue_offset} {result.physical_offset}\n"
            for k, result in enumerate(results)
        ]
        os.write(acks, "".join(lines).encode())
        n += len(names)


def live(root: Path, ack_path: Path, number: int) -> None:
    acks = os.open(ack_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = LocalMessageStore.open(config_of(root))
    for thread in (*SINGLES, *BATCHES):
        threading.Thread(target=write, args=(store, acks, number, thread), daemon=True).start()
    signal.pause()


def nursery(root: Path) -> None:
    """For every line ``round path`` a forked writer; prints its process id, then how it ended."""
    with LocalMessageStore.open(config_of(root.with_name("warm"))) as store:
        store.put_batch([message_of((0, 0, n)) for n in range(BATCH)])
    print("ready", flush=True)
    for line in sys.stdin:
        number, ack_path = line.split()
        child = os.fork()
        if not child:
            try:
                live(root, Path(ack_path), int(number))
            except BaseException as error:
                os.write(2, f"{error!r}\n".encode())
            os._exit(4)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


# The test


class Ledger:
    """What the writers were told."""

    def __init__(self) -> None:
        self.acks: dict[Name, tuple[int, int]] = {}
        self.ends: dict[tuple[int, int], int] = defaultdict(int)

    def read(self, path: Path) -> int:
        # A line the kill cut off is no answer.
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        for line in lines:
            number, thread, n, queue_offset, physical_offset = map(int, line.split())
            self.acks[number, thread, n] = queue_offset, physical_offset
            self.ends[number, thread] = max(self.ends[number, thread], n + 1)
        return len(lines)

    def check(self, root: Path, luck: random.Random) -> int:
        """Open the store and compare everything."""
        config = config_of(root)
        with LocalMessageStore.open(config) as store:
            found: dict[Name, StoredMessage] = {}
            for topic, queue_ids in store.topic_queues().items():
                for queue_id in queue_ids:
                    queue = read_queue_of(store, topic, queue_id)
                    assert [message.queue_offset for message in queue] == list(range(len(queue)))
                    assert len(queue) == store.max_offset(topic, queue_id)
                    for message in queue:
                        name = name_of(message)
                        assert name not in found, f"{name} is there twice"
                        found[name] = message
            self._nothing_is_lost(found)
            self._nothing_is_invented(found)
            for name in luck.sample(sorted(found), min(100, len(found))):
                message = found[name]
                assert store.query(message.topic, message.keys or "") == [message]
                assert store.message_by_id(message.message_id) == message
        findings = [event for event in StoreCheck(config).run() if isinstance(event, Finding)]
        assert findings == []
        return len(found)

    def _nothing_is_lost(self, found: dict[Name, StoredMessage]) -> None:
        lost = sorted(self.acks.keys() - found.keys())
        assert not lost, f"{len(lost)} acknowledged and lost: {lost[:5]}"
        for name, place in self.acks.items():
            assert (found[name].queue_offset, found[name].physical_offset) == place, name

    def _nothing_is_invented(self, found: dict[Name, StoredMessage]) -> None:
        last: dict[tuple[int, int], int] = {}
        for name, message in sorted(found.items(), key=lambda item: item[1].physical_offset):
            put = message_of(name)
            stored = (message.topic, message.queue_id, message.body, message.properties)
            assert stored == (put.topic, put.queue_id, put.body, put.properties)
            number, thread, n = name
            # In a writer's own order, and without an answer at most what its last call was about.
            assert n == last.get((number, thread), -1) + 1
            last[number, thread] = n
            in_flight = BATCH if thread in BATCHES else 1
            assert n < self.ends[number, thread] + in_flight


@pytest.fixture
def nurse(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
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


def one_life(nurse: subprocess.Popen[str], number: int, acks: Path, luck: random.Random) -> None:
    assert nurse.stdin is not None
    assert nurse.stdout is not None
    nurse.stdin.write(f"{number} {acks}\n")
    nurse.stdin.flush()
    child = int(nurse.stdout.readline())
    patience = time.monotonic() + 60
    try:
        if luck.random() < 0.8:
            while not (acks.exists() and acks.stat().st_size):
                assert time.monotonic() < patience, "the writer never answered"
                time.sleep(0.002)
            time.sleep(luck.random() * 0.25)
        else:
            # Perhaps in the middle of its recovery.
            time.sleep(luck.random() * 0.1)
    finally:
        os.kill(child, signal.SIGKILL)
    assert int(nurse.stdout.readline()) == -signal.SIGKILL, "the writer ended by itself"


@pytest.mark.slow
def test_kill_nine_never_costs_an_acknowledged_message(tmp_path: Path, nurse: subprocess.Popen[str]) -> None:
    luck = random.Random(9)
    ledger = Ledger()
    rounds_with_acks = 0
    for number in range(1, ROUNDS + 1):
        acks = tmp_path / f"acks{number}"
        one_life(nurse, number, acks, luck)
        rounds_with_acks += ledger.read(acks) > 0
        if number % 10 == 0 or number == ROUNDS:
            assert ledger.check(tmp_path / "store", luck) >= len(ledger.acks)
    assert rounds_with_acks >= ROUNDS // 2
    assert len(ledger.acks) > 20 * ROUNDS


if __name__ == "__main__":
    nursery(Path(sys.argv[1]))
