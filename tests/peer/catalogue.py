"""Letters of every kind, and every question one can ask about them.

A plan of ``catalogue`` fills several files of each kind with ``SMALL_FILES``; ``questions`` asks for
every queue, time, key, filter and offset of what was written. Called by the exchange tests.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from peer.peer import Answer, put, put_batch
from rockstrata.message.delay import SCHEDULE_TOPIC

ORDERS = "Orders"
BATCHES = "Batches"
INNER = "InnerBatches"
ODD = "Odd%Things_1"
LONG_TOPIC = "%RETRY%" + "g" * 150
LONGEST_FIRST_VERSION_TOPIC = "t" * 127
SHORTEST_SECOND_VERSION_TOPIC = "t" * 128
BORN = 1_700_000_000_000
LOG_FILE_BYTES = 65_536
BATCH_FILE_UNITS = 100
V6 = "[2001:db8::ff]:54321"
# One hash code: RocketMQ's index cannot tell them apart.
COLLIDING_KEYS = ("Aa", "BB")

SQL = (
    "TAGS = 'A'",
    "n > 20 AND n <= 60",
    "n IS NULL OR n BETWEEN 100 AND 104",
    "color IN ('rot', 'grün') AND NOT (n < 30)",
    "color = 'grün' AND KEYS IS NOT NULL",
    "ü = '中😀'",
    "color <> 'rot'",
    "missing = 1",
)
TAGS = ("A", "A || C", "B||Nobody", "*", "标签😀", "Nobody", "AaAa || C#")


def catalogue(orders: int = 500, inner_batches: int = 240) -> list[Answer]:
    """Ordinary letters with pauses between them, then the odd ones; several files of each kind."""
    plan: list[Answer] = [*_filling_a_file()]
    for number in range(orders):
        # Pauses make times with gaps; puts between them share a millisecond.
        if number % 40 == 20:
            plan.append({"sleep_ms": 1100 if number == 220 else 4})
        plan.append(_order(number))
    plan += odd_letters()
    for number in range(inner_batches):
        if number % 50 == 25:
            plan.append({"sleep_ms": 3})
        elements = [_element(number * 3 + i) for i in range(1 + number % 3)]
        properties = {"UNIQ_KEY": f"{number:032X}", "TAGS": "AB"[number % 2], "KEYS": f"inner{number}"}
        plan.append(
            put_batch(
                INNER, elements, queue_id=number % 7 // 6, inner=True, properties=properties, **_born(number)
            )
        )
    return plan


def beyond_a_broker() -> list[Answer]:
    """What RocketMQ's bare store takes and no broker would. No keys: these leave the index alone."""
    return [put(SHORTEST_SECOND_VERSION_TOPIC, b"128", **_born(128))]


def _born(number: int) -> dict[str, Any]:
    return {"born_timestamp": BORN + number * 7, "born_host": f"10.1.{number % 256}.9:{40000 + number}"}


def _order(number: int) -> Answer:
    properties = {
        "KEYS": f"k{number} group{number // 50} all",
        "TAGS": ("A", "B", "标签😀")[number % 3],
        "UNIQ_KEY": f"7F000001{number:024X}",
        "n": str(number),
        "color": ("rot", "grün", "bleu")[number % 3],
        "ü": "中😀",
    }
    if number % 5 == 0:
        del properties["n"], properties["color"]
    body = f"hällo {number} 中😀 ".encode() * (1 + number % 4)
    return put(
        ORDERS, body, queue_id=number % 2, properties=properties, flag=number - 3, reconsume_times=number % 3,
        **_born(number),
    )  # fmt: skip


def _element(number: int) -> dict[str, Any]:
    properties = {"KEYS": f"e{number} elements", "TAGS": f"E{number % 2}", "UNIQ_KEY": f"E{number:031X}"}
    return {"body": f"element {number} é".encode(), "flag": number, "properties": properties}


def _filling_a_file() -> Iterator[Answer]:
    """Records that leave 8 bytes of a file, and 9: the least there can be, and one more."""
    fixed = 91 + len(ODD)
    for left in (8, 9):
        yield put(ODD, b"\x00\xff" + b"x" * (LOG_FILE_BYTES - left - fixed - 2), queue_id=5, **_born(left))


def odd_letters() -> list[Answer]:
    """One of everything that is stored in a way of its own."""
    born = _born(1)
    long_value = "v" * (32_767 - len("KEYS\x01wide\x02long\x01\x02"))
    plan = [
        put(LONG_TOPIC, b"second version", properties={"KEYS": "v2", "TAGS": "A"}, **born),
        put(LONGEST_FIRST_VERSION_TOPIC, b"127", **born),
        put(ODD, b"IPv6 both", **{**born, "born_host": V6, "store_host": "[::1]:10911"}),
        put(ODD, b"IPv6 born", **{**born, "born_host": V6}, properties={"TAGS": "C"}),
        put(ODD, b"IPv6 store", **born, store_host="[2001:db8::1]:10911", properties={"KEYS": "six"}),
        put(LONG_TOPIC, b"IPv6 V2", **{**born, "born_host": V6, "store_host": "[::1]:10911"}),
        put(ODD, b"", properties={"KEYS": "empty"}, **born),
        put(ODD, b"no properties", **born),
        put(ODD, b"", **born),
        put(ODD, b"wide", properties={"KEYS": "wide", "long": long_value}, **born),
        put(ODD, zlib.compress(b"compressed " * 50), sys_flag=0x1, properties={"TAGS": "C"}, **born),
        put(ODD, b"many tags", sys_flag=0x2, properties={"TAGS": "A||C"}, **born),
        put(ODD, b"negative hash", properties={"TAGS": "负" * 9, "KEYS": "中 文 😀"}, **born),
        put(ODD, b"blanks", properties={"KEYS": "  k1  k2 k1 ", "UNIQ_KEY": "k2"}, **born),
        put(ODD, b"first of two", properties={"KEYS": COLLIDING_KEYS[0], "TAGS": "AaAa"}, **born),
        put(ODD, b"second of two", properties={"KEYS": COLLIDING_KEYS[1], "TAGS": "BBBB"}, **born),
        put(ODD, b"no end", properties_string="KEYS\x01loose\x02TAGS\x01A", **born),
        put(
            ODD,
            b"twice",
            properties_string="a\x01b\x02ab\x01\x02\x01x\x02a\x01c\x01d\x02TAGS\x01C\x02",
            **born,
        ),
        put(
            ODD, b"committed", sys_flag=0x8, prepared_transaction_offset=77, properties={"KEYS": "tx"}, **born
        ),
        put(ODD, b"prepared", sys_flag=0x4, properties={"KEYS": "tx", "TAGS": "A"}, **born),
        put(
            ODD,
            b"rolled back",
            sys_flag=0xC,
            prepared_transaction_offset=9,
            properties={"KEYS": "tx"},
            **born,
        ),
        put(ODD, b"negative numbers", **{**born, "flag": -(2**31), "born_timestamp": 1}, reconsume_times=-1),
        put(ODD, b"large " * 6000, properties={"KEYS": "large"}, **born),
    ]
    for level in (1, 3, 18):
        # In the order in which the schedule hook adds them.
        properties = {
            "TAGS": "A",
            "KEYS": f"d{level}",
            "DELAY": str(level),
            "REAL_TOPIC": ORDERS,
            "REAL_QID": "1",
        }
        plan.append(put(SCHEDULE_TOPIC, b"delayed", queue_id=level - 1, properties=properties, **born))
    for count in (1, 3, 40):
        plan.append(put_batch(BATCHES, [_element(100 + i) for i in range(count)], **born))
    plan.append(put_batch(BATCHES, [{"body": b""}, {"body": b"bare"}], **{**born, "born_host": V6}))
    # Longer than what is left of a file, so that all of them go to the next.
    plan.append(put_batch(BATCHES, [{"body": b"%d" % i * 3000} for i in range(10)], queue_id=1, **born))
    return plan


# Questions


def questions(
    puts: Sequence[Answer],
    queues: Mapping[tuple[str, int], tuple[int, int]],
    messages: Mapping[tuple[str, int], Sequence[Answer]],
    *,
    tag_index: bool,
    batch_file_units: int = BATCH_FILE_UNITS,
) -> list[Answer]:
    """Everything one can ask about what was written: ``puts`` are the writer's answers."""
    asked: list[Answer] = [{"op": "look", "physical_offset": p["physical_offset"]} for p in puts]
    asked += [
        {"op": "look", "physical_offset": offset} for offset in (-1, puts[3]["physical_offset"] + 4, 1 << 40)
    ]
    for key, (low, high) in queues.items():
        asked += _of_queue(key, low, high, messages[key], batch_file_units)
    for queue_id in (0, 1):
        for filter_ in [{"tags": t} for t in TAGS] + [{"sql": s} for s in SQL]:
            for offset in range(0, 250, 60):
                asked.append(
                    {"op": "get", "topic": ORDERS, "queue_id": queue_id, "offset": offset, **filter_}
                )
    asked += [
        {"op": "get", "topic": ODD, "queue_id": 0, "offset": o, "tags": t} for o in (0, 9) for t in TAGS
    ]
    asked += [{"op": "get", "topic": INNER, "queue_id": 0, "offset": o, "tags": "A"} for o in range(0, 90, 7)]
    asked += _of_keys([message for queue in messages.values() for message in queue], tag_index)
    nobody = {"topic": "Nobody", "queue_id": 3}
    asked += [{"op": "bounds", **nobody}, {"op": "get", **nobody, "offset": 0}, {"op": "earliest", **nobody}]
    asked += [{"op": "time", **nobody, "timestamp": 5}, {"op": "store_time", **nobody, "offset": 0}]
    return asked


def _of_queue(
    key: tuple[str, int], low: int, high: int, messages: Sequence[Answer], batch_file_units: int
) -> Iterator[Answer]:
    where = {"topic": key[0], "queue_id": key[1]}
    yield {"op": "bounds", **where}
    yield {"op": "earliest", **where}
    times = [message["store_timestamp"] for message in messages]
    for timestamp in _around(times):
        for boundary in ("LOWER", "UPPER"):
            if key[0] != INNER or _is_sure(times, timestamp, boundary, batch_file_units):
                yield {"op": "time", **where, "timestamp": timestamp, "boundary": boundary}
    for offset in (-1, low, (low + high) // 2, high - 1, high, high + 1, high + 100):
        yield {"op": "get", **where, "offset": offset, "max": 7}
        yield {"op": "get", **where, "offset": offset, "max": 32, "max_bytes": 900}
    for offset in (low, (low + high) // 2, high - 1):
        yield {"op": "store_time", **where, "offset": offset}
    for message in messages[::100]:
        yield {"op": "cq", **where, "offset": message["read_at"], "count": 1000}


def _is_sure(times: Sequence[int], timestamp: int, boundary: str, file_units: int) -> bool:
    """Whether RocketMQ's search in a batch queue finds what it should.

    It takes the last file that begins at or before the time and searches there only: LOWER misses
    equal times in the file before, and between two files gives the older batch. UPPER finds an equal
    time if there is just one, and otherwise may fall back to the queue's minimum.
    """
    if timestamp < times[0] or timestamp >= times[-1]:
        return True
    if boundary == "UPPER":
        return times.count(timestamp) == 1
    files = [times[n : n + file_units] for n in range(0, len(times), file_units)]
    number = max(n for n, file in enumerate(files) if file[0] <= timestamp)
    return timestamp < files[number][-1] and (number == 0 or files[number - 1][-1] < timestamp)


def _around(timestamps: Iterable[int]) -> list[int]:
    """Before the first, each and its neighbours, after the last."""
    known = sorted(set(timestamps))
    if not known:
        return [1]
    near = {t + step for t in known for step in (-1, 0, 1)}
    return sorted(near | {0, 1, known[0] - 100_000, known[-1] + 100_000, (1 << 62)})


def _of_keys(messages: Sequence[Answer], tag_index: bool) -> Iterator[Answer]:
    topics: dict[str, dict[str, None]] = {}
    tags: dict[str, dict[str, None]] = {}
    for message in messages:
        words = topics.setdefault(message["topic"], {})
        words |= dict.fromkeys((message["keys"] or "").split())
        words |= dict.fromkeys([message["unique_key"]] if message["unique_key"] else [])
        tags.setdefault(message["topic"], {}).update({message["tags"]: None} if message["tags"] else {})
    times = sorted(message["store_timestamp"] for message in messages)
    for topic, words in topics.items():
        for word in words:
            yield {"op": "key", "topic": topic, "key": word}
            yield {"op": "index_offsets", "topic": topic, "key": word, "max": 64}
        yield {"op": "key", "topic": topic, "key": "nobody"}
        if tag_index:
            for tag in tags[topic]:
                yield {"op": "key", "topic": topic, "key": tag, "type": "T", "max": 64}
                yield {"op": "index_offsets", "topic": topic, "key": tag, "type": "T", "max": 5}
    for max_num in (1, 31, 64, 1000):
        yield {"op": "index_offsets", "topic": ORDERS, "key": "all", "max": max_num}
        yield {"op": "key", "topic": ORDERS, "key": "all", "max": max_num}
    for begin in (0, times[len(times) // 2]):
        for end in (times[len(times) // 3], 1 << 62):
            bounds = {"begin": begin, "end": end, "max": 64}
            yield {"op": "index_offsets", "topic": ORDERS, "key": "all", **bounds}
            yield {"op": "index_offsets", "topic": ORDERS, "key": "group4", **bounds}
    yield {"op": "key", "topic": ODD, "key": "tx"}
