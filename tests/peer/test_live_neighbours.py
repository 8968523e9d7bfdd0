"""Beside a living owner: a reader reads whole records only, and nobody else gets the directory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from peer.exchange import Contents, open_reader, open_store, ours
from peer.oracle import CRASH_FILES, Oracle, put_more
from peer.peer import NEWEST, OLDER, Peer, PeerError, answers
from rockstrata.errors import StoreLockedError
from rockstrata.store.reader import StoreReader

pytestmark = pytest.mark.peer

BYTES = 220
QUEUES = 4
WANTED = 1500
PATIENCE_S = 60.0
BOTH_VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"peer-{version}")) for version in (NEWEST, OLDER)
]


class Follower:
    """Reads each queue from where it stopped, as a consumer would."""

    def __init__(self, reader: StoreReader, oracle: Oracle) -> None:
        self._reader = reader
        self._oracle = oracle
        self.seen: dict[int, list[tuple[int, int]]] = {queue_id: [] for queue_id in range(QUEUES)}

    def step(self) -> int:
        """Read what is new; every letter must be whole and the next one."""
        taken = 0
        for queue_id, seen in self.seen.items():
            result = self._reader.get(self._oracle.topic, queue_id, len(seen), 1000)
            for message, read_at in zip(result.messages(), result.queue_offsets, strict=True):
                assert read_at == len(seen)
                number = self._oracle.check_letter((self._oracle.topic, queue_id), ours(message, read_at))
                seen.append((number, message.physical_offset))
                taken += 1
            assert result.next_begin_offset == len(seen)
        return taken

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))


@pytest.mark.parametrize("version", BOTH_VERSIONS)
def test_a_reader_follows_a_living_rocketmq(peers: dict[str, Peer], tmp_path: Path, version: str) -> None:
    oracle = Oracle(letter_bytes=BYTES)
    # Acks go to a file: a pipe nobody empties would stop the writer.
    call = peers[version].command_line(
        "stream", tmp_path / "store", conf=CRASH_FILES, queues=QUEUES, bytes=BYTES
    )
    with (tmp_path / "acks").open("w") as acks, (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(call, stdout=acks, stderr=errors)
    with process:
        try:
            follower = _follow(tmp_path / "store", oracle)
            assert process.poll() is None, "the writer still lives"
            with pytest.raises(StoreLockedError):
                open_store(tmp_path / "store", CRASH_FILES)
            # The refusal changed nothing: the follower goes on.
            more = follower.count + 500
            _until(lambda: follower.step() >= 0 and follower.count >= more)
        finally:
            process.kill()

    lines = [line for line in answers((tmp_path / "acks").read_text().split("\n")) if "ack" in line]
    oracle.acked(lines)
    for queue_id, seen in follower.seen.items():
        told = [letter for _, letter in sorted(oracle.queues[queue_id].items())]
        # At most the last one was read and not acknowledged before the kill.
        assert seen[: len(told)] == told[: len(seen)]
        assert len(seen) <= len(told) + 1
    with open_store(tmp_path / "store", CRASH_FILES) as store:
        oracle.check_every_road(store, unacked=1)


def _follow(root: Path, oracle: Oracle) -> Follower:
    _until(lambda: (root / "consumequeue" / oracle.topic / str(QUEUES - 1)).exists())
    reader = open_reader(root, CRASH_FILES)
    follower = Follower(reader, oracle)
    _until(lambda: follower.step() >= 0 and follower.count >= WANTED)
    assert len(list((root / "commitlog").iterdir())) > 5, "the log rolled under the reader"
    # Keys and times of what was just written, while more is being written.
    for queue_id, seen in follower.seen.items():
        number, physical = seen[len(seen) // 2]
        assert physical in [m.physical_offset for m in reader.query(oracle.topic, str(number))]
        message = reader.message_at(physical)
        assert message is not None
        offset = reader.offset_by_time(oracle.topic, queue_id, message.store_timestamp)
        assert 0 <= offset <= len(seen) // 2
    return follower


def _until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.mark.parametrize("version", BOTH_VERSIONS)
def test_rocketmq_does_not_start_where_we_live(peers: dict[str, Peer], tmp_path: Path, version: str) -> None:
    """RocketMQ takes the lock only after loading, so its failed start is no innocent act: it may cut and
    delete. Ours must go on, and all must be there in the end.
    """
    oracle = Oracle(letter_bytes=BYTES)
    with open_store(tmp_path, CRASH_FILES) as store:
        # More than half a file, so that the next one is already there.
        put_more(store, oracle, 0, 450)
        _until(lambda: len(list((tmp_path / "commitlog").iterdir())) == 4)

        with pytest.raises(PeerError, match=r"(?i)lock"):
            peers[version].dump(tmp_path, conf=CRASH_FILES)

        put_more(store, oracle, 1000, 400)
        store.dispatcher.catch_up()
        oracle.check_every_road(store)
    oracle.check_every_road(open_reader(tmp_path, CRASH_FILES), by_key=False)
    dumped = peers[version].dump(tmp_path, conf=CRASH_FILES, ending="halt")
    assert dumped.facts["was_clean"]
    oracle.check(Contents.of_dump(dumped))
