"""Settings: a frozen dataclass per part, every field with default, unit, doc and RocketMQ key.

Answers to RocketMQ's MixAll.properties2Object and its config beans. Every config class derives
from ``Config``; the command line loads them, the documentation prints them.
"""

import difflib
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

from rockstrata.errors import ConfigError
from rockstrata.java_properties import escape_property, parse_properties

log = logging.getLogger(__name__)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
ENV_PREFIX = "ROCKSTRATA_"

_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Setting(NamedTuple):
    """What is known of one field beside its name and type."""

    key: str
    aliases: tuple[str, ...]
    unit: str
    doc: str
    minimum: float
    maximum: float
    choices: tuple[str, ...]
    shown: str


class SettingRow(NamedTuple):
    """One line of a reference table."""

    field: str
    key: str
    aliases: tuple[str, ...]
    type_name: str
    default: str
    unit: str
    doc: str


class Entry(NamedTuple):
    """One value as found, and where: ``path`` and ``line`` of a file, or a named place."""

    name: str
    value: object
    path: str | None
    line: int | None
    place: str = "setting"


def setting(
    default: Any,
    *,
    key: str = "",
    aliases: Sequence[str] = (),
    unit: str = "",
    doc: str,
    minimum: float = 0,
    maximum: float = INT_MAX,
    choices: Sequence[str] = (),
    shown: str = "",
) -> Any:
    """A field of a ``Config``.

    ``key`` is RocketMQ's name, empty for a setting of ours. Numbers are bounded by ``minimum`` and
    ``maximum``; the defaults are those of a Java ``int`` that counts something, so that whatever
    we accept RocketMQ accepts too. ``shown`` is what the reference prints for a default
    that depends on the machine.
    """
    facts = Setting(key, tuple(aliases), unit, doc, minimum, maximum, tuple(choices), shown)
    return field(default=default, metadata={"setting": facts})


@dataclass(frozen=True)
class Config:
    """Base of all config classes; an instance is valid or was never made."""

    section: ClassVar[str] = ""
    """TOML table that may hold this class's settings, beside the top level."""

    def __post_init__(self) -> None:
        for name, facts in _facts(type(self)).settings.items():
            entry = Entry(name, getattr(self, name), None, None)
            object.__setattr__(self, name, _convert(entry, _facts(type(self)).types[name], facts, text=False))
        self.check()

    def check(self) -> None:
        """Rules between settings; raises ConfigError. For subclasses."""

    @classmethod
    def load(
        cls,
        file: Path | None = None,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, object] | None = None,
        known: Sequence[type["Config"]] = (),
    ) -> Self:
        """Defaults, then ``file``, then ``env``, then ``overrides``; the later wins.

        Warnings are logged. ``known`` names the other classes that read the same file, whose keys
        are therefore not unknown.
        """
        config, warnings = cls.load_with_warnings(file, env, overrides, known)
        for warning in warnings:
            log.warning("%s", warning)
        return config

    @classmethod
    def load_with_warnings(
        cls,
        file: Path | None = None,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, object] | None = None,
        known: Sequence[type["Config"]] = (),
    ) -> tuple[Self, list[str]]:
        """As ``load``, with the warnings returned instead of logged.

        A file named ``*.toml`` is TOML with typed values; any other is Java properties.
        """
        warnings: list[str] = []
        family: tuple[type[Config], ...] = (cls, *known)
        layers: list[dict[str, Entry]] = []
        strict: set[int] = set()
        if file is not None:
            if file.suffix == ".toml":
                strict.add(len(layers))
                layers.append(_pick(cls, _toml_entries(file, family)))
            else:
                found = list(_properties_entries(file))
                warnings += _unknown(found, family)
                layers.append(_pick(cls, found))
        found = list(_env_entries(env or {}, family, warnings))
        layers.append(_pick(cls, found))
        flags = [Entry(k, v, None, None, "option") for k, v in (overrides or {}).items()]
        for entry in flags:
            if not _is_known(entry.name, family):
                raise ConfigError(f"unknown option {entry.name}", hint=_suggest(entry.name, family))
        layers.append(_pick(cls, flags))

        values: dict[str, Any] = {}
        for number, layer in enumerate(layers):
            for name, entry in layer.items():
                text = number not in strict and isinstance(entry.value, str)
                values[name] = _convert(entry, _facts(cls).types[name], _facts(cls).settings[name], text=text)
        return cls(**values), warnings

    @classmethod
    def describe(cls) -> list[SettingRow]:
        """All settings, in the order they are declared."""
        rows = []
        for f in fields(cls):
            facts = _facts(cls).settings[f.name]
            default = facts.shown or to_text(f.default)
            type_name = _facts(cls).types[f.name].__name__
            rows.append(
                SettingRow(f.name, facts.key, facts.aliases, type_name, default, facts.unit, facts.doc)
            )
        return rows

    def to_properties(self, *, changed_only: bool = False) -> str:
        """Text of a ``broker.conf`` with these settings, under RocketMQ's keys where there is one.

        Empty text settings are left out: RocketMQ tells an empty value from an absent one.
        """
        lines = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value == "" or (changed_only and value == f.default):
                continue
            lines.append(
                f"{_facts(type(self)).settings[f.name].key or f.name}={escape_property(to_text(value))}\n"
            )
        return "".join(lines)


def config_markdown(config: type[Config]) -> str:
    """The reference table of a config class."""
    rows = ["| setting | RocketMQ key | default | unit | meaning |", "|---|---|---|---|---|"]
    for row in config.describe():
        keys = ", ".join(f"`{k}`" for k in (row.key, *row.aliases) if k) or "–"
        default = f"`{row.default}`" if row.default else "–"
        doc = row.doc.replace("|", "\\|")
        rows.append(f"| `{row.field}` | {keys} | {default} | {row.unit or '–'} | {doc} |")
    return "\n".join(rows) + "\n"


def to_text(value: object) -> str:
    """A value as RocketMQ would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Enum) else str(value)


def snake_case(key: str) -> str:
    """``mappedFileSizeCommitLog`` → ``mapped_file_size_commit_log``; ``brokerIP1`` → ``broker_ip1``."""
    return _HUMPS.sub("_", key).lower()


# --- One value -----------------------------------------------------------------------------------


def _convert(entry: Entry, kind: type, facts: Setting, *, text: bool) -> Any:
    """The value of ``entry`` as ``kind``; ``text`` values are parsed, others must have the type."""
    value = entry.value
    if text and isinstance(value, str) and kind is not str:
        value = _parse(value.strip(), kind)
    elif text and isinstance(value, str):
        value = value.strip()
    elif issubclass(kind, Enum) and isinstance(value, str):
        value = kind.__members__.get(value)
    elif kind is float and type(value) is int:
        value = float(value)
    right_type = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if not right_type or (kind in (int, float) and not facts.minimum <= value <= facts.maximum):  # type: ignore[operator]
        raise _bad(entry, kind, facts)
    if facts.choices and to_text(value) not in facts.choices:
        raise _bad(entry, kind, facts)
    return value


def _parse(text: str, kind: type) -> object:
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower())
    if kind is int:
        return int(text) if _INT.fullmatch(text) and len(text) <= 20 else None
    if kind is float:
        return float(text) if _FLOAT.fullmatch(text) else None
    assert issubclass(kind, Enum), f"no setting can be a {kind.__name__}"
    return kind.__members__.get(text)


def _bad(entry: Entry, kind: type, facts: Setting) -> ConfigError:
    if facts.choices:
        expected = " or ".join(facts.choices)
    elif issubclass(kind, Enum):
        expected = " or ".join(kind.__members__)
    elif kind is bool:
        expected = "true or false"
    elif kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        expected = f"{noun} from {facts.minimum} to {facts.maximum}" + (
            f" ({facts.unit})" if facts.unit else ""
        )
    else:
        expected = "text"
    return ConfigError(
        f"{entry.place} {entry.name}",
        path=entry.path,
        position=entry.line,
        expected=expected,
        found=repr(entry.value)[:200],
    )


# --- Names ---------------------------------------------------------------------------------------


class _Facts(NamedTuple):
    settings: dict[str, Setting]
    types: dict[str, type]
    spellings: dict[str, str]


_FACTS: dict[type, _Facts] = {}


def _facts(cls: type[Config]) -> _Facts:
    """By field: what was declared, and the type; by every accepted spelling: the field."""
    if cls not in _FACTS:
        settings: dict[str, Setting] = {f.name: f.metadata["setting"] for f in fields(cls)}
        names: dict[str, str] = {}
        for name, facts in settings.items():
            for spelling in filter(None, (name, facts.key, *facts.aliases)):
                assert names.setdefault(spelling, name) == name, f"{spelling} names two settings"
        hints = get_type_hints(cls)
        _FACTS[cls] = _Facts(settings, {name: hints[name] for name in settings}, names)
    return _FACTS[cls]


def _is_known(name: str, family: Sequence[type[Config]]) -> bool:
    return any(name in _facts(c).spellings for c in family)


def _pick(cls: type[Config], entries: Sequence[Entry]) -> dict[str, Entry]:
    """The entries of this class by field. Two spellings that disagree are an error."""
    picked: dict[str, Entry] = {}
    for entry in entries:
        name = _facts(cls).spellings.get(entry.name)
        if name is None:
            continue
        other = picked.get(name)
        if other is not None and other.name != entry.name and other.value != entry.value:
            raise ConfigError(
                f"{entry.place} {entry.name} contradicts {other.name}, which is the same setting",
                path=entry.path,
                position=entry.line,
                expected=repr(other.value)[:200],
                found=repr(entry.value)[:200],
                hint="keep one of them",
            )
        picked[name] = entry
    return picked


def _suggest(name: str, family: Sequence[type[Config]]) -> str:
    spellings = [s for c in family for s in _facts(c).spellings]
    close = difflib.get_close_matches(name, spellings, n=1, cutoff=0.75)
    close = close or difflib.get_close_matches(snake_case(name), spellings, n=1, cutoff=0.75)
    return f"did you mean {close[0]}?" if close else ""


def _unknown(entries: Sequence[Entry], family: Sequence[type[Config]]) -> list[str]:
    warnings = []
    for entry in entries:
        if not _is_known(entry.name, family):
            hint = _suggest(entry.name, family)
            warnings.append(
                f"{entry.path}:{entry.line}: {entry.name} is not a setting of ours, ignored"
                + (f"; {hint}" if hint else "")
            )
    return warnings


# --- Where values come from ----------------------------------------------------------------------


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the config file: {error.strerror}", path=file) from error


def _env_entries(
    env: Mapping[str, str], family: Sequence[type[Config]], warnings: list[str]
) -> Iterator[Entry]:
    variables = {ENV_PREFIX + snake_case(s).upper(): s for c in family for s in _facts(c).spellings}
    for variable, value in env.items():
        if not variable.startswith(ENV_PREFIX):
            continue
        if variable in variables:
            yield Entry(variables[variable], value, None, None, f"environment variable {variable}, setting")
        elif close := difflib.get_close_matches(variable, variables, n=1, cutoff=0.85):
            warnings.append(f"environment variable {variable} is ignored; did you mean {close[0]}?")


def _toml_entries(file: Path, family: Sequence[type[Config]]) -> list[Entry]:
    """Top-level keys and those of the family's own tables; any other key is an error."""
    try:
        text = _read(file).decode()
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"not a TOML file: {error}", path=file) from error
    sections = {c.section: c for c in family if c.section}
    entries = []
    for key, value in tree.items():
        table = value if key in sections and isinstance(value, dict) else {key: value}
        owners = (sections[key],) if table is value else tuple(family)
        for name, leaf in table.items():
            found = re.search(rf"^\s*[\"']?{re.escape(name)}[\"']?\s*[.=]", text, re.MULTILINE)
            line = text.count("\n", 0, found.end()) + 1 if found else None
            if not _is_known(name, owners):
                hint = _suggest(name, owners)
                raise ConfigError(f"unknown setting {name}", path=file, position=line, hint=hint)
            entries.append(Entry(name, leaf, str(file), line))
    return entries


def _properties_entries(file: Path) -> Iterator[Entry]:
    # RocketMQ reads its file as ISO 8859-1, whatever the machine's encoding.
    for line, key, value in parse_properties(_read(file).decode("latin-1"), file):
        yield Entry(key, value, str(file), line)
