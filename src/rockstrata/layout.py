"""One declaration per byte layout: struct, numpy dtype and documentation table derive from it.

All of RocketMQ's integers are big-endian. Fields are packed without padding.
"""

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_BYTES = {"b": 1, "h": 2, "i": 4, "q": 8, "B": 1, "H": 2, "I": 4, "Q": 8}
_DTYPES = {"b": "i1", "h": ">i2", "i": ">i4", "q": ">i8", "B": "u1", "H": ">u2", "I": ">u4", "Q": ">u8"}
_NAMES = {"b": "i8", "h": "i16", "i": "i32", "q": "i64", "B": "u8", "H": "u16", "I": "u32", "Q": "u64"}


@dataclass(frozen=True)
class Field:
    """One field: its name, struct code (``b h i q`` or ``<n>s``), and what it means."""

    name: str
    code: str
    doc: str = ""

    @property
    def bytes(self) -> int:
        """Bytes the field takes."""
        return int(self.code[:-1]) if self.code.endswith("s") else _BYTES[self.code]

    @property
    def type_name(self) -> str:
        """The type as the format documents call it."""
        return f"{self.bytes} bytes" if self.code.endswith("s") else _NAMES[self.code]


class Layout:
    """A fixed sequence of big-endian fields; ``size`` is asserted against their sum."""

    def __init__(self, name: str, *fields: tuple[str, str] | tuple[str, str, str], size: int) -> None:
        self.name = name
        self.fields = tuple(Field(*f) for f in fields)
        self.size = sum(f.bytes for f in self.fields)
        assert self.size == size, f"{name}: fields take {self.size} bytes, declared {size}"
        self.struct = struct.Struct(">" + "".join(f.code for f in self.fields))
        self.positions: dict[str, int] = {}
        position = 0
        for f in self.fields:
            self.positions[f.name] = position
            position += f.bytes

    @cached_property
    def dtype(self) -> "np.dtype[np.void]":
        """Packed numpy dtype of one unit."""
        import numpy as np

        codes = [f"S{f.bytes}" if f.code.endswith("s") else _DTYPES[f.code] for f in self.fields]
        return np.dtype(list(zip((f.name for f in self.fields), codes, strict=True)))

    def markdown(self) -> str:
        """The layout as a table for the format documents."""
        rows = ["| at | type | field | meaning |", "|---:|---|---|---|"]
        rows += [f"| {self.positions[f.name]} | {f.type_name} | `{f.name}` | {f.doc} |" for f in self.fields]
        return "\n".join(rows) + f"\n\n{self.size} bytes.\n"
