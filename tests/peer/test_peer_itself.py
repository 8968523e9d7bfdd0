"""The tool proves itself: each version of RocketMQ reads what the other wrote."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from peer.peer import NEWEST, OLDER, SMALL_FILES, Answer, Peer, answers, put, put_batch

pytestmark = pytest.mark.peer

BATCH_TOPIC = "InnerBatches"
LONG_TOPIC = "%RETRY%" + "g" * 150
WRITER_THEN_READER = pytest.mark.parametrize(("writer", "reader"), [(NEWEST, OLDER), (OLDER, NEWEST)])


def letters(count: int) -> list[Answer]:
    """Every kind of record, several files of each kind."""
    plan: list[Answer] = []
    for number in range(count):
        properties = {
            "KEYS": f"k{number} all",
            "TAGS": "AB"[number % 2],
            "UNIQ_KEY": f"U{number:031d}",
            "ü": "中😀",
        }
        body = f"hällo {number} ".encode() * 20
        fields = {"properties": properties, "flag": number, "born_timestamp": 1_700_000_000_000 + number}
        plan.append(put("Orders", body, queue_id=number % 2, reconsume_times=number % 3, **fields))
    plan.append(put(LONG_TOPIC, b"second version of the record"))
    plan.append(put("Orders", b"IPv6", queue_id=2, born_host="[2001:db8::1]:99", store_host="[::1]:10911"))
    plan.append(
        put("Orders", b"mixed", queue_id=2, born_host="[2001:db8::1]:99", store_host="10.0.0.1:10911")
    )
    plan.append(put("Orders", b"committed", queue_id=2, sys_flag=8, prepared_transaction_offset=77))
    plan.append(put("Orders", b"prepared: no queue entry", queue_id=2, sys_flag=4))
    elements: list[dict[str, Any]] = [{"body": b"element %d" % i, "flag": i} for i in range(3)]
    plan.append(put_batch("Batches", elements))
    plan.append(put_batch(BATCH_TOPIC, elements, inner=True, properties={"UNIQ_KEY": "UU"}))
    plan.append(put_batch(BATCH_TOPIC, elements[:2], inner=True, properties={"UNIQ_KEY": "UV"}))
    return plan


@WRITER_THEN_READER
def test_one_version_reads_what_the_other_wrote(
    peers: dict[str, Peer], tmp_path: Path, writer: str, reader: str
) -> None:
    store = tmp_path / "store"
    plan = letters(300)
    written = peers[writer].write(store, plan, conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])
    assert {line["status"] for line in written.puts} == {"PUT_OK"}
    assert not written.done["abort_left"]
    shutil.copytree(store, tmp_path / "copy")

    own = peers[writer].dump(store, conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])
    other = peers[reader].dump(tmp_path / "copy", conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])

    assert other.facts["was_clean"]
    assert own.facts["was_clean"]
    assert other.queues == own.queues
    assert other.messages == own.messages
    assert all(not queue["statuses"] for queue in other.queues.values())
    assert other.queues["Orders", 0]["max"] == 150
    assert other.queues["Orders", 2]["max"] == 3
    assert other.queues["Batches", 0]["max"] == 3
    assert other.queues[BATCH_TOPIC, 0]["max"] == 5
    expected = [base64.b64decode(step["body"]) for step in plan[:300:2]]
    assert [base64.b64decode(message["body"]) for message in other.messages["Orders", 0]] == expected
    assert [message["properties"]["ü"] for message in other.messages["Orders", 0]] == ["中😀"] * 150
    assert other.messages["Orders", 2][0]["born_host"] == "[2001:db8:0:0:0:0:0:1]:99"
    assert len(list((store / "commitlog").iterdir())) > 1
    assert len(list((store / "consumequeue" / "Orders" / "0").iterdir())) > 1
    assert len(list((store / "index").iterdir())) > 1


@WRITER_THEN_READER
def test_both_versions_answer_the_same_questions_alike(
    peers: dict[str, Peer], tmp_path: Path, writer: str, reader: str
) -> None:
    store = tmp_path / "store"
    written = peers[writer].write(store, letters(40), conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])
    middle = written.puts[20]
    questions: list[Answer] = [
        {"op": "key", "topic": "Orders", "key": "k7"},
        {"op": "key", "topic": "Orders", "key": "all", "max": 64},
        {"op": "index_offsets", "topic": "Orders", "key": "all", "max": 8},
        {"op": "time", "topic": "Orders", "queue_id": 0, "timestamp": middle["store_timestamp"]},
        {"op": "time", "topic": "Orders", "queue_id": 0, "timestamp": 1, "boundary": "UPPER"},
        {"op": "look", "physical_offset": middle["physical_offset"]},
        {"op": "look", "physical_offset": middle["physical_offset"] + 4},
        {"op": "look", "physical_offset": 1 << 40},
        {"op": "get", "topic": "Orders", "queue_id": 0, "offset": 3, "max": 5, "tags": "A || C"},
        {"op": "get", "topic": "Orders", "queue_id": 0, "offset": 3, "max": 5, "tags": "B"},
        {"op": "get", "topic": "Orders", "queue_id": 0, "offset": 0, "sql": "TAGS = 'A' AND KEYS = 'k4 all'"},
        {"op": "get", "topic": "Orders", "queue_id": 0, "offset": 9999},
        {"op": "get", "topic": BATCH_TOPIC, "queue_id": 0, "offset": 1},
        {"op": "cq", "topic": "Orders", "queue_id": 1, "offset": 2, "count": 3},
        {"op": "cq", "topic": BATCH_TOPIC, "queue_id": 0, "offset": 0},
        {"op": "earliest", "topic": "Orders", "queue_id": 0},
        {"op": "store_time", "topic": "Orders", "queue_id": 0, "offset": 10},
        {"op": "bounds", "topic": "Nobody", "queue_id": 0},
    ]
    shutil.copytree(store, tmp_path / "copy")

    own = peers[writer].query(store, questions, conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])
    other = peers[reader].query(tmp_path / "copy", questions, conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])

    assert other == own
    assert own[0]["offsets"] == [written.puts[7]["physical_offset"]]
    assert own[3]["offset"] <= 10
    assert own[5]["message"]["physical_offset"] == middle["physical_offset"]
    assert "error" in own[6]
    assert own[7]["message"] is None
    assert own[8]["queue_offsets"] == [3, 4, 5, 6, 7]
    assert own[9]["status"] == "NO_MATCHED_MESSAGE"
    assert own[10]["queue_offsets"] == [2]
    assert own[11]["status"] == "OFFSET_OVERFLOW_BADLY"


def test_tags_are_keys_of_the_newer_index_only(peers: dict[str, Peer], tmp_path: Path) -> None:
    peers[NEWEST].write(tmp_path, letters(10), conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])
    questions = [
        {"op": "key", "topic": "Orders", "key": "A", "type": "T"},
        {"op": "key", "topic": "Orders", "key": "A"},
    ]

    by_tag, by_key = peers[NEWEST].query(tmp_path, questions, conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])

    assert len(by_tag["offsets"]) == 5
    assert by_key["offsets"] == []


@WRITER_THEN_READER
@pytest.mark.parametrize("ending", ["halt", "halt-now"])
def test_one_version_recovers_what_the_other_left_behind(
    peers: dict[str, Peer], tmp_path: Path, writer: str, reader: str, ending: str
) -> None:
    written = peers[writer].write(
        tmp_path, letters(300), conf=SMALL_FILES, batch_topics=[BATCH_TOPIC], ending=ending
    )
    assert (tmp_path / "abort").exists()

    dumped = peers[reader].dump(tmp_path, conf=SMALL_FILES, batch_topics=[BATCH_TOPIC])

    assert not dumped.facts["was_clean"]
    assert dumped.facts["commit_log_max"] == written.done["commit_log_max"]
    assert len(dumped.messages["Orders", 0]) == 150
    assert not (tmp_path / "abort").exists()


@WRITER_THEN_READER
def test_acknowledged_messages_survive_a_kill(
    peers: dict[str, Peer], tmp_path: Path, writer: str, reader: str
) -> None:
    process = peers[writer].spawn(
        "stream", tmp_path, conf=SMALL_FILES, topic="Stream", queues=3, bytes=200, sync=True
    )
    acked = []
    with process:
        assert process.stdout is not None
        for answer in answers(process.stdout):
            if answer.get("status") == "PUT_OK":
                acked.append(answer)
            if len(acked) == 500:
                process.kill()

    dumped = peers[reader].dump(tmp_path, conf=SMALL_FILES)

    found = {int(message["keys"]): message for message in dumped.all_messages()}
    assert len(acked) >= 500
    for answer in acked:
        message = found[answer["ack"]]
        assert message["physical_offset"] == answer["physical_offset"]
        assert message["queue_offset"] == answer["queue_offset"] == message["read_at"]
        assert base64.b64decode(message["body"]).startswith(b"%d;" % answer["ack"])


@WRITER_THEN_READER
def test_a_whole_broker_delays_commits_and_remembers_offsets(
    peers: dict[str, Peer], tmp_path: Path, writer: str, reader: str
) -> None:
    def half(number: int) -> Answer:
        properties = {"PGROUP": "producers", "TRAN_MSG": "true", "UNIQ_KEY": f"H{number}"}
        return {"op": "half", **put("Orders", b"half %d" % number, queue_id=1, properties=properties)}

    plan: list[Answer] = [
        {"op": "create_topic", "topic": "Orders", "queues": 2},
        {"op": "put", **put("Orders", b"delayed", properties={"DELAY": "1", "TAGS": "A"})},
        half(0),
        half(1),
        {"op": "commit", "ref": 2},
        {"op": "rollback", "ref": 3},
        {"op": "flush_op"},
        {"op": "commit_offset", "group": "readers", "topic": "Orders", "queue_id": 1, "offset": 1},
        {"op": "wait_max", "topic": "Orders", "queue_id": 0, "max": 1},
        # The offset of a level moves at the round after the delivery, 100 ms later.
        {"op": "sleep_ms", "n": 500},
        {"op": "delay_offsets"},
    ]
    steps = peers[writer].broker(tmp_path, plan, conf=SMALL_FILES)
    dumped = peers[reader].dump(tmp_path, conf=SMALL_FILES)
    again = peers[reader].broker(tmp_path, [{**plan[7], "op": "query_offset"}], conf=SMALL_FILES)

    assert next(step for step in steps if step.get("step") == 8)["reached"]
    assert next(step for step in steps if step.get("step") == 10)["offsets"] == {"1": 1}
    assert not steps[-1]["abort_left"]
    (delayed,) = dumped.messages["Orders", 0]
    assert (delayed["tags"], delayed["properties"]["REAL_TOPIC"]) == ("A", "Orders")
    (committed,) = dumped.messages["Orders", 1]
    assert committed["sys_flag"] == 8
    assert (
        committed["prepared_transaction_offset"]
        == dumped.messages["RMQ_SYS_TRANS_HALF_TOPIC", 0][0]["physical_offset"]
    )
    (operation,) = dumped.messages["RMQ_SYS_TRANS_OP_HALF_TOPIC", 0]
    assert base64.b64decode(operation["body"]) == b"0,1,"
    assert next(step for step in again if step.get("op") == "query_offset")["offset"] == 1


def test_the_benchmarks_measure_something(peers: dict[str, Peer], tmp_path: Path) -> None:
    small = {**SMALL_FILES, "mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 5000, "maxIndexNum": 20000}

    puts = peers[NEWEST].bench("put", tmp_path, conf=small, count=2000, warmup=500)
    reads = peers[NEWEST].bench("read", tmp_path, conf=small, passes=2)

    assert puts["record_bytes"] == pytest.approx(1209, abs=3)
    assert puts["p50_us"] > 0
    assert reads["count"] == 2500
    assert reads["peak_rss_kb"] > 0
