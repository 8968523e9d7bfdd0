"""Who still needs the log, so that retention keeps it: delayed messages, half messages, the tier.

Answers to no RocketMQ class; RocketMQ deletes under all three. Made by the services that know, and
given to ``Retention.keep``.
"""

from collections.abc import Callable

from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.store.batch_consume_queue import BatchConsumeQueue
from rockstrata.store.consume_queues import ConsumeQueues
from rockstrata.store.consumer_offsets import ConsumerOffsets
from rockstrata.store.topic_kinds import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP

# The lowest physical offset that is still needed. Asked before every file that is to be deleted, in
# retention's thread. One that raises keeps everything.
Keeper = Callable[[], int]
NOTHING_NEEDED = 2**63 - 1


def unread(queues: ConsumeQueues, topic: str, next_offset: Callable[[int], int]) -> Keeper:
    """Keeps what a reader of ``topic`` has not read; it says per queue id what it reads next."""

    def lowest_needed() -> int:
        lowest = NOTHING_NEEDED
        for queue_id in queues.topics().get(topic, ()):
            queue = queues.get(topic, queue_id)
            if queue is None or isinstance(queue, BatchConsumeQueue):
                continue
            queue_offset = max(next_offset(queue_id), queue.min_offset)
            if queue_offset < queue.max_offset:
                lowest = min(lowest, int(queue.unit(queue_offset)[0]))
        return lowest

    return lowest_needed


def undelivered(queues: ConsumeQueues, next_offset_of_level: Callable[[int], int]) -> Keeper:
    """Keeps delayed messages until they are delivered; the argument is the table of delayOffset.json."""
    return unread(queues, SCHEDULE_TOPIC, lambda queue_id: next_offset_of_level(queue_id + 1))


def unfinished(queues: ConsumeQueues, consumer_offsets: ConsumerOffsets) -> Keeper:
    """Keeps half messages, and the marks of those that ended, until the check has passed them."""

    def reader(topic: str) -> Keeper:
        return unread(
            queues, topic, lambda queue_id: consumer_offsets.query(TRANSACTION_GROUP, topic, queue_id)
        )

    halves, ops = reader(HALF_TOPIC), reader(OP_HALF_TOPIC)
    return lambda: min(halves(), ops())
