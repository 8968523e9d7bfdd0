"""Properties in wire form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.letters import names, pieces, text, wire_properties
from rockstrata.errors import IllegalMessageError
from rockstrata.message import properties as props

noise = st.one_of(wire_properties, st.binary(max_size=60), st.lists(pieces, max_size=6).map(b"".join))
any_name = st.one_of(names, st.sampled_from(["\ufffd", "a\ufffd", "", "\1", "A\2", "\ud800", "TAGS"]))


@given(st.dictionaries(text.filter(bool), text.filter(bool)))
def test_what_is_encoded_reads_back(table):
    assert props.decode(props.encode(table)) == table


@given(noise, any_name)
def test_find_agrees_with_decode(data, name):
    assert props.find(data, name) == props.decode(data).get(name)


@given(noise, names)
def test_find_agrees_with_decode_for_every_name_there_is(data, extra):
    data += extra.encode() + b"\1last"
    for name, value in props.decode(data).items():
        assert props.find(data, name) == value


@given(noise, any_name)
def test_remove_takes_away_that_name_and_nothing_else(data, name):
    before = props.decode(data)
    after = props.decode(props.remove(data, name))
    before.pop(name, None)
    assert after == before


@given(noise, names, text.filter(bool))
def test_put_sets_that_name_and_nothing_else(data, name, value):
    expected = props.decode(data) | {name: value}
    assert props.decode(props.put(data, name, value)) == expected


@given(st.binary(max_size=200))
def test_any_bytes_decode(data):
    assert all(name and value for name, value in props.decode(data).items())


@pytest.mark.parametrize("name", ["", "a\1b", "a\2", "\1", "\ud800"])
def test_a_name_that_cannot_be_read_back_is_refused(name):
    with pytest.raises(IllegalMessageError, match="property"):
        props.encode({name: "value"})


@pytest.mark.parametrize("value", ["a\1b", "\2", "\udfff"])
def test_a_value_that_cannot_be_read_back_is_refused_by_name(value):
    with pytest.raises(IllegalMessageError, match="'colour'"):
        props.encode({"colour": value})


def test_none_is_left_out():
    assert props.encode({"a": None, "b": "c"}) == b"b\1c\2"


def test_later_duplicates_win_unless_they_are_empty():
    assert props.find(b"a\1one\2a\1two\2a\1\2", "a") == "two"


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"KeyA\1ValueA\2", b""),
        (b"KeyA\1ValueA", b""),
        (b"KeyA\1ValueA\2KeyA\1ValueB\2", b""),
        (b"KeyB\1x\2KeyA\1ValueA\2", b"KeyB\1x\2"),
        (b"KeyB\1x\2KeyA\1ValueA", b"KeyB\1x\2"),
        (b"KeyA\1ValueA\2KeyB\1x\2", b"KeyB\1x\2"),
        (b"KeyA\1ValueA\2KeyB\1x", b"KeyB\1x"),
        (b"1KeyA\1v\2KeyA2\1w\2", b"1KeyA\1v\2KeyA2\1w\2"),
        (b"KeyB\1KeyA\2", b"KeyB\1KeyA\2"),
        (b"KeyB\1KeyA\1x\2", b"KeyB\1KeyA\1x\2"),
        (b"KeyA", b"KeyA"),
        (b"KeyA\2", b"KeyA\2"),
        (b"", b""),
    ],
)
def test_removal_has_no_false_hits(data, left):
    assert props.remove(data, "KeyA") == left


def test_put_after_an_unterminated_piece_starts_a_new_one():
    assert props.put(b"a\1b", "c", "d") == b"a\1b\2c\1d\2"
