"""Topic names as dense integers, in arrays a kernel can probe without calling back.

Answers to no RocketMQ class: there a record's topic is a string of its own every time.
Called by the scan and the encoder; one thread owns a table while it grows.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.message.tags import INDEX_TAG_TYPE, java_hash_code
from rockstrata.message.text import java_text

FLAG_SCHEDULE = 1

_MIX = 0x9E37_79B9_7F4A_7C15
_MASK = (1 << 64) - 1
# Kernels read the last bytes of a name as the end of a whole word, so a word must lie before it.
_BLOB_PAD = 8


def topic_hash(raw: bytes) -> int:
    """Hash of a topic's bytes, eight at a time; the kernels compute the same."""
    h = len(raw)
    whole = len(raw) & ~7
    for at in range(0, whole, 8):
        h = _mix(h, int.from_bytes(raw[at : at + 8], "little"))
    if rest := len(raw) - whole:
        h = _mix(h, int.from_bytes(raw[whole:], "little") << 8 * (8 - rest))
    return h


def _mix(h: int, word: int) -> int:
    h = ((h ^ word) * _MIX) & _MASK
    return h ^ (h >> 29)


class TopicArrays(NamedTuple):
    """The table as kernels take it. Slots lead to entries (bytes), entries to ids (names).

    Malformed bytes may read as the same name, so several entries can share an id.
    """

    slots: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    blob: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    key_seeds: NDArray[np.uint32]
    tags_seeds: NDArray[np.uint32]


def _grown(array: NDArray[Any], needed: int) -> NDArray[Any]:
    """The array, or a copy with twice the room; new room is zero."""
    if needed <= len(array):
        return array
    bigger = np.zeros(max(needed, 2 * len(array)), array.dtype)
    bigger[: len(array)] = array
    return bigger


class TopicTable:
    """Interns topics. ``names[id]`` is the topic, as Java would read its bytes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._id_of_name: dict[str, int] = {}
        self._id_of_bytes: dict[bytes, int] = {}
        self._blob_end = _BLOB_PAD
        self._arrays = TopicArrays(
            slots=np.full(64, -1, np.int32),
            hashes=np.zeros(32, np.uint64),
            ids=np.zeros(32, np.int32),
            starts=np.zeros(32, np.int64),
            lengths=np.zeros(32, np.int64),
            blob=np.zeros(1024, np.uint8),
            flags=np.zeros(32, np.uint8),
            key_seeds=np.zeros(32, np.uint32),
            tags_seeds=np.zeros(32, np.uint32),
        )

    def __len__(self) -> int:
        return len(self.names)

    def find(self, topic: bytes | str) -> int | None:
        """The topic's id if it has one."""
        return (self._id_of_name if isinstance(topic, str) else self._id_of_bytes).get(topic)  # type: ignore[arg-type]

    def intern(self, topic: bytes | str) -> int:
        """The topic's id, given now if it is new."""
        raw = topic if isinstance(topic, bytes) else topic.encode()
        known = self._id_of_bytes.get(raw)
        if known is not None:
            return known
        name = java_text(raw)
        number = self._id_of_name.get(name)
        if number is None:
            number = self._new_id(name)
        self._add_entry(raw, number)
        return number

    def arrays(self) -> TopicArrays:
        """The arrays as they are now; ask again after ``intern``."""
        return self._arrays

    def _new_id(self, name: str) -> int:
        number = self._id_of_name[name] = len(self.names)
        self.names.append(name)
        grown = self._arrays = self._arrays._replace(
            flags=_grown(self._arrays.flags, number + 1),
            key_seeds=_grown(self._arrays.key_seeds, number + 1),
            tags_seeds=_grown(self._arrays.tags_seeds, number + 1),
        )
        grown.flags[number] = FLAG_SCHEDULE if name == SCHEDULE_TOPIC else 0
        # The hash of "topic#key" goes on from the hash of "topic#".
        grown.key_seeds[number] = java_hash_code(f"{name}#") & 0xFFFF_FFFF
        grown.tags_seeds[number] = java_hash_code(f"{name}#{INDEX_TAG_TYPE}#") & 0xFFFF_FFFF
        return number

    def _add_entry(self, raw: bytes, number: int) -> None:
        entry = len(self._id_of_bytes)
        self._id_of_bytes[raw] = number
        start, end = self._blob_end, self._blob_end + len(raw)
        self._blob_end = end
        grown = self._arrays = self._arrays._replace(
            hashes=_grown(self._arrays.hashes, entry + 1),
            ids=_grown(self._arrays.ids, entry + 1),
            starts=_grown(self._arrays.starts, entry + 1),
            lengths=_grown(self._arrays.lengths, entry + 1),
            blob=_grown(self._arrays.blob, end),
        )
        grown.hashes[entry] = topic_hash(raw)
        grown.ids[entry] = number
        grown.starts[entry] = start
        grown.lengths[entry] = len(raw)
        grown.blob[start:end] = np.frombuffer(raw, np.uint8)
        if 2 * (entry + 1) > len(grown.slots):
            slots = np.full(2 * len(grown.slots), -1, np.int32)
            self._arrays = grown._replace(slots=slots)
            for old in range(entry):
                self._fill_slot(old)
        self._fill_slot(entry)

    def _fill_slot(self, entry: int) -> None:
        slots = self._arrays.slots
        slot = int(self._arrays.hashes[entry]) & (len(slots) - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = entry
