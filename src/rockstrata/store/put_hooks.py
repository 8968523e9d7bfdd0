"""What happens to a message before it is put: delay levels send it to the schedule topic.

Answers to RocketMQ's HookUtils. Called by the store for messages whose properties ask for it.
"""

from collections.abc import Callable

import msgspec

from rockstrata.errors import IllegalMessageError
from rockstrata.message import properties as props
from rockstrata.message import sys_flag
from rockstrata.message.delay import SCHEDULE_TOPIC, clamp_level
from rockstrata.message.model import Message
from rockstrata.message.text import java_integer
from rockstrata.store.results import PutResult, PutStatus

_TIMERS = (props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS)


class PutHooks:
    """The hooks of one store. ``check_topic`` raises for a topic that cannot be written to."""

    def __init__(self, delay_levels_ms: tuple[int, ...], check_topic: Callable[[str], object]) -> None:
        self._levels = delay_levels_ms
        self._check_topic = check_topic

    def apply(self, message: Message) -> Message | PutResult:
        """The message as it is to be stored, or why it is not.

        A timer message is refused: the timer wheel is a store of its own that is not built here.
        """
        if not sys_flag.is_in_consume_queue(message.sys_flag):
            return message
        wire = message.properties
        level = java_integer(props.find(wire, props.DELAY) or "0", 32) or 0
        if level <= 0:
            if _is_timer(wire):
                return PutResult(
                    PutStatus.WHEEL_TIMER_NOT_ENABLE,
                    reason="timer messages are not supported; use a delay level",
                )
            return message
        try:
            return self._delayed(message, level)
        except IllegalMessageError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))

    def _delayed(self, message: Message, level: int) -> Message:
        # Now, not when it is due: its producer would not hear of it, and its level would stand still.
        self._check_topic(message.topic)
        wire = message.properties
        for name in _TIMERS:
            wire = props.remove(wire, name)
        level = clamp_level(self._levels, level)
        wire = props.put(wire, props.DELAY, str(level))
        wire = props.put(wire, props.REAL_TOPIC, message.topic)
        wire = props.put(wire, props.REAL_QUEUE_ID, str(message.queue_id))
        return msgspec.structs.replace(message, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=wire)

    @staticmethod
    def waits(message: Message) -> bool:
        """Does the producer wait for the disk? Anything but WAIT=true says no, nothing says yes."""
        if b"WAIT\x01" not in message.properties:
            return True
        value = props.find(message.properties, props.WAIT)
        return value is None or value.lower() == "true"


def _is_timer(wire: bytes) -> bool:
    """Does it ask for the timer wheel? What has been there carries TIMER_OUT_MS and asks no more."""
    return props.find(wire, props.TIMER_OUT_MS) is None and any(
        props.find(wire, name) is not None for name in _TIMERS
    )


def real_address(properties: bytes) -> tuple[str, int] | None:
    """Topic and queue that a delayed or half message is meant for; None if it does not say."""
    topic = props.find(properties, props.REAL_TOPIC)
    queue_id = java_integer(props.find(properties, props.REAL_QUEUE_ID) or "", 32)
    return None if topic is None or queue_id is None else (topic, queue_id)
