"""We write, RocketMQ reads: the same letters, put in every way there is, and the same bytes on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pytest

from peer.catalogue import BORN, INNER, ODD, SHORTEST_SECOND_VERSION_TOPIC, catalogue, odd_letters, questions
from peer.exchange import (
    Contents,
    JavaStore,
    assert_same_answers,
    copy_of,
    declare_batch_topics,
    file_bytes,
    message_of,
    open_reader,
    open_store,
    put_step,
    puts_of,
    theirs,
)
from peer.peer import NEWEST, OLDER, SMALL_FILES, Answer, Peer, put, put_batch
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.tags import index_hash, index_tags_key
from rockstrata.store.checkpoint import CHECKPOINT
from rockstrata.store.index_file import INDEX_HEADER, INDEX_ITEM
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.testing.manual_clock import ManualClock

pytestmark = pytest.mark.peer

BOTH_VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"peer-{version}")) for version in (NEWEST, OLDER)
]
LOG_AND_QUEUES = ("commitlog", "consumequeue", "batchconsumequeue")
LOG_FILE_BYTES = 65_536
RECORD_CRC = {
    **SMALL_FILES,
    "enabledAppendPropCRC": True,
    "forceVerifyPropCRC": True,
    "maxMessageSize": 50_000,
}


@pytest.fixture(params=BOTH_VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# The same bytes


@pytest.mark.parametrize("together", [False, True], ids=["one-by-one", "put-batch"])
def test_the_same_letters_at_the_same_times_make_the_same_files(
    java_stores: Callable[[str], JavaStore], version: str, tmp_path: Path, together: bool
) -> None:
    """Nothing is masked: our clock shows the store times RocketMQ reported, and the plan fixes hosts,
    born times and the order of properties. What may differ: names of index files (the time of their
    making), and against 5.3.3 the index entries for tags, which it does not make.
    """
    java = java_stores(version)
    # The last letter goes to a topic that we, like a broker, refuse.
    plan, puts = puts_of(java.plan)[:-1], java.puts[:-1]
    declare_batch_topics(tmp_path, INNER)
    clock = ManualClock()

    with open_store(tmp_path, clock=clock, start_services=False) as store:
        if together:
            _replay_together(store, clock, plan, puts)
        else:
            _replay(store, clock, plan, puts)

    told = _without_last_letter(java)
    mine = file_bytes(tmp_path, *LOG_AND_QUEUES)
    assert mine.keys() == told.keys()
    for name, data in told.items():
        assert mine[name] == data, name
    mine_index, told_index = (list(file_bytes(root, "index").values()) for root in (tmp_path, java.root))
    if version == NEWEST:
        assert mine_index == told_index
    else:
        tags = {
            (index_hash(index_tags_key(m["topic"], m["tags"])), m["physical_offset"])
            for m in java.records()
            if m["tags"]
        }
        assert [item for item in _items(mine_index) if item not in tags] == list(_items(told_index))


def _without_last_letter(java: JavaStore) -> dict[str, bytes]:
    files = file_bytes(java.root, *LOG_AND_QUEUES)
    (its_queue,) = [name for name in files if SHORTEST_SECOND_VERSION_TOPIC + "/" in name]
    del files[its_queue]
    last = max(name for name in files if name.startswith("commitlog"))
    end = java.puts[-1]["physical_offset"] % LOG_FILE_BYTES
    files[last] = files[last][:end].ljust(LOG_FILE_BYTES, b"\0")
    return files


def _replay(
    store: LocalMessageStore, clock: ManualClock, plan: Sequence[Answer], told: Sequence[Answer]
) -> None:
    """Put the plan at the times told; the answers must be RocketMQ's, ids included."""
    for step, line in zip(plan, told, strict=True):
        clock.set_now_ms(line["store_timestamp"])
        mine = put_step(store, step)
        assert mine == {name: line[name] for name in mine}, step


def _replay_together(
    store: LocalMessageStore, clock: ManualClock, plan: Sequence[Answer], told: Sequence[Answer]
) -> None:
    """Single letters of the same millisecond go through ``put_batch`` at once."""
    steps = zip(plan, told, strict=True)
    for (timestamp, single), group in groupby(steps, lambda s: (s[1]["store_timestamp"], _is_plain(s[0]))):
        clock.set_now_ms(timestamp)
        chosen = list(group)
        if not single:
            for step, line in chosen:
                assert put_step(store, step)["physical_offset"] == line["physical_offset"]
            continue
        results = store.put_batch([message_of(step) for step, _ in chosen])
        for result, (step, line) in zip(results, chosen, strict=True):
            assert result.physical_offset == line["physical_offset"], step
            assert result.queue_offset == line["queue_offset"], step
            # The host of each message is its own; the batch's result names the store's.
            if "store_host" not in step:
                assert result.message_id == line["msg_id"]


def _is_plain(step: Answer) -> bool:
    return step["kind"] == "single" and step["topic"] != SCHEDULE_TOPIC


def _items(files: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Hash and physical offset of every item, in the order they were made."""
    slots = int(str(SMALL_FILES["maxHashSlotNum"]))
    for data in files:
        count = INDEX_HEADER.struct.unpack_from(data)[-1]
        for number in range(1, count):
            at = INDEX_HEADER.size + 4 * slots + INDEX_ITEM.size * number
            yield INDEX_ITEM.struct.unpack_from(data, at)[:2]


# Clean hand-over


def test_rocketmq_takes_our_store_as_its_own(peers: dict[str, Peer], version: str, tmp_path: Path) -> None:
    """One exchange, many checks: contents, questions, clean load, nothing cut, checkpoint, abort."""
    root = tmp_path / "store"
    plan = puts_of(catalogue(orders=320))
    declare_batch_topics(root, INNER)
    with open_store(root) as store:
        assert (root / "abort").exists()
        puts = [put_step(store, step) for step in plan[:200]]
        plain = [step for step in plan[200:] if _is_plain(step)]
        results = store.put_batch([message_of(step) for step in plain])
        assert results.ok
        puts += [put_step(store, step) for step in plan[200:] if not _is_plain(step)]
        assert {line["status"] for line in puts} == {"PUT_OK"}
        puts += [
            {"physical_offset": r.physical_offset, "store_timestamp": r.store_timestamp} for r in results
        ]
        end = store.commit_log.max_offset
        last_timestamp = max(line["store_timestamp"] for line in puts)
    mine = Contents.of(open_reader(root))
    _assert_left_in_order(root, end, last_timestamp)
    asked = questions(puts, mine.bounds, mine.messages, tag_index=version == NEWEST)

    read, queried = copy_of(root, "read"), copy_of(root, "queried")
    dumped = peers[version].dump(read, conf=SMALL_FILES, ending="halt")
    told = peers[version].query(queried, asked, conf=SMALL_FILES)

    facts = dumped.facts
    assert (facts["loaded"], facts["was_clean"]) == (True, True)
    assert (facts["commit_log_min"], facts["commit_log_max"]) == (0, end)
    assert dumped.done["writeable"]
    contents = Contents.of_dump(dumped)
    assert contents.bounds == mine.bounds
    assert contents.messages == mine.messages
    for step, line in zip(plan[:200], puts, strict=False):
        _assert_as_planned(step, line, mine)
    assert file_bytes(read, *LOG_AND_QUEUES, "index") == file_bytes(root, *LOG_AND_QUEUES, "index")
    # RocketMQ closed this one: clean again, and ours to open.
    assert not (queried / "abort").exists()
    looked = [line["message"] for line in told if line["op"] == "look" and line.get("message")]
    records = [*map(theirs, looked), *contents.all()]
    with open_store(queried) as store:
        assert store.recovery.clean
        assert store.recovery.cut_bytes == 0
        assert_same_answers(store, asked, told, records)


def _assert_left_in_order(root: Path, end: int, last_timestamp: int) -> None:
    names = [field.name for field in CHECKPOINT.fields]
    data = (root / "checkpoint").read_bytes()
    checkpoint = dict(zip(names, CHECKPOINT.struct.unpack_from(data), strict=True))
    assert len(data) == 4096
    assert not any(data[CHECKPOINT.size :])
    assert checkpoint["logics_physical_offset"] == end
    assert checkpoint["physic_msg_timestamp"] == checkpoint["logics_msg_timestamp"] == last_timestamp
    assert 0 < checkpoint["index_msg_timestamp"] <= last_timestamp
    assert not (root / "abort").exists()
    assert (root / "lock").read_bytes() == b"lock"


def _assert_as_planned(step: Answer, line: Answer, contents: Contents) -> None:
    """What is read is what the plan said, for what the plan says of single letters."""
    if step["kind"] != "single" or step.get("sys_flag", 0) & 0x4:
        return
    wanted = message_of(step)
    queue = contents.messages[wanted.topic, wanted.queue_id]
    message = queue[line["queue_offset"]]
    assert message["physical_offset"] == line["physical_offset"]
    assert message["msg_id"] == line["msg_id"]
    for name in ("body", "flag", "born_timestamp", "reconsume_times", "prepared_transaction_offset"):
        assert message[name] == getattr(wanted, name)


# The record's own checksum


def test_records_with_their_own_checksum_pass_and_fail_alike(
    peers: dict[str, Peer], version: str, tmp_path: Path
) -> None:
    """With enabledAppendPropCRC and forceVerifyPropCRC on both sides: same bytes, same refusals, and
    the same record is the last when a property was changed behind the store's back.
    """
    plan = [*odd_letters(), *_refused_letters(), *(_inner(number) for number in range(5))]
    java, mine = tmp_path / "java", tmp_path / "mine"
    clock = ManualClock()
    for root in (java, mine):
        declare_batch_topics(root, INNER)
    told = peers[version].write(java, plan, conf=RECORD_CRC).puts
    with open_store(mine, RECORD_CRC, clock=clock, start_services=False) as store:
        _replay_with_refusals(store, clock, plan, told)

    assert file_bytes(mine, *LOG_AND_QUEUES) == file_bytes(java, *LOG_AND_QUEUES)

    # Without a checkpoint an unclean start checks everything from the first record on.
    (mine / "checkpoint").unlink()
    (mine / "abort").touch()
    damaged = copy_of(mine, "damaged")
    (log,) = [path for path in (damaged / "commitlog").iterdir() if b"KEYS\x01d3" in path.read_bytes()]
    log.write_bytes(log.read_bytes().replace(b"KEYS\x01d3", b"KEYS\x01d4"))
    dumped = peers[version].dump(copy_of(mine, "dump"), conf=RECORD_CRC, ending="halt")
    cut = peers[version].dump(copy_of(damaged, "dump"), conf=RECORD_CRC, ending="halt")

    with open_store(mine, RECORD_CRC) as store:
        whole = Contents.of(store)
    with open_store(damaged, RECORD_CRC) as store:
        rest = Contents.of(store)
    assert whole == Contents.of_dump(dumped)
    assert not dumped.facts["was_clean"]
    assert rest.without_empty() == Contents.of_dump(cut).without_empty()
    assert 0 < len(rest.all()) < len(whole.all())
    assert all("__CRC32#" in message["properties"] for message in whole.all())


def _refused_letters() -> list[Answer]:
    """What no store takes, and in between the largest that both take."""
    fits = 32_767 - 20 - len("k\x01\x02")
    letters = [
        put(ODD, b"x" * 50_000),
        put(ODD, b"x" * 50_001),
        put(ODD, b"", properties={"k": "v" * fits}),
        put(ODD, b"", properties={"k": "v" * (fits + 1)}),
        put(ODD, b"number without the flag", properties={"INNER_NUM": "2"}),
        put(ODD, b"flag on a simple topic", sys_flag=0x80),
        put(ODD, b"old checksum", properties={"__CRC32#": "1234567890", "a": "b"}),
        put_batch(ODD, [{"body": b"1"}], sys_flag=0x4),
        put_batch(ODD, [{"body": b"1"}], properties={"DELAY": "1"}),
    ]
    return [{**letter, "queue_id": 7, "born_timestamp": BORN} for letter in letters]


def _inner(number: int) -> Answer:
    elements = [{"body": b"element %d" % i, "properties": {"KEYS": f"e{i}"}} for i in range(3)]
    properties = {"UNIQ_KEY": f"{number:032X}"}
    return put_batch(INNER, elements, inner=True, properties=properties, born_timestamp=BORN)


def _replay_with_refusals(
    store: LocalMessageStore, clock: ManualClock, plan: Sequence[Answer], told: Sequence[Answer]
) -> None:
    for step, line in zip(plan, told, strict=True):
        clock.set_now_ms(line.get("store_timestamp") or clock.now_ms())
        mine = put_step(store, step)
        if line["append_status"] == "PUT_OK":
            assert mine == {name: line[name] for name in mine}, step
        else:
            assert mine["status"] == line["status"], step
