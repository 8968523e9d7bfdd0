"""One side is killed in the middle of writing; the other recovers every acknowledged message."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.exchange import Contents, open_reader, open_store
from peer.oracle import CRASH_FILES, Oracle, put_more, spawn_puts, stream_until_killed
from peer.peer import NEWEST, OLDER, Peer

pytestmark = pytest.mark.peer

BYTES = 200
FLUSH = ("SYNC_FLUSH", "ASYNC_FLUSH")
BOTH_VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"peer-{version}")) for version in (NEWEST, OLDER)
]


@pytest.mark.parametrize("flush", FLUSH)
@pytest.mark.parametrize("version", BOTH_VERSIONS)
def test_rocketmq_is_killed_and_we_recover(
    peers: dict[str, Peer], tmp_path: Path, version: str, flush: str
) -> None:
    root = tmp_path / "store"
    conf = {**CRASH_FILES, "flushDiskType": flush}
    oracle = Oracle(letter_bytes=BYTES)
    for round_number in range(2):
        process = peers[version].spawn("stream", root, conf=conf, queues=4, bytes=BYTES)
        oracle.acked(stream_until_killed(process, 700 + 400 * round_number))
        assert (root / "abort").exists()
        # Before anybody recovered: whole records only, whatever the tail looks like.
        oracle.check(Contents.of(open_reader(root, conf)), unacked=1, complete=False)

        with open_store(root, conf) as store:
            assert not store.recovery.clean
            oracle.check_every_road(store, unacked=1)
            put_more(store, oracle, 100_000 * (round_number + 1), 150)
        assert not (root / "abort").exists()
        oracle.check_every_road(open_reader(root, conf))

    dumped = peers[version].dump(root, conf=conf)

    assert dumped.facts["was_clean"]
    oracle.check(Contents.of_dump(dumped))
    with open_store(root, conf) as store:
        assert store.recovery.clean
        oracle.check_every_road(store)


@pytest.mark.parametrize("version", BOTH_VERSIONS)
def test_we_are_killed_and_rocketmq_recovers(peers: dict[str, Peer], tmp_path: Path, version: str) -> None:
    root = tmp_path / "store"
    oracle = Oracle(letter_bytes=BYTES)
    rounds = [(flush, together) for together in (1, 20) for flush in FLUSH]
    for number, (flush, together) in enumerate(rounds):
        conf = {**CRASH_FILES, "flushDiskType": flush}
        process = spawn_puts(root, conf, letter_bytes=BYTES, together=together, first=number * 100_000)
        oracle.acked(stream_until_killed(process, 600 + 200 * number))
        assert (root / "abort").exists()

        # It leaves in order, or by a halt so that we have to recover from its recovery.
        ending = ("clean", "halt")[number % 2]
        dumped = peers[version].dump(root, conf=conf, ending=ending)

        assert dumped.facts["loaded"]
        assert not dumped.facts["was_clean"]
        oracle.check(Contents.of_dump(dumped), unacked=together)
        with open_store(root, conf) as store:
            assert store.recovery.clean is (ending == "clean")
            oracle.check_every_road(store)
            put_more(store, oracle, number * 100_000 + 50_000, 60)
    dumped = peers[version].dump(root, conf=CRASH_FILES, ending="halt")
    assert dumped.facts["was_clean"]
    oracle.check(Contents.of_dump(dumped))
