"""Names of topics: a put is refused a bad one, recovery takes what the log already holds."""

from __future__ import annotations

import pytest

from rockstrata.errors import IllegalMessageError
from rockstrata.store.queue_offsets import QueueOffsets

BROKERS_LONGEST = "t" * 127


def test_recovery_takes_a_topic_longer_than_a_broker_would_create() -> None:
    # RocketMQ's store has no limit of its own: programs that use it without a broker write such topics.
    offsets = QueueOffsets()

    offsets.set(BROKERS_LONGEST + "t", 3, 7)

    assert offsets.get(BROKERS_LONGEST + "t", 3) == 7
    assert offsets.topic(BROKERS_LONGEST + "t").version == 2


def test_a_new_topic_is_as_long_as_a_broker_allows() -> None:
    offsets = QueueOffsets()

    assert offsets.topic(BROKERS_LONGEST).version == 1
    assert offsets.topic("%RETRY%" + "t" * 248).version == 2
    for name in ("", BROKERS_LONGEST + "t", "%RETRY%" + "t" * 249, "a/b", ".", "..", "a\0b"):
        with pytest.raises(IllegalMessageError):
            offsets.topic(name)
