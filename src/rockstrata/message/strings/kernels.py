"""Text and properties for kernels: Java's hash over UTF-8, integers, and the values of properties.

Answers to String.hashCode, Integer.parseInt and MessageDecoder.string2messageProperties.
Called by the walk; properties.py, tags.py and text.py say the same in Python.
"""

# numba types these functions itself.
# mypy: ignore-errors
from typing import Any

import numpy as np

from rockstrata.kernel import brief_kernel, kernel
from rockstrata.message.words.kernels import load8, load16, load32, load64, lowest, matches

_U8, _U32, _U64, _I32, _I64 = np.uint8, np.uint32, np.uint64, np.int32, np.int64
# Constants carry their type: numba turns a sum of signed and unsigned 64-bit integers into a float.
_0, _1, _8, _16, _32, _64 = (_U64(n) for n in (0, 1, 8, 16, 32, 64))
_ALL = _U64(0xFFFFFFFFFFFFFFFF)
_HIGH_BITS = _U64(0x8080808080808080)
_EVEN_BYTES = _U64(0x00FF00FF00FF00FF)
_EVEN_PAIRS = _U64(0x0000FFFF0000FFFF)
_LOW_HALF = _U64(0x00000000FFFFFFFF)
_31, _31_2, _31_4, _31_8 = _U64(31), _U64(31**2), _U64(31**4), _U64(31**8)
_POWERS = np.array([31**n for n in range(8)], np.uint64)
_SPACE = _U8(0x20)


def _word(text: bytes) -> Any:
    return np.frombuffer(text, np.uint32 if len(text) == 4 else np.uint64)[0]


_N_TAGS, _N_KEYS, _N_DELAY = _word(b"TAGS"), _word(b"KEYS"), _word(b"DELA")
_N_UNIQUE, _N_NUM, _N_BASE = _word(b"UNIQ_KEY"), _word(b"INNER_NU"), _word(b"INNER_BA")
_N_MULTI, _N_MULTI_2, _N_MULTI_3 = _word(b"INNER_MU"), _word(b"LTI_DISP"), _word(b"ATCH")

# Where notes keep a value: its start here, its end in the next place. 0 means absent.
TAGS_AT, KEYS_AT, UNIQUE_AT, DELAY_AT, NUM_AT, BASE_AT, MULTI_AT = range(0, 14, 2)
NOTES = 14


@kernel
def hash_text(base, start, end, h):
    """Java's hash of UTF-8 bytes, going on from ``h``; only the low 32 bits count."""
    at = start
    while at + 8 <= end:
        word = load64(base + at)
        if word & _HIGH_BITS:
            return _hash_units(base, at, end, h)
        pairs = (word & _EVEN_BYTES) * _31 + ((word >> _8) & _EVEN_BYTES)
        quads = (pairs & _EVEN_PAIRS) * _31_2 + ((pairs >> _16) & _EVEN_PAIRS)
        h = h * _31_8 + (quads & _LOW_HALF) * _31_4 + (quads >> _32)
        at += 8
    rest = end - at
    if rest > 0:
        # The word that ends here: what lies before the text is shifted out, zeros do not count.
        skip = _64 - _8 * _U64(rest)
        word = (load64(base + end - 8) >> skip) << skip
        if word & _HIGH_BITS:
            return _hash_units(base, at, end, h)
        pairs = (word & _EVEN_BYTES) * _31 + ((word >> _8) & _EVEN_BYTES)
        quads = (pairs & _EVEN_PAIRS) * _31_2 + ((pairs >> _16) & _EVEN_PAIRS)
        h = h * _POWERS[rest] + (quads & _LOW_HALF) * _31_4 + (quads >> _32)
    return h


@kernel
def _hash_units(base, start, end, h):
    """The same, one UTF-16 unit at a time, malformed bytes as Java replaces them."""
    at = start
    while at < end:
        b0 = _I64(load8(base + at))
        b1 = _I64(load8(base + at + 1)) if at + 1 < end else 0
        b2 = _I64(load8(base + at + 2)) if at + 2 < end else 0
        b3 = _I64(load8(base + at + 3)) if at + 3 < end else 0
        unit = 0xFFFD
        taken = 1
        if b0 < 0x80:
            unit = b0
        elif 0xC2 <= b0 <= 0xDF:
            if b1 & 0xC0 == 0x80:
                unit = (b0 & 0x1F) << 6 | (b1 & 0x3F)
                taken = 2
        elif 0xE0 <= b0 <= 0xEF:
            if b1 & 0xC0 == 0x80 and not (b0 == 0xE0 and b1 < 0xA0):
                taken = 2
                if b2 & 0xC0 == 0x80:
                    taken = 3
                    if not (b0 == 0xED and b1 >= 0xA0):
                        unit = (b0 & 0x0F) << 12 | (b1 & 0x3F) << 6 | (b2 & 0x3F)
        elif 0xF0 <= b0 <= 0xF4:
            in_range = not (b0 == 0xF0 and b1 < 0x90) and not (b0 == 0xF4 and b1 >= 0x90)
            if b1 & 0xC0 == 0x80 and in_range:
                taken = 2
                if b2 & 0xC0 == 0x80:
                    taken = 3
                    if b3 & 0xC0 == 0x80:
                        taken = 4
                        point = (b0 & 0x07) << 18 | (b1 & 0x3F) << 12 | (b2 & 0x3F) << 6 | (b3 & 0x3F)
                        h = h * _31 + _U64(0xD7C0 + (point >> 10))
                        unit = 0xDC00 | (point & 0x3FF)
        h = h * _31 + _U64(unit)
        at += taken
    return h


@kernel
def index_hash(h):
    """A hash as the index holds it: never negative."""
    value = _I64(_I32(_U32(h)))
    if value < 0:
        value = -value
    return _I32(0) if value > 0x7FFFFFFF else _I32(value)


@kernel
def integer(base, start, end, bits):
    """Whether the text is a decimal integer of so many bits, and its value."""
    at = start
    first = load8(base + at)
    if first in (0x2D, 0x2B):
        at += 1
    value = _0
    valid = at < end
    while at < end:
        digit = _U64(load8(base + at)) - _U64(0x30)
        valid = valid and digit <= _U64(9) and value <= _U64(922337203685477580)
        value = value * _U64(10) + digit
        at += 1
    bound = _1 << _U64(bits - 1)
    if first == 0x2D:
        return valid and value <= bound, _I64(_0 - value)
    return valid and value < bound, _I64(value)


@kernel
def _note(base, start, separator, end, notes):
    """Remember where the value lies, if the name is one the walk looks for."""
    length = separator - start
    place = -1
    if length == 4:
        name = load32(base + start)
        if name == _N_TAGS:
            place = TAGS_AT
        elif name == _N_KEYS:
            place = KEYS_AT
    elif length == 8:
        if load64(base + start) == _N_UNIQUE:
            place = UNIQUE_AT
    elif length == 5:
        if load32(base + start) == _N_DELAY and load8(base + start + 4) == 0x59:
            place = DELAY_AT
    elif length == 9:
        if load64(base + start) == _N_NUM and load8(base + start + 8) == 0x4D:
            place = NUM_AT
    elif length == 10:
        if load64(base + start) == _N_BASE and load16(base + start + 8) == 0x4553:
            place = BASE_AT
    elif length == 20:
        begins = load64(base + start) == _N_MULTI and load64(base + start + 8) == _N_MULTI_2
        if begins and load32(base + start + 16) == _N_MULTI_3:
            place = MULTI_AT
    if place >= 0:
        notes[place] = separator + 1
        notes[place + 1] = end


@kernel
def read_properties(base, start, end, buffer_end, notes):
    """Note the values the walk looks for; of equal names the last counts."""
    for i in range(14):
        notes[i] = 0
    piece = start
    separator = -1
    block = start
    while block < end:
        ones = matches(base, block, buffer_end, _U8(1))
        twos = matches(base, block, buffer_end, _U8(2))
        if end - block < 64:
            inside = (_1 << _U64(end - block)) - _1
            ones &= inside
            twos &= inside
        while twos != _0:
            bit = lowest(twos)
            stop = block + bit
            if separator < 0:
                before = ones & ((_1 << _U64(bit)) - _1)
                if before != _0:
                    separator = block + lowest(before)
            if piece < separator < stop - 1:
                _note(base, piece, separator, stop, notes)
            ones &= _ALL << _U64(bit)
            twos &= twos - _1
            piece = stop + 1
            separator = -1
        if separator < 0 and ones != _0:
            separator = block + lowest(ones)
        block += 64
    if piece < separator < end - 1:
        _note(base, piece, separator, end, notes)


@kernel
def hash_words(base, start, end, buffer_end, seed, key_hash, key_end):
    """Hash each blank-separated word; the new end of the keys, or -1 if there is no room."""
    word = start
    block = start
    while word < end:
        stop = end
        while block < end:
            blanks = matches(base, block, buffer_end, _SPACE)
            if word > block:
                blanks &= _ALL << _U64(word - block)
            if blanks != _0:
                stop = min(end, block + lowest(blanks))
                break
            block += 64
        if stop > word:
            if key_end >= key_hash.shape[0]:
                return _I64(-1)
            key_hash[key_end] = index_hash(hash_text(base, word, stop, seed))
            key_end += 1
        word = stop + 1
        if word - block >= 64:
            block = word
    return key_end


@kernel
def hash_texts(data, ends, seed, out):
    """Index hashes of texts lying end to end in ``data`` from byte 8 on; text i ends at ``ends[i]``.

    The eight bytes before the first text may be read, never counted.
    """
    base = _I64(data.ctypes.data)
    start = _I64(8)
    for i in range(ends.shape[0]):
        out[i] = index_hash(hash_text(base, start, ends[i], seed))
        start = ends[i]


@brief_kernel
def hash_ascii(text):
    """Java's hash of one ASCII text given as ``bytes``."""
    h = _U32(0)
    for i in range(len(text)):
        h = _U32(h * _U32(31) + text[i])
    return h
