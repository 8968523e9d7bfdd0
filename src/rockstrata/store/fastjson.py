"""JSON as RocketMQ's config files have it: bare integer keys, and references to a value seen before.

Answers to the fastjson 1 and 2 that RocketMQ writes and reads ``config/*.json`` with. Called by
whatever keeps such a file.
"""

import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rockstrata.errors import ConfigError

T = TypeVar("T")

SIZE_BYTES_MAX = 1 << 28

_STRING = re.compile(rb'("(?:[^"\\]++|\\.)*+")', re.DOTALL)
_BARE_KEY = re.compile(rb"([{,]\s*)(-?(?:0|[1-9][0-9]*))(?=\s*:)")
_QUOTED_KEY = rb'\1"\2"'
_BYTE = re.compile(r" \(byte ([0-9]+)\)")
_REF = b'"$ref"'


def loads(data: bytes, kind: type[T], path: Path | str | None = None) -> T:
    """``data`` as ``kind``, a type that msgspec can decode; unknown fields are passed over.

    Bare integer keys may be read as ``int`` or ``str``. Anything else than such a document is a
    ConfigError with the position of the first bad byte, if there is one.
    """
    if len(data) > SIZE_BYTES_MAX:
        raise ConfigError(
            "config file too large", path=path, expected=f"{SIZE_BYTES_MAX} bytes", found=len(data)
        )
    try:
        if _REF in data:
            tree = _decode(data, Any)
            return msgspec.convert(_Resolver(tree, 16 * len(data)).resolve(tree, 0), kind, str_keys=True)
        value: T = _decode(data, kind)
        return value
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError) as error:
        found = _BYTE.search(str(error))
        raise ConfigError(
            f"not the JSON of a RocketMQ config file: {_BYTE.sub('', str(error))}",
            path=path,
            position=_position(data, int(found[1])) if found else None,
        ) from error


def dumps(value: object) -> bytes:
    """``value`` in fastjson's pretty style: tabs, sorted keys, integer keys quoted, UTF-8."""
    text = json.dumps(
        value, indent="\t", sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    # A lone surrogate is no UTF-8; Python's escape for it happens to be JSON's.
    return text.encode(errors="backslashreplace")


def _decode(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.json.decode(_quote_keys(data), type=kind)


def _quote_keys(data: bytes) -> bytes:
    """Strict JSON: what looks like a bare key inside a string is left alone."""
    parts = _STRING.split(data)
    parts[::2] = [_BARE_KEY.sub(_QUOTED_KEY, between) for between in parts[::2]]
    return b"".join(parts)


def _position(data: bytes, quoted_position: int) -> int:
    """Position in ``data`` of what stands at ``quoted_position`` with the keys quoted."""
    read = written = 0
    for number, part in enumerate(_STRING.split(data)):
        if number % 2 == 0:
            for key in _BARE_KEY.finditer(part):
                for quote in (key.start(2), key.end(2)):
                    if written + quote >= quoted_position:
                        return read + quoted_position - written
                    written += 1
        if written + len(part) > quoted_position:
            return read + quoted_position - written
        read += len(part)
        written += len(part)
    return min(read, len(data))


class _Resolver:
    """Replaces fastjson 1's ``{"$ref": "$.a.b"}`` by what it points to."""

    def __init__(self, root: Any, nodes_left: int) -> None:
        self._root = root
        self._nodes_left = nodes_left

    def resolve(self, node: Any, depth: int) -> Any:
        self._nodes_left -= 1
        if depth > 64 or self._nodes_left < 0:
            raise RecursionError("nested too deeply, or a $ref that points to itself")
        if isinstance(node, list):
            return [self.resolve(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            return node
        target = node.get("$ref")
        if len(node) != 1 or not isinstance(target, str):
            return {key: self.resolve(value, depth + 1) for key, value in node.items()}
        return self.resolve(self._find(target), depth + 1)

    def _find(self, target: str) -> Any:
        start, *steps = re.split(r"(?<!\\)\.", target)
        found = self._root if start == "$" else None
        for step in steps:
            found = found.get(re.sub(r"\\(.)", r"\1", step)) if isinstance(found, dict) else None
        if found is None:
            raise LookupError(f"$ref {target[:100]} points nowhere")
        return found
