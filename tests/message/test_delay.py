"""Delay levels, system flags, and bodies that are compressed."""

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.letters import encode
from rockstrata.errors import ConfigError, CorruptionError
from rockstrata.message import (
    CompressionType,
    Message,
    TransactionType,
    decode_record,
    sys_flag,
    uncompressed_body,
)
from rockstrata.message.compression import CompressionUnavailableError, decompress
from rockstrata.message.delay import (
    DEFAULT_DELAY_LEVELS,
    delayed_tags_code,
    deliver_timestamp,
    parse_delay_levels,
)

LEVELS = parse_delay_levels(DEFAULT_DELAY_LEVELS)


def test_the_default_has_eighteen_levels():
    assert len(LEVELS) == 18
    assert (LEVELS[0], LEVELS[4], LEVELS[17]) == (1000, 60_000, 7_200_000)


def test_days_are_a_unit():
    assert parse_delay_levels("1d") == (86_400_000,)


@pytest.mark.parametrize(
    "text", ["", "  ", "5", "s", "1x", "1S", "-1s", "1s,5s", "1 s", "9" * 16 + "d", "99999999999999d1"]
)
def test_a_bad_list_of_levels_is_a_config_error(text):
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        parse_delay_levels(text)


def test_an_unknown_level_waits_a_second():
    assert deliver_timestamp(LEVELS, 0, 5000) == 6000
    assert deliver_timestamp(LEVELS, 19, 5000) == 6000
    assert deliver_timestamp(LEVELS, 2, 5000) == 10_000


@pytest.mark.parametrize(
    ("delay", "code"),
    [("1", 2000), ("18", 7_201_000), ("99", 7_201_000), ("0", None), ("-3", None), ("x", None), (None, None)],
)
def test_the_tag_code_of_a_delayed_record_is_its_delivery_time(delay, code):
    assert delayed_tags_code(LEVELS, delay, 1000) == code


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_damaged_store_time_does_not_leave_64_bits(store_timestamp):
    assert -(2**63) <= deliver_timestamp(LEVELS, 18, store_timestamp) < 2**63


def test_transaction_bits_have_names():
    assert sys_flag.transaction_type(0x17) is TransactionType.PREPARED_TYPE
    assert sys_flag.with_transaction_type(0x17, TransactionType.COMMIT_TYPE) == 0x1B
    assert [sys_flag.is_in_consume_queue(t) for t in TransactionType] == [True, False, True, False]


@pytest.mark.parametrize(
    ("number", "kind"), [(0, "ZLIB"), (1, "LZ4"), (2, "ZSTD"), (3, "ZLIB"), (4, None), (7, None)]
)
def test_compression_types_have_names(number, kind):
    assert sys_flag.compression_type(number << 8) is (None if kind is None else CompressionType[kind])


def compressed(body: bytes, flags: int):
    return decode_record(encode(Message("t", body, sys_flag=flags)))


@pytest.mark.parametrize("flags", [0x1, 0x301])
def test_a_zlib_body_opens(flags):
    assert uncompressed_body(compressed(zlib.compress(b"letter" * 50), flags)) == b"letter" * 50


def test_a_plain_body_is_itself():
    assert uncompressed_body(compressed(b"letter", 0x300)) == b"letter"


@given(st.binary(max_size=50))
def test_a_body_that_is_not_zlib_is_a_typed_error(body):
    try:
        opened = decompress(body, 0x1)
    except CorruptionError:
        return
    assert zlib.decompress(body) == opened


def test_a_body_that_opens_to_too_much_is_a_typed_error():
    with pytest.raises(CorruptionError, match="too long"):
        decompress(zlib.compress(bytes(10_000)), 0x1, limit_bytes=9_999)


def test_a_cut_body_is_a_typed_error():
    with pytest.raises(CorruptionError, match="cut short"):
        decompress(zlib.compress(bytes(10_000))[:-3], 0x1)


def test_an_unknown_compression_is_a_typed_error():
    with pytest.raises(CorruptionError, match="compression"):
        uncompressed_body(compressed(b"letter", 0x701))


@pytest.mark.parametrize(("flags", "library"), [(0x101, "lz4"), (0x201, "zstandard")])
def test_a_missing_library_is_named(monkeypatch, flags, library):
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(CompressionUnavailableError, match=library):
        uncompressed_body(compressed(b"letter", flags))


def test_messages_are_frozen():
    with pytest.raises(AttributeError):
        Message("t", b"").topic = "u"  # type: ignore[misc]
    assert msgspec.structs.replace(Message("t", b""), topic="u").topic == "u"
