"""Single records, encoded and decoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.letters import I64, STORE_HOST, damaged_logs, encode, logs, messages
from rockstrata.errors import CorruptionError, IllegalMessageError
from rockstrata.message import (
    Message,
    MessageSizeExceededError,
    PropertiesSizeExceededError,
    decode_record,
    encode_record,
    pack_host,
)
from rockstrata.message import properties as props
from rockstrata.message.crc import verify_record_crc
from rockstrata.message.record import encode_blank, record_version

V6 = pack_host("fe80::1", 10911)
V4 = pack_host("10.1.2.3", 4)


@given(messages, I64, I64, I64, st.sampled_from([STORE_HOST, V6]))
def test_every_message_reads_back_as_it_was_put(
    message, queue_offset, physical_offset, store_timestamp, host
):
    record = encode_record(
        message,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_timestamp=store_timestamp,
        store_host=host,
    )
    stored = decode_record(record)
    assert stored.topic == message.topic
    assert stored.body == message.body
    assert stored.properties == message.properties
    assert (stored.queue_id, stored.flag) == (message.queue_id, message.flag)
    assert stored.sys_flag & ~0x30 == message.sys_flag & ~0x30
    assert stored.born_timestamp == (message.born_timestamp or store_timestamp)
    assert stored.born_host == message.born_host
    assert stored.store_host == (message.store_host or host)
    assert stored.reconsume_times == message.reconsume_times
    assert stored.prepared_transaction_offset == message.prepared_transaction_offset
    assert (stored.queue_offset, stored.physical_offset) == (queue_offset, physical_offset)
    assert stored.store_timestamp == store_timestamp
    assert stored.record_bytes == len(record)
    assert stored.version == record_version(message.topic)


@given(messages)
def test_a_decoded_record_encodes_to_the_same_bytes(message):
    record = encode(message, queue_offset=5, physical_offset=6)
    stored = decode_record(record)
    again = encode_record(
        stored.to_message(),
        queue_offset=stored.queue_offset,
        physical_offset=stored.physical_offset,
        store_timestamp=stored.store_timestamp,
        store_host=stored.store_host,
    )
    assert again == record


@given(messages)
def test_the_record_crc_is_the_last_property(message):
    record = encode(message, append_crc=True)
    assert verify_record_crc(record)
    kept = props.decode(decode_record(record).properties)
    crc = kept.pop(props.CRC32)
    assert len(crc) == 10
    expected = props.decode(message.properties)
    expected.pop(props.CRC32, None)
    assert kept == expected


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_all_four_pairs_of_hosts_read_back(born, store):
    stored = decode_record(encode(Message("t", b"body", born_host=born, store_host=store)))
    assert (stored.born_host, stored.store_host) == (born, store)
    assert stored.record_bytes == 91 + 5 + 12 * (born is V6) + 12 * (store is V6)


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_never_a_record_but_a_typed_error(data, check_crc):
    with pytest.raises(CorruptionError):
        decode_record(data, check_crc=check_crc)


@given(st.one_of(logs(), damaged_logs()), st.booleans(), st.integers(-5, 100))
def test_damaged_bytes_give_a_typed_error_or_a_consistent_record(data, check_crc, position):
    try:
        stored = decode_record(data, position, check_crc=check_crc, path="log", base=1000)
    except CorruptionError as error:
        assert (error.path, error.position) == ("log", 1000 + position)  # noqa: PT017
        return
    again = encode_record(
        stored.to_message(),
        queue_offset=stored.queue_offset,
        physical_offset=stored.physical_offset,
        store_timestamp=stored.store_timestamp,
        store_host=stored.store_host,
        version=stored.version,
    )
    original = data[position : position + stored.record_bytes]
    # A born time of 0 cannot be put again, and the CRC field of an unchecked body may be wrong.
    assert len(again) == len(original)
    assert again[12:40] == original[12:40]
    assert again[48:] == original[48:]


@given(messages, st.data())
def test_a_changed_body_never_passes_its_crc(message, data):
    record = bytearray(encode(message))
    if not message.body:
        return
    start = decode_record(record)
    body_at = len(record) - len(message.properties) - 2 - len(message.topic.encode()) - start.version
    record[body_at - 1 - data.draw(st.integers(0, len(message.body) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptionError, match="CRC"):
        decode_record(record)
    decode_record(record, check_crc=False)


def test_memoryviews_and_bytearrays_decode_without_copying_the_rest():
    record = encode(Message("t", b"body"))
    view = memoryview(bytearray(b"xyz" + record + b"tail"))
    assert decode_record(view, 3) == decode_record(record)
    assert isinstance(decode_record(view, 3).body, bytes)


@pytest.mark.parametrize(
    ("position", "value", "what"),
    [
        (0, bytes(4), "record size"),
        (0, b"\x7f\xff\xff\xff", "record size"),
        (0, b"\xff\xff\xff\xff", "record size"),
        (4, bytes(4), "magic"),
        (36, b"\x00\x00\x00\x30", "record size|length"),
        (84, b"\xff\xff\xff\xff", "body length"),
        (84, b"\x00\x00\x00\x06", "body length"),
        (84, b"\x00\x00\x00\x05", "topic length|properties length"),
        (92, b"\x80", "topic length"),
        (92, b"\x00", "properties length"),
        (94, b"\xff\xff", "properties length"),
        (94, b"\x00\x01", "properties length"),
        (93, b"\xff", "UTF-8"),
    ],
)
def test_each_broken_field_is_named(position, value, what):
    record = bytearray(encode(Message("t", b"body")))
    record[position : position + len(value)] = value
    with pytest.raises(CorruptionError, match=what):
        decode_record(record, check_crc=False)


def test_a_blank_is_no_record():
    with pytest.raises(CorruptionError, match="blank"):
        decode_record(encode_blank(500) + bytes(492))


def test_topics_choose_the_version():
    assert decode_record(encode(Message("a" * 127, b""))).version == 1
    assert decode_record(encode(Message("a" * 128, b""))).version == 2
    # Java writes a broken V1 record here: it counts characters, the field counts bytes.
    assert decode_record(encode(Message("é" * 70, b""))).topic == "é" * 70


@pytest.mark.parametrize(("length", "version"), [(128, 1), (32_768, 2), (32_768, None)])
def test_a_topic_that_does_not_fit_is_refused(length, version):
    with pytest.raises(IllegalMessageError, match="topic"):
        encode(Message("a" * length, b""), version=version)


def test_limits_of_properties():
    fits = props.encode({"k": "v" * 32_764})
    assert len(decode_record(encode(Message("t", b"", properties=fits))).properties) == 32_767
    with pytest.raises(PropertiesSizeExceededError):
        encode(Message("t", b"", properties=fits + b"x"))
    with pytest.raises(PropertiesSizeExceededError):
        encode(Message("t", b"", properties=fits), append_crc=True)


def test_limits_of_body_and_record():
    encode(Message("t", bytes(100)), max_message_bytes=100)
    with pytest.raises(MessageSizeExceededError, match="body 101"):
        encode(Message("t", bytes(101)), max_message_bytes=100)
    longest = Message("a" * 32_767, b"", properties=bytes(32_767 - 90))
    assert len(encode(longest, max_message_bytes=0)) == 65_536
    with pytest.raises(MessageSizeExceededError, match="record 65537"):
        encode(Message("a" * 32_767, b"", properties=bytes(32_767 - 89)), max_message_bytes=0)


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"", queue_id=2**31),
        Message("t", b"", flag=-(2**31) - 1),
        Message("t", b"", born_timestamp=2**63),
        Message("t", b"", born_host=b"1234"),
        Message("t", b"", store_host=bytes(9)),
        Message("\ud800", b""),
    ],
)
def test_a_field_that_does_not_fit_is_refused(message):
    with pytest.raises(IllegalMessageError):
        encode(message)
