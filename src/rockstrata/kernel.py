"""How kernels are compiled: without the GIL, cached on disk, with CRC-32 as a C call.

The cache directory is named by the kernels' own sources. numba stamps a cached kernel by its own
file only, so a kernel that calls one of another module would stay stale when that one changes.
Imported only by ``kernels.py`` modules: importing numba costs a quarter of a second.
"""

import ctypes
import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import binding
from numba import types

F = TypeVar("F", bound=Callable[..., Any])

_CRC_SYMBOL = "rockstrata_crc32"
_PACKAGE = Path(__file__).parent


def _sources_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in [*sorted(_PACKAGE.glob("**/kernels.py")), Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_dir() -> str | None:
    """A writable directory for compiled kernels, or None (numba then chooses)."""
    base = os.environ.get("ROCKSTRATA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "rockstrata" / "kernels" / _sources_digest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(folder) if os.access(folder, os.W_OK) else None


_CACHE_DIR = _cache_dir()


def kernel(function: F) -> F:
    """Compile ``function`` on first call; it runs without the GIL."""
    return _compile(function, nogil=True)


def brief_kernel(function: F) -> F:
    """The same for work of microseconds: it keeps the GIL.

    Giving the GIL up costs a wait of up to 5 ms to get it back from a busy thread.
    """
    return _compile(function, nogil=False)


def _compile(function: F, *, nogil: bool) -> F:
    settings: Any = numba.config
    chosen = settings.CACHE_DIR
    try:
        if _CACHE_DIR is not None:
            settings.CACHE_DIR = _CACHE_DIR
        compiled: Any = numba.njit(cache=True, nogil=nogil, error_model="numpy")(function)
    finally:
        settings.CACHE_DIR = chosen
    return compiled  # type: ignore[no-any-return]


def _table() -> np.ndarray[Any, np.dtype[np.uint32]]:
    table = np.zeros(256, np.uint32)
    for n in range(256):
        c = n
        for _ in range(8):
            c = (c >> 1) ^ 0xEDB88320 if c & 1 else c >> 1
        table[n] = c
    return table


def _isal_address() -> int | None:
    """Address of ISA-L's CRC-32 inside the isal wheel, or None if this build hides it."""
    try:
        from isal import isal_zlib

        library = ctypes.CDLL(isal_zlib.__file__)
        function = library.crc32_gzip_refl
        function.restype, function.argtypes = (
            ctypes.c_uint32,
            (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64),
        )
        sample = bytes(range(256)) * 3
        if function(0, sample, len(sample)) != zlib.crc32(sample):
            return None
        return ctypes.cast(function, ctypes.c_void_p).value
    except (ImportError, OSError, AttributeError):
        return None


def _table_address() -> int:
    table = _table()

    signature: Any = types

    @numba.cfunc(signature.uint32(signature.uint32, signature.CPointer(signature.uint8), signature.uint64))
    def crc(value: Any, data: Any, length: Any) -> Any:
        c = ~value
        for i in range(length):
            c = table[(c ^ data[i]) & 0xFF] ^ (c >> np.uint32(8))
        return ~c

    _KEEP.append(crc)
    address: Any = crc.address
    return int(address)


_KEEP: list[Any] = []
_address = None if os.environ.get("ROCKSTRATA_PLAIN_CRC") else _isal_address()
CRC_IS_ACCELERATED = _address is not None
binding.add_symbol(_CRC_SYMBOL, _address or _table_address())

# crc32_at(seed, address, length) -> uint32; the address of an array element is
# array.ctypes.data + position inside a kernel.
crc32_at = types.ExternalFunction(_CRC_SYMBOL, types.uint32(types.uint32, types.uintp, types.uint64))
