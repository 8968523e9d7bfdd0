"""One directory, two owners: the same letters, questions and answers for RocketMQ and for Rockstrata.

A plan (see ``peer.peer``) is written by either side; what either side reads is brought into one form,
so that a test compares plain dictionaries. Called by the exchange tests and by the golden store.
"""

from __future__ import annotations

import base64
import hashlib
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer.catalogue import INNER, beyond_a_broker, catalogue, questions
from peer.peer import NEWEST, SMALL_FILES, Answer, Dumped, Peer
from rockstrata.clock import Clock, SystemClock
from rockstrata.errors import RockstrataError
from rockstrata.message import properties as props
from rockstrata.message.batch import BatchElement, encode_batch, inner_batch
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.model import Message, StoredMessage, parse_host
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.config_file import ConfigFile
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.message_filter import MessageFilter, SqlFilter, tag_filter
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.reader import StoreReader
from rockstrata.store.reads import StoreReads
from rockstrata.store.results import BoundaryType
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.topics import QueueType, TopicConfig, Topics

LONG_MAX = 2**63 - 1
MAX_HITS = 64
STORE_HOST = "127.0.0.1:10911"
Key = tuple[str, int]


# Owning a directory


def config_of(root: Path, conf: Mapping[str, object] | None = None) -> StoreConfig:
    """Our settings for a directory that RocketMQ opens with ``conf``."""
    return StoreConfig.load(
        overrides={"storePathRootDir": str(root), "brokerIP1": "127.0.0.1", **(conf or SMALL_FILES)}
    )


def declare_batch_topics(root: Path, *names: str) -> None:
    """Write ``config/topics.json`` as we write it; RocketMQ's side reads it there."""
    topics = Topics(ConfigFile(root / "config" / "topics.json", PosixDisk()), SystemClock())
    topics.load()
    batch = {"queue.type": QueueType.BATCH.value}
    topics.ensure(*(TopicConfig(topic_name=name, attributes=batch) for name in names))


def open_store(
    root: Path,
    conf: Mapping[str, object] | None = None,
    *,
    clock: Clock | None = None,
    start_services: bool = True,
) -> LocalMessageStore:
    return LocalMessageStore.open(
        config_of(root, conf), clock=clock, random=random.Random(7), start_services=start_services
    )


def open_reader(root: Path, conf: Mapping[str, object] | None = None) -> StoreReader:
    return StoreReader(config_of(root, conf))


def copy_of(root: Path, name: str) -> Path:
    """A copy to be opened by somebody: opening a store may change it."""
    target = root.parent / f"{root.name}-{name}"
    shutil.copytree(root, target)
    return target


def file_bytes(root: Path, *parts: str) -> dict[str, bytes]:
    """Content of the files below some folders of a store, by their path in it."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for part in parts
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


def fingerprint(root: Path) -> dict[str, tuple[int, str]]:
    """Time of change and digest of every file: a reader must not change it."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# Writing a plan


def message_of(step: Answer) -> Message:
    """A plan line as our message; that of a batch has the client's encoding as its body."""
    if "elements" in step:
        body = encode_batch(
            BatchElement(
                element.get("flag", 0),
                base64.b64decode(element["body"]),
                props.encode(element.get("properties", {})),
            )
            for element in step["elements"]
        )
    else:
        body = base64.b64decode(step["body"])
    text = step.get("properties_string")
    message = Message(
        step["topic"],
        body,
        step["queue_id"],
        props.encode(step.get("properties", {})) if text is None else text.encode(),
        step.get("flag", 0),
        step.get("sys_flag", 0),
        step.get("born_timestamp", 0),
        parse_host(step.get("born_host", STORE_HOST)),
        parse_host(step.get("store_host", STORE_HOST)),
        step.get("reconsume_times", 0),
        step.get("prepared_transaction_offset", 0),
    )
    return inner_batch(message) if step.get("kind") == "inner_batch" else message


def _undelayed(step: Answer) -> Answer:
    """What a producer sent before the schedule hook turned it into this step."""
    known = dict(step["properties"])
    topic, queue_id = known.pop(props.REAL_TOPIC), int(known.pop(props.REAL_QUEUE_ID))
    return {**step, "topic": topic, "queue_id": queue_id, "properties": known}


def put_step(store: LocalMessageStore, step: Answer) -> Answer:
    """Put one plan line; the answer has the form of RocketMQ's."""
    if step["kind"] == "batch":
        results = store.put_client_batch(message_of(step))
        first = results[0]
        return {
            "status": results.status.value,
            "append_status": first.append_status.value if first.append_status else None,
            "physical_offset": first.physical_offset,
            "queue_offset": first.queue_offset,
            "wrote_bytes": int(results.record_bytes.sum()),
            "msg_count": len(results),
            "msg_id": results.message_ids,
            "store_timestamp": results.store_timestamp,
        }
    # RocketMQ's hook lives in the broker, ours in the store: give it what the hook wants to see.
    result = store.put(message_of(_undelayed(step) if step["topic"] == SCHEDULE_TOPIC else step))
    return {
        "status": result.status.value,
        "append_status": result.append_status.value if result.append_status else None,
        "physical_offset": result.physical_offset,
        "queue_offset": result.queue_offset,
        "wrote_bytes": result.record_bytes,
        "msg_count": result.message_count,
        "msg_id": result.message_id,
        "store_timestamp": result.store_timestamp,
    }


def puts_of(plan: Sequence[Answer]) -> list[Answer]:
    """The plan without its pauses."""
    return [step for step in plan if "sleep_ms" not in step]


# Reading, in one form


def theirs(message: Answer) -> Answer:
    """A message as RocketMQ told it, with hosts and bodies as bytes."""
    return {
        **message,
        "properties": message["properties"] or {},
        "born_host": parse_host(message["born_host"]).hex(),
        "store_host": parse_host(message["store_host"]).hex(),
        "body": base64.b64decode(message["body"] or ""),
    }


def ours(message: StoredMessage, read_at: int | None = None) -> Answer:
    """Our message in the same form, every field."""
    fields = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_size": message.record_bytes,
        "tags": message.tags,
        "keys": message.keys,
        "unique_key": message.unique_key,
        "properties": message.property_map(),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "born_host": message.born_host.hex(),
        "store_host": message.store_host.hex(),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body": message.body,
        "body_crc": message.body_crc,
        "msg_id": message.message_id,
    }
    return fields if read_at is None else {**fields, "read_at": read_at}


@dataclass(frozen=True)
class Contents:
    """Everything a store holds: bounds and messages of every queue."""

    bounds: dict[Key, tuple[int, int]] = field(default_factory=dict)
    messages: dict[Key, list[Answer]] = field(default_factory=dict)

    @staticmethod
    def of_dump(dumped: Dumped) -> Contents:
        """What RocketMQ read. It must have read every offset without stumbling."""
        stumbles = {key: queue["statuses"] for key, queue in dumped.queues.items() if queue["statuses"]}
        assert not stumbles
        return Contents(
            {key: (queue["min"], queue["max"]) for key, queue in dumped.queues.items()},
            {key: [theirs(message) for message in found] for key, found in dumped.messages.items()},
        )

    @staticmethod
    def of(reads: StoreReads) -> Contents:
        """What we read, in pulls of 32 as RocketMQ's side does."""
        contents = Contents()
        for topic, queue_ids in reads.topic_queues().items():
            for queue_id in queue_ids:
                key = (topic, queue_id)
                contents.bounds[key] = (reads.min_offset(*key), reads.max_offset(*key))
                contents.messages[key] = list(_all_of(reads, key))
        return contents

    def without_empty(self) -> Contents:
        """Only queues with messages: whether an empty one is listed is nobody's business."""
        kept = [key for key, messages in self.messages.items() if messages]
        return Contents({key: self.bounds[key] for key in kept}, {key: self.messages[key] for key in kept})

    def all(self) -> list[Answer]:
        return [message for queue in self.messages.values() for message in queue]


def _all_of(reads: StoreReads, key: Key) -> Iterable[Answer]:
    offset = max(0, reads.min_offset(*key))
    while offset < reads.max_offset(*key):
        result = reads.get(*key, offset)
        assert result.records, (key, offset, result)
        for message, read_at in zip(result.messages(), result.queue_offsets, strict=True):
            yield ours(message, read_at)
        assert result.next_begin_offset > offset, (key, offset, result)
        offset = result.next_begin_offset


# Asking


def answer(reads: StoreReads, question: Answer) -> Answer:
    """Our answer to one question of the peer's ``query`` command."""
    topic, queue_id = question.get("topic", ""), question.get("queue_id", 0)
    offset = question.get("offset", 0)
    match question["op"]:
        case "key":
            found = reads.query(
                topic, question["key"], question.get("max", 32), question.get("begin", 0),
                question.get("end", LONG_MAX), by_tag=question.get("type") == "T",
            )  # fmt: skip
            return {"offsets": [message.physical_offset for message in found]}
        case "index_offsets":
            assert reads._index is not None
            # RocketMQ's index caps the count itself (maxMsgsNumBatch); ours leaves that to its callers.
            max_num = min(question.get("max", 32), MAX_HITS)
            begin, end = question.get("begin", 0), question.get("end", LONG_MAX)
            found_at = reads._index.query_offsets(
                topic, question["key"], max_num, begin, end, question.get("type")
            )
            return {"offsets": found_at}
        case "time":
            boundary = BoundaryType(question.get("boundary", "LOWER"))
            return {"offset": reads.offset_by_time(topic, queue_id, question["timestamp"], boundary)}
        case "look":
            message = reads.message_at(question["physical_offset"])
            return {"message": message and ours(message)}
        case "get":
            return _get(reads, question)
        case "cq":
            return {"units": _units(reads, topic, queue_id, offset, question.get("count", 32))}
        case "earliest":
            return {"timestamp": reads.earliest_time(topic, queue_id)}
        case "store_time":
            return {"timestamp": reads.store_time(topic, queue_id, offset)}
        case "bounds":
            return {"min": reads.min_offset(topic, queue_id), "max": reads.max_offset(topic, queue_id)}
        case op:
            raise ValueError(op)


def _get(reads: StoreReads, question: Answer) -> Answer:
    wanted: MessageFilter | None = None
    if "sql" in question:
        wanted = SqlFilter(question["sql"])
    elif "tags" in question:
        wanted = tag_filter(question["tags"])
    result = reads.get(
        question["topic"],
        question["queue_id"],
        question["offset"],
        question.get("max", 32),
        max_bytes=question.get("max_bytes", 128 << 20),
        message_filter=wanted,
    )
    return {
        "status": result.status.value,
        "next": result.next_begin_offset,
        "min": result.min_offset,
        "max": result.max_offset,
        "queue_offsets": result.queue_offsets,
        "physical_offsets": [message.physical_offset for message in result.messages()],
        "message_count": result.message_count,
        "total_bytes": result.total_bytes,
    }


def _units(reads: StoreReads, topic: str, queue_id: int, offset: int, count: int) -> list[Answer] | None:
    """Units from a queue offset to the end of their file, as RocketMQ's iterator gives them."""
    queue: Any = reads._queues.get(topic, queue_id)
    if queue is None or not queue.min_offset <= offset < queue.max_offset:
        return None
    is_batch = queue.layout is BATCH_CONSUME_QUEUE_UNIT
    number = queue.find_unit(offset) if is_batch else offset
    per_file = queue.file_bytes // queue.layout.size
    last = min(queue.unit_count, number - number % per_file + per_file, number + count)
    units = []
    for n in range(number, last):
        physical, size, tags_code, *more = queue.unit(n)
        units.append(
            {
                "queue_offset": more[1] if is_batch else n,
                "physical_offset": physical,
                "size": size,
                "tags_code": tags_code,
                "batch_count": more[2] if is_batch else 1,
            }
        )
    return units


def agreed(question: Answer, told: Answer, by_offset: Mapping[int, Answer]) -> Answer:
    """RocketMQ's answer as ours must be.

    Its key query compares hashes only: answers without the key are collisions, and a record may be
    named twice. Where it throws we raise; the words differ.
    """
    told = {name: value for name, value in told.items() if name not in ("query", "op")}
    if "error" in told:
        return {"error": True}
    if question["op"] == "look" and told["message"] is not None:
        return {"message": theirs(told["message"])}
    if question["op"] == "key":
        return {"offsets": [o for o in sorted(set(told["offsets"])) if _has(by_offset[o], question)]}
    return told


def _has(message: Answer, question: Answer) -> bool:
    if message["topic"] != question["topic"]:
        return False
    if question.get("type") == "T":
        return bool(message["tags"] == question["key"])
    words = (message["keys"] or "").split(" ")
    return question["key"] == message["unique_key"] or question["key"] in words


def assert_same_answers(
    reads: StoreReads, questions: Sequence[Answer], told: Sequence[Answer], records: Iterable[Answer]
) -> None:
    """Compare our answers with RocketMQ's, one by one; ``records`` are all messages of the log."""
    assert len(questions) == len(told)
    by_offset = {message["physical_offset"]: message for message in records}
    for question, line in zip(questions, told, strict=True):
        try:
            mine = answer(reads, question)
        except RockstrataError:
            mine = {"error": True}
        assert mine == agreed(question, line, by_offset), question


# A whole exchange


@dataclass(frozen=True)
class JavaStore:
    """A directory RocketMQ wrote and left in order, with all it says about it. Copy it to open it."""

    version: str
    root: Path
    plan: list[Answer]
    puts: list[Answer]
    contents: Contents
    questions: list[Answer]
    answers: list[Answer]

    def records(self) -> list[Answer]:
        """Every record of the log, those without a place in a queue included."""
        looked = [line["message"] for line in self.answers if line["op"] == "look" and line.get("message")]
        return [*map(theirs, looked), *self.contents.all()]


def java_store(peer: Peer, root: Path) -> JavaStore:
    """Let RocketMQ write everything there is, then read and answer everything from copies."""
    declare_batch_topics(root, INNER)
    plan = [*catalogue(), *beyond_a_broker()]
    written = peer.write(root, plan, conf=SMALL_FILES)
    assert {(line["status"], line["append_status"]) for line in written.puts} == {("PUT_OK", "PUT_OK")}
    assert not written.done["abort_left"]
    contents = Contents.of_dump(peer.dump(copy_of(root, "dump"), conf=SMALL_FILES, ending="halt"))
    asked = questions(written.puts, contents.bounds, contents.messages, tag_index=peer.version == NEWEST)
    told = peer.query(copy_of(root, "query"), asked, conf=SMALL_FILES, ending="halt")
    return JavaStore(peer.version, root, plan, written.puts, contents, asked, told)
