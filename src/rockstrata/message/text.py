"""UTF-8 exactly as Java reads it: malformed input becomes U+FFFD, never an exception.

Answers to `new String(bytes, UTF_8)`, from which RocketMQ takes topics and properties.
Called by properties, tags, record and the Python scan; the kernels hold the same rules.
"""

import codecs
import re

_REPLACEMENT = "\ufffd"
_INTEGER = re.compile(r"[+-]?[0-9]+")


def _as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace one malformed part; Java takes an encoded surrogate as one part, Python as three."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        whole = start + 2 < len(data) and data[start + 2] & 0xC0 == 0x80
        return _REPLACEMENT, start + (3 if whole else 2)
    return _REPLACEMENT, error.end


codecs.register_error("rockstrata-java", _as_java)


def java_text(data: bytes) -> str:
    """Bytes as the string Java would make of them."""
    return data.decode("utf-8", "rockstrata-java")


def java_integer(text: str, bits: int) -> int | None:
    """A decimal integer of so many bits as Java's parsers take it, or None."""
    if _INTEGER.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-").lstrip("0") or "0"
    # A bound on the digits first: int() of a long string is slow and limited.
    if len(digits) > 20:
        return None
    value = -int(digits) if text[0] == "-" else int(digits)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None
