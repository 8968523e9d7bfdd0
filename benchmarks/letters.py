"""The messages of the benchmarks, the same as the Java peer's: 1,024 bytes make a record of 1,209."""

import random
from functools import cache

from rockstrata.message import Message, pack_host

TOPIC = "Bench"
BORN = pack_host("127.0.0.1", 54321)
STORE = pack_host("127.0.0.1", 10911)
_PROPERTIES = (
    b"KEYS\x01%08d\x02UNIQ_KEY\x017F00000112340000000000AA%08d\x02"
    b"TAGS\x01TagA\x02CLUSTER\x01DefaultCluster\x02"
)


@cache
def body(size: int) -> bytes:
    return random.Random(7).randbytes(size)


def letters(count: int, size: int, queues: int, first: int = 0) -> list[Message]:
    data = body(size)
    return [letter(number, data, number % queues) for number in range(first, first + count)]


def letter(number: int, data: bytes, queue_id: int) -> Message:
    """Complete, with its properties in wire form, as a broker's send handler leaves it."""
    digits = number % 100_000_000
    return Message(
        TOPIC,
        data,
        queue_id,
        _PROPERTIES % (digits, digits),
        born_timestamp=1_700_000_000_000,
        born_host=BORN,
        store_host=STORE,
        is_plain=True,
    )
