"""Message ids: the offset message id (where a record lies) and the client's unique key.

Answers to RocketMQ's MessageDecoder.createMessageId and MessageClientIDSetter.
Called by the model, by look-ups by id, and by whoever gives a message its UNIQ_KEY.
"""

import itertools
import random
import string
import struct

from rockstrata.clock import Clock, local_month_start_ms
from rockstrata.errors import IllegalMessageError
from rockstrata.message.layouts import MESSAGE_ID_V4, MESSAGE_ID_V6, UNIQUE_KEY_TAIL

_HEX_DIGITS = frozenset(string.hexdigits)
_LAYOUTS = {8: MESSAGE_ID_V4, 20: MESSAGE_ID_V6}
_LONGEST_MONTH_MS = 32 * 86_400_000
# A clock that steps back less than this is taken as still at the month's start, as clients do.
_CLOCK_STEP_MS = 1_000_000


class MessageIdError(IllegalMessageError):
    """A text that is not a message id."""


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """The offset message id: 32 hex digits for an IPv4 store host, 56 for IPv6."""
    layout = _LAYOUTS.get(len(store_host))
    if layout is None:
        raise MessageIdError("bad store host", expected="8 or 20 bytes", found=f"{len(store_host)} bytes")
    try:
        return layout.struct.pack(store_host, physical_offset).hex().upper()
    except struct.error as error:
        raise MessageIdError("bad physical offset", expected="64 bits", found=physical_offset) from error


def decode_message_id(message_id: str) -> tuple[bytes, int]:
    """Store host (packed) and physical offset of an offset message id, in either case."""
    layout = _LAYOUTS.get(len(message_id) // 2 - 8)
    if layout is None or len(message_id) % 2 or not _HEX_DIGITS.issuperset(message_id):
        raise MessageIdError("bad message id", expected="32 or 56 hex digits", found=repr(message_id[:80]))
    store_host, physical_offset = layout.struct.unpack(bytes.fromhex(message_id))
    if physical_offset < 0:
        raise MessageIdError("bad message id", expected="an offset of 0 or more", found=message_id)
    return store_host, physical_offset


class UniqueKeys:
    """Makes unique keys as a producer's client does; safe to call from any thread."""

    def __init__(
        self,
        client_ip: bytes,
        pid: int,
        clock: Clock,
        *,
        rng: random.Random,
        class_loader_hash: int | None = None,
    ) -> None:
        assert len(client_ip) in {4, 16}, "an IPv4 or IPv6 address"
        if class_loader_hash is None:
            class_loader_hash = rng.getrandbits(32)
        head = client_ip + (pid & 0xFFFF).to_bytes(2) + (class_loader_hash & 0xFFFF_FFFF).to_bytes(4)
        self._head = head.hex().upper()
        self._clock = clock
        self._counter = itertools.count()
        self._month = self._month_of(clock.now_ms())

    @staticmethod
    def _month_of(now_ms: int) -> tuple[int, int]:
        start = local_month_start_ms(now_ms)
        return start, local_month_start_ms(start + _LONGEST_MONTH_MS)

    def next(self) -> str:
        """The next key: 32 hex digits, 56 if the client's address is IPv6."""
        now_ms = self._clock.now_ms()
        month = self._month
        if now_ms >= month[1]:
            month = self._month = self._month_of(now_ms)
        span_ms = now_ms - month[0]
        if -_CLOCK_STEP_MS < span_ms < 0:
            span_ms = 0
        return f"{self._head}{span_ms & 0xFFFF_FFFF:08X}{next(self._counter) & 0xFFFF:04X}"


def split_unique_key(unique_key: str) -> tuple[bytes, int, int, int, int]:
    """Client address, pid, class-loader hash, milliseconds into the month and counter of a key."""
    address_bytes = len(unique_key) // 2 - UNIQUE_KEY_TAIL.size
    if address_bytes not in {4, 16} or len(unique_key) % 2 or not _HEX_DIGITS.issuperset(unique_key):
        raise MessageIdError("bad unique key", expected="32 or 56 hex digits", found=repr(unique_key[:80]))
    raw = bytes.fromhex(unique_key)
    pid, class_loader_hash, span_ms, counter = UNIQUE_KEY_TAIL.struct.unpack_from(raw, address_bytes)
    return raw[:address_bytes], pid, class_loader_hash, span_ms, counter
