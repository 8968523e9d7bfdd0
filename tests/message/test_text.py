"""UTF-8 and numbers as Java reads them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockstrata.message.tags import java_hash_code
from rockstrata.message.text import java_integer, java_text

# Byte strings and the UTF-16 units that Java 17 made of them.
JAVA = [line.split() for line in (Path(__file__).parent / "java_utf8.txt").read_text().splitlines()]


def test_malformed_bytes_become_what_java_makes_of_them():
    for raw, units in JAVA:
        assert java_text(bytes.fromhex(raw)).encode("utf-16-be").hex() == units, raw


@given(st.binary(max_size=40))
def test_any_bytes_are_some_text(data):
    assert "\x01" not in data.decode("latin-1") or "\x01" in java_text(data)


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_good_text_reads_back(text):
    assert java_text(text.encode()) == text


@given(st.text())
def test_the_hash_follows_its_definition(text):
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)
    h = 0
    for unit in units.tolist():
        h = (31 * h + unit) % 2**32
    assert java_hash_code(text) == h - 2**32 * (h >= 2**31)


@given(st.integers(-(2**65), 2**65), st.sampled_from([16, 32, 64]))
def test_integers_of_so_many_bits_parse(value, bits):
    inside = -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    assert java_integer(str(value), bits) == (value if inside else None)


@pytest.mark.parametrize(
    "text", ["", "+", "-", " 1", "1 ", "1_0", "0x1", "1.0", "--1", "+-1", "١", "9" * 5000]
)
def test_what_is_not_a_java_integer_is_none(text):
    assert java_integer(text, 64) is None


@pytest.mark.parametrize(("text", "value"), [("+5", 5), ("-0", 0), ("007", 7), ("0" * 99 + "4", 4)])
def test_signs_and_leading_zeros_are_fine(text, value):
    assert java_integer(text, 32) == value
