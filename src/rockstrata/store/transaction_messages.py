"""The messages of a transaction: half, committed, asked about again, given up, and op. Pure.

Answers to the message building of RocketMQ's TransactionalMessageBridge and EndTransactionProcessor.
Called by the transactions and their checker.
"""

from collections.abc import Iterable

from rockstrata.message import properties as props
from rockstrata.message import sys_flag
from rockstrata.message.model import Message, StoredMessage
from rockstrata.message.sys_flag import TransactionType
from rockstrata.store.topic_kinds import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC

OP_SEPARATOR = ","
REMOVE_TAG = "d"
_OP_PROPERTIES = props.encode({props.TAGS: REMOVE_TAG, props.WAIT: "true"})


def half_message(message: Message, producer_group: str) -> Message:
    """The message as it waits in the half topic; its transaction bits are cleared, so it has a unit."""
    wire = message.properties
    unique_key = props.find(wire, props.UNIQUE_KEY)
    if unique_key is not None:
        wire = props.put(wire, props.TRANSACTION_ID, unique_key)
    for name, value in (
        (props.PRODUCER_GROUP, producer_group),
        (props.TRANSACTION_PREPARED, "true"),
        (props.REAL_TOPIC, message.topic),
        (props.REAL_QUEUE_ID, str(message.queue_id)),
    ):
        wire = props.put(wire, name, value)
    return Message(
        HALF_TOPIC,
        message.body,
        0,
        wire,
        message.flag,
        sys_flag.with_transaction_type(message.sys_flag, TransactionType.NOT_TYPE),
        message.born_timestamp,
        message.born_host,
        message.store_host,
        message.reconsume_times,
    )


def committed_message(half: StoredMessage, topic: str, queue_id: int) -> Message:
    """What consumers get. Like 5.5.0, and unlike 5.3.3, without REAL_TOPIC and REAL_QID."""
    wire = props.remove(half.properties, props.REAL_TOPIC)
    return Message(
        topic,
        half.body,
        queue_id,
        props.remove(wire, props.REAL_QUEUE_ID),
        half.flag,
        sys_flag.with_transaction_type(half.sys_flag, TransactionType.COMMIT_TYPE),
        half.born_timestamp,
        half.born_host,
        half.store_host,
        half.reconsume_times,
        half.physical_offset,
    )


def renewed_half(half: StoredMessage, check_times: int) -> Message:
    """The half as it is appended again before the producer is asked."""
    wire = props.put(half.properties, props.TRANSACTION_CHECK_TIMES, str(check_times))
    return _again(half, HALF_TOPIC, half.queue_id, wire)


def postponed_half(half: StoredMessage, original_offset: int) -> Message:
    """The half as it is appended again because its producer wants more time: it names its first place.

    RocketMQ counts this as a question; after 15 it would give up before the first was asked.
    """
    wire = props.put(half.properties, props.TRANSACTION_PREPARED_QUEUE_OFFSET, str(original_offset))
    return _again(half, HALF_TOPIC, half.queue_id, wire)


def given_up_half(half: StoredMessage) -> Message:
    """The half as an operator finds it when nobody knew what became of its transaction."""
    return _again(half, CHECK_MAX_TIME_TOPIC, 0, half.properties)


def _again(half: StoredMessage, topic: str, queue_id: int, properties: bytes) -> Message:
    return Message(
        topic,
        half.body,
        queue_id,
        properties,
        half.flag,
        half.sys_flag,
        half.born_timestamp,
        half.born_host,
        half.store_host,
        half.reconsume_times,
    )


def op_message(queue_id: int, half_offsets: Iterable[int], store_host: bytes) -> Message:
    """Says that the halves at these offsets of half queue ``queue_id`` are committed or rolled back."""
    body = "".join(f"{offset}{OP_SEPARATOR}" for offset in half_offsets)
    return Message(OP_HALF_TOPIC, body.encode(), queue_id, _OP_PROPERTIES, born_host=store_host)
