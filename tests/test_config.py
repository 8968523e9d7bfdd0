"""Settings: where they come from, which wins, and what a bad one says."""

import logging
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockstrata.config import LONG_MAX, Config, config_markdown, setting, snake_case
from rockstrata.errors import ConfigError
from rockstrata.java_properties import escape_property, parse_properties


class Colour(Enum):
    RED = 1
    GREEN = 2


@dataclass(frozen=True, kw_only=True)
class Boat(Config):
    section: ClassVar[str] = "boat"

    sail_bytes: int = setting(10, key="mappedSailSize", unit="bytes", minimum=1, doc="Sail | cloth.")
    crew: int = setting(2, key="crewCRCNum", maximum=LONG_MAX, doc="Hands.")
    ratio: float = setting(0.5, key="ratio", maximum=1, doc="Ratio.")
    engine: bool = setting(False, key="engineMaped", aliases=("engineMapped",), doc="Engine.")
    name: str = setting("", key="boatName", shown="host", doc="Name.")
    colour: Colour = setting(Colour.RED, key="colour", doc="Colour.")  # noqa: RUF009
    kind: str = setting("sloop", key="boatKind", choices=("sloop", "ketch"), doc="Kind.")


@dataclass(frozen=True, kw_only=True)
class Harbour(Config):
    depth: int = setting(3, key="harbourDepth", doc="Depth.")


def conf(tmp_path: Path, text: str, name: str = "broker.conf") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    return path


def test_without_any_source_the_defaults_hold():
    assert Boat.load() == Boat()


def test_flags_beat_the_environment_which_beats_the_file_which_beats_the_defaults(tmp_path):
    file = conf(tmp_path, "mappedSailSize=20\ncrewCRCNum=20\nratio=0.25\n")
    env = {"ROCKSTRATA_CREW": "30", "ROCKSTRATA_RATIO": "0.75"}

    boat = Boat.load(file, env, {"ratio": "1.0"})

    assert (boat.sail_bytes, boat.crew, boat.ratio, boat.kind) == (20, 30, 1.0, "sloop")


@pytest.mark.parametrize("name", ["mappedSailSize", "sail_bytes"])
def test_a_setting_is_known_by_rocketmqs_key_and_by_our_name(tmp_path, name):
    assert Boat.load(conf(tmp_path, f"{name} = 7")).sail_bytes == 7
    assert Boat.load(conf(tmp_path, f"{name} = 7", "a.toml")).sail_bytes == 7
    assert Boat.load(env={f"ROCKSTRATA_{snake_case(name).upper()}": "7"}).sail_bytes == 7
    assert Boat.load(overrides={name: "7"}).sail_bytes == 7
    assert Boat.load(overrides={name: 7}).sail_bytes == 7


@pytest.mark.parametrize("name", ["engineMaped", "engineMapped", "engine"])
def test_both_spellings_of_rocketmq_are_accepted(tmp_path, name):
    assert Boat.load(conf(tmp_path, f"{name}=TRUE")).engine is True


def test_two_spellings_that_agree_are_fine_and_two_that_do_not_are_an_error(tmp_path):
    assert Boat.load(conf(tmp_path, "engineMaped=true\nengine=true")).engine

    with pytest.raises(ConfigError, match=r"broker\.conf:2: expected 'true', found 'false'; keep one"):
        Boat.load(conf(tmp_path, "engineMaped=true\nengine=false"))


def test_the_last_of_two_equal_keys_wins_as_in_java(tmp_path):
    assert Boat.load(conf(tmp_path, "crewCRCNum=4\ncrewCRCNum=5")).crew == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mappedSailSize=12k", r"mappedSailSize at .*broker\.conf:2: expected a whole number .* found '12k'"),
        ("mappedSailSize=0", r"from 1 to 2147483647 \(bytes\), found '0'"),
        ("mappedSailSize=2147483648", "found '2147483648'"),
        ("mappedSailSize=", "found ''"),
        ("mappedSailSize=1_000", "found '1_000'"),
        ("mappedSailSize=٣", "found"),
        ("crewCRCNum=" + "9" * 5000, "expected a whole number"),
        ("ratio=nan", "expected a number from 0 to 1, found 'nan'"),
        ("ratio=1.5", "found '1.5'"),
        ("engineMaped=yes", "expected true or false, found 'yes'"),
        ("colour=red", "expected RED or GREEN, found 'red'"),
        ("boatKind=yawl", "expected sloop or ketch, found 'yawl'"),
    ],
)
def test_a_bad_value_names_file_line_key_expected_and_found(tmp_path, line, message):
    path = tmp_path / "broker.conf"
    path.write_text("# first\n" + line + "\n")
    with pytest.raises(ConfigError, match=message):
        Boat.load(path)


def test_a_bad_value_in_the_environment_or_in_a_flag_says_so():
    with pytest.raises(ConfigError, match="environment variable ROCKSTRATA_CREW, setting crew"):
        Boat.load(env={"ROCKSTRATA_CREW": "many"})
    with pytest.raises(ConfigError, match="option crew: expected a whole number"):
        Boat.load(overrides={"crew": "many"})
    with pytest.raises(ConfigError, match="option crew"):
        Boat.load(overrides={"crew": True})


def test_an_unknown_key_is_a_warning_in_broker_conf(tmp_path, caplog):
    file = conf(tmp_path, "crewCRCNun=4\nharbourDepth=9\nzzz=1")

    boat, warnings = Boat.load_with_warnings(file, known=(Harbour,))

    assert boat == Boat()
    assert [w.split(": ", 1)[1] for w in warnings] == [
        "crewCRCNun is not a setting of ours, ignored; did you mean crewCRCNum?",
        "zzz is not a setting of ours, ignored",
    ]
    with caplog.at_level(logging.WARNING):
        Boat.load(file, known=(Harbour,))
    assert len(caplog.records) == 2


def test_an_unknown_key_is_an_error_with_a_suggestion_in_toml(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown setting crwe at .*a\.toml:2; did you mean crew\?"):
        Boat.load(conf(tmp_path, "engine = true\ncrwe = 4", "a.toml"))
    with pytest.raises(ConfigError, match="unknown setting depht"):
        Boat.load(conf(tmp_path, "[boat]\ndepht = 4", "a.toml"))
    with pytest.raises(ConfigError, match="unknown setting yard"):
        Boat.load(conf(tmp_path, "[yard]\ncrew = 4", "a.toml"))


def test_toml_values_have_types_and_may_lie_in_the_classs_own_table(tmp_path):
    text = '[boat]\nengine = true\nratio = 1\ncolour = "GREEN"\ncrewCRCNum = 9\nname = " x "'
    boat = Boat.load(conf(tmp_path, text, "a.toml"), known=(Harbour,))
    assert boat == Boat(engine=True, ratio=1.0, colour=Colour.GREEN, crew=9, name=" x ")
    assert Boat.load(conf(tmp_path, "depth = 4", "a.toml"), known=(Harbour,)) == Boat()

    with pytest.raises(ConfigError, match=r"crew at .*a\.toml:1: expected a whole number .* found '9'"):
        Boat.load(conf(tmp_path, 'crew = "9"', "a.toml"))
    with pytest.raises(ConfigError, match=r"found \{.a.: 1\}"):
        Boat.load(conf(tmp_path, "crew.a = 1", "a.toml"))
    with pytest.raises(ConfigError, match="not a TOML file"):
        Boat.load(conf(tmp_path, "crew =", "a.toml"))
    with pytest.raises(ConfigError, match="not a TOML file"):
        Boat.load(conf(tmp_path, "\xff", "a.toml"))


def test_a_missing_file_and_an_unknown_flag_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the config file: No such file"):
        Boat.load(tmp_path / "none.conf")
    with pytest.raises(ConfigError, match=r"unknown option colou; did you mean colour\?"):
        Boat.load(overrides={"colou": "RED"})


def test_a_near_miss_in_the_environment_is_told_and_other_variables_are_not():
    _, warnings = Boat.load_with_warnings(env={"ROCKSTRATA_SAIL_BYTE": "1", "ROCKSTRATA_X": "1", "HOME": "/"})
    assert warnings == [
        "environment variable ROCKSTRATA_SAIL_BYTE is ignored; did you mean ROCKSTRATA_SAIL_BYTES?"
    ]


def test_an_instance_made_by_hand_is_checked_too():
    assert Boat(colour="GREEN").colour is Colour.GREEN
    assert Boat(ratio=1).ratio == 1.0
    for bad in (
        {"crew": "3"},
        {"crew": True},
        {"crew": -1},
        {"colour": "BLUE"},
        {"name": None},
        {"engine": 1},
    ):
        with pytest.raises(ConfigError):
            Boat(**bad)


def test_the_reference_table_shows_key_default_unit_and_doc():
    table = config_markdown(Boat).splitlines()
    assert table[0] == "| setting | RocketMQ key | default | unit | meaning |"
    assert table[2] == "| `sail_bytes` | `mappedSailSize` | `10` | bytes | Sail \\| cloth. |"
    assert table[5] == "| `engine` | `engineMaped`, `engineMapped` | `false` | – | Engine. |"
    assert table[6] == "| `name` | `boatName` | `host` | – | Name. |"
    assert [row.field for row in Boat.describe()] == [
        "sail_bytes", "crew", "ratio", "engine", "name", "colour", "kind"
    ]  # fmt: skip


def test_changed_settings_alone_can_be_written():
    assert Boat(crew=5, name="").to_properties(changed_only=True) == "crewCRCNum=5\n"


@given(
    st.builds(
        Boat,
        sail_bytes=st.integers(1, 2**31 - 1),
        crew=st.integers(0, LONG_MAX),
        ratio=st.floats(0, 1),
        engine=st.booleans(),
        name=st.text(st.characters(codec="utf-8")).map(str.strip),
        colour=st.sampled_from(Colour),
    )
)
def test_what_was_written_as_properties_is_read_back(tmp_path_factory, boat):
    file = tmp_path_factory.mktemp("boat") / "broker.conf"
    file.write_text(boat.to_properties(), encoding="latin-1")
    assert Boat.load(file) == boat


@pytest.mark.parametrize(
    ("key", "snake"),
    [
        ("mappedFileSizeCommitLog", "mapped_file_size_commit_log"),
        ("brokerIP1", "broker_ip1"),
        ("checkCRCOnRecover", "check_crc_on_recover"),
        ("enabledAppendPropCRC", "enabled_append_prop_crc"),
        ("warmMapedFileEnable", "warm_maped_file_enable"),
    ],
)
def test_camel_case_becomes_snake_case(key, snake):
    assert snake_case(key) == snake


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", [(1, "a", "b")]),
        ("a b", [(1, "a", "b")]),
        ("  a : b  ", [(1, "a", "b  ")]),
        ("a==b", [(1, "a", "=b")]),
        ("a", [(1, "a", "")]),
        ("=b", [(1, "", "b")]),
        ("# c\n! c\n\n a=1", [(4, "a", "1")]),
        ("a=1\\\n   2\\\n\t3\nb=4", [(1, "a", "123"), (4, "b", "4")]),
        ("a=1\\\\\nb=2", [(1, "a", "1\\"), (2, "b", "2")]),
        ("a=1\\\n# no comment", [(1, "a", "1# no comment")]),
        ("a=1\\\n\nb=2", [(1, "a", "1"), (3, "b", "2")]),
        ("a=1\\", [(1, "a", "1")]),
        ("a\\=b\\:c\\ d=e", [(1, "a=b:c d", "e")]),
        ("a=\\t\\n\\r\\f\\q\\\\", [(1, "a", "\t\n\r\fq\\")]),
        ("a=\\u4e2d\\uD83D\\uDE00", [(1, "a", "中😀")]),
        ("a=1\rb=2\r\nc=3", [(1, "a", "1"), (2, "b", "2"), (3, "c", "3")]),
        ("\\\n", []),
        ("\\\n# still a comment\na=1", [(3, "a", "1")]),
    ],
)
def test_properties_are_read_as_java_reads_them(text, entries):
    assert list(parse_properties(text)) == entries


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\uzzzz=1", "a=\\u+123", "a=\\u 123"])
def test_a_broken_unicode_escape_is_an_error_with_its_line(text):
    with pytest.raises(ConfigError, match="bad escape at x:2: expected"):
        list(parse_properties("b=1\n" + text, "x"))


@given(st.text(alphabet="ab=: \t\f\\u01#!\n\r"))
def test_any_text_is_properties_or_a_typed_error(text):
    try:
        entries = list(parse_properties(text))
    except ConfigError:
        return
    assert [line for line, _, _ in entries] == sorted({line for line, _, _ in entries})


@given(st.text(st.characters(codec="utf-8")))
def test_an_escaped_value_is_latin_1_and_reads_back(value):
    line = f"k={escape_property(value)}"
    assert list(parse_properties(line.encode("latin-1").decode("latin-1"))) == [(1, "k", value)]
