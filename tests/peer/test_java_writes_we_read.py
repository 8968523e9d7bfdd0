"""RocketMQ writes, we read: every message, offset, bound, key, time and filter, as it reads them itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peer.catalogue import COLLIDING_KEYS, ODD, ORDERS
from peer.exchange import (
    Contents,
    JavaStore,
    assert_same_answers,
    fingerprint,
    open_reader,
    open_store,
    ours,
)
from peer.peer import NEWEST, OLDER
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.reader import StoreReader
from rockstrata.store.reads import StoreReads

pytestmark = pytest.mark.peer

BOTH_VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"peer-{version}")) for version in (NEWEST, OLDER)
]


@pytest.fixture(params=BOTH_VERSIONS)
def java(request: pytest.FixtureRequest, java_stores: Callable[[str], JavaStore]) -> JavaStore:
    return java_stores(request.param)


@pytest.fixture
def reader(java: JavaStore) -> Iterator[StoreReader]:
    """Reads in place: whatever it did wrong would show in the fingerprint."""
    before = fingerprint(java.root)
    yield open_reader(java.root)
    assert fingerprint(java.root) == before, "a reader changed the store"


@pytest.fixture
def store(java: JavaStore, tmp_path: Path) -> Iterator[LocalMessageStore]:
    shutil.copytree(java.root, tmp_path / "store")
    with open_store(tmp_path / "store") as store:
        yield store


def test_there_are_several_files_of_every_kind(java: JavaStore) -> None:
    for folder in ("commitlog", "index", f"consumequeue/{ORDERS}/0", "batchconsumequeue/InnerBatches/0"):
        assert len(list((java.root / folder).iterdir())) >= 3, folder


def test_a_reader_reads_every_field_of_every_message(java: JavaStore, reader: StoreReader) -> None:
    _assert_same_contents(java, reader)


def test_the_store_reads_every_field_of_every_message(java: JavaStore, store: LocalMessageStore) -> None:
    report = store.recovery

    _assert_same_contents(java, store)

    assert (report.clean, report.cut_bytes, report.rebuilt, report.damaged) == (True, 0, False, [])
    last = java.puts[-1]
    assert report.end == store.commit_log.max_offset == last["physical_offset"] + last["wrote_bytes"]


def test_a_reader_gives_rocketmqs_answer_to_every_question(java: JavaStore, reader: StoreReader) -> None:
    # A reader is not bound by the limits of a broker's answer.
    asked = [(q, a) for q, a in zip(java.questions, java.answers, strict=True) if q.get("max", 0) <= 64]

    assert_same_answers(reader, [q for q, _ in asked], [a for _, a in asked], java.records())


def test_the_store_gives_rocketmqs_answer_to_every_question(
    java: JavaStore, store: LocalMessageStore
) -> None:
    assert len(java.questions) > 5000

    assert_same_answers(store, java.questions, java.answers, java.records())


def test_a_message_is_found_by_the_id_rocketmq_gave_it(
    java: JavaStore, reader: StoreReader, store: LocalMessageStore
) -> None:
    for reads in (reader, store):
        for message in java.records():
            found = reads.message_by_id(message["msg_id"])
            assert found is not None
            assert ours(found) == {name: value for name, value in message.items() if name != "read_at"}
    for put in java.puts:
        for message_id in put["msg_id"].split(","):
            assert store.message_by_id(message_id.lower()) is not None


def test_keys_that_collide_are_told_apart(java: JavaStore, reader: StoreReader) -> None:
    raw = [a for q, a in zip(java.questions, java.answers, strict=True) if q.get("key") == COLLIDING_KEYS[0]]
    assert {len(line["offsets"]) for line in raw} == {2}, "RocketMQ answers both"

    assert [m.body for m in reader.query(ODD, COLLIDING_KEYS[0])] == [b"first of two"]
    assert [m.body for m in reader.query(ODD, COLLIDING_KEYS[1])] == [b"second of two"]


def _assert_same_contents(java: JavaStore, reads: StoreReads) -> None:
    contents = Contents.of(reads)
    assert contents.bounds == java.contents.bounds
    for key, messages in java.contents.messages.items():
        for mine, told in zip(contents.messages[key], messages, strict=True):
            assert mine == told
