"""The vectors that Apache RocketMQ's own classes produced."""

import pytest

from rockstrata.message import Message, decode_record, encode_record, pack_host
from rockstrata.message import properties as props
from rockstrata.message.crc import record_crc_property, verify_record_crc
from rockstrata.message.ids import decode_message_id, encode_message_id
from rockstrata.message.layouts import BATCH_ELEMENT_HEAD, BLANK, RECORD_HEADS, record_fixed_bytes
from rockstrata.message.record import encode_blank
from rockstrata.message.tags import index_hash, index_key, index_tags_key, java_hash_code, tags_code

V1_RECORD = bytes.fromhex(
    "000000a8daa320a73610a6860000000300000007000000000000002a000000000000100000000000"
    "0000018bcfe568007f0000010000d4310000018bcfe5687b0a00000200002a9f0000000000000000"
    "000000000000000568656c6c6f09546f70696354657374003f544147530154616741024b45595301"
    "6b31206b3202554e49515f4b45590137463030303030313132333430303030303030303030303030"
    "3030413030303102"
)
STORE_HOST = pack_host("10.0.0.2", 10911)
LETTER = Message.of(
    "TopicTest",
    b"hello",
    queue_id=3,
    flag=7,
    tags="TagA",
    keys=["k1", "k2"],
    unique_key="7F0000011234000000000000000A0001",
    born_timestamp=1700000000000,
    born_host=pack_host("127.0.0.1", 54321),
)


def encode(message: Message, **options: object) -> bytes:
    return encode_record(
        message,
        queue_offset=42,
        physical_offset=4096,
        store_timestamp=1700000000123,
        store_host=STORE_HOST,
        **options,  # type: ignore[arg-type]
    )


def test_a_v1_record_has_javas_bytes():
    assert encode(LETTER) == V1_RECORD


def test_a_v1_record_reads_back_as_it_was_put():
    stored = decode_record(V1_RECORD)
    assert stored.to_message().topic == "TopicTest"
    assert stored.body_crc == 907060870
    assert tags_code(stored.tags) == 2598919
    assert stored.message_id == "0A00000200002A9F0000000000001000"
    assert (stored.queue_offset, stored.physical_offset, stored.record_bytes) == (42, 4096, 168)
    assert stored.keys == "k1 k2"


def test_a_v2_record_differs_in_magic_and_topic_length():
    record = encode(LETTER, version=2)
    assert len(record) == 169
    assert record[4:8].hex() == "daa320ab"
    assert b"\x00\x09TopicTest" in record
    assert decode_record(record).version == 2


def test_an_ipv6_born_host_shifts_the_rest():
    message = Message.of(
        "TopicTest", b"hello", properties=LETTER_PROPERTIES, born_host=pack_host("::1", 54321)
    )
    record = encode(message)
    assert len(record) == 180
    assert decode_record(record).sys_flag == 16
    assert decode_record(record).born_host == pack_host("::1", 54321)


LETTER_PROPERTIES = props.decode(LETTER.properties)


def test_the_record_crc_has_its_digits_reversed():
    record = encode(LETTER, append_crc=True)
    assert len(record) == 188
    assert record[-20:].hex() == "5f5f435243333223013131383835303335343002"
    assert record_crc_property(453058811) == record[-20:]
    assert verify_record_crc(record)


@pytest.mark.parametrize("flipped", [0, 30, 90, 150, 170, 180, 187])
def test_one_flipped_bit_breaks_the_record_crc(flipped):
    record = bytearray(encode(LETTER, append_crc=True))
    record[flipped] ^= 1
    assert not verify_record_crc(record)


def test_hashes_are_those_of_java():
    assert java_hash_code("TagA") == 2598919
    assert java_hash_code("a中😀") == 23895119
    assert java_hash_code("") == 0
    assert index_hash(index_key("TopicTest", "k1")) == 2746024
    assert index_hash(index_key("TopicTest", "k2")) == 2746025
    assert index_tags_key("TopicTest", "TagA") == "TopicTest#T#TagA"


def test_the_smallest_hash_counts_as_zero_in_the_index():
    assert java_hash_code("polygenelubricants") == -(2**31)
    assert index_hash("polygenelubricants") == 0


def test_the_properties_parser_drops_what_java_drops():
    assert props.decode(b"a\1b\2ab\1\2\1x\2k\1v\1w\2z\1y") == {"a": "b", "k": "v\1w", "z": "y"}


def test_a_record_of_known_parts_has_the_known_size():
    message = Message.of("FooBar", b"x" * 32, tags="TAG1", keys="1234567890123")
    assert len(encode(message)) == 158
    assert len(message.properties) == 29


def test_fixed_parts_have_their_sizes():
    assert [record_fixed_bytes(flags, 1) for flags in (0, 0x10, 0x20, 0x30)] == [91, 103, 103, 115]
    assert record_fixed_bytes(0, 2) == 92
    assert RECORD_HEADS[0].positions["store_timestamp"] == 56
    assert RECORD_HEADS[1].positions["store_timestamp"] == 68
    assert BATCH_ELEMENT_HEAD.size == 20
    assert encode_blank(4711) == BLANK.struct.pack(4711, 0xCBD43194)


def test_message_ids_read_both_ways():
    assert encode_message_id(STORE_HOST, 4096) == "0A00000200002A9F0000000000001000"
    assert decode_message_id("0a00000200002a9f0000000000001000") == (STORE_HOST, 4096)
    v6 = encode_message_id(pack_host("fe80::1", 10911), 7)
    assert len(v6) == 56
    assert decode_message_id(v6) == (pack_host("fe80::1", 10911), 7)
