"""Message ids and unique keys."""

import random
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.letters import hosts
from rockstrata.errors import IllegalMessageError
from rockstrata.message.ids import (
    MessageIdError,
    UniqueKeys,
    decode_message_id,
    encode_message_id,
    split_unique_key,
)


class StoppedClock:
    def __init__(self, moment: datetime) -> None:
        self.ms = int(moment.timestamp() * 1000)

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return 0.0

    def sleep_s(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@given(hosts, st.integers(0, 2**63 - 1))
def test_message_ids_read_back(host, physical_offset):
    text = encode_message_id(host, physical_offset)
    assert decode_message_id(text) == (host, physical_offset)
    assert decode_message_id(text.lower()) == (host, physical_offset)


@given(st.one_of(st.text(max_size=60), st.text("0123456789abcdefABCDEF ", min_size=30, max_size=58)))
def test_any_text_is_a_message_id_or_a_typed_error(text):
    try:
        host, physical_offset = decode_message_id(text)
    except IllegalMessageError:
        return
    assert encode_message_id(host, physical_offset) == text.upper()


@pytest.mark.parametrize(
    "text", ["", "0A", "0A00000200002A9F000000000000100", "0A 0000200002A9F0000000000001000"]
)
def test_a_text_of_the_wrong_shape_is_no_message_id(text):
    with pytest.raises(MessageIdError, match="message id"):
        decode_message_id(text)


def test_a_negative_offset_is_no_message_id():
    with pytest.raises(MessageIdError):
        decode_message_id("0A00000200002A9F" + "F" * 16)


@pytest.mark.parametrize("host", [b"", b"1234", bytes(21)])
def test_a_host_of_the_wrong_size_makes_no_message_id(host):
    with pytest.raises(MessageIdError):
        encode_message_id(host, 0)


def test_unique_keys_hold_address_process_time_and_counter():
    clock = StoppedClock(datetime(2024, 2, 3, 4, 5, 6))
    keys = UniqueKeys(b"\x7f\0\0\1", 0x51234, clock, rng=random.Random(1), class_loader_hash=0x0A0B0C0D)
    first, second = keys.next(), keys.next()
    since_month_start_ms = ((2 * 24 + 4) * 3600 + 5 * 60 + 6) * 1000
    assert first == f"7F0000011234{0x0A0B0C0D:08X}{since_month_start_ms:08X}0000"
    assert split_unique_key(first) == (b"\x7f\0\0\1", 0x1234, 0x0A0B0C0D, since_month_start_ms, 0)
    assert split_unique_key(second)[4] == 1
    assert len(second) == 32


def test_unique_keys_start_again_with_each_month():
    clock = StoppedClock(datetime(2024, 12, 31, 23, 59, 59))
    keys = UniqueKeys(bytes(16), 1, clock, rng=random.Random(1))
    assert len(keys.next()) == 56
    clock.sleep_s(2)
    assert split_unique_key(keys.next())[3] == 1000


def test_a_clock_that_steps_back_over_the_month_start_counts_from_zero():
    clock = StoppedClock(datetime(2024, 3, 1))
    keys = UniqueKeys(bytes(4), 1, clock, rng=random.Random(1))
    clock.sleep_s(-10)
    assert split_unique_key(keys.next())[3] == 0


def test_the_counter_wraps_at_sixteen_bits():
    keys = UniqueKeys(bytes(4), 1, StoppedClock(datetime(2024, 3, 1)), rng=random.Random(1))
    seen = {keys.next() for _ in range(65_536)}
    assert len(seen) == 65_536
    assert split_unique_key(keys.next())[4] == 0


@pytest.mark.parametrize("text", ["", "zz" * 16, "00" * 15])
def test_a_text_of_the_wrong_shape_is_no_unique_key(text):
    with pytest.raises(MessageIdError, match="unique key"):
        split_unique_key(text)
