"""Messages given back: they come again later, or rest among the dead letters."""

import random

import pytest

from rockstrata.errors import CorruptionError
from rockstrata.message import properties as props
from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.model import Message, pack_host
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import PutStatus
from rockstrata.store.retry import (
    SendBackStatus,
    dead_letter_if_hopeless,
    dead_letter_topic,
    retry_topic,
    send_back,
)
from rockstrata.store.running_flags import Flag
from store.small_store import START_MS, bodies_of, dispatch, messages_of, new_disk, open_small, small_config

GROUP = "readers"
RETRY = "%RETRY%readers"
DLQ = "%DLQ%readers"


@pytest.fixture
def disk():
    return new_disk()


@pytest.fixture
def store(disk):
    with open_small(disk) as store:
        yield store


def put(store, body=b"body", reconsume_times=0, **properties):
    message = Message(
        "Orders",
        body,
        queue_id=3,
        properties=props.encode(properties),
        flag=5,
        born_timestamp=START_MS - 7,
        born_host=pack_host("10.0.0.9", 99),
        store_host=pack_host("10.0.0.8", 10911),
        reconsume_times=reconsume_times,
    )
    return store.put(message)


def wait_and_deliver(store, seconds):
    store.clock.advance(seconds * 1000)
    dispatch(store)
    store.schedule.run_once()


def test_the_topics_of_a_group():
    assert (retry_topic(GROUP), dead_letter_topic(GROUP)) == (RETRY, DLQ)


def test_a_message_sent_back_comes_again_after_ten_seconds(store):
    first = put(store, TAGS="A", KEYS="k1", UNIQ_KEY="U1")
    result = send_back(store, first.physical_offset, GROUP)
    assert (result.status, result.topic, result.ok) == (SendBackStatus.RETRY, RETRY, True)
    dispatch(store)
    assert store.max_offset(SCHEDULE_TOPIC, 2) == 1
    wait_and_deliver(store, 9)
    assert bodies_of(store, RETRY) == []
    wait_and_deliver(store, 1)

    (again,) = messages_of(store, RETRY)
    assert (again.body, again.flag, again.reconsume_times) == (b"body", 5, 1)
    assert (again.born_timestamp, again.born_host) == (START_MS - 7, pack_host("10.0.0.9", 99))
    assert again.store_host == pack_host("127.0.0.1", 10911)
    assert again.property_map() == {
        "TAGS": "A",
        "KEYS": "k1",
        "UNIQ_KEY": "U1",
        "RETRY_TOPIC": "Orders",
        "ORIGIN_MESSAGE_ID": first.message_id,
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }


def test_every_try_waits_longer_and_the_first_place_is_remembered(store):
    first = put(store)
    message = store.message_at(first.physical_offset)
    levels = []
    for _ in range(16):
        assert send_back(store, message, GROUP).status is SendBackStatus.RETRY
        wait_and_deliver(store, 7_200)
        message = messages_of(store, RETRY)[-1]
        levels.append(int(message.find_property("DELAY")))
    last = send_back(store, message, GROUP)

    assert levels == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]
    assert last.status is SendBackStatus.DEAD_LETTER
    (dead,) = messages_of(store, DLQ)
    assert (dead.reconsume_times, dead.find_property("DELAY")) == (17, "0")
    assert dead.find_property("RETRY_TOPIC") == "Orders"
    assert dead.find_property("ORIGIN_MESSAGE_ID") == first.message_id


@pytest.mark.parametrize(("asked", "level"), [(1, "1"), (18, "18"), (99, "18")])
def test_the_consumer_may_choose_the_delay(store, asked, level):
    send_back(store, put(store).physical_offset, GROUP, delay_level=asked)
    wait_and_deliver(store, 7_200)

    assert [again.find_property("DELAY") for again in messages_of(store, RETRY)] == [level]


@pytest.mark.parametrize(
    ("reconsume_times", "delay_level", "max_reconsume", "status"),
    [
        (15, 0, 16, SendBackStatus.RETRY),
        (16, 0, 16, SendBackStatus.DEAD_LETTER),
        (16, 0, 17, SendBackStatus.RETRY),
        (0, -1, 16, SendBackStatus.DEAD_LETTER),
        (0, 0, 0, SendBackStatus.DEAD_LETTER),
    ],
)
def test_when_a_message_is_hopeless(store, reconsume_times, delay_level, max_reconsume, status):
    first = put(store, reconsume_times=reconsume_times)

    assert send_back(store, first.physical_offset, GROUP, delay_level, max_reconsume).status is status


def test_dead_letters_are_there_at_once_even_with_timer_properties(store):
    first = put(store, TIMER_DELIVER_MS=str(START_MS), TIMER_OUT_MS=str(START_MS), DELAY="0")

    assert send_back(store, first.physical_offset, GROUP, -1).status is SendBackStatus.DEAD_LETTER
    assert bodies_of(store, DLQ) == [b"body"]


def test_a_committed_transaction_can_be_sent_back(store):
    half = store.transactions.prepare(Message.of("Orders", b"x"), "producers")
    committed = store.transactions.commit(half, "producers").put
    send_back(store, committed.physical_offset, GROUP)
    wait_and_deliver(store, 10)

    (again,) = messages_of(store, RETRY)
    assert (again.body, again.sys_flag, again.prepared_transaction_offset) == (b"x", 0x8, 0)


def test_retries_spread_over_the_queues_by_the_store_s_own_dice(disk):
    config = small_config()
    with LocalMessageStore.open(
        config, disk=disk, clock=disk.clock, random=random.Random(7), start_services=False
    ) as store:
        for number in range(20):
            send_back(store, put(store, b"%d" % number).physical_offset, GROUP, retry_queues=4)
        wait_and_deliver(store, 10)
        dice = random.Random(7)
        expected: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(4)}
        for number in range(20):
            expected[dice.randrange(4)].append(b"%d" % number)

        assert {queue_id: bodies_of(store, RETRY, queue_id) for queue_id in range(4)} == expected
        assert store.topics.get(RETRY).write_queue_nums == 4


def test_the_topics_are_made_when_first_needed(store):
    first = put(store)
    send_back(store, first.physical_offset, GROUP)
    assert store.topics.get(DLQ) is None
    send_back(store, first.physical_offset, GROUP, -1)

    assert {name: (topic.read_queue_nums, topic.perm) for name, topic in store.topics.all().items()} == {
        RETRY: (1, 6),
        DLQ: (1, 6),
    }


@pytest.mark.parametrize("where", [-1, 1, 1 << 40])
def test_a_place_without_a_message_is_not_found(store, where):
    put(store)
    dispatch(store)

    assert send_back(store, where, GROUP).status is SendBackStatus.NOT_FOUND
    assert store.topics.all() == {}


def test_a_damaged_message_is_an_error(store):
    first = put(store, b"damaged body")
    dispatch(store)
    view = store.commit_log.queue.files[0].file.view()
    at = bytes(view[:1000]).index(b"damaged body")
    view[at : at + 1] = b"D"

    with pytest.raises(CorruptionError, match="CRC"):
        send_back(store, first.physical_offset, GROUP)


@pytest.mark.parametrize("delay_level", [0, -1])
def test_a_group_whose_topic_cannot_be_is_refused(store, delay_level):
    result = send_back(store, put(store).physical_offset, "a/b", delay_level)

    assert (result.status, result.put.status) == (SendBackStatus.REFUSED, PutStatus.MESSAGE_ILLEGAL)
    assert store.topics.all() == {}


def test_a_refused_send_back_leaves_the_message_with_its_consumer(store):
    first = put(store)
    store.flags.set(Flag.DISK_FULL, "test")
    result = send_back(store, first.physical_offset, GROUP)
    store.flags.clear(Flag.DISK_FULL)

    assert (result.status, result.ok) == (SendBackStatus.REFUSED, False)
    assert result.put.status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_send_back_is_durable_even_if_its_producer_did_not_wait(disk):
    store = open_small(disk)
    first = put(store, WAIT="false")
    assert send_back(store, first.physical_offset, GROUP, -1).ok

    with open_small(disk.power_cut()) as reopened:
        assert bodies_of(reopened, DLQ) == [b"body"]


@pytest.mark.parametrize(
    ("topic", "reconsume_times", "expected"),
    [
        (RETRY, 16, RETRY),
        (RETRY, 17, DLQ),
        ("Orders", 99, "Orders"),
    ],
)
def test_a_retry_a_client_sends_itself_goes_to_the_dead_letters_after_too_many(
    topic, reconsume_times, expected
):
    message = Message(topic, b"x", 2, props.encode({"DELAY": "5"}), reconsume_times=reconsume_times)
    routed = dead_letter_if_hopeless(message)

    assert routed.topic == expected
    assert (routed is message) == (expected == topic)
    if expected == DLQ:
        assert (routed.queue_id, props.find(routed.properties, "DELAY")) == (0, "-1")
