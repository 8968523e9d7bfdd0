"""Kernels over record bytes: the walk through a log, and the encoding of many messages at once.

Answer to CommitLog.checkMessageAndReturnSize, DispatchRequest and MessageExtEncoder.
Called by scan.py and packed.py only, which import this module on first use; it needs numba.
"""

# numba types these functions itself.
# mypy: ignore-errors
import numpy as np

from rockstrata.kernel import brief_kernel, crc32_at, kernel
from rockstrata.message.strings.kernels import (
    BASE_AT,
    DELAY_AT,
    KEYS_AT,
    MULTI_AT,
    NOTES,
    NUM_AT,
    TAGS_AT,
    UNIQUE_AT,
    hash_text,
    hash_words,
    index_hash,
    integer,
    read_properties,
)
from rockstrata.message.words.kernels import (
    copy,
    load8,
    load16,
    load32,
    load64,
    same_bytes,
    store8,
    store16,
    store32,
    store64,
    swap16,
    swap32,
    swap64,
)

# Where the walk stopped. The first eight are members of scan.ScanStop; the rest ask Python to act.
LIMIT, BLANK, INCOMPLETE, BAD_MAGIC, BAD_SIZE, BAD_LENGTHS, BAD_CRC, ZERO = range(8)
ROWS_FULL, KEYS_FULL, NEW_TOPIC = 16, 17, 18

# Indices into the walk's state.
POSITION, ROWS, KEY_COUNT, STOP, TOPIC_AT, TOPIC_LENGTH = range(6)

# Bits of the walk's options.
CHECK_CRC, RECORD_CRC, STOP_ON_BAD_CRC, KEYS, TAGS_ENTRY = 1, 2, 4, 8, 16

_U32, _U64, _I8, _I16, _I32, _I64 = np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64
# Constants carry their type: numba turns a sum of signed and unsigned 64-bit integers into a float.
_V1, _V2, _BLANK = _U32(0xDAA320A7), _U32(0xDAA320AB), _U32(0xCBD43194)
_0, _1, _8, _29, _64 = (_U64(n) for n in (0, 1, 8, 29, 64))
_CRC_MASK = _U32(0x7FFFFFFF)
_CRC_NAME = np.frombuffer(b"__CRC32#", np.uint64)[0]
_MIX = _U64(0x9E3779B97F4A7C15)


@kernel
def _topic_entry(base, start, length, slots, hashes, starts, lengths, blob):
    """The table's entry for these bytes, or -1."""
    h = _U64(length)
    at = 0
    while at + 8 <= length:
        h = (h ^ load64(base + start + at)) * _MIX
        h ^= h >> _29
        at += 8
    if at < length:
        skip = _64 - _8 * _U64(length - at)
        h = (h ^ ((load64(base + start + length - 8) >> skip) << skip)) * _MIX
        h ^= h >> _29
    names = _I64(blob.ctypes.data)
    mask = _U64(slots.shape[0] - 1)
    slot = h & mask
    while True:
        entry = _I64(slots[slot])
        if entry < 0:
            return _I64(-1)
        equal = hashes[entry] == h and lengths[entry] == length
        if equal and same_bytes(base + start, names + starts[entry], length):
            return entry
        slot = (slot + _1) & mask


@kernel
def _record_crc_is_good(base, start, size):
    """Whether the record ends in the right CRC property."""
    tail = base + start + size - 20
    if load64(tail) != _CRC_NAME or load8(tail + 8) != 1 or load8(tail + 19) != 2:
        return False
    crc = crc32_at(_U32(0), np.uintp(base + start), _U64(size - 20)) & _CRC_MASK
    for i in range(10):
        if _U32(load8(tail + 9 + i)) != _U32(0x30) + crc % _U32(10):
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
    notes = np.empty(NOTES, np.int64)
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
        record_size = _I64(_I32(swap32(load32(here))))
        magic = swap32(load32(here + 4))
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
        flags = _I64(_I32(swap32(load32(here + 36))))
        born_shift = 12 if flags & 0x10 else 0
        hosts_shift = born_shift + (12 if flags & 0x20 else 0)
        variable = record_size - (90 + version + hosts_shift)
        if variable < 0:
            stop = BAD_SIZE
            break
        body_at = at + 88 + hosts_shift
        body_length = _I64(_I32(swap32(load32(base + body_at - 4))))
        if body_length < 0 or body_length > variable:
            stop = BAD_LENGTHS
            break
        topic_at = body_at + body_length + version
        if version == 1:
            topic_length = _I64(_I8(load8(base + topic_at - 1)))
        else:
            topic_length = _I64(_I16(swap16(load16(base + topic_at - 2))))
        if topic_length < 0 or topic_length > variable - body_length:
            stop = BAD_LENGTHS
            break
        properties_at = topic_at + topic_length + 2
        properties_length = _I64(_I16(swap16(load16(base + properties_at - 2))))
        if properties_length != variable - body_length - topic_length:
            stop = BAD_LENGTHS
            break

        verdict = 2
        if options & CHECK_CRC:
            if options & RECORD_CRC:
                verdict = 1 if properties_length >= 20 and _record_crc_is_good(base, at, record_size) else 0
            elif body_length > 0:
                crc = crc32_at(_U32(0), np.uintp(base + body_at), _U64(body_length)) & _CRC_MASK
                verdict = 1 if crc == swap32(load32(here + 8)) else 0
            else:
                verdict = 1
            if verdict == 0 and options & STOP_ON_BAD_CRC:
                stop = BAD_CRC
                break

        known = last_entry >= 0 and lengths[last_entry] == topic_length
        if not (
            known and same_bytes(base + topic_at, _I64(blob.ctypes.data) + starts[last_entry], topic_length)
        ):
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
        stored_at = _I64(swap64(load64(here + 56 + born_shift)))
        if properties_length > 0:
            read_properties(base, properties_at, properties_at + properties_length, buffer_end, notes)
            has_tags = notes[TAGS_AT] > 0
            if has_tags:
                code = _I64(_I32(_U32(hash_text(base, notes[TAGS_AT], notes[TAGS_AT + 1], _0))))
            if notes[DELAY_AT] > 0 and topic_flags[topic] & 1:
                valid, level = integer(base, notes[DELAY_AT], notes[DELAY_AT + 1], 32)
                level = min(level, _I64(delays.shape[0]))
                if valid and level > 0:
                    code = stored_at + delays[level - 1]
            if notes[NUM_AT] > 0:
                valid, value = integer(base, notes[NUM_AT], notes[NUM_AT + 1], 16)
                count = value if valid else _I64(0)
            if notes[BASE_AT] > 0:
                valid, value = integer(base, notes[BASE_AT], notes[BASE_AT + 1], 64)
                base_offset = value if valid else _I64(-1)
            dispatch = 1 if notes[MULTI_AT] > 0 else 0
            if options & KEYS and flags & 0xC != 0xC:
                room = _I64(key_hash.shape[0])
                seed = _U64(key_seeds[topic])
                if notes[UNIQUE_AT] > 0:
                    if key_end >= room:
                        stop = KEYS_FULL
                        break
                    h = hash_text(base, notes[UNIQUE_AT], notes[UNIQUE_AT + 1], seed)
                    key_hash[key_end] = index_hash(h)
                    key_end += 1
                if notes[KEYS_AT] > 0:
                    key_end = hash_words(
                        base, notes[KEYS_AT], notes[KEYS_AT + 1], buffer_end, seed, key_hash, key_end
                    )
                if options & TAGS_ENTRY and has_tags and 0 <= key_end < room:
                    h = hash_text(base, notes[TAGS_AT], notes[TAGS_AT + 1], _U64(tags_seeds[topic]))
                    key_hash[key_end] = index_hash(h)
                    key_end += 1
                elif key_end < 0 or (options & TAGS_ENTRY and has_tags):
                    stop = KEYS_FULL
                    break

        position[row] = at
        size[row] = record_size
        queue_id[row] = _I32(swap32(load32(here + 12)))
        queue_offset[row] = _I64(swap64(load64(here + 20)))
        physical_offset[row] = _I64(swap64(load64(here + 28)))
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


@kernel
def _append_record_crc(start, size):
    """Fill the last 20 bytes of the record at an address with its CRC property."""
    tail = start + size - 20
    crc = crc32_at(_U32(0), np.uintp(start), _U64(size - 20)) & _CRC_MASK
    store64(tail, _CRC_NAME)
    store8(tail + 8, 1)
    for i in range(10):
        store8(tail + 9 + i, 0x30 + crc % _U32(10))
        crc //= _U32(10)
    store8(tail + 19, 2)


@brief_kernel
def encode_records(
    bodies, body_start, body_length, properties, properties_start, properties_length,
    topics, topic_start, topic_length, topic_row, hosts, born_host_row, store_host_row,
    version, queue_id, flag, sys_flag, born_timestamp, reconsume_times, prepared_offset, queue_offset,
    store_timestamp, append_crc, out, position, file_end, base_physical_offset, first, positions, sizes,
):  # fmt: skip
    """Write records back to back from message ``first`` on; returns the number of messages written.

    Stops before the first record that leaves less than 8 bytes for a blank. ``base_physical_offset``
    is the log's address of ``out[0]``. With ``append_crc`` the last 20 bytes of each message's
    properties are overwritten by the record's CRC.
    """
    target = _I64(out.ctypes.data)
    body_base = _I64(bodies.ctypes.data)
    properties_base = _I64(properties.ctypes.data)
    topic_base = _I64(topics.ctypes.data)
    host_base = _I64(hosts.ctypes.data)
    at = position
    for n in range(first, body_length.shape[0]):
        flags = _I64(sys_flag[n])
        born_bytes = _I64(20 if flags & 0x10 else 8)
        store_bytes = _I64(20 if flags & 0x20 else 8)
        body_bytes = body_length[n]
        topic_bytes = topic_length[topic_row[n]]
        properties_bytes = properties_length[n]
        length_bytes = _I64(version[n])
        size = 74 + born_bytes + store_bytes + length_bytes + body_bytes + topic_bytes + properties_bytes
        if size + 8 > file_end - at:
            return n - first
        here = target + at
        body = body_base + body_start[n]
        crc = crc32_at(_U32(0), np.uintp(body), _U64(body_bytes)) & _CRC_MASK
        born = born_timestamp[n]
        store32(here, swap32(_U32(size)))
        store32(here + 4, swap32(_V1 if length_bytes == 1 else _V2))
        store32(here + 8, swap32(crc))
        store32(here + 12, swap32(_U32(queue_id[n])))
        store32(here + 16, swap32(_U32(flag[n])))
        store64(here + 20, swap64(_U64(queue_offset[n])))
        store64(here + 28, swap64(_U64(base_physical_offset + at)))
        store32(here + 36, swap32(_U32(flags)))
        store64(here + 40, swap64(_U64(store_timestamp if born == 0 else born)))
        copy(here + 48, host_base + 20 * _I64(born_host_row[n]), born_bytes)
        rest = here + 48 + born_bytes
        store64(rest, swap64(_U64(store_timestamp)))
        copy(rest + 8, host_base + 20 * _I64(store_host_row[n]), store_bytes)
        rest += 8 + store_bytes
        store32(rest, swap32(_U32(reconsume_times[n])))
        store64(rest + 4, swap64(_U64(prepared_offset[n])))
        store32(rest + 12, swap32(_U32(body_bytes)))
        copy(rest + 16, body, body_bytes)
        rest += 16 + body_bytes
        if length_bytes == 1:
            store8(rest, topic_bytes)
        else:
            store16(rest, swap16(topic_bytes))
        rest += length_bytes
        copy(rest, topic_base + topic_start[topic_row[n]], topic_bytes)
        rest += topic_bytes
        store16(rest, swap16(properties_bytes))
        copy(rest + 2, properties_base + properties_start[n], properties_bytes)
        if append_crc:
            _append_record_crc(here, size)
        positions[n] = at
        sizes[n] = size
        at += size
    return body_length.shape[0] - first


@brief_kernel
def batch_elements(data, body_start, body_length, properties_start, properties_length, flag):
    """Find the elements of a client batch; their number, -1 if it is malformed, -2 if there is no room."""
    base = _I64(data.ctypes.data)
    end = _I64(data.shape[0])
    at = _I64(0)
    count = _I64(0)
    while at < end:
        left = end - at
        if left < 22:
            return _I64(-1)
        size = _I64(_I32(swap32(load32(base + at))))
        body_bytes = _I64(_I32(swap32(load32(base + at + 16))))
        if size < 22 or size > left or body_bytes < 0 or body_bytes > size - 22:
            return _I64(-1)
        properties_bytes = _I64(_I16(swap16(load16(base + at + 20 + body_bytes))))
        if properties_bytes != size - 22 - body_bytes:
            return _I64(-1)
        if count == flag.shape[0]:
            return _I64(-2)
        flag[count] = _I32(swap32(load32(base + at + 12)))
        body_start[count] = at + 20
        body_length[count] = body_bytes
        properties_start[count] = at + 22 + body_bytes
        properties_length[count] = properties_bytes
        count += 1
        at += size
    return count
