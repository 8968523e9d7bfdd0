"""Java's properties text, as ``broker.conf`` is written in: parse with line numbers, escape.

Answers to java.util.Properties (load, store). Called by ``config`` only.
"""

from collections.abc import Iterator
from pathlib import Path

from rockstrata.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def parse_properties(text: str, path: Path | str | None = None) -> Iterator[tuple[int, str, str]]:
    """Line number, key and value of every entry, in order, duplicates included.

    The number is that of the entry's first line, from 1. The only illegal input is a ``\\u``
    without four hex digits: ConfigError.
    """
    for line, entry in _logical_lines(text):
        end = _key_end(entry)
        rest = entry[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        yield line, _unescape(entry[:end], line, path), _unescape(rest, line, path)


def escape_property(value: str) -> str:
    """``value`` so that Java, reading ISO 8859-1, gets it back."""
    out = []
    for at, char in enumerate(value):
        if char in _ESCAPED:
            out.append(_ESCAPED[char])
        elif char == " " and at == 0:
            out.append("\\ ")
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out += (f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    return "".join(out)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Entries joined over continuation lines, leading blanks and comments gone, escapes kept."""
    pending = ""
    first = 0
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = line.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _key_end(entry: str) -> int:
    at = 0
    while at < len(entry):
        if entry[at] == "\\":
            at += 2
        elif entry[at] in "=: \t\f":
            return at
        else:
            at += 1
    return len(entry)


def _unescape(text: str, line: int, path: Path | str | None) -> str:
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        char = text[at]
        if char != "\\":
            out.append(char)
            at += 1
            continue
        code = text[at + 1 : at + 2]
        at += 2
        if code != "u":
            out.append(_ESCAPES.get(code, code))
            continue
        digits = text[at : at + 4]
        if len(digits) < 4 or not all(d in "0123456789abcdefABCDEF" for d in digits):
            raise ConfigError(
                "bad escape",
                path=path,
                position=line,
                expected="\\u and four hex digits",
                found="\\u" + digits,
            )
        out.append(chr(int(digits, 16)))
        at += 4
    # Two escapes may be the halves of one character; a lone half cannot be text.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
