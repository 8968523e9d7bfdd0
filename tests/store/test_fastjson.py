"""Config JSON: fastjson's dialect in, readable JSON out, typed errors for everything else."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockstrata.errors import ConfigError
from rockstrata.store import fastjson

# As fastjson 1.2.83 writes it (RocketMQ 5.3.3).
FASTJSON_1 = b"""{
\t"offsetTable":{
\t\t"TopicA@g1":{0:5,-1:7,1:99999999999
\t\t},
\t\t"{0:1,2:3}@\\"{4:5\\\\":{3:4
\t\t},
\t\t"empty@g1":{}
\t}
}"""

# As fastjson 2.0.59 writes it (RocketMQ 5.5.0).
FASTJSON_2 = b"""{
\t"offsetTable":{
\t\t"TopicA@g1":{
\t\t\t0:5,
\t\t\t-1:7,
\t\t\t1 : 99999999999
\t\t},
\t\t"{0:1,2:3}@\\"{4:5\\\\":{
\t\t\t3:4
\t\t},
\t\t"empty@g1":{}
\t}
}
"""

OFFSETS = {"TopicA@g1": {0: 5, -1: 7, 1: 99999999999}, '{0:1,2:3}@"{4:5\\': {3: 4}, "empty@g1": {}}
KIND = dict[str, dict[str, dict[int, int]]]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
        | st.dictionaries(st.integers(-(2**31), 2**31), inner, max_size=4)
    ),
    max_leaves=20,
).filter(lambda value: '"$ref"' not in json.dumps(value))


def with_text_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [with_text_keys(item) for item in value]
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return value


def bare(value: Any) -> str:
    """The value with integer keys unquoted, as fastjson prints them."""
    if isinstance(value, list):
        return "[" + ", ".join(map(bare, value)) + "]"
    if isinstance(value, dict):
        key_text = (str(k) if isinstance(k, int) else json.dumps(k) for k in value)
        return (
            "{\n" + ",\t".join(f"{k} :{bare(v)}" for k, v in zip(key_text, value.values(), strict=True)) + "}"
        )
    return json.dumps(value)


@pytest.mark.parametrize("data", [FASTJSON_1, FASTJSON_2])
def test_bare_integer_keys_are_read_and_strings_that_look_like_them_are_left_alone(data):
    assert fastjson.loads(data, KIND) == {"offsetTable": OFFSETS}


@given(JSON)
def test_any_document_with_bare_keys_is_read(value):
    assert fastjson.loads(bare(value).encode(), Any) == with_text_keys(value)


@given(JSON)
def test_what_is_written_is_strict_json_and_reads_back(value):
    data = fastjson.dumps(value if not isinstance(value, dict) else with_text_keys(value))
    assert json.loads(data) == with_text_keys(value)
    assert fastjson.loads(data, Any) == with_text_keys(value)


def test_the_written_form_is_fastjsons_pretty_style_with_integer_keys_in_order_and_quoted():
    assert fastjson.dumps({"b": {10: 1, 9: 2}, "a": {}, "c": "中"}).decode() == (
        '{\n\t"a":{},\n\t"b":{\n\t\t"9":2,\n\t\t"10":1\n\t},\n\t"c":"中"\n}'
    )


def test_a_lone_surrogate_is_written_as_an_escape():
    assert fastjson.dumps("\ud800") == b'"\\ud800"'


def test_a_reference_of_fastjson_1_is_followed():
    data = b'{"t":{"T.1":{"a":{"queue.type":"BatchCQ"}},"T3":{"a":{"$ref":"$.t.T\\\\.1.a"}},"n":{1:2}}}'
    assert fastjson.loads(data, Any)["t"]["T3"] == {"a": {"queue.type": "BatchCQ"}}
    assert fastjson.loads(b'{"a":{1:2},"b":{"$ref":"$.a"}}', dict[str, dict[int, int]]) == {
        "a": {1: 2},
        "b": {1: 2},
    }


@pytest.mark.parametrize("target", ["$.b", "$.none", "@", "..", "$.a.1.x"])
def test_a_reference_to_itself_or_to_nothing_is_an_error(target):
    with pytest.raises(ConfigError, match=r"\$ref"):
        fastjson.loads(f'{{"a":{{1:2}},"b":{{"$ref":"{target}"}}}}'.encode(), Any)


def test_references_that_multiply_are_stopped():
    layers = ",".join(f'"{n}":[{",".join([f"""{{"$ref":"$.{n + 1}"}}"""] * 9)}]' for n in range(30))
    with pytest.raises(ConfigError, match="nested too deeply"):
        fastjson.loads(f'{{{layers},"30":1}}'.encode(), Any)


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b'{"a":{0:1,2:x}}', 12),
        (b'{"a":{0:1,2:3},!', 15),
        (b"{1:2,3:4,5:?", 11),
        (b'{"a" 1}', 5),
        (b"{00:1}", 1),
    ],
)
def test_a_bad_byte_is_reported_at_its_place_in_the_file(data, position):
    with pytest.raises(ConfigError, match=f"at topics.json:{position}") as caught:
        fastjson.loads(data, Any, "topics.json")
    assert caught.value.position == position


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"a":"\xff"}', b'"\\ud800"', b"[" * 100_000, b"{1:" * 100_000, b"9" * 9999, b"[NaN]"],
)
def test_what_is_no_json_is_a_typed_error(data):
    with pytest.raises(ConfigError, match="not the JSON of a RocketMQ config file"):
        fastjson.loads(data, Any)


def test_the_wrong_shape_is_a_typed_error_that_says_where():
    with pytest.raises(ConfigError, match=r"Expected `int`, got `str` - at `\$\[...\]\[...\]`"):
        fastjson.loads(b'{"a":{0:"x"}}', dict[str, dict[int, int]])


def test_a_file_beyond_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(fastjson, "SIZE_BYTES_MAX", 3)
    with pytest.raises(ConfigError, match="too large: expected 3 bytes, found 4"):
        fastjson.loads(b"1234", Any)


def read_or_refuse(data: bytes, kind: Any) -> None:
    error = None
    try:
        fastjson.loads(data, kind)
    except ConfigError as caught:
        error = caught
    assert error is None or error.position is None or 0 <= error.position <= len(data)


@given(st.data())
def test_damaged_documents_give_a_value_or_a_typed_error(data):
    text = bytearray(data.draw(st.sampled_from([FASTJSON_1, FASTJSON_2, b'{"a":{"$ref":"$.b"},"b":{1:2}}'])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    for kind in (Any, KIND):
        read_or_refuse(bytes(text), kind)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]:,"\\0123-$ref \n', max_size=60).map(str.encode))
def test_random_bytes_give_a_value_or_a_typed_error(data):
    read_or_refuse(data, Any)


def test_strict_json_of_msgspec_is_read_at_once():
    assert fastjson.loads(msgspec.json.encode({"a": [1, "x", None]}), Any) == {"a": [1, "x", None]}
