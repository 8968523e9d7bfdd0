"""One directory changes hands, in order and by kill -9, and loses its oldest files in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.catalogue import INNER, odd_letters
from peer.exchange import Contents, copy_of, declare_batch_topics, open_reader, open_store, put_step
from peer.oracle import CRASH_FILES, Oracle, put_more, spawn_puts, stream_until_killed
from peer.peer import NEWEST, OLDER, Peer, put_batch
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.consume_queue import CONSUME_QUEUE_UNIT

pytestmark = pytest.mark.peer

BYTES = 180
WE = "we"
# Who owns the directory, and how it leaves; after "trimmed" the oldest commit-log files are gone.
TURNS = {
    "newest-first": [
        (NEWEST, "clean"), (WE, "clean"), (OLDER, "killed"), (WE, "trimmed"), (NEWEST, "killed"),
        (WE, "killed"), (OLDER, "clean"), (WE, "trimmed"), (NEWEST, "clean"), (WE, "clean"),
    ],
    "ours-first": [
        (WE, "killed"), (NEWEST, "killed"), (OLDER, "killed"), (WE, "killed"), (NEWEST, "clean"),
        (WE, "trimmed"), (OLDER, "clean"), (WE, "killed"), (OLDER, "killed"), (WE, "clean"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param(turns, id=name, marks=pytest.mark.xdist_group(f"owners-{name}"))
        for name, turns in TURNS.items()
    ],
)
def test_ten_owners_in_turn_lose_nothing(
    peers: dict[str, Peer], tmp_path: Path, turns: list[tuple[str, str]]
) -> None:
    root = tmp_path / "store"
    declare_batch_topics(root, INNER)
    oracle = Oracle(letter_bytes=BYTES)
    unacked = 0
    for number, (owner, ending) in enumerate(turns):
        first = number * 100_000
        # In what the last owner left, whole letters only: before anybody recovers it.
        if number:
            contents = Contents.of(open_reader(root, CRASH_FILES))
            oracle.check(contents, unacked=unacked, complete=turns[number - 1][1] != "killed")
        if owner == WE:
            _our_turn(root, oracle, first, ending, unacked)
            unacked = 0
        else:
            _javas_turn(peers[owner], root, oracle, ending)
        # Each kill may leave one letter nobody was told of, and only recovery makes it readable.
        unacked += ending == "killed"
        if ending == "trimmed":
            _trim(root, oracle)
        if owner == WE and ending != "killed":
            dumped = peers[turns[number - 1][0]].dump(
                copy_of(root, f"turn-{number}"), conf=CRASH_FILES, ending="halt"
            )
            assert dumped.facts["was_clean"]
            oracle.check(Contents.of_dump(dumped))

    dumped = peers[NEWEST].dump(root, conf=CRASH_FILES)
    told = Contents.of_dump(dumped)
    with open_store(root, CRASH_FILES) as store:
        mine = oracle.check_every_road(store)
    assert oracle.count() > 1000
    assert mine.without_empty() == told.without_empty()
    assert len(told.without_empty().bounds) > 10
    assert dumped.facts["commit_log_min"] > 0


def _our_turn(root: Path, oracle: Oracle, first: int, ending: str, unacked: int) -> None:
    with open_store(root, CRASH_FILES) as store:
        oracle.check_every_road(store, unacked=unacked)
        put_more(store, oracle, first, 150)
        for step in odd_letters():
            assert put_step(store, step)["status"] == "PUT_OK"
        for number in range(10):
            elements = [{"body": b"%d" % number}, {"body": b"two"}]
            step = put_batch(INNER, elements, inner=True, properties={"UNIQ_KEY": f"{first + number:032X}"})
            assert put_step(store, step)["status"] == "PUT_OK"
    if ending == "killed":
        process = spawn_puts(root, CRASH_FILES, letter_bytes=BYTES, first=first + 50_000)
        oracle.acked(stream_until_killed(process, 300))


def _javas_turn(peer: Peer, root: Path, oracle: Oracle, ending: str) -> None:
    options = {"topic": oracle.topic, "queues": 4, "bytes": BYTES}
    if ending == "killed":
        process = peer.spawn("stream", root, conf=CRASH_FILES, **options)
        oracle.acked(stream_until_killed(process, 300))
    else:
        lines = peer.run("stream", root, conf=CRASH_FILES, count=300, **options)
        oracle.acked([line for line in lines if "ack" in line])
        assert not lines[-1]["abort_left"]


def _trim(root: Path, oracle: Oracle) -> None:
    """What retention does, by hand: the oldest half of the commit log, and what pointed there only."""
    files = sorted((root / "commitlog").iterdir())
    for path in files[: len(files) // 2]:
        path.unlink()
    minimum = int(files[len(files) // 2].name)
    oracle.forget_before(minimum)
    for folder, layout in (
        ("consumequeue", CONSUME_QUEUE_UNIT),
        ("batchconsumequeue", BATCH_CONSUME_QUEUE_UNIT),
    ):
        for queue in (root / folder).glob("*/*"):
            for path in sorted(queue.iterdir())[:-1]:
                data = path.read_bytes()
                if layout.struct.unpack_from(data, len(data) - layout.size)[0] < minimum:
                    path.unlink()
