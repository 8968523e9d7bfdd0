"""Client batches, ordinary and inner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.letters import I32, bodies, encode, wire_properties
from rockstrata.errors import IllegalMessageError
from rockstrata.message import (
    BatchElement,
    Message,
    PropertiesSizeExceededError,
    decode_batch,
    decode_record,
    encode_batch,
    inner_batch,
    split_batch,
)
from rockstrata.message.batch import unwrap_inner_batch

elements = st.lists(st.builds(BatchElement, flag=I32, body=bodies, properties=wire_properties), max_size=6)


@given(elements)
def test_batches_read_back(parts):
    assert decode_batch(encode_batch(parts)) == parts


@given(st.binary(max_size=100))
def test_random_bytes_are_a_batch_or_a_typed_error(data):
    try:
        parts = decode_batch(data)
    except IllegalMessageError:
        return
    assert len(encode_batch(parts)) == len(data)


@given(elements.filter(bool), st.data())
def test_a_damaged_batch_is_a_typed_error_or_another_batch(parts, data):
    raw = bytearray(encode_batch(parts))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    try:
        found = decode_batch(bytes(raw))
    except IllegalMessageError:
        return
    assert len(encode_batch(found)) == len(raw)


def test_an_element_has_javas_bytes():
    raw = encode_batch([Message.of("ignored", b"hi", flag=9, tags="A")])
    assert (
        raw.hex()
        == "0000001f" + "00000000" * 2 + "00000009" + "00000002" + b"hi".hex() + "0007" + b"TAGS\1A\2".hex()
    )


def test_an_ordinary_batch_becomes_messages_that_share_the_rest():
    batch = Message(
        "t", encode_batch([BatchElement(1, b"a", b"x\1y\2"), BatchElement(2, b"b")]), queue_id=3,
        properties=b"own\1discarded\2", sys_flag=0x2, born_timestamp=5, reconsume_times=7,
        prepared_transaction_offset=99,
    )  # fmt: skip
    assert split_batch(batch) == [
        Message("t", b"a", 3, b"x\1y\2", 1, 0x2, 5, reconsume_times=7),
        Message("t", b"b", 3, b"", 2, 0x2, 5, reconsume_times=7),
    ]


@pytest.mark.parametrize("change", [{"sys_flag": 0x4}, {"sys_flag": 0x8}, {"properties": b"DELAY\0013\2"}])
def test_a_batch_in_a_transaction_or_with_a_delay_is_refused(change):
    with pytest.raises(IllegalMessageError, match="batch"):
        split_batch(Message("t", encode_batch([BatchElement(0, b"a")]), **change))


def test_a_batch_with_delay_zero_is_no_delayed_batch():
    assert (
        len(split_batch(Message("t", encode_batch([BatchElement(0, b"a")]), properties=b"DELAY\0010\2"))) == 1
    )


def test_an_inner_batch_is_marked_and_counted():
    parts = [BatchElement(n, b"body%d" % n, b"k\1v%d\2" % n) for n in range(3)]
    wrapped = inner_batch(Message("t", encode_batch(parts), properties=b"UNIQ_KEY\1u\2"))
    assert wrapped.sys_flag == 0xC0
    assert wrapped.properties == b"UNIQ_KEY\1u\2INNER_NUM\0013\2"
    stored = decode_record(encode(wrapped, queue_offset=40))
    messages = unwrap_inner_batch(stored)
    assert [(m.queue_offset, m.flag, m.body, m.properties) for m in messages] == [
        (40 + n, n, b"body%d" % n, b"k\1v%d\2" % n) for n in range(3)
    ]
    assert unwrap_inner_batch(messages[0]) == [messages[0]]


@pytest.mark.parametrize("body", [b"", b"not a batch"])
def test_an_inner_batch_must_hold_messages(body):
    with pytest.raises(IllegalMessageError, match="batch"):
        inner_batch(Message("t", body))


def test_an_inner_batch_counts_to_a_16_bit_integer():
    with pytest.raises(IllegalMessageError, match="number of messages"):
        inner_batch(Message("t", encode_batch([BatchElement(0, b"")] * 32_768)))


def test_too_long_properties_make_no_batch():
    with pytest.raises(PropertiesSizeExceededError):
        encode_batch([BatchElement(0, b"", bytes(32_768))])
