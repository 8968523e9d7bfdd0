"""Words of memory for kernels: unaligned loads and stores, byte order, and a search for bytes.

Answers to no RocketMQ class; Java's ByteBuffer does this there.
Called by the other kernels of this package. Addresses are int64, lengths are the caller's care.
"""

# numba types these functions itself.
# mypy: ignore-errors
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rockstrata.kernel import kernel

assert sys.byteorder == "little", "kernels read words as little-endian machines hold them"

# Constants carry their type: numba turns a sum of signed and unsigned 64-bit integers into a float.
_0, _1, _8, _64 = (np.uint64(n) for n in (0, 1, 8, 64))


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


load8, load16, load32, load64 = _loader(8), _loader(16), _loader(32), _loader(64)
store8, store16, store32, store64 = _storer(8), _storer(16), _storer(32), _storer(64)
swap16, swap32, swap64 = _swapper(16), _swapper(32), _swapper(64)


@intrinsic
def copy(typingctx: Any, target: Any, source: Any, length: Any) -> Any:
    """Copy so many bytes from one address to another."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@intrinsic
def match64(typingctx: Any, address: Any, byte: Any) -> Any:
    """Bit i tells whether byte i of the 64 at the address is the one sought."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 64)
        data = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=1)
        first = builder.insert_element(
            ir.Constant(vector, ir.Undefined), args[1], ir.Constant(ir.IntType(32), 0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [ir.Constant(ir.IntType(32), 0)] * 64)
        sought = builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)
        return builder.bitcast(builder.icmp_unsigned("==", data, sought), ir.IntType(64))

    return types.uint64(types.int64, types.uint8), code


@intrinsic
def lowest(typingctx: Any, mask: Any) -> Any:
    """Number of the lowest bit set; the mask is not zero."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


@kernel
def matches(base, at, buffer_end, byte):
    """As ``match64``, not reading past the buffer."""
    if at + 64 <= buffer_end:
        return match64(base + at, byte)
    mask = _0
    for i in range(buffer_end - at):
        if load8(base + at + i) == byte:
            mask |= _1 << np.uint64(i)
    return mask


@kernel
def same_bytes(a, b, length):
    """Whether two texts are equal; a whole word must be readable before the end of each."""
    at = 0
    while at + 8 <= length:
        if load64(a + at) != load64(b + at):
            return False
        at += 8
    rest = length - at
    if rest == 0:
        return True
    return (load64(a + length - 8) ^ load64(b + length - 8)) >> (_64 - _8 * np.uint64(rest)) == _0
