"""Messages a consumer could not handle: sent back for another try, or to the dead letters.

Answers to RocketMQ's AbstractSendMessageProcessor.consumerSendMsgBack and to handleRetryAndDLQ of
SendMessageProcessor. Called by the broker and by any Python program.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from rockstrata.errors import IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message.ids import encode_message_id
from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.queue_offsets import RETRY_TOPIC_PREFIX
from rockstrata.store.results import PutResult, PutStatus
from rockstrata.store.topics import TopicConfig

if TYPE_CHECKING:
    from rockstrata.store.local_store import LocalMessageStore

DLQ_TOPIC_PREFIX = "%DLQ%"
DLQ_QUEUES = 1
MAX_RECONSUME = 16
# Delay level of the first retry; each further one waits one level longer.
FIRST_DELAY_LEVEL = 3


class SendBackStatus(Enum):
    """Where a message sent back went."""

    RETRY = "it will come again, through its group's retry topic"
    DEAD_LETTER = "it was tried too often, or its consumer gave it up"
    NOT_FOUND = "no message lies there"
    REFUSED = "the store refused it: the consumer must keep it"


class SendBackResult(msgspec.Struct, frozen=True):
    """Outcome of a send-back, with the put it led to."""

    status: SendBackStatus
    topic: str = ""
    put: PutResult | None = None

    @property
    def ok(self) -> bool:
        """True if the message is in the consumer's hands no more."""
        return self.status in (SendBackStatus.RETRY, SendBackStatus.DEAD_LETTER)


def retry_topic(group: str) -> str:
    """Topic from which a group gets messages again."""
    return RETRY_TOPIC_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Topic in which a group's hopeless messages rest."""
    return DLQ_TOPIC_PREFIX + group


def send_back(
    store: "LocalMessageStore",
    message: StoredMessage | int,
    group: str,
    delay_level: int = 0,
    max_reconsume: int = MAX_RECONSUME,
    *,
    retry_queues: int = 1,
) -> SendBackResult:
    """Give a message, or the one at a physical offset, back to its group.

    Level 0 waits longer with every try; a negative one means: no more tries.
    """
    assert retry_queues >= 1, retry_queues
    stored = _look(store, message) if isinstance(message, int) else message
    if stored is None:
        return SendBackResult(SendBackStatus.NOT_FOUND)
    put: Callable[[Message], PutResult]
    if stored.reconsume_times >= max_reconsume or delay_level < 0:
        topic, queues, delay_level = dead_letter_topic(group), DLQ_QUEUES, 0
        status, put = SendBackStatus.DEAD_LETTER, store.put_without_hooks
    else:
        topic, queues = retry_topic(group), retry_queues
        delay_level = delay_level or FIRST_DELAY_LEVEL + stored.reconsume_times
        status, put = SendBackStatus.RETRY, store.put
    try:
        store.offsets.topic(topic)
    except IllegalMessageError as error:
        refusal = PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        return SendBackResult(SendBackStatus.REFUSED, topic, refusal)
    store.topics.ensure(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues))
    result = put(returned_message(stored, topic, store.random.randrange(queues), delay_level))
    return SendBackResult(status if result.ok else SendBackStatus.REFUSED, topic, result)


def _look(store: "LocalMessageStore", physical_offset: int) -> StoredMessage | None:
    """A consumer may name any place: one where no record starts is not damage."""
    if physical_offset < 0:
        return None
    return store.message_by_id(encode_message_id(store.appender.store_host, physical_offset))


def returned_message(stored: StoredMessage, topic: str, queue_id: int, delay_level: int) -> Message:
    """The message as it is put again; it remembers where it came from first.

    Unlike RocketMQ, the put waits for the disk: the consumer forgets the message on our word.
    """
    wire = props.remove(stored.properties, props.WAIT)
    if props.find(wire, props.RETRY_TOPIC) is None:
        wire = props.put(wire, props.RETRY_TOPIC, stored.topic)
    if not (props.find(wire, props.ORIGIN_MESSAGE_ID) or "").strip():
        wire = props.put(wire, props.ORIGIN_MESSAGE_ID, stored.message_id)
    wire = props.put(wire, props.DELAY, str(delay_level))
    return Message(
        topic,
        stored.body,
        queue_id,
        wire,
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp,
        stored.born_host,
        reconsume_times=stored.reconsume_times + 1,
    )


def dead_letter_if_hopeless(message: Message, max_reconsume: int = MAX_RECONSUME) -> Message:
    """A message a client sends to a retry topic itself; one tried too often goes to the dead letters."""
    if not message.topic.startswith(RETRY_TOPIC_PREFIX) or message.reconsume_times <= max_reconsume:
        return message
    return msgspec.structs.replace(
        message,
        topic=dead_letter_topic(message.topic.removeprefix(RETRY_TOPIC_PREFIX)),
        queue_id=0,
        properties=props.put(message.properties, props.DELAY, "-1"),
        is_plain=False,
    )
