"""Kernels over the bytes of an index file: put many keys, look many up, rebuild the hash table.

Answer to RocketMQ's IndexFile. Called by index_file.py only, which imports this on first use; needs
numba. A file is seen as 32-bit words: 10 of header, one per slot, five per item.
"""

# numba types these functions itself.
# mypy: ignore-errors
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rockstrata.kernel import brief_kernel, kernel
from rockstrata.message.words.kernels import swap32

_U32, _U64, _I32, _I64 = np.uint32, np.uint64, np.int32, np.int64
_32 = _U64(32)
HEADER_WORDS, ITEM_WORDS = 10, 5
INT_MAX = 2**31 - 1
# How many keys ahead a slot is fetched. A slot is a cache miss; waiting for each in turn costs 3/5 of
# the speed, and beyond 16 or so in flight nothing is gained.
AHEAD = 32
# Chains walked side by side in a look-up of many.
LANES = 32


@intrinsic
def _prefetch(typingctx, address):
    """Ask for a cache line that will be needed soon."""

    def code(context, builder, signature, args):
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], kind)
        pointer = builder.inttoptr(args[0], byte_pointer)
        builder.call(call, [pointer, number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), code


@kernel
def put_keys(words, slots, number, begin_timestamp, hashes, physical, timestamps):
    """Append all keys as items ``number``, ``number`` + 1, …; the number of slots used for the first time.

    There must be room, hashes must not be negative, and the file must not be empty: the first put
    sets the begin time.
    """
    item = _I64(HEADER_WORDS) + _I64(slots) + _I64(ITEM_WORDS) * _I64(number)
    newest = _I64(number)
    modulus = _U32(slots)
    table = _I64(words.ctypes.data) + _I64(4 * HEADER_WORDS)
    count = _I64(hashes.shape[0])
    fetched = np.empty(2 * AHEAD, np.int64)
    used = _I64(0)
    for i in range(min(count, _I64(AHEAD))):
        fetched[i] = _I64(_U32(hashes[i]) % modulus)
        _prefetch(table + 4 * fetched[i])
    for i in range(count):
        if i + AHEAD < count:
            slot = _I64(_U32(hashes[i + AHEAD]) % modulus)
            fetched[(i + AHEAD) & (2 * AHEAD - 1)] = slot
            _prefetch(table + 4 * slot)
        slot = _I64(HEADER_WORDS) + fetched[i & (2 * AHEAD - 1)]
        previous = _I64(_I32(swap32(words[slot])))
        if previous <= 0 or previous > newest:
            previous = _I64(0)
            used += 1
        seconds = _I64(0)
        if begin_timestamp > 0 and timestamps[i] > begin_timestamp:
            seconds = min((timestamps[i] - begin_timestamp) // 1000, _I64(INT_MAX))
        words[item] = swap32(_U32(hashes[i]))
        words[item + 1] = swap32(_U32(_U64(physical[i]) >> _32))
        words[item + 2] = swap32(_U32(_U64(physical[i])))
        words[item + 3] = swap32(_U32(seconds))
        words[item + 4] = swap32(_U32(previous))
        words[slot] = swap32(_U32(newest))
        newest += 1
        item += ITEM_WORDS
    return used


@kernel
def query_many(words, slots, last, hashes, earliest, latest, max_num, first, physical):
    """Physical offsets of each hash, newest first: those of key i are [first[i], first[i + 1]).

    ``last`` is the largest item number that may be read; ``earliest`` (at least 0) and ``latest`` are
    seconds since the file's begin. Chains of LANES keys are walked side by side, so that their cache
    misses overlap.
    """
    base = _I64(words.ctypes.data)
    items = _I64(HEADER_WORDS) + _I64(slots)
    modulus = _U32(slots)
    keys = _I64(hashes.shape[0])
    at = np.empty(LANES, np.int64)
    matches = np.empty(LANES, np.int64)
    found = np.empty((LANES, max(_I64(max_num), _I64(1))), np.int64)
    total = _I64(0)
    first[0] = 0
    for block in range(_I64(0), keys, _I64(LANES)):
        lanes = min(_I64(LANES), keys - block)
        for lane in range(lanes):
            at[lane] = _I64(HEADER_WORDS) + _I64(_U32(hashes[block + lane]) % modulus)
            _prefetch(base + 4 * at[lane])
        active = _I64(0)
        for lane in range(lanes):
            matches[lane] = 0
            number = _I64(_I32(swap32(words[at[lane]])))
            at[lane] = number if 0 < number <= last and max_num > 0 else _I64(0)
            if at[lane] > 0:
                active += 1
                _prefetch(base + 4 * (items + ITEM_WORDS * at[lane]))
        while active > 0:
            for lane in range(lanes):
                number = at[lane]
                if number == 0:
                    continue
                item = items + ITEM_WORDS * number
                seconds = _I64(_I32(swap32(words[item + 3])))
                previous = _I64(_I32(swap32(words[item + 4])))
                if earliest <= seconds <= latest and _I32(swap32(words[item])) == hashes[block + lane]:
                    high, low = _U64(swap32(words[item + 1])), _U64(swap32(words[item + 2]))
                    found[lane, matches[lane]] = _I64((high << _32) | low)
                    matches[lane] += 1
                # A chain leads to ever older items, hence it ends.
                if seconds < earliest or not 0 < previous < number or matches[lane] >= max_num:
                    at[lane] = 0
                    active -= 1
                else:
                    at[lane] = previous
                    _prefetch(base + 4 * (items + ITEM_WORDS * previous))
        for lane in range(lanes):
            for i in range(matches[lane]):
                physical[total + i] = found[lane, i]
            total += matches[lane]
            first[block + lane + 1] = total
    return total


@kernel
def count_whole_items(words, slots, count, physical_end):
    """Number of the first item below ``count`` that is not whole or not before ``physical_end``, or it.

    Items are written once, in order, into zeros: what a crash lost is zero. A whole item is not all
    zero, has no negative field, and does not point before the one before it.
    """
    item = _I64(HEADER_WORDS) + _I64(slots) + _I64(ITEM_WORDS)
    last = _I64(0)
    for number in range(_I64(1), _I64(count)):
        high, low = swap32(words[item + 1]), swap32(words[item + 2])
        physical = _I64((_U64(high) << _32) | _U64(low))
        is_blank = (words[item] | high | low | words[item + 3] | words[item + 4]) == 0
        is_negative = _I32(swap32(words[item])) < 0 or _I32(swap32(words[item + 3])) < 0
        if is_blank or is_negative or physical < last or physical >= physical_end:
            return number
        last = physical
        item += ITEM_WORDS
    return _I64(count)


@kernel
def rebuild_table(words, slots, count):
    """Chain the items below ``count`` anew; the number of used slots."""
    modulus = _U32(slots)
    for slot in range(_I64(HEADER_WORDS), _I64(HEADER_WORDS) + _I64(slots)):
        words[slot] = 0
    item = _I64(HEADER_WORDS) + _I64(slots) + _I64(ITEM_WORDS)
    used = _I64(0)
    for number in range(_I64(1), _I64(count)):
        slot = _I64(HEADER_WORDS) + _I64(swap32(words[item]) % modulus)
        used += words[slot] == 0
        words[item + 4] = words[slot]
        words[slot] = swap32(_U32(number))
        item += ITEM_WORDS
    return used


@kernel
def torn_tails(data, position, size, sys_flag, torn):
    """Marks records that miss a sector, or the end, of what follows their body. See ``torn``."""
    for n in range(position.shape[0]):
        start = _I64(position[n])
        end = start + _I64(size[n])
        flags = _I64(sys_flag[n])
        length_at = start + 84 + 12 * ((flags >> 4) & 1) + 12 * ((flags >> 5) & 1)
        length = _I64(0)
        for k in range(4):
            length = length << 8 | _I64(data[length_at + k])
        begin = length_at + 4 + length
        topic = 1 + _I64(data[begin])
        if data[start + 7] == 0xAB:
            topic = 2 + (_I64(data[begin]) << 8 | _I64(data[begin + 1]))
        if end > begin + topic + 2 and data[end - 1] == 0:
            torn[n] = True
            continue
        at = (begin + 511) // 512 * 512
        while at < end and end - begin >= 512 and not torn[n]:
            stop = min(at + 512, end)
            is_blank = True
            for k in range(at, stop):
                if data[k] != 0:
                    is_blank = False
                    break
            torn[n] = is_blank
            at += 512


@brief_kernel
def units_agree(units, log, start):
    """Does each unit point at a record of its size? All lie in ``log``, whose first byte is ``start``."""
    for n in range(0, len(units), 20):
        physical = _I64(0)
        for k in range(8):
            physical = physical << 8 | _I64(units[n + k])
        at = physical - start
        for k in range(4):
            if log[at + k] != units[n + 8 + k]:
                return False
        if log[at + 4] != 0xDA or log[at + 5] != 0xA3 or log[at + 6] != 0x20:
            return False
        if log[at + 7] != 0xA7 and log[at + 7] != 0xAB:
            return False
    return True
