"""Stores that RocketMQ 5.5.0 wrote, kept in this folder: we read them as it did. No Java is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from golden.golden import CLEAN, CONF, CRASHED, Golden
from peer.catalogue import INNER, SHORTEST_SECOND_VERSION_TOPIC
from peer.exchange import (
    Contents,
    assert_same_answers,
    declare_batch_topics,
    file_bytes,
    fingerprint,
    open_reader,
    open_store,
    ours,
    put_step,
    puts_of,
)
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.testing.manual_clock import ManualClock

QUEUES = ("consumequeue", "batchconsumequeue")


@pytest.fixture(scope="module")
def clean() -> Golden:
    return Golden.load(CLEAN)


@pytest.fixture(scope="module")
def crashed() -> Golden:
    return Golden.load(CRASHED)


@pytest.fixture
def root(clean: Golden, tmp_path: Path) -> Path:
    return clean.unpack(tmp_path)


@pytest.fixture
def store(root: Path) -> Iterator[LocalMessageStore]:
    with open_store(root, CONF) as store:
        yield store


def test_the_golden_store_has_several_files_of_every_kind(root: Path) -> None:
    for folder in ("commitlog", "index", "consumequeue/Orders/0", "batchconsumequeue/InnerBatches/0"):
        assert len(list((root / folder).iterdir())) >= 3, folder


def test_a_reader_reads_every_field_and_changes_nothing(clean: Golden, root: Path) -> None:
    before = fingerprint(root)

    assert Contents.of(open_reader(root, CONF)) == clean.contents

    assert fingerprint(root) == before


def test_the_store_reads_every_field(clean: Golden, store: LocalMessageStore) -> None:
    assert (store.recovery.clean, store.recovery.cut_bytes, store.recovery.damaged) == (True, 0, [])
    assert Contents.of(store) == clean.contents
    assert len(clean.contents.all()) > 100


def test_every_question_gets_rocketmqs_answer(clean: Golden, store: LocalMessageStore) -> None:
    assert len(clean.asked) > 1000

    assert_same_answers(store, clean.asked, clean.told, clean.records())


def test_every_id_finds_its_message(clean: Golden, store: LocalMessageStore) -> None:
    for message in clean.records():
        found = store.message_by_id(message["msg_id"])
        assert found is not None
        assert ours(found) == {name: value for name, value in message.items() if name != "read_at"}


def test_opening_and_closing_changes_no_message(clean: Golden, root: Path) -> None:
    before = file_bytes(root, "commitlog", *QUEUES, "index")

    with open_store(root, CONF):
        pass

    assert file_bytes(root, "commitlog", *QUEUES, "index") == before
    assert not (root / "abort").exists()


def test_our_writer_makes_the_same_bytes(clean: Golden, root: Path, tmp_path: Path) -> None:
    """Log, queues and index: nothing is masked but the names of index files, since the plan gives hosts,
    born times and property order, and the answers give the store times our clock shows.
    """
    mine = tmp_path / "mine"
    declare_batch_topics(mine, INNER)
    clock = ManualClock()

    with open_store(mine, CONF, clock=clock, start_services=False) as store:
        for step, told in zip(puts_of(clean.plan), clean.puts, strict=True):
            clock.set_now_ms(told["store_timestamp"])
            answer = put_step(store, step)
            if step["topic"] == SHORTEST_SECOND_VERSION_TOPIC:
                assert answer["status"] == "MESSAGE_ILLEGAL", "as a broker would say"
            else:
                assert answer == {name: told[name] for name in answer}

    written, golden = file_bytes(mine, "commitlog", *QUEUES), file_bytes(root, "commitlog", *QUEUES)
    golden = {name: data for name, data in golden.items() if SHORTEST_SECOND_VERSION_TOPIC + "/" not in name}
    last = max(name for name in golden if name.startswith("commitlog"))
    end = clean.puts[-1]["physical_offset"] % CONF["mappedFileSizeCommitLog"]
    golden[last] = golden[last][:end].ljust(len(golden[last]), b"\0")
    assert written == golden
    assert list(file_bytes(mine, "index").values()) == list(file_bytes(root, "index").values())


def test_what_rocketmq_left_in_a_crash_is_recovered(crashed: Golden, tmp_path: Path) -> None:
    root = crashed.unpack(tmp_path)
    assert (root / "abort").exists()
    last = crashed.puts[-1]

    with open_store(root, CONF) as store:
        assert not store.recovery.clean
        assert store.recovery.end == last["physical_offset"] + last["wrote_bytes"]
        assert Contents.of(store) == crashed.contents
        by_queue = [
            (question, told)
            for question, told in zip(crashed.asked, crashed.told, strict=True)
            # RocketMQ forgets keys in a crash; we do not.
            if question["op"] not in ("key", "index_offsets")
        ]
        assert_same_answers(store, [q for q, _ in by_queue], [t for _, t in by_queue], crashed.records())
        for message in crashed.contents.all():
            for key in filter(None, (message["unique_key"], *(message["keys"] or "").split())):
                found = store.query(message["topic"], key, 64)
                offsets = [m.physical_offset for m in found]
                assert message["physical_offset"] in offsets or len(offsets) == 64
    assert not (root / "abort").exists()
