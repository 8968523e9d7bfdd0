"""The next queue offset of every queue, and what never changes about a topic's records.

Answers to RocketMQ's QueueOffsetOperator (topicQueueTable and batchTopicQueueTable). Owned by the
appender; every change happens under the commit log's lock.
"""

from collections.abc import Callable

from rockstrata.errors import IllegalMessageError
from rockstrata.message.layouts import MAGIC_V1, MAGIC_V2
from rockstrata.message.record import record_version

RETRY_TOPIC_PREFIX = "%RETRY%"
_TOPIC_BYTES_MAX = 127
_RETRY_TOPIC_BYTES_MAX = 255


class TopicOffsets:
    """One topic: its name as records hold it, and the next offset of each of its queues."""

    __slots__ = ("is_batch", "is_common", "magic", "offsets", "prefix", "topic", "version")

    def __init__(self, topic: str, is_batch: bool) -> None:
        encoded = topic.encode()
        if b"\0" in encoded or "/" in topic or topic in (".", ".."):
            # The name becomes a directory.
            raise IllegalMessageError("topic cannot be a file name", found=repr(topic))
        self.topic = topic
        self.version = record_version(encoded)
        self.magic = MAGIC_V1 if self.version == 1 else MAGIC_V2
        self.prefix = len(encoded).to_bytes(self.version, "big") + encoded
        self.offsets: dict[int, int] = {}
        self.is_batch = is_batch
        # Its records need nothing but encoding, in the common layout.
        self.is_common = self.version == 1 and not is_batch


class QueueOffsets:
    """Topics by name. A queue nobody wrote to is at 0."""

    def __init__(self, is_batch_topic: Callable[[str], bool] = lambda topic: False) -> None:
        self.topics: dict[str, TopicOffsets] = {}
        self._is_batch_topic = is_batch_topic

    def topic(self, name: str) -> TopicOffsets:
        """The topic's entry, made on first use; an impossible name raises ``IllegalMessageError``."""
        known = self.topics.get(name)
        if known is None:
            limit = _RETRY_TOPIC_BYTES_MAX if name.startswith(RETRY_TOPIC_PREFIX) else _TOPIC_BYTES_MAX
            try:
                length = len(name.encode())
            except UnicodeEncodeError as error:
                raise IllegalMessageError("topic is not valid Unicode", found=repr(name)) from error
            if not 0 < length <= limit:
                raise IllegalMessageError("bad topic length", expected=f"1 to {limit} bytes", found=length)
            # Two putters may come here at once; both must get, and count in, the same entry.
            known = self.topics.setdefault(name, TopicOffsets(name, self._is_batch_topic(name)))
        return known

    def get(self, topic: str, queue_id: int) -> int:
        """Next offset to be given out."""
        known = self.topics.get(topic)
        return known.offsets.get(queue_id, 0) if known is not None else 0

    def set(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Recovery found where the queue ends. The topic exists, so no limit applies to its name."""
        known = self.topics.get(topic)
        if known is None:
            known = self.topics.setdefault(topic, TopicOffsets(topic, self._is_batch_topic(topic)))
        known.offsets[queue_id] = queue_offset

    def remove(self, topic: str) -> None:
        """The topic was deleted."""
        self.topics.pop(topic, None)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """The queue was deleted: it starts again at 0."""
        known = self.topics.get(topic)
        if known is not None:
            known.offsets.pop(queue_id, None)

    def clear(self) -> None:
        """Forget everything: recovery starts anew."""
        self.topics.clear()
