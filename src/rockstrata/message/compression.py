"""Opening compressed bodies: zlib from the standard library, LZ4 and zstd if installed.

Answers to RocketMQ's CompressorFactory and its three compressors.
Called by record.uncompressed_body, when a person or an export wants the text of a message.
"""

import importlib
import zlib
from typing import Any

from rockstrata.errors import CorruptionError, RockstrataError
from rockstrata.message.sys_flag import CompressionType, compression_type

BODY_BYTES_MAX = 1 << 28


class CompressionUnavailableError(RockstrataError, ImportError):
    """A body is compressed in a way that needs a library which is not installed."""


def decompress(body: bytes, flags: int, *, limit_bytes: int = BODY_BYTES_MAX) -> bytes:
    """The body as it was before compression, by the compression type in the system flag."""
    kind = compression_type(flags)
    if kind is None:
        raise CorruptionError("unknown compression type", expected="0 to 3", found=(flags & 0x700) >> 8)
    if kind is CompressionType.ZLIB:
        return _zlib(body, limit_bytes)
    if kind is CompressionType.LZ4:
        return _lz4(body, limit_bytes)
    return _zstd(body, limit_bytes)


def _zlib(body: bytes, limit_bytes: int) -> bytes:
    opener = zlib.decompressobj()
    try:
        data = opener.decompress(body, limit_bytes)
    except zlib.error as error:
        raise CorruptionError("body is not zlib data", found=str(error)) from error
    if not opener.eof:
        what = "compressed body is too long" if opener.unconsumed_tail else "compressed body is cut short"
        raise CorruptionError(what, expected=f"at most {limit_bytes} bytes", found=f"{len(data)} so far")
    return data


def _lz4(body: bytes, limit_bytes: int) -> bytes:
    frame = _library("lz4.frame", "lz4")
    opener = frame.LZ4FrameDecompressor()
    try:
        data = bytes(opener.decompress(body, limit_bytes))
    except RuntimeError as error:
        raise CorruptionError("body is not LZ4 data", found=str(error)) from error
    if not opener.eof:
        raise CorruptionError("compressed body is cut short or too long", expected=f"<= {limit_bytes} bytes")
    return data


def _zstd(body: bytes, limit_bytes: int) -> bytes:
    zstandard = _library("zstandard", "zstandard")
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            data = bytes(reader.read(limit_bytes + 1))
    except zstandard.ZstdError as error:
        raise CorruptionError("body is not zstd data", found=str(error)) from error
    if len(data) > limit_bytes:
        raise CorruptionError("compressed body is too long", expected=f"at most {limit_bytes} bytes")
    return data


def _library(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CompressionUnavailableError(
            f"the body needs the library {package}", hint=f"pip install {package}"
        ) from error
