"""Strategies and helpers for message tests: messages of every shape, logs, damaged logs."""

import dataclasses

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from rockstrata.message import Message, encode_record, pack_host
from rockstrata.message import properties as props
from rockstrata.message.record import encode_blank

# The first call of a kernel compiles it, which takes seconds.
settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
STORE_HOST = pack_host("10.0.0.2", 10911)

hosts = st.one_of(
    st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20), st.just(pack_host("127.0.0.1", 0))
)
text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\1\2"), max_size=20)
NAMES_LOOKED_FOR = ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH"]
NAMES_NEARLY = [
    "TAG",
    "XTAGS",
    "UNIQ_KEY2",
    "DELAX",
    "INNER_NUN",
    "INNER_BASF",
    "INNER_MULTI_DISPATCX",
    "WAIT",
]
names = st.one_of(st.sampled_from(NAMES_LOOKED_FOR), st.sampled_from(NAMES_NEARLY), text.filter(bool))
values = st.one_of(
    text,
    st.sampled_from(
        ["1", "3", "99", "-1", "+7", "007", "32768", "9223372036854775808", "k1 k2", " a  b ", "true"]
    ),
    st.lists(st.text("abcdefgh0123 ", max_size=30), max_size=6).map(" ".join),
    st.integers(-(2**70), 2**70).map(str),
)
# Well-formed properties, and any bytes a foreign client may have sent instead.
pieces = st.one_of(
    st.tuples(names, values).map(lambda pair: f"{pair[0]}\1{pair[1]}\2".encode()),
    st.tuples(names, st.binary(max_size=12)).map(lambda pair: pair[0].encode() + b"\1" + pair[1]),
    st.sampled_from([b"\1", b"\2", b"TAGS", b"KEYS\1", b"KEYS\1\2", b"\2\2", b"\xff", b"\xed\xa0\x80"]),
    st.binary(max_size=10),
)
wire_properties = st.one_of(
    st.just(b""),
    st.dictionaries(names, values, max_size=6).map(props.encode),
    st.lists(pieces, max_size=8).map(b"".join),
)
topics = st.one_of(
    st.sampled_from(
        ["TopicTest", "SCHEDULE_TOPIC_XXXX", "%RETRY%group", "t", "中文", "a" * 127, "a" * 128, "é" * 70]
    ),
    text,
    st.text("abc", min_size=120, max_size=140),
)
bodies = st.one_of(st.binary(max_size=40), st.integers(0, 300).map(lambda n: b"body" * n))

messages = st.builds(
    Message,
    topic=topics,
    body=bodies,
    queue_id=I32,
    properties=wire_properties,
    flag=I32,
    sys_flag=st.one_of(st.integers(0, 0x7FF), I32),
    born_timestamp=I64,
    born_host=hosts,
    store_host=st.one_of(st.just(b""), hosts),
    reconsume_times=I32,
    prepared_transaction_offset=I64,
)


def encode(message: Message, *, queue_offset: int = 0, physical_offset: int = 0, **options: object) -> bytes:
    """A record of the message with fixed store data."""
    return encode_record(
        message,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_timestamp=1700000000123,
        store_host=STORE_HOST,
        **options,  # type: ignore[arg-type]
    )


def log_of(letters: list[Message], **options: object) -> bytes:
    """Records back to back."""
    log = b""
    for number, letter in enumerate(letters):
        log += encode(letter, queue_offset=number, physical_offset=len(log), **options)
    return log


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A log that ends in nothing, in zeros, in a blank, or in the middle of a record."""
    append_crc = draw(st.booleans())
    log = log_of(draw(st.lists(messages, max_size=6)), append_crc=append_crc)
    ending = draw(st.sampled_from(["", "zeros", "blank", "cut", "junk"]))
    if ending == "zeros":
        log += bytes(draw(st.integers(1, 100)))
    elif ending == "blank":
        log += encode_blank(draw(st.integers(8, 1000))) + draw(st.binary(max_size=20))
    elif ending == "cut" and log:
        log = log[: draw(st.integers(0, len(log) - 1))]
    elif ending == "junk":
        log += draw(st.binary(max_size=100))
    return log


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """A log of which a few bytes were changed, more often those of a head."""
    log = bytearray(draw(logs()))
    for _ in range(draw(st.integers(1, 4)) if log else 0):
        where = draw(st.one_of(st.integers(0, len(log) - 1), st.integers(0, min(len(log), 92) - 1)))
        log[where] = draw(st.one_of(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]), st.integers(0, 255)))
    return bytes(log)


def array_of(data: bytes) -> np.ndarray:
    """A writable array of the bytes."""
    return np.frombuffer(bytearray(data), np.uint8)


def assert_same_scan(one: object, other: object) -> None:
    """Every column, its type, the end and the stop are equal."""
    for field in dataclasses.fields(one):  # type: ignore[arg-type]
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype, field.name
            np.testing.assert_array_equal(mine, theirs, err_msg=field.name)
        else:
            assert mine == theirs, field.name
