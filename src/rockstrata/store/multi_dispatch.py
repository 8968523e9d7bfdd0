"""Light message queues: one record that also stands in other queues' consume queues.

Answers to RocketMQ's MultiDispatch and LmqDispatch. Called by the appender under the log's lock, and
by the dispatcher.
"""

from collections.abc import Iterator

import msgspec

from rockstrata.errors import IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message.model import Message
from rockstrata.store.queue_offsets import RETRY_TOPIC_PREFIX, QueueOffsets

LIGHT_QUEUE_PREFIX = "%LMQ%"
_SYSTEM_PREFIX = "rmq_sys_"
_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


class LightPut:
    """A message with its light queues' offsets written into it, and the step that takes them."""

    def __init__(self, message: Message, offsets: QueueOffsets, names: list[str]) -> None:
        self.message = message
        self._offsets = offsets
        self._names = names

    def commit(self) -> None:
        """The record is in the log: move the light queues on."""
        # A name given twice stands for one entry.
        for name in dict.fromkeys(self._names):
            self._offsets.set(name, 0, self._offsets.get(name, 0) + 1)


class MultiDispatch:
    """Plans the light queues of a message."""

    def __init__(self, offsets: QueueOffsets) -> None:
        self._offsets = offsets

    def plan(self, message: Message) -> LightPut | None:
        """None for an ordinary message."""
        if not is_multi_dispatched(message.topic):
            return None
        listed = props.find(message.properties, props.INNER_MULTI_DISPATCH)
        if not listed:
            return None
        names = listed.split(",")
        for name in names:
            if not name.startswith(LIGHT_QUEUE_PREFIX):
                raise IllegalMessageError("not a light queue", expected=f"{LIGHT_QUEUE_PREFIX}…", found=name)
            # The name becomes a directory, as a topic's does.
            self._offsets.topic(name)
        joined = ",".join(str(self._offsets.get(name, 0)) for name in names)
        wait = props.find(message.properties, props.WAIT)
        wire = props.remove(message.properties, props.WAIT)
        wire = props.put(wire, props.INNER_MULTI_QUEUE_OFFSET, joined)
        if wait is not None:
            wire = props.put(wire, props.WAIT, wait)
        return LightPut(msgspec.structs.replace(message, properties=wire), self._offsets, names)


def is_multi_dispatched(topic: str) -> bool:
    """System, retry and delayed messages never go to light queues."""
    return not topic.startswith((RETRY_TOPIC_PREFIX, _SYSTEM_PREFIX)) and topic != _SCHEDULE_TOPIC


def light_entries(properties: bytes) -> Iterator[tuple[str, int]]:
    """The light queues a stored record stands in, each with its queue offset."""
    names = props.find(properties, props.INNER_MULTI_DISPATCH)
    offsets = props.find(properties, props.INNER_MULTI_QUEUE_OFFSET)
    if names and offsets:
        for name, offset in zip(names.split(","), offsets.split(","), strict=False):
            if name.startswith(LIGHT_QUEUE_PREFIX) and offset.isdigit():
                yield name, int(offset)
