"""Settings that change the way of the bytes to the disk: the other side must not notice, or read them too."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.catalogue import BORN
from peer.exchange import Contents, file_bytes, open_reader, open_store, put_step
from peer.oracle import CRASH_FILES, Oracle, put_more, stream_until_killed
from peer.peer import NEWEST, OLDER, SMALL_FILES, Peer, put, put_batch
from rockstrata.testing.manual_clock import ManualClock

pytestmark = pytest.mark.peer

MEGABYTE = 1 << 20
LARGEST = 4 * MEGABYTE
BOTH_VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"peer-{version}")) for version in (NEWEST, OLDER)
]


@pytest.mark.parametrize("version", BOTH_VERSIONS)
def test_the_largest_message_and_light_queues_make_the_same_bytes(
    peers: dict[str, Peer], tmp_path: Path, version: str
) -> None:
    conf = {
        **SMALL_FILES,
        "mappedFileSizeCommitLog": 6 * MEGABYTE,
        "enableLmq": True,
        "enableMultiDispatch": True,
    }
    light = {"INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two", "TAGS": "A", "KEYS": "light"}
    plan = [
        put("Large", bytes(range(256)) * (LARGEST // 256), properties={"KEYS": "large"}),
        put("Large", b"x" * (LARGEST + 1)),
        put("Light", b"first", properties=light),
        put("Light", b"second", queue_id=1, properties={**light, "INNER_MULTI_DISPATCH": "%LMQ%two"}),
        put("Light", b"of no other queue", queue_id=1),
        put("Light", b"waits for nothing", properties={**light, "WAIT": "false"}),
        put("%RETRY%readers", b"not dispatched twice", properties=light),
        put("Large", b"y" * LARGEST, queue_id=1),
        put_batch("Large", [{"body": b"z" * MEGABYTE, "properties": light}] * 3),
    ]
    if version == NEWEST:
        # 5.3.3 appends a batch's own properties to each element; 5.5.0 and we discard them.
        plan.append(put_batch("Light", [{"body": b"1"}, {"body": b"2"}], properties={"own": "lost"}))
    plan = [{**step, "born_timestamp": BORN} for step in plan]
    java, mine = tmp_path / "java", tmp_path / "mine"
    told = peers[version].write(java, plan, conf=conf, ending="halt").puts
    clock = ManualClock()
    with open_store(mine, conf, clock=clock, start_services=False) as store:
        for step, line in zip(plan, told, strict=True):
            clock.set_now_ms(line.get("store_timestamp") or clock.now_ms())
            answer = put_step(store, step)
            assert answer["status"] == line["status"], step["topic"]
            if line["append_status"] == "PUT_OK":
                assert answer == {name: line[name] for name in answer}

    # The halted writer left the file it had made ahead.
    theirs = {name: data for name, data in file_bytes(java, "commitlog", "consumequeue").items() if any(data)}
    assert file_bytes(mine, "commitlog", "consumequeue") == theirs
    dumped = peers[version].dump(mine, conf=conf, ending="halt")
    contents = Contents.of(open_reader(mine, conf))
    assert Contents.of_dump(dumped) == contents
    assert {name for name, _ in contents.messages} == {
        "Large",
        "Light",
        "%LMQ%one",
        "%LMQ%two",
        "%RETRY%readers",
    }


@pytest.mark.parametrize("version", BOTH_VERSIONS)
def test_a_log_in_two_directories_changes_hands(peers: dict[str, Peer], tmp_path: Path, version: str) -> None:
    root = tmp_path / "store"
    conf = {**CRASH_FILES, "storePathCommitLog": f"{tmp_path / 'b'},{tmp_path / 'a'}"}
    oracle = Oracle(letter_bytes=300)
    with open_store(root, conf) as store:
        put_more(store, oracle, 0, 500)

    process = peers[version].spawn("stream", root, conf=conf, queues=4, bytes=300)
    oracle.acked(stream_until_killed(process, 400))

    with open_store(root, conf) as store:
        oracle.check_every_road(store, unacked=1)
        put_more(store, oracle, 10_000, 200)
    oracle.check_every_road(open_reader(root, conf))
    dumped = peers[version].dump(root, conf=conf, ending="halt")
    oracle.check(Contents.of_dump(dumped))
    numbers = {folder: [int(p.name) // 65_536 for p in (tmp_path / folder).iterdir()] for folder in "ab"}
    assert len(numbers["a"]) > 3
    assert {n % 2 for n in numbers["a"]} == {0}
    assert {n % 2 for n in numbers["b"]} == {1}


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("writeWithoutMmap", marks=pytest.mark.xdist_group(f"peer-{NEWEST}")),
        pytest.param("transientStorePoolEnable", marks=pytest.mark.xdist_group(f"peer-{OLDER}")),
    ],
)
def test_another_way_to_the_disk_is_the_same_to_the_other_side(
    peers: dict[str, Peer], tmp_path: Path, setting: str
) -> None:
    """RocketMQ writes through the file channel, which may leave dirty bytes behind the last record, or
    (as we can) through a pool of buffers. The first is killed as well: a pool keeps no promise then.
    """
    root = tmp_path / "store"
    # A buffer for every file: RocketMQ hangs for ever when it has to go on without one (seen once with 2).
    pool = {"transientStorePoolEnable": True, "transientStorePoolSize": 20}
    java = {**CRASH_FILES, **(pool if setting in pool else {setting: True})}
    mine = {**CRASH_FILES, **(pool if setting in pool else {})}
    oracle = Oracle(letter_bytes=250)
    options = {"queues": 4, "bytes": 250}
    lines = peers[NEWEST].run("stream", root, conf=java, count=500, **options)
    oracle.acked([line for line in lines if "ack" in line])
    oracle.check_every_road(open_reader(root, mine))
    if setting not in pool:
        process = peers[NEWEST].spawn("stream", root, conf=java, **options)
        oracle.acked(stream_until_killed(process, 400))

    with open_store(root, mine) as store:
        oracle.check_every_road(store, unacked=1)
        put_more(store, oracle, 10_000, 300)

    dumped = peers[NEWEST].dump(root, conf=java, ending="halt")
    assert dumped.facts["was_clean"]
    oracle.check(Contents.of_dump(dumped))
