"""Light queues: what the put writes into a message that also stands in other queues."""

from __future__ import annotations

from rockstrata.message.model import Message
from rockstrata.store.multi_dispatch import MultiDispatch
from rockstrata.store.queue_offsets import QueueOffsets


def test_offsets_of_the_light_queues_are_added_and_wait_comes_last() -> None:
    # As both RocketMQ releases write it: WAIT is taken out and put back behind the offsets.
    offsets = QueueOffsets()
    offsets.set("%LMQ%two", 0, 7)
    wire = b"WAIT\x01false\x02INNER_MULTI_DISPATCH\x01%LMQ%one,%LMQ%two\x02TAGS\x01A\x02"

    planned = MultiDispatch(offsets).plan(Message("Light", b"", properties=wire))

    assert planned is not None
    assert planned.message.properties == (
        b"INNER_MULTI_DISPATCH\x01%LMQ%one,%LMQ%two\x02TAGS\x01A\x02"
        b"INNER_MULTI_QUEUE_OFFSET\x010,7\x02WAIT\x01false\x02"
    )
    planned.commit()
    assert (offsets.get("%LMQ%one", 0), offsets.get("%LMQ%two", 0)) == (1, 8)
