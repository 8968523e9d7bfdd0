"""Kernels over record bytes: the walk through a log, and the encoding of many messages at once.

Answer to CommitLog.checkMessageAndReturnSize, DispatchRequest and MessageExtEncoder.
Called by scan.py and packed.py only, which import this module on first use; it needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rockstrata.kernel import crc32_at, kernel

assert sys.byteorder == "little", "kernels read words as little-endian machines hold them"

# Where the walk stopped. The first eight are members of scan.ScanStop; the rest ask Python to act.
LIMIT, BLANK, INCOMPLETE, BAD_MAGIC, BAD_SIZE, BAD_LENGTHS, BAD_CRC, ZERO = range(8)
ROWS_FULL, KEYS_FULL, NEW_TOPIC = 16, 17, 18

# Indices into the walk's state.
POSITION, ROWS, KEY_COUNT, STOP, TOPIC_AT, TOPIC_LENGTH = range(6)

# Bits of the walk's options.
CHECK_CRC, RECORD_CRC, STOP_ON_BAD_CRC, KEYS, TAGS_ENTRY = 1, 2, 4, 8, 16

_U8, _U16, _U32, _U64, _I16, _I32, _I64 = (
    np.uint8, np.uint16, np.uint32, np.uint64, np.int16, np.int32, np.int64,
)  # fmt: skip
# Constants carry their type: numba turns a sum of signed and unsigned 64-bit integers into a float.
_V1, _V2, _BLANK = _U32(0xDAA320A7), _U32(0xDAA320AB), _U32(0xCBD43194)
_0, _1, _8, _16, _29, _32, _64 = (_U64(n) for n in (0, 1, 8, 16, 29, 32, 64))
_ALL = _U64(0xFFFFFFFFFFFFFFFF)
_HIGH_BITS = _U64(0x8080808080808080)
_EVEN_BYTES = _U64(0x00FF00FF00FF00FF)
_EVEN_PAIRS = _U64(0x0000FFFF0000FFFF)
_LOW_HALF = _U64(0x00000000FFFFFFFF)
_CRC_MASK = _U32(0x7FFFFFFF)
_MIX = _U64(0x9E3779B97F4A7C15)
_31, _31_2, _31_4, _31_8 = _U64(31), _U64(31**2), _U64(31**4), _U64(31**8)
_POWERS = np.array([31**n for n in range(8)], np.uint64)
_MALFORMED = _U64(0xFFFD)
_SPACE = _U8(0x20)


def _word(text: bytes) -> Any:
    return np.frombuffer(text, np.uint32 if len(text) == 4 else np.uint64)[0]


_N_TAGS, _N_KEYS, _N_DELAY = _word(b"TAGS"), _word(b"KEYS"), _word(b"DELA")
_N_UNIQUE, _N_NUM, _N_BASE = _word(b"UNIQ_KEY"), _word(b"INNER_NU"), _word(b"INNER_BA")
_N_MULTI, _N_MULTI_2, _N_MULTI_3 = _word(b"INNER_MU"), _word(b"LTI_DISP"), _word(b"ATCH")
_N_CRC = _word(b"__CRC32#")

# Places of property values in the walk's notes: start at 2 * place, end after it.
_TAGS_AT, _KEYS_AT, _UNIQUE_AT, _DELAY_AT, _NUM_AT, _BASE_AT, _MULTI_AT = range(0, 14, 2)


def _loader(bits: int) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return getattr(types, f"uint{bits}")(types.int64), code

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            builder.store(args[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, getattr(types, f"uint{bits}")), code

    return store


def _swapper(bits: int) -> Any:
    @intrinsic
    def swap(typingctx: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bswap(args[0])

        number = getattr(types, f"uint{bits}")
        return number(number), code

    return swap


_load8, _load16, _load32, _load64 = _loader(8), _loader(16), _loader(32), _loader(64)
_store8, _store16, _store32, _store64 = _storer(8), _storer(16), _storer(32), _storer(64)
_swap16, _swap32, _swap64 = _swapper(16), _swapper(32), _swapper(64)


@intrinsic
def _copy(typingctx: Any, target: Any, source: Any, length: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@intrinsic
def _match64(typingctx: Any, address: Any, byte: Any) -> Any:
    """Bit i tells whether byte i of the 64 at the address is the one sought."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 64)
        data = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=1)
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), args[1], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [ir.Constant(ir.IntType(32), 0)] * 64)
        sought = builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)
        return builder.bitcast(builder.icmp_unsigned("==", data, sought), ir.IntType(64))

    return types.uint64(types.int64, types.uint8), code


@intrinsic
def _lowest(typingctx: Any, mask: Any) -> Any:
    """Number of the lowest bit set; the mask is not zero."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


@kernel
def _hash_text(base, start, end, h):
    """Java's hash of UTF-8 bytes, going on from ``h``; only the low 32 bits count."""
    at = start
    while at + 8 <= end:
        word = _load64(base + at)
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
        word = (_load64(base + end - 8) >> skip) << skip
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
        b0 = _I64(_load8(base + at))
        b1 = _I64(_load8(base + at + 1)) if at + 1 < end else 0
        b2 = _I64(_load8(base + at + 2)) if at + 2 < end else 0
        b3 = _I64(_load8(base + at + 3)) if at + 3 < end else 0
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
        elif 0xF0 <= b0 <= 0xF4 and b1 & 0xC0 == 0x80:
            if not (b0 == 0xF0 and b1 < 0x90) and not (b0 == 0xF4 and b1 >= 0x90):
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
def _index_hash(h):
    """A hash as the index holds it: never negative."""
    value = _I64(_I32(_U32(h)))
    if value < 0:
        value = -value
    return _I32(0) if value > 0x7FFFFFFF else _I32(value)


@kernel
def _integer(base, start, end, bits):
    """Whether the text is a decimal integer of so many bits, and its value."""
    at = start
    first = _load8(base + at)
    if first == 0x2D or first == 0x2B:
        at += 1
    value = _0
    valid = at < end
    while at < end:
        digit = _U64(_load8(base + at)) - _U64(0x30)
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
        name = _load32(base + start)
        if name == _N_TAGS:
            place = _TAGS_AT
        elif name == _N_KEYS:
            place = _KEYS_AT
    elif length == 8:
        if _load64(base + start) == _N_UNIQUE:
            place = _UNIQUE_AT
    elif length == 5:
        if _load32(base + start) == _N_DELAY and _load8(base + start + 4) == 0x59:
            place = _DELAY_AT
    elif length == 9:
        if _load64(base + start) == _N_NUM and _load8(base + start + 8) == 0x4D:
            place = _NUM_AT
    elif length == 10:
        if _load64(base + start) == _N_BASE and _load16(base + start + 8) == 0x4553:
            place = _BASE_AT
    elif length == 20 and _load64(base + start) == _N_MULTI and _load64(base + start + 8) == _N_MULTI_2:
        if _load32(base + start + 16) == _N_MULTI_3:
            place = _MULTI_AT
    if place >= 0:
        notes[place] = separator + 1
        notes[place + 1] = end


@kernel
def _matches(base, at, buffer_end, byte):
    """As ``_match64``, not reading past the buffer."""
    if at + 64 <= buffer_end:
        return _match64(base + at, byte)
    mask = _0
    for i in range(buffer_end - at):
        if _load8(base + at + i) == byte:
            mask |= _1 << _U64(i)
    return mask


@kernel
def _read_properties(base, start, end, buffer_end, notes):
    """Note the values the walk looks for; of equal names the last counts."""
    for i in range(14):
        notes[i] = 0
    piece = start
    separator = -1
    block = start
    while block < end:
        ones = _matches(base, block, buffer_end, _U8(1))
        twos = _matches(base, block, buffer_end, _U8(2))
        if end - block < 64:
            inside = (_1 << _U64(end - block)) - _1
            ones &= inside
            twos &= inside
        while twos != _0:
            bit = _lowest(twos)
            stop = block + bit
            if separator < 0:
                before = ones & ((_1 << _U64(bit)) - _1)
                if before != _0:
                    separator = block + _lowest(before)
            if piece < separator < stop - 1:
                _note(base, piece, separator, stop, notes)
            ones &= _ALL << _U64(bit)
            twos &= twos - _1
            piece = stop + 1
            separator = -1
        if separator < 0 and ones != _0:
            separator = block + _lowest(ones)
        block += 64
    if piece < separator < end - 1:
        _note(base, piece, separator, end, notes)


@kernel
def _hash_words(base, start, end, buffer_end, seed, key_hash, key_end):
    """Hash each blank-separated word; the new end of the keys, or -1 if there is no room."""
    word = start
    block = start
    while word < end:
        stop = end
        while block < end:
            blanks = _matches(base, block, buffer_end, _SPACE)
            if word > block:
                blanks &= _ALL << _U64(word - block)
            if blanks != _0:
                stop = min(end, block + _lowest(blanks))
                break
            block += 64
        if stop > word:
            if key_end >= key_hash.shape[0]:
                return _I64(-1)
            key_hash[key_end] = _index_hash(_hash_text(base, word, stop, seed))
            key_end += 1
        word = stop + 1
        if word - block >= 64:
            block = word
    return key_end


@kernel
def _same_bytes(a, b, length):
    """Whether two texts are equal; a whole word must be readable before the end of each."""
    at = 0
    while at + 8 <= length:
        if _load64(a + at) != _load64(b + at):
            return False
        at += 8
    rest = length - at
    if rest == 0:
        return True
    return (_load64(a + length - 8) ^ _load64(b + length - 8)) >> (_64 - _8 * _U64(rest)) == _0


@kernel
def _topic_entry(base, start, length, slots, hashes, starts, lengths, blob):
    """The table's entry for these bytes, or -1."""
    h = _U64(length)
    at = 0
    while at + 8 <= length:
        h = (h ^ _load64(base + start + at)) * _MIX
        h ^= h >> _29
        at += 8
    if at < length:
        skip = _64 - _8 * _U64(length - at)
        h = (h ^ ((_load64(base + start + length - 8) >> skip) << skip)) * _MIX
        h ^= h >> _29
    names = _I64(blob.ctypes.data)
    mask = _U64(slots.shape[0] - 1)
    slot = h & mask
    while True:
        entry = _I64(slots[slot])
        if entry < 0:
            return _I64(-1)
        if hashes[entry] == h and lengths[entry] == length:
            if _same_bytes(base + start, names + starts[entry], length):
                return entry
        slot = (slot + _1) & mask


@kernel
def _record_crc_is_good(base, start, size):
    """Whether the record ends in the right CRC property."""
    tail = base + start + size - 20
    if _load64(tail) != _N_CRC or _load8(tail + 8) != 1 or _load8(tail + 19) != 2:
        return False
    crc = crc32_at(_U32(0), np.uintp(base + start), _U64(size - 20)) & _CRC_MASK
    for i in range(10):
        if _U32(_load8(tail + 9 + i)) != _U32(0x30) + crc % _U32(10):
            return False
        crc //= _U32(10)
    return True


@kernel
def walk(
    buffer, limit, max_rows, options, delays, state,
    slots, hashes, ids, starts, lengths, blob, topic_flags, key_seeds, tags_seeds,
    position, size, queue_id, queue_offset, physical_offset, store_timestamp, sys_flag, topic_id,
    tags_code, crc_verdict, inner_base, inner_num, multi_dispatch, key_first, key_hash,
):  # fmt: skip
    """Read records into rows until something stops the walk; ``state`` says where and why."""
    base = _I64(buffer.ctypes.data)
    buffer_end = _I64(buffer.shape[0])
    notes = np.empty(14, np.int64)
    at, row, keys = state[POSITION], state[ROWS], state[KEY_COUNT]
    last_entry = _I64(-1)
    stop = LIMIT
    key_first[row] = keys
    while True:
        left = limit - at
        if left <= 0 or row >= max_rows:
            break
        if row >= position.shape[0]:
            stop = ROWS_FULL
            break
        if left < 8:
            stop = INCOMPLETE
            break
        here = base + at
        record_size = _I64(_I32(_swap32(_load32(here))))
        magic = _swap32(_load32(here + 4))
        if magic == _V1:
            version = 1
        elif magic == _V2:
            version = 2
        else:
            stop = BLANK if magic == _BLANK else ZERO if magic == 0 and record_size == 0 else BAD_MAGIC
            break
        if record_size < 91:
            stop = BAD_SIZE
            break
        if record_size > left:
            stop = INCOMPLETE
            break
        flags = _I64(_I32(_swap32(_load32(here + 36))))
        born_shift = 12 if flags & 0x10 else 0
        hosts_shift = born_shift + (12 if flags & 0x20 else 0)
        variable = record_size - (90 + version + hosts_shift)
        if variable < 0:
            stop = BAD_SIZE
            break
        body_at = at + 88 + hosts_shift
        body_length = _I64(_I32(_swap32(_load32(base + body_at - 4))))
        if body_length < 0 or body_length > variable:
            stop = BAD_LENGTHS
            break
        topic_at = body_at + body_length + version
        if version == 1:
            topic_length = _I64(np.int8(_load8(base + topic_at - 1)))
        else:
            topic_length = _I64(_I16(_swap16(_load16(base + topic_at - 2))))
        if topic_length < 0 or topic_length > variable - body_length:
            stop = BAD_LENGTHS
            break
        properties_at = topic_at + topic_length + 2
        properties_length = _I64(_I16(_swap16(_load16(base + properties_at - 2))))
        if properties_length != variable - body_length - topic_length:
            stop = BAD_LENGTHS
            break

        verdict = 2
        if options & CHECK_CRC:
            if options & RECORD_CRC:
                verdict = 1 if properties_length >= 20 and _record_crc_is_good(base, at, record_size) else 0
            elif body_length > 0:
                crc = crc32_at(_U32(0), np.uintp(base + body_at), _U64(body_length)) & _CRC_MASK
                verdict = 1 if crc == _swap32(_load32(here + 8)) else 0
            else:
                verdict = 1
            if verdict == 0 and options & STOP_ON_BAD_CRC:
                stop = BAD_CRC
                break

        known = last_entry >= 0 and lengths[last_entry] == topic_length
        if not (known and _same_bytes(base + topic_at, _I64(blob.ctypes.data) + starts[last_entry], topic_length)):
            last_entry = _topic_entry(base, topic_at, topic_length, slots, hashes, starts, lengths, blob)
            if last_entry < 0:
                state[TOPIC_AT], state[TOPIC_LENGTH] = topic_at, topic_length
                stop = NEW_TOPIC
                break
        topic = ids[last_entry]

        code = _I64(0)
        base_offset = _I64(-1)
        count = _I64(0)
        dispatch = 0
        key_end = keys
        stored_at = _I64(_swap64(_load64(here + 56 + born_shift)))
        if properties_length > 0:
            _read_properties(base, properties_at, properties_at + properties_length, buffer_end, notes)
            has_tags = notes[_TAGS_AT] > 0
            if has_tags:
                code = _I64(_I32(_U32(_hash_text(base, notes[_TAGS_AT], notes[_TAGS_AT + 1], _0))))
            if notes[_DELAY_AT] > 0 and topic_flags[topic] & 1:
                valid, level = _integer(base, notes[_DELAY_AT], notes[_DELAY_AT + 1], 32)
                level = min(level, _I64(delays.shape[0]))
                if valid and level > 0:
                    code = stored_at + delays[level - 1]
            if notes[_NUM_AT] > 0:
                valid, value = _integer(base, notes[_NUM_AT], notes[_NUM_AT + 1], 16)
                count = value if valid else _I64(0)
            if notes[_BASE_AT] > 0:
                valid, value = _integer(base, notes[_BASE_AT], notes[_BASE_AT + 1], 64)
                base_offset = value if valid else _I64(-1)
            dispatch = 1 if notes[_MULTI_AT] > 0 else 0
            if options & KEYS and flags & 0xC != 0xC:
                room = _I64(key_hash.shape[0])
                seed = _U64(key_seeds[topic])
                if notes[_UNIQUE_AT] > 0:
                    if key_end >= room:
                        stop = KEYS_FULL
                        break
                    h = _hash_text(base, notes[_UNIQUE_AT], notes[_UNIQUE_AT + 1], seed)
                    key_hash[key_end] = _index_hash(h)
                    key_end += 1
                if notes[_KEYS_AT] > 0:
                    key_end = _hash_words(
                        base, notes[_KEYS_AT], notes[_KEYS_AT + 1], buffer_end, seed, key_hash, key_end
                    )
                if options & TAGS_ENTRY and has_tags and 0 <= key_end < room:
                    h = _hash_text(base, notes[_TAGS_AT], notes[_TAGS_AT + 1], _U64(tags_seeds[topic]))
                    key_hash[key_end] = _index_hash(h)
                    key_end += 1
                elif key_end < 0 or (options & TAGS_ENTRY and has_tags):
                    stop = KEYS_FULL
                    break

        position[row] = at
        size[row] = record_size
        queue_id[row] = _I32(_swap32(_load32(here + 12)))
        queue_offset[row] = _I64(_swap64(_load64(here + 20)))
        physical_offset[row] = _I64(_swap64(_load64(here + 28)))
        store_timestamp[row] = stored_at
        sys_flag[row] = flags
        topic_id[row] = topic
        tags_code[row] = code
        crc_verdict[row] = verdict
        inner_base[row] = base_offset
        inner_num[row] = count
        multi_dispatch[row] = dispatch
        keys = key_end
        row += 1
        key_first[row] = keys
        at += record_size
    state[POSITION], state[ROWS], state[KEY_COUNT], state[STOP] = at, row, keys, stop
