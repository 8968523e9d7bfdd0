"""A whole broker and we share a directory: delays, transactions, retries, and the JSON of its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peer.exchange import Contents, copy_of, open_reader, open_store
from peer.peer import NEWEST, OLDER, SMALL_FILES, Answer, Peer, put
from rockstrata.clock import SystemClock
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.config_file import ConfigFile
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.retry import SendBackStatus, send_back
from rockstrata.store.subscription_groups import SubscriptionGroup, SubscriptionGroups
from rockstrata.store.topic_kinds import HALF_TOPIC, OP_HALF_TOPIC
from rockstrata.store.topics import QueueType, TopicConfig
from rockstrata.store.transaction_check import TransactionChecker

pytestmark = pytest.mark.peer

# A broker asks about open halves when it stops; here we are to ask first.
BROKER = {**SMALL_FILES, "transactionTimeOut": 600_000}
CONF = {**SMALL_FILES, "transactionTimeOut": 1}
ORDERS = "Orders"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
HOURS = 7_200_000
BOTH_VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"peer-{version}")) for version in (NEWEST, OLDER)
]


@pytest.mark.parametrize("version", BOTH_VERSIONS)
def test_a_broker_and_we_go_on_with_each_others_work(
    peers: dict[str, Peer], tmp_path: Path, version: str
) -> None:
    root = tmp_path / "store"
    steps = _steps(peers[version].broker(root, _first_turn(), conf=BROKER))
    assert steps["wait_max"]["reached"]
    assert [steps[name]["code"] for name in ("commit", "rollback", "send_back")] == [0, 0, 0]

    dumped = peers[version].dump(copy_of(root, "dump"), conf=CONF, ending="halt")
    told = Contents.of_dump(dumped)
    mine = Contents.of(open_reader(root, CONF))
    assert mine.without_empty() == told.without_empty()
    _assert_every_kind_is_there(mine)

    with open_store(root, CONF) as store:
        assert Contents.of(store).without_empty() == told.without_empty()
        _assert_config_was_read(store, steps)
        _our_turn(store)

    steps = _steps(peers[version].broker(root, _second_turn(), conf=BROKER, ending="halt"))
    _assert_our_config_was_read(steps)

    # It went without saving a thing: what it delivered is in the log, its config is still ours.
    with open_store(root, CONF, start_services=False) as store:
        assert not store.recovery.clean
        last = Contents.of(store)
        delivered = [m["body"] for m in last.messages[ORDERS, 0]]
        assert delivered == [b"plain", b"delayed by RocketMQ", b"delayed by us"]
        assert not last.messages.get(("%RETRY%readers", 0)), "it waits two hours"
        assert store.consumer_offsets.query("readers", ORDERS, 1) == 5
        assert store.consumer_offsets.query("ours", "Ours", 2) == 2**40
        assert store.schedule.offsets.all()[1] == 1
    dumped = peers[version].dump(root, conf=CONF, ending="halt")
    assert dumped.facts["was_clean"]
    assert Contents.of_dump(dumped).without_empty() == last.without_empty()


def _steps(lines: list[Answer]) -> dict[str, Answer]:
    """The answer to each operation, the last of its kind."""
    assert lines[0]["loaded"]
    assert lines[-1]["abort_left"] is (lines[-1]["exit"] != "clean")
    return {line.get("op", ""): line for line in lines} | {
        "first query_offset": next((line for line in lines if line.get("op") == "query_offset"), {})
    }


def _half(number: int) -> Answer:
    properties = {"PGROUP": "producers", "TRAN_MSG": "true", "UNIQ_KEY": f"{number:032X}", "TAGS": "T"}
    return {"op": "half", **put(ORDERS, b"half %d" % number, queue_id=1, properties=properties)}


def _first_turn() -> list[Answer]:
    return [
        {"op": "create_topic", "topic": ORDERS, "queues": 4, "perm": 6},
        {"op": "create_topic", "topic": "Inner", "queues": 2, "attributes": {"queue.type": "BatchCQ"}},
        # The first record of the log: what is sent back below.
        {"op": "put", **put(ORDERS, b"plain", properties={"KEYS": "p", "UNIQ_KEY": "F" * 32})},
        {"op": "put", **put(ORDERS, b"delayed by RocketMQ", properties={"DELAY": "1", "TAGS": "A"})},
        {"op": "put", **put(ORDERS, b"in two hours", properties={"DELAY": "99"})},
        _half(0),
        _half(1),
        _half(2),
        {"op": "commit", "ref": 5},
        {"op": "rollback", "ref": 6},
        {"op": "flush_op"},
        {"op": "send_back", "group": "readers", "physical_offset": 0, "topic": ORDERS, "delay_level": 18},
        {"op": "commit_offset", "group": "readers", "topic": ORDERS, "queue_id": 1, "offset": 1},
        {"op": "commit_offset", "group": "readers", "topic": ORDERS, "queue_id": 0, "offset": 2**40},
        {"op": "wait_max", "topic": ORDERS, "queue_id": 0, "max": 2},
        # The offset of a level moves at the round after the delivery, 100 ms later.
        {"op": "sleep_ms", "n": 400},
        {"op": "delay_offsets"},
        {"op": "topics"},
    ]


def _assert_every_kind_is_there(contents: Contents) -> None:
    (committed,) = contents.messages[ORDERS, 1]
    halves = contents.messages[HALF_TOPIC, 0]
    assert [half["body"] for half in halves] == [b"half 0", b"half 1", b"half 2"]
    assert committed["sys_flag"] == 0x8
    assert committed["prepared_transaction_offset"] == halves[0]["physical_offset"]
    assert [op["body"] for op in contents.messages[OP_HALF_TOPIC, 0]] == [b"0,1,"]
    assert [op["tags"] for op in contents.messages[OP_HALF_TOPIC, 0]] == ["d"]
    waiting = contents.messages[SCHEDULE_TOPIC, 17]
    assert [m["properties"]["REAL_TOPIC"] for m in waiting] == [ORDERS, "%RETRY%readers"]
    assert waiting[1]["reconsume_times"] == 1
    assert waiting[1]["properties"]["RETRY_TOPIC"] == ORDERS


def _assert_config_was_read(store: LocalMessageStore, steps: dict[str, Answer]) -> None:
    topics = store.topics.all()
    assert set(topics) == set(steps["topics"]["topics"])
    assert (topics[ORDERS].read_queue_nums, topics[ORDERS].write_queue_nums, topics[ORDERS].perm) == (4, 4, 6)
    assert topics["Inner"].queue_type is QueueType.BATCH
    assert topics["%RETRY%readers"].write_queue_nums == 1
    assert store.consumer_offsets.query_all("readers", ORDERS) == {0: 2**40, 1: 1}
    assert store.schedule.offsets.all() == {int(k): v for k, v in steps["delay_offsets"]["offsets"].items()}
    groups = _groups(store)
    assert groups.get("readers") == SubscriptionGroup(group_name="readers")
    # A delay's time is in its unit: store time and the two hours of level 18.
    queue = store.queues.get(SCHEDULE_TOPIC, 17)
    assert queue is not None
    message = store.get(SCHEDULE_TOPIC, 17, 0).messages()[0]
    assert queue.unit(0)[2] == message.store_timestamp + HOURS


def _groups(store: LocalMessageStore) -> SubscriptionGroups:
    file = ConfigFile(store.config.config_dir / "subscriptionGroup.json", PosixDisk())
    groups = SubscriptionGroups(file, SystemClock())
    groups.load()
    return groups


def _our_turn(store: LocalMessageStore) -> None:
    """End RocketMQ's open half, delay, send back, and change every file of config."""
    asked: list[StoredMessage] = []
    TransactionChecker(store, store.transactions.ops, asked.append).check(0)
    assert [half.body for half in asked] == [b"half 2"], "the other two were ended by RocketMQ"
    assert store.transactions.commit(asked[0], "producers", from_check=True).ok
    assert store.put(Message.of(ORDERS, b"delayed by us", delay_level=1, tags="A")).ok
    assert send_back(store, 0, "ours", -1).status is SendBackStatus.DEAD_LETTER
    attributes = {"queue.type": "BatchCQ", "message.type": "NORMAL"}
    store.topics.ensure(
        TopicConfig(topic_name="Ours", read_queue_nums=3, write_queue_nums=5, perm=4),
        TopicConfig(topic_name="OursInner", attributes=attributes, order=True),
    )
    store.consumer_offsets.commit("ours", "Ours", 2, 2**40)
    store.consumer_offsets.commit("readers", ORDERS, 1, 5)
    _groups(store).create_or_update(SubscriptionGroup(group_name="ours", retry_max_times=3))
    store.transactions.ops.flush()
    store.dispatcher.catch_up()


def _second_turn() -> list[Answer]:
    ask: dict[str, Any] = {"op": "get", "topic": ORDERS, "queue_id": 1, "offset": 0}
    return [
        {"op": "topics"},
        {"op": "query_offset", "group": "ours", "topic": "Ours", "queue_id": 2},
        {"op": "wait_max", "topic": ORDERS, "queue_id": 0, "max": 3},
        {"op": "check", "timeout_ms": 1},
        {"op": "query_offset", "group": TRANSACTION_GROUP, "topic": HALF_TOPIC, "queue_id": 0},
        {"op": "ask", "question": ask},
        {"op": "sleep_ms", "n": 400},
        {"op": "delay_offsets"},
    ]


def _assert_our_config_was_read(steps: dict[str, Answer]) -> None:
    assert {ORDERS, "Inner", "Ours", "OursInner", "%DLQ%ours"} <= set(steps["topics"]["topics"])
    assert steps["first query_offset"]["offset"] == 2**40
    # The three halves, and the one that was appended again to be asked about, are settled.
    assert steps["query_offset"]["offset"] == 4
    assert steps["wait_max"]["reached"]
    assert steps["delay_offsets"]["offsets"]["1"] == 2
    # Both committed halves, one by each side, are what consumers see.
    assert steps["ask"]["queue_offsets"] == [0, 1]
    assert steps["check"]["log_after"] == steps["check"]["log_before"], "there was nothing left to ask about"
