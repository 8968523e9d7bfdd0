"""Many messages encoded by the kernel: the same bytes as one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from message.letters import I32, I64, STORE_HOST, bodies, messages, wire_properties
from rockstrata.errors import IllegalMessageError
from rockstrata.message import (
    BatchElement,
    Message,
    MessageSizeExceededError,
    PropertiesSizeExceededError,
    encode_batch,
    encode_record,
    split_batch,
)
from rockstrata.message.packed import PackedMessages, pack_batch, pack_messages


def reference(letters, offsets, base, position, store_timestamp, append_crc):
    log = b""
    for letter, queue_offset in zip(letters, offsets, strict=True):
        log += encode_record(
            letter,
            queue_offset=queue_offset,
            physical_offset=base + position + len(log),
            store_timestamp=store_timestamp,
            store_host=STORE_HOST,
            append_crc=append_crc,
        )
    return log


def write(packed: PackedMessages, out, position, file_end, offsets, store_timestamp=7, base=0, first=0):
    positions = np.full(len(packed), -1, np.int64)
    count = packed.write(
        out, position, file_end, base_physical_offset=base, queue_offset=np.array(offsets, np.int64),
        store_timestamp=store_timestamp, positions=positions, first=first,
    )  # fmt: skip
    return count, positions


@settings(max_examples=200)
@given(
    st.lists(messages, max_size=6), I64, st.integers(0, 2**62), st.integers(0, 50), st.booleans(), st.data()
)
def test_the_kernel_writes_what_the_reference_encoder_writes(
    letters, store_timestamp, base, position, append_crc, draw
):
    offsets = draw.draw(st.lists(I64, min_size=len(letters), max_size=len(letters)))
    expected = reference(letters, offsets, base, position, store_timestamp, append_crc)
    packed = pack_messages(letters, STORE_HOST, append_crc=append_crc)
    assert packed.sizes.sum() == len(expected)
    out = np.full(position + len(expected) + 20, 0xEE, np.uint8)
    count, positions = write(packed, out, position, len(out), offsets, store_timestamp, base)
    assert count == len(letters)
    assert out[position : position + len(expected)].tobytes() == expected
    assert (out[:position] == 0xEE).all()
    assert (out[position + len(expected) :] == 0xEE).all()
    assert positions.tolist() == (position + np.cumsum(packed.sizes) - packed.sizes).tolist()


@given(st.lists(messages, min_size=1, max_size=5), st.data())
def test_the_kernel_stops_where_a_blank_would_no_longer_fit(letters, draw):
    packed = pack_messages(letters, STORE_HOST)
    ends = np.cumsum(packed.sizes)
    room = draw.draw(
        st.one_of(
            st.integers(0, int(ends[-1]) + 10), st.sampled_from((ends + 8).tolist() + (ends + 7).tolist())
        )
    )
    out = np.zeros(int(ends[-1]) + 20, np.uint8)
    count, _ = write(packed, out, 0, room, range(len(letters)))
    assert count == int((ends + 8 <= room).sum())
    # The rest goes to the next file.
    more, positions = write(packed, out, 0, len(out), range(len(letters)), first=count)
    assert count + more == len(letters)
    if more:
        assert positions[count] == 0


@given(
    st.lists(st.builds(BatchElement, flag=I32, body=bodies, properties=wire_properties), max_size=6),
    messages,
    st.booleans(),
)
def test_a_client_batch_is_packed_as_its_elements(elements, shared, append_crc):
    batch = Message(
        shared.topic, encode_batch(elements), shared.queue_id, b"own\1x\2", shared.flag,
        shared.sys_flag & ~0xC, shared.born_timestamp, shared.born_host, shared.store_host,
        shared.reconsume_times, 99,
    )  # fmt: skip
    packed = pack_batch(batch, STORE_HOST, append_crc=append_crc)
    offsets = list(range(5, 5 + len(elements)))
    expected = reference(split_batch(batch), offsets, 1000, 0, 7, append_crc)
    out = np.zeros(len(expected) + 8, np.uint8)
    count, _ = write(packed, out, 0, len(out), offsets, base=1000)
    assert count == len(elements)
    assert out[: len(expected)].tobytes() == expected


def test_a_batch_of_many_small_elements_makes_room():
    batch = Message("t", encode_batch([BatchElement(n, b"") for n in range(5000)]))
    assert pack_batch(batch, STORE_HOST).flag.tolist() == list(range(5000))


@given(st.binary(max_size=80))
def test_packing_random_bytes_as_a_batch_agrees_with_splitting_them(data):
    batch = Message("t", data)
    try:
        expected = len(split_batch(batch))
    except IllegalMessageError:
        with pytest.raises(IllegalMessageError):
            pack_batch(batch, STORE_HOST)
        return
    assert len(pack_batch(batch, STORE_HOST)) == expected


GOOD = Message("t", b"body")


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Message("t", bytes(101)), MessageSizeExceededError),
        (Message("t", b"", properties=bytes(32_768)), PropertiesSizeExceededError),
        (Message("a" * 32_768, b""), IllegalMessageError),
        (Message("\ud800", b""), IllegalMessageError),
        (Message("t", b"", queue_id=2**31), IllegalMessageError),
        (Message("t", b"", sys_flag=2**31), IllegalMessageError),
        (Message("t", b"", prepared_transaction_offset=2**63), IllegalMessageError),
        (Message("t", b"", born_host=b"123"), IllegalMessageError),
    ],
)
def test_packing_refuses_what_the_reference_encoder_refuses(bad, error):
    with pytest.raises(error):
        pack_messages([GOOD, bad, GOOD], STORE_HOST, max_message_bytes=100)


def test_a_batch_longer_than_a_message_may_be_is_refused():
    batch = Message("t", encode_batch([GOOD] * 10))
    with pytest.raises(MessageSizeExceededError):
        pack_batch(batch, STORE_HOST, max_message_bytes=100)


@pytest.mark.parametrize("change", [{"sys_flag": 0x4}, {"properties": b"DELAY\0011\2"}])
def test_a_batch_in_a_transaction_or_with_a_delay_is_refused(change):
    with pytest.raises(IllegalMessageError, match="batch"):
        pack_batch(Message("t", encode_batch([GOOD]), **change), STORE_HOST)
