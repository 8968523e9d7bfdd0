"""Transactions: halves nobody sees, commits that are never lost, and questions to the producer."""

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockstrata.errors import CorruptionError
from rockstrata.message import properties as props
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.model import Message, StoredMessage, pack_host
from rockstrata.store import transaction_ops
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import PutStatus
from rockstrata.store.running_flags import Flag
from rockstrata.store.topic_kinds import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from rockstrata.store.transaction_check import TRANSACTION_GROUP, TransactionChecker
from rockstrata.store.transaction_rules import (
    CheckRules,
    OpMap,
    Verdict,
    immunity_ms,
    original_offset,
    parse_op_body,
)
from rockstrata.store.transactions import EndStatus, HalfPosition
from rockstrata.testing.forgetful_disk import ForgetfulDisk, PowerCut
from rockstrata.testing.manual_clock import ManualClock
from store.small_store import START_MS, bodies_of, dispatch, messages_of, new_disk, open_small, small_config

GROUP = "producers"


@pytest.fixture
def disk():
    return new_disk()


@pytest.fixture
def store(disk):
    with open_small(disk) as store:
        yield store


def prepare(store, body, **fields):
    result = store.transactions.prepare(Message.of("Orders", body, **fields), GROUP)
    assert result.status is PutStatus.PUT_OK, result
    return result


def commit(store, half, **how):
    result = store.transactions.commit(half, GROUP, **how)
    assert result.ok, result
    return result


def rollback(store, half, **how):
    result = store.transactions.rollback(half, GROUP, **how)
    assert result.ok, result
    return result


def checker_of(store, ask=None):
    """A checker, and the list of what it asked."""
    asked: list[StoredMessage] = []

    def note(half):
        asked.append(half)
        if ask is not None:
            ask(half)

    return TransactionChecker(store, store.transactions.ops, note), asked


def check(store, ask=None):
    """One round over everything written so far; what it asked about."""
    dispatch(store)
    checker, asked = checker_of(store, ask)
    checker.run_once()
    return asked


def positions(store):
    query = store.consumer_offsets.query
    return tuple(query(TRANSACTION_GROUP, topic, 0) for topic in (HALF_TOPIC, OP_HALF_TOPIC))


def half_of(born=START_MS, stored=START_MS, queue_offset=0, **properties):
    return StoredMessage(
        HALF_TOPIC, b"x", 0, props.encode(properties), 0, 0, born, bytes(8), bytes(8), 0, 0, queue_offset, 0,
        stored, 0, 100,
    )  # fmt: skip


# Preparing


def test_a_half_is_kept_apart_and_remembers_where_it_belongs(store):
    message = Message(
        "Orders",
        b"body",
        queue_id=3,
        properties=props.encode({"UNIQ_KEY": "U1", "TAGS": "A", "PGROUP": GROUP, "TRAN_MSG": "true"}),
        flag=5,
        sys_flag=0x4 | 0x1,
        born_timestamp=START_MS - 9,
        born_host=pack_host("10.0.0.9", 99),
    )
    result = store.transactions.prepare(message)

    (half,) = messages_of(store, HALF_TOPIC)
    assert (half.physical_offset, half.queue_offset) == (result.physical_offset, result.queue_offset)
    assert (half.body, half.flag, half.sys_flag, half.born_timestamp) == (b"body", 5, 0x1, START_MS - 9)
    assert half.born_host == message.born_host
    assert half.property_map() == {
        "UNIQ_KEY": "U1",
        "TAGS": "A",
        "PGROUP": GROUP,
        "TRAN_MSG": "true",
        "__transactionId__": "U1",
        "REAL_TOPIC": "Orders",
        "REAL_QID": "3",
    }
    assert bodies_of(store, "Orders", 3) == []


def test_the_group_given_wins_and_the_mark_is_set(store):
    store.transactions.prepare(Message.of("Orders", b"x", properties={"PGROUP": "other"}), GROUP)

    (half,) = messages_of(store, HALF_TOPIC)
    assert (half.find_property("PGROUP"), half.find_property("TRAN_MSG")) == (GROUP, "true")
    assert half.find_property("__transactionId__") is None


@pytest.mark.parametrize(
    ("message", "group", "status"),
    [
        (Message.of("Orders", b"x"), None, PutStatus.MESSAGE_ILLEGAL),
        (Message.of("a/b", b"x"), GROUP, PutStatus.MESSAGE_ILLEGAL),
        (Message.of("t" * 128, b"x"), GROUP, PutStatus.MESSAGE_ILLEGAL),
        (Message.of("Orders", b"x"), "gr\1oup", PutStatus.MESSAGE_ILLEGAL),
        (Message.of("Orders", b"x" * (5 << 20)), GROUP, PutStatus.MESSAGE_ILLEGAL),
        (
            Message.of("Orders", b"x", properties={"TIMER_DELAY_SEC": "5"}),
            GROUP,
            PutStatus.WHEEL_TIMER_NOT_ENABLE,
        ),
    ],
    ids=["no group", "bad topic", "long topic", "bad group", "too large", "timer"],
)
def test_what_could_never_be_committed_is_not_prepared(store, message, group, status):
    assert store.transactions.prepare(message, group).status is status
    assert store.commit_log.max_offset <= 0


# Ending


def test_a_committed_message_is_seen_as_it_was_sent(store):
    half = prepare(store, b"body", queue_id=2, tags="A", keys="k1", unique_key="U1", flag=5)
    dispatch(store)
    result = commit(store, half)

    (found,) = messages_of(store, "Orders", 2)
    assert found.physical_offset == result.put.physical_offset
    assert (found.body, found.flag, found.sys_flag) == (b"body", 5, 0x8)
    assert found.prepared_transaction_offset == half.physical_offset
    assert found.born_timestamp == START_MS
    # As 5.5.0: the way back is taken out, the mark stays.
    assert found.property_map() == {
        "TAGS": "A",
        "KEYS": "k1",
        "UNIQ_KEY": "U1",
        "PGROUP": GROUP,
        "TRAN_MSG": "true",
        "__transactionId__": "U1",
    }
    assert [hit.body for hit in store.query("Orders", "k1")] == [b"body"]


def test_a_commit_needs_no_dispatch_of_its_half(store):
    commit(store, prepare(store, b"quick"))

    assert bodies_of(store, "Orders") == [b"quick"]


def test_a_rolled_back_message_is_never_seen(store):
    rollback(store, prepare(store, b"no"))
    store.transactions.ops.flush()
    store.clock.advance(60_000)

    assert check(store) == []
    assert bodies_of(store, "Orders") == []


def test_a_delay_begins_with_the_commit(store):
    half = prepare(store, b"later", delay_level=2)
    store.clock.advance(20_000)
    commit(store, half)
    dispatch(store)
    assert store.max_offset(SCHEDULE_TOPIC, 1) == 1
    store.clock.advance(4_999)
    store.schedule.run_once()
    assert bodies_of(store, "Orders") == []
    store.clock.advance(1)
    store.schedule.run_once()

    (found,) = messages_of(store, "Orders")
    assert (found.body, found.sys_flag) == (b"later", 0x8)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_end_that_does_not_fit_its_half_says_why(store, end):
    ordinary = store.put(Message.of("Orders", b"ordinary"))
    half = prepare(store, b"half")
    dispatch(store)
    act = getattr(store.transactions, end)
    table = {
        (half.physical_offset, half.queue_offset, "others"): EndStatus.WRONG_GROUP,
        (half.physical_offset, half.queue_offset + 1, GROUP): EndStatus.WRONG_QUEUE_OFFSET,
        (half.physical_offset + 1, half.queue_offset, GROUP): EndStatus.NOT_FOUND,
        (1 << 40, half.queue_offset, GROUP): EndStatus.NOT_FOUND,
        (-1, half.queue_offset, GROUP): EndStatus.NOT_FOUND,
        (ordinary.physical_offset, ordinary.queue_offset, GROUP): EndStatus.NOT_A_HALF,
    }

    answers = {key: act(HalfPosition(*key[:2]), key[2]) for key in table}

    assert {key: answer.status for key, answer in answers.items()} == table
    assert all(answer.reason and not answer.ok for answer in answers.values())
    assert bodies_of(store, "Orders") == [b"ordinary"]
    assert not store.transactions.ops.is_ended(0, half.queue_offset)


def test_a_damaged_half_is_an_error_not_an_unknown_one(store):
    half = prepare(store, b"damaged body")
    dispatch(store)
    view = store.commit_log.queue.files[0].file.view()
    at = bytes(view[:1000]).index(b"damaged body")
    view[at : at + 1] = b"D"

    with pytest.raises(CorruptionError, match="CRC"):
        store.transactions.commit(half, GROUP)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_producer_that_set_its_time_cannot_end_after_it_unless_asked(store, end):
    half = prepare(store, b"x", properties={props.CHECK_IMMUNITY_TIME: "10"})
    plain = prepare(store, b"y")
    act = getattr(store.transactions, end)
    store.clock.advance(10_001)

    assert act(half, GROUP).status is EndStatus.TOO_LATE
    assert act(plain, GROUP).status is EndStatus.OK
    assert act(half, GROUP, from_check=True).status is EndStatus.OK


def test_a_refused_commit_leaves_the_half_open(store):
    half = prepare(store, b"x")
    store.flags.set(Flag.FENCED, "test")
    refused = store.transactions.commit(half, GROUP)
    store.flags.clear(Flag.FENCED)

    assert refused.status is EndStatus.REFUSED
    assert refused.put.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert not store.transactions.ops.is_ended(0, half.queue_offset)
    commit(store, half)
    assert bodies_of(store, "Orders") == [b"x"]


# Op messages


def test_ends_are_written_together_after_three_seconds(store):
    for number in range(3):
        commit(store, prepare(store, b"%d" % number))
    ops = store.transactions.ops
    ops.run_once()
    assert messages_of(store, OP_HALF_TOPIC) == []
    assert ops.interval_s == 3.0
    store.clock.advance(2_000)
    ops.run_once()
    assert ops.interval_s == 1.0
    store.clock.advance(1_000)
    ops.run_once()

    (op,) = messages_of(store, OP_HALF_TOPIC)
    assert (op.body, op.tags, op.queue_id) == (b"0,1,2,", "d", 0)
    assert op.born_host == op.store_host == pack_host("127.0.0.1", 10911)


def test_a_full_op_message_is_written_at_once(disk):
    with open_small(disk, transaction_op_msg_max_bytes=8) as store:
        halves = [prepare(store, b"x") for _ in range(7)]
        for half in halves:
            rollback(store, half)
        store.transactions.ops.run_once()
        assert bodies_of(store, OP_HALF_TOPIC) == [b"0,1,2,3,"]
    with open_small(disk) as store:
        assert bodies_of(store, OP_HALF_TOPIC) == [b"0,1,2,3,", b"4,5,6,"]


def test_a_full_queue_is_written_by_the_one_who_ends(store, monkeypatch):
    monkeypatch.setattr(transaction_ops, "QUEUE_LIMIT", 3)
    halves = [prepare(store, b"x") for _ in range(4)]
    for half in halves:
        rollback(store, half)

    assert bodies_of(store, OP_HALF_TOPIC) == [b"0,1,2,"]
    assert store.transactions.ops.is_ended(0, 3)


def test_an_end_that_can_neither_wait_nor_be_written_is_asked_about(store, monkeypatch, caplog):
    monkeypatch.setattr(transaction_ops, "QUEUE_LIMIT", 1)
    first, second = prepare(store, b"1"), prepare(store, b"2")
    rollback(store, first)
    store.flags.set(Flag.FENCED, "test")
    rollback(store, second)
    store.flags.clear(Flag.FENCED)
    assert "half message 1 cannot be written" in caplog.text
    store.transactions.ops.flush()
    store.clock.advance(10_000)

    assert [half.body for half in check(store)] == [b"2"]


def test_a_refused_op_message_waits_on(store):
    rollback(store, prepare(store, b"x"))
    store.flags.set(Flag.FENCED, "test")
    assert not store.transactions.ops.flush()
    store.flags.clear(Flag.FENCED)
    assert store.transactions.ops.flush()

    assert bodies_of(store, OP_HALF_TOPIC) == [b"0,"]


def test_the_same_end_twice_is_said_once(store):
    half = prepare(store, b"x")
    rollback(store, half)
    rollback(store, half)
    store.transactions.ops.flush()

    assert bodies_of(store, OP_HALF_TOPIC) == [b"0,"]


def test_the_writer_is_woken_when_an_op_message_is_full(tmp_path):
    config = small_config(
        tmp_path, transaction_op_msg_max_bytes=6, transaction_op_batch_interval_ms=3_600_000
    )
    written = threading.Event()
    with LocalMessageStore.open(config) as store:
        store.add_listener(lambda found: [written.set() for a in found if a.topic == OP_HALF_TOPIC])
        for half in [prepare(store, b"x") for _ in range(3)]:
            rollback(store, half)

        assert written.wait(10)
        assert store.get(OP_HALF_TOPIC, 0, 0).messages()[0].body == b"0,1,2,"


def test_closing_writes_what_is_still_to_be_said(disk):
    with open_small(disk) as store:
        commit(store, prepare(store, b"x"))
    with open_small(disk) as store:
        store.clock.advance(60_000)
        assert check(store) == []
        assert positions(store) == (1, 1)


# The rules of a check

RULES = CheckRules(timeout_ms=6_000, check_max=15, reserved_ms=72 * 3_600_000)
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("half", "now", "began", "op_born", "verdict"),
    [
        # Too young, or newer than the round.
        (half_of(), 6_000, 6_000, None, Verdict.STOP),
        (half_of(stored=START_MS + 7_000), 7_000, 7_000, None, Verdict.STOP),
        (half_of(stored=START_MS + 7_001), 90_000, 7_000, None, Verdict.STOP),
        # Old enough: without ops at once, with ops only when they have gone past the time-out.
        (half_of(), 6_001, 6_001, None, Verdict.ASK),
        (half_of(), 6_001, 6_001, 6_001, Verdict.PULL),
        (half_of(), 20_000, 10_000, 16_000, Verdict.PULL),
        (half_of(), 20_000, 10_000, 16_001, Verdict.ASK),
        # Born in the future.
        (half_of(born=START_MS + 50_000), 10_000, 10_000, None, Verdict.ASK),
        (half_of(born=START_MS + 50_000), 10_000, 10_000, 10_000, Verdict.ASK),
        # Asked often.
        (half_of(TRANSACTION_CHECK_TIMES="14"), 60_000, 60_000, None, Verdict.ASK),
        (half_of(TRANSACTION_CHECK_TIMES="15"), 60_000, 60_000, None, Verdict.GIVE_UP),
        (half_of(TRANSACTION_CHECK_TIMES="100000"), 10, 10, None, Verdict.GIVE_UP),
        (half_of(TRANSACTION_CHECK_TIMES="many"), 60_000, 60_000, None, Verdict.ASK),
        # Older than any file.
        (half_of(), 72 * HOUR, 72 * HOUR, None, Verdict.ASK),
        (half_of(), 72 * HOUR + 1, 72 * HOUR, None, Verdict.GIVE_UP),
        # The producer's own time.
        (half_of(CHECK_IMMUNITY_TIME_IN_SECONDS="60"), 60_000, 50_000, None, Verdict.POSTPONE),
        (half_of(CHECK_IMMUNITY_TIME_IN_SECONDS="60"), 60_001, 60_001, None, Verdict.ASK),
        (half_of(CHECK_IMMUNITY_TIME_IN_SECONDS="60"), 60_001, 60_001, 1, Verdict.PULL),
        (half_of(CHECK_IMMUNITY_TIME_IN_SECONDS="1"), 1_001, 1_001, None, Verdict.ASK),
        (half_of(CHECK_IMMUNITY_TIME_IN_SECONDS="soon"), 6_000, 6_000, None, Verdict.POSTPONE),
        (half_of(CHECK_IMMUNITY_TIME_IN_SECONDS="soon"), 6_001, 6_001, None, Verdict.ASK),
        (half_of(CHECK_IMMUNITY_TIME_IN_SECONDS="-1"), 6_000, 6_000, None, Verdict.POSTPONE),
    ],
)
def test_the_verdict_on_a_half_message(half, now, began, op_born, verdict):
    last_op = None if op_born is None else START_MS + op_born

    assert RULES.judge(half, START_MS + now, START_MS + began, last_op) is verdict


def test_a_half_never_asked_about_is_asked_even_if_no_question_is_allowed():
    rules = CheckRules(timeout_ms=6_000, check_max=0, reserved_ms=HOUR)

    assert rules.judge(half_of(), START_MS + 9_000, START_MS + 9_000, None) is Verdict.ASK


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100", 100_000), ("6", 6_000), ("5", 6_000), ("-1", 6_000), ("", 6_000), (None, 6_000), ("x", 6_000)],
)
def test_immunity_is_never_less_than_the_time_out(text, expected):
    assert immunity_ms(text, 6_000) == expected


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"", set()),
        (b"7,", {7}),
        (b"1,2,3,", {1, 2, 3}),
        (b"1,,x,-4, 5,9223372036854775808,6", {1, 6}),
        (b"\xff,8,", {8}),
    ],
)
def test_the_offsets_of_an_op_message(body, offsets):
    assert parse_op_body(body) == offsets


@pytest.mark.parametrize(("text", "offset"), [("5", 5), ("-1", None), ("x", None), (None, None)])
def test_the_first_place_of_a_half(text, offset):
    properties = {} if text is None else {"TRAN_PREPARED_QUEUE_OFFSET": text}

    assert original_offset(half_of(**properties)) == offset


def test_op_messages_are_used_up_in_order():
    ops = OpMap(10)
    ops.add(0, "d", b"9,")
    ops.add(1, "d", b"10,12,")
    ops.add(2, "e", b"11,")
    ops.add(3, "d", b"11,")
    assert ops.position(0) == 1
    assert [ops.take(offset) for offset in (10, 11, 13)] == [True, True, False]
    assert ops.position(0) == 1
    assert ops.take(12)
    assert ops.position(0) == 4
    assert not ops.take(12)
    assert ops.take(9)


# The checker


def test_an_old_half_is_asked_about_once_a_round_and_kept(store):
    half = prepare(store, b"x", unique_key="U1", flag=5)
    store.clock.advance(6_001)
    (question,) = check(store)

    assert (question.queue_offset, question.body, question.flag) == (1, b"x", 5)
    assert question.find_property("TRANSACTION_CHECK_TIMES") == "1"
    assert (question.born_timestamp, question.unique_key) == (START_MS, "U1")
    assert store.message_at(question.physical_offset) == question
    assert question.physical_offset != half.physical_offset
    assert positions(store) == (1, -1)
    store.clock.advance(1)
    (again,) = check(store)
    assert (again.queue_offset, again.find_property("TRANSACTION_CHECK_TIMES")) == (2, "2")


def test_a_young_half_is_left_alone(store):
    prepare(store, b"x")
    store.clock.advance(6_000)

    assert check(store) == []
    assert positions(store) == (-1, -1)
    assert store.max_offset(HALF_TOPIC, 0) == 1


def test_the_answer_to_a_question_ends_the_transaction(store):
    prepare(store, b"yes")
    prepare(store, b"no")
    store.clock.advance(10_000)

    def answer(half):
        (commit if half.body == b"yes" else rollback)(store, half, from_check=True)

    assert len(check(store, answer)) == 2
    store.transactions.ops.flush()
    store.clock.advance(10_000)
    assert check(store) == []
    assert bodies_of(store, "Orders") == [b"yes"]
    assert positions(store) == (4, 1)


def test_ended_halves_are_passed_over_and_their_ops_used_up(store):
    halves = [prepare(store, b"%d" % number) for number in range(50)]
    for half in halves:
        if half.queue_offset != 30:
            commit(store, half)
            store.transactions.ops.flush()
    store.clock.advance(10_000)
    (question,) = check(store)

    assert question.body == b"30"
    assert positions(store) == (50, 49)


def test_an_op_message_that_names_a_half_not_reached_yet_is_kept(store):
    old, young = prepare(store, b"old"), None
    store.clock.advance(10_000)
    blocker = prepare(store, b"blocker")
    young = prepare(store, b"young")
    rollback(store, old)
    rollback(store, young)
    store.transactions.ops.flush()
    assert check(store) == []
    assert positions(store) == (1, -1)
    rollback(store, blocker)
    store.transactions.ops.flush()

    assert check(store) == []
    assert positions(store) == (3, 2)


def test_a_half_asked_about_too_often_is_given_up_once(disk):
    with open_small(disk, transaction_check_max=3) as store:
        prepare(store, b"x", unique_key="U1")
        rounds = []
        for _ in range(6):
            store.clock.advance(30_000)
            rounds.append(len(check(store)))

        (given_up,) = messages_of(store, CHECK_MAX_TIME_TOPIC)
        assert rounds == [1, 1, 1, 0, 0, 0]
        assert (given_up.body, given_up.unique_key) == (b"x", "U1")
        assert given_up.find_property("REAL_TOPIC") == "Orders"
        assert store.topics.get(CHECK_MAX_TIME_TOPIC).write_queue_nums == 1
        assert positions(store) == (4, -1)


def test_a_half_older_than_the_store_keeps_files_is_given_up(disk):
    with open_small(disk, file_reserved_time_hours=1) as store:
        prepare(store, b"x")
        store.clock.advance(HOUR + 1)

        assert check(store) == []
        assert bodies_of(store, CHECK_MAX_TIME_TOPIC) == [b"x"]


def test_a_half_that_cannot_be_given_up_stays(store):
    prepare(store, b"x", properties={"TRANSACTION_CHECK_TIMES": "99"})
    store.clock.advance(10_000)
    dispatch(store)
    checker, _ = checker_of(store)
    store.flags.set(Flag.FENCED, "test")
    checker.run_once()
    assert positions(store) == (-1, -1)
    store.flags.clear(Flag.FENCED)
    checker.run_once()

    assert bodies_of(store, CHECK_MAX_TIME_TOPIC) == [b"x"]
    assert positions(store) == (1, -1)


def test_a_half_whose_producer_wants_time_is_postponed_then_asked_about(store):
    prepare(store, b"x", properties={props.CHECK_IMMUNITY_TIME: "3600"})
    for _ in range(20):
        store.clock.advance(170_000)
        assert check(store) == []
    copies = messages_of(store, HALF_TOPIC)
    assert len(copies) == 21
    assert {copy.find_property("TRAN_PREPARED_QUEUE_OFFSET") for copy in copies[1:]} == {"0"}
    store.clock.advance(300_000)

    (question,) = check(store)
    assert question.body == b"x"
    assert bodies_of(store, CHECK_MAX_TIME_TOPIC) == []


@pytest.mark.parametrize("later_ms", [10_000, 100_000], ids=["still immune", "no longer immune"])
def test_a_postponed_half_that_was_ended_at_its_first_place_is_not_asked_about(store, later_ms):
    half = prepare(store, b"x", properties={props.CHECK_IMMUNITY_TIME: "60"})
    store.clock.advance(10_000)
    assert check(store) == []
    commit(store, half)
    store.transactions.ops.flush()
    store.clock.advance(later_ms)

    assert check(store) == []
    assert positions(store) == (2, 1)
    store.clock.advance(200_000)
    assert check(store) == []
    assert bodies_of(store, "Orders") == [b"x"]


class DispatchingClock(ManualClock):
    """While somebody sleeps, the dispatcher works."""

    store = None

    def sleep_s(self, seconds):
        super().sleep_s(seconds)
        dispatch(self.store)


@pytest.fixture
def lively():
    disk = ForgetfulDisk(DispatchingClock(START_MS))
    with open_small(disk) as store:
        disk.clock.store = store
        yield store


def test_nobody_is_asked_about_a_half_ended_a_moment_ago(lively):
    half = prepare(lively, b"slow")
    lively.clock.advance(10_000)
    dispatch(lively)
    commit(lively, half)

    assert check(lively) == []
    assert positions(lively) == (1, 1)
    assert bodies_of(lively, "Orders") == [b"slow"]


def test_a_half_not_among_the_first_ops_is_asked_about_after_reading_all(lively):
    for number in range(40):
        rollback(lively, prepare(lively, b"%d" % number))
        lively.transactions.ops.flush()
    prepare(lively, b"open")
    lively.clock.advance(10_000)

    assert [half.body for half in check(lively)] == [b"open"]
    assert positions(lively) == (41, 40)


def test_a_round_ends_after_a_minute(lively):
    prepare(lively, b"1")
    prepare(lively, b"2")
    lively.clock.advance(10_000)

    assert len(check(lively, lambda half: lively.clock.advance(60_001))) == 1
    assert positions(lively) == (1, -1)


def test_a_question_that_fails_is_asked_again(store, caplog):
    prepare(store, b"x")
    store.clock.advance(10_000)

    def fail(half):
        raise ConnectionError("nobody there")

    assert len(check(store, fail)) == 1
    assert "nobody there" in caplog.text
    store.clock.advance(1)
    assert len(check(store)) == 1


def test_a_refused_copy_ends_the_round_at_its_half(store):
    prepare(store, b"x")
    store.clock.advance(10_000)
    dispatch(store)
    checker, asked = checker_of(store)
    store.flags.set(Flag.FENCED, "test")
    checker.run_once()

    assert asked == []
    assert positions(store) == (-1, -1)
    store.flags.clear(Flag.FENCED)


def test_a_damaged_half_does_not_stop_the_others(store):
    prepare(store, b"damaged body")
    prepare(store, b"good")
    store.clock.advance(10_000)
    view = store.commit_log.queue.files[0].file.view()
    at = bytes(view[:1000]).index(b"damaged body")
    view[at : at + 1] = b"D"

    assert [half.body for half in check(store)] == [b"good"]


def test_positions_outside_the_queues_jump_into_them(store):
    prepare(store, b"x")
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        store.consumer_offsets.commit(TRANSACTION_GROUP, topic, 0, 70)
    rollback(store, prepare(store, b"y"))
    store.transactions.ops.flush()
    store.clock.advance(10_000)

    assert check(store) == []
    assert positions(store) == (2, 1)


def test_an_empty_store_has_nothing_to_check(store):
    assert check(store) == []
    assert positions(store) == (-1, -1)


def test_positions_are_remembered(disk):
    with open_small(disk) as store:
        rollback(store, prepare(store, b"x"))
        store.transactions.ops.flush()
        store.clock.advance(10_000)
        check(store)
    with open_small(disk) as store:
        assert positions(store) == (1, 1)


def test_the_checker_waits_an_interval_then_asks(tmp_path):
    asked = threading.Event()
    config = small_config(tmp_path, transaction_check_interval_ms=100, transaction_timeout_ms=0)
    with LocalMessageStore.open(config) as store:
        half = prepare(store, b"x")
        checker = store.transactions.start_checking(lambda half: asked.set())
        assert store.transactions.checker is checker

        assert asked.wait(10)
        store.transactions.stop_checking()
        assert not checker.running
        assert store.max_offset(HALF_TOPIC, 0) >= 1
        commit(store, half)


def test_the_first_round_is_not_at_the_start(store):
    prepare(store, b"x")
    store.clock.advance(10_000)
    dispatch(store)
    checker, asked = checker_of(store)
    checker.start()
    checker.stop()

    assert asked == []


# Crashes


def test_a_half_asked_about_is_not_lost_by_a_power_cut_after_the_round(disk):
    store = open_small(disk)
    prepare(store, b"x")
    store.clock.advance(10_000)
    check(store)
    store.consumer_offsets.persist()

    with open_small(disk.power_cut()) as reopened:
        reopened.clock.advance(10_000)
        assert [half.body for half in check(reopened)] == [b"x"]


def test_an_end_whose_op_was_not_written_is_asked_about_again(disk):
    store = open_small(disk)
    commit(store, prepare(store, b"x"))

    with open_small(disk.power_cut()) as reopened:
        assert bodies_of(reopened, "Orders") == [b"x"]
        reopened.clock.advance(10_000)
        assert [half.body for half in check(reopened)] == [b"x"]


class Producer:
    """A producer that knows which of its transactions happened, and what the store promised."""

    def __init__(self, rng):
        self.rng = rng
        self.open: dict[bytes, object] = {}
        self.happened: dict[bytes, bool] = {}
        self.committed: set[bytes] = set()
        self.rolled_back: set[bytes] = set()
        self.asked: set[bytes] = set()
        self.number = 0

    def begin(self, store):
        self.number += 1
        body = b"%d" % self.number + b"." * self.rng.choice((0, 40, 2_000))
        half = store.transactions.prepare(Message.of("Orders", body), GROUP)
        if half.status is PutStatus.PUT_OK:
            self.open[body] = half

    def end(self, store):
        if self.open:
            body = self.rng.choice(sorted(self.open))
            half = self.open[body]
            if self.happened.setdefault(body, self.rng.random() < 0.5):
                if store.transactions.commit(half, GROUP).put.status is PutStatus.PUT_OK:
                    self.committed.add(body)
                    del self.open[body]
            else:
                self.rolled_back.add(body)
                del self.open[body]
                store.transactions.rollback(half, GROUP)

    def answer(self, half):
        self.asked.add(half.body)


def live(store, rng, producer, checker):
    act = rng.randrange(10)
    if act < 3:
        producer.begin(store)
    elif act < 5:
        producer.end(store)
    elif act == 5:
        store.clock.advance(rng.choice((100, 4_000, 10_000)))
    elif act == 6:
        store.transactions.ops.run_once()
    elif act == 7:
        store.dispatcher.catch_up()
    elif act == 8:
        checker.run_once()
    else:
        store.consumer_offsets.persist()
        store._queue_flusher.flush_all()
        store.checkpoint.flush()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_power_cuts_lose_no_commit_and_forget_no_open_transaction(seed):
    rng = random.Random(seed)
    disk, producer = ForgetfulDisk(DispatchingClock(START_MS)), Producer(rng)
    for _ in range(3):
        disk.stop_after(rng.randrange(20, 500))
        try:
            store = disk.clock.store = open_small(disk)
            checker, _ = checker_of(store, producer.answer)
            while True:
                live(store, rng, producer, checker)
        except PowerCut:
            disk = disk.power_cut(rng)

    with open_small(disk) as store:
        disk.clock.store = store
        seen = set(bodies_of(store, "Orders"))
        assert producer.committed <= seen
        assert not producer.rolled_back & seen
        producer.asked.clear()
        store.clock.advance(100_000)
        check(store, producer.answer)
        assert set(producer.open) - seen <= producer.asked
