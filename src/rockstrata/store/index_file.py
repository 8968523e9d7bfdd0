"""One index file: a hash table of keys to physical offsets, in the order the log was written.

Answers to RocketMQ's IndexFile and IndexHeader. Written and read by ``Index``; ``IndexReader`` reads
the same bytes beside a foreign owner.
"""

from functools import cache
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

from rockstrata.errors import CorruptionError, ForeignFileError
from rockstrata.layout import Layout
from rockstrata.store.disk import Disk, DiskFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INDEX_HEADER = Layout(
    "index header",
    ("begin_timestamp", "q", "Store time of the first item's record."),
    ("end_timestamp", "q", "Store time of the last item's record."),
    ("begin_physical", "q", "Physical offset of the first item's record."),
    ("end_physical", "q", "Physical offset of the last item's record."),
    ("used_slots", "i", "Slots that are not empty."),
    ("index_count", "i", "Number of the next item; item 0 is never used, and 0 here means 1."),
    size=40,
)
INDEX_ITEM = Layout(
    "index item",
    ("key_hash", "i", "Absolute value of the hash of `topic#key`."),
    ("physical_offset", "q", "Where the record starts."),
    ("time_diff_s", "i", "Seconds from the begin timestamp to the record's store time."),
    ("previous", "i", "Number of the item before this one in the slot's chain, 0 at its end."),
    size=20,
)
SLOT = Struct(">i")
_HEADER, _ITEM = INDEX_HEADER.struct, INDEX_ITEM.struct
_unpack_slot, _unpack_item = SLOT.unpack_from, _ITEM.unpack_from
INT_MAX = 2**31 - 1
# From so many keys on, pages are brought in before the kernel runs.
_POPULATE_KEYS = 4096
# Keys looked up by one call of the kernel: bounds the room for their results.
_QUERY_KEYS = 8192
# Items before the first hole that are not trusted after a crash: a sector may end inside one.
_DOUBTFUL_ITEMS = 32


def index_file_bytes(hash_slots: int, max_items: int) -> int:
    """Size of a file."""
    return INDEX_HEADER.size + SLOT.size * hash_slots + INDEX_ITEM.size * max_items


@cache
def _kernels() -> Any:
    from rockstrata.store import kernels

    return kernels


class IndexFile:
    """A file of ``hash_slots`` slots and ``max_items`` items, of which item 0 is never used.

    One thread puts; any number may query meanwhile, and go on after the file is unlinked. The header
    is kept here and written with every put. Raises ForeignFileError if the size is another one, and
    CorruptionError if the header cannot be.
    """

    def __init__(self, file: DiskFile, hash_slots: int, max_items: int) -> None:
        self.file = file
        self.hash_slots = hash_slots
        self.max_items = max_items
        if file.size != index_file_bytes(hash_slots, max_items):
            raise ForeignFileError(
                "index file of another size",
                path=file.path,
                expected=index_file_bytes(hash_slots, max_items),
                found=file.size,
                hint="was it written with other maxHashSlotNum or maxIndexNum?",
            )
        self._view = file.view()
        self._items = INDEX_HEADER.size + SLOT.size * hash_slots
        self._words: NDArray[np.uint32] | None = None
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_physical: int
        self.end_physical: int
        self.used_slots: int
        self.index_count: int
        (
            self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical,
            self.used_slots, self.index_count,
        ) = _HEADER.unpack_from(self._view, 0)  # fmt: skip
        if not 0 <= self.index_count <= max_items:
            raise CorruptionError(
                "bad item count in an index header",
                path=file.path,
                position=INDEX_HEADER.positions["index_count"],
                expected=f"0 to {max_items}",
                found=self.index_count,
                hint="delete the file; an unclean start rebuilds it",
            )
        self._set_count(max(1, self.index_count))

    @classmethod
    def create(
        cls, disk: Disk, path: Path, hash_slots: int, max_items: int, after: "IndexFile | None" = None
    ) -> "IndexFile":
        """A new file; ``after`` a full one, whose end its header starts with."""
        created = disk.create(path, index_file_bytes(hash_slots, max_items), reserve=True)
        file = cls(created, hash_slots, max_items)
        if after is not None:
            file.begin_physical = file.end_physical = max(0, after.end_physical)
            file.begin_timestamp = file.end_timestamp = max(0, after.end_timestamp)
        file._write_header()
        return file

    def __repr__(self) -> str:
        return f"IndexFile({self.path.name}, {self.index_count - 1} items)"

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.file.path

    @property
    def is_full(self) -> bool:
        """True when no further key is accepted."""
        return self.index_count >= self.max_items

    def put_key(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        """Append one key; False if the file is full."""
        number = self.index_count
        if number >= self.max_items:
            return False
        assert key_hash >= 0, key_hash
        slot = INDEX_HEADER.size + SLOT.size * (key_hash % self.hash_slots)
        (previous,) = SLOT.unpack_from(self._view, slot)
        if not 0 < previous <= number:
            previous = 0
            self.used_slots += 1
        seconds = 0
        if self.begin_timestamp > 0:
            seconds = min(max(0, store_timestamp - self.begin_timestamp) // 1000, INT_MAX)
        # The item before the slot that points to it, for readers and for a crash in between.
        item = self._items + INDEX_ITEM.size * number
        _ITEM.pack_into(self._view, item, key_hash, physical_offset, seconds, previous)
        SLOT.pack_into(self._view, slot, number)
        if number == 1:
            self.begin_physical, self.begin_timestamp = physical_offset, store_timestamp
        self._set_count(number + 1)
        self.end_physical, self.end_timestamp = physical_offset, store_timestamp
        self._write_header()
        return True

    def put_keys(
        self, hashes: "NDArray[np.int32]", physical: "NDArray[np.int64]", timestamps: "NDArray[np.int64]"
    ) -> int:
        """Append keys while there is room, with the same bytes as ``put_key``; how many were taken."""
        count = min(len(hashes), self.max_items - self.index_count)
        if count <= 0:
            return 0
        assert int(hashes.min()) >= 0, "a negative hash"
        done = 0
        if self.index_count == 1:
            self.put_key(int(hashes[0]), int(physical[0]), int(timestamps[0]))
            done = 1
        number = self.index_count
        if count - done >= _POPULATE_KEYS:
            self.file.populate(self._items + INDEX_ITEM.size * number, INDEX_ITEM.size * (count - done))
        # The count goes ahead of the items: readers take a slot that points past it for empty.
        self._set_count(number + count - done)
        self._write_header()
        self.used_slots += _kernels().put_keys(
            self._word_array(), self.hash_slots, number, self.begin_timestamp,
            hashes[done:count], physical[done:count], timestamps[done:count],
        )  # fmt: skip
        self.end_physical, self.end_timestamp = int(physical[count - 1]), int(timestamps[count - 1])
        self._write_header()
        return count

    def overlaps(self, begin: int, end: int) -> bool:
        """May the file hold records stored in [begin, end]?"""
        return begin <= self.end_timestamp and end >= self.begin_timestamp

    def query(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Physical offsets of at most ``max_num`` items of this hash stored in [begin, end], newest first.

        Times are known to the second, rounded down: as in RocketMQ, a record up to a second after
        ``begin`` may be missed. Ends on any bytes: a chain is followed only to ever older items.
        """
        found: list[int] = []
        view = self._view
        (number,) = _unpack_slot(view, 40 + 4 * (key_hash % self.hash_slots))
        if not 0 < number <= self._last_readable or max_num <= 0:
            return found
        items = self._items
        earliest, latest = self._bounds(begin, end)
        while True:
            hash_read, physical_offset, seconds, previous = _unpack_item(view, items + 20 * number)
            if seconds < earliest:
                return found
            if hash_read == key_hash and seconds <= latest:
                found.append(physical_offset)
                if len(found) >= max_num:
                    return found
            if not 0 < previous < number:
                return found
            number = previous

    def _bounds(self, begin: int, end: int) -> tuple[int, int]:
        """A time range in the items' unit, cut to what an item can hold.

        0 is the least: a negative time ends a chain.
        """
        origin = self.begin_timestamp
        earliest = 0 if begin <= origin else -((origin - begin) // 1000)
        latest = (end - origin) // 1000
        limit = 1 << 32
        return (
            earliest if earliest < limit else limit,
            -1 if latest < 0 else latest if latest < limit else limit,
        )

    def query_many(
        self, hashes: "NDArray[np.int32]", begin: int, end: int, max_num: int
    ) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """``query`` for each hash: the offsets of key i are ``physical[first[i] : first[i + 1]]``."""
        import numpy as np

        first = np.zeros(len(hashes) + 1, np.int64)
        earliest, latest = self._bounds(begin, end)
        room = np.empty(min(len(hashes), _QUERY_KEYS) * max(0, max_num), np.int64)
        parts = []
        for at in range(0, len(hashes), _QUERY_KEYS):
            some = hashes[at : at + _QUERY_KEYS]
            ends = first[at : at + len(some) + 1]
            before = int(ends[0])
            found = _kernels().query_many(
                self._word_array(), self.hash_slots, self._last_readable,
                some, earliest, latest, max_num, ends, room,
            )  # fmt: skip
            ends += before
            parts.append(room[:found].copy())
        return first, np.concatenate(parts) if parts else room

    def truncate(self, physical_end: int, *, doubt: bool) -> bool:
        """Keep the items that point before ``physical_end``, chained anew; False if the file is not worth it.

        ``doubt``: a crash may have torn the file. Then items are kept up to the first hole, less a
        few before it, whatever the table says. The end time is known to the second, rounded up.
        """
        from rockstrata.store.wipe import wipe

        words = self._word_array()
        if doubt:
            whole = _kernels().count_whole_items(words, self.hash_slots, self.index_count, physical_end)
            count = int(whole) - _DOUBTFUL_ITEMS
        else:
            count = self._first_item_from(physical_end)
            if count == self.index_count:
                return True
        if count <= 1 or self._item(1)[1] != self.begin_physical:
            return False
        self.used_slots = int(_kernels().rebuild_table(words, self.hash_slots, count))
        wipe(self.file, self._items + INDEX_ITEM.size * count)
        _, self.end_physical, seconds, _ = self._item(count - 1)
        self.end_timestamp = self.begin_timestamp + 1000 * seconds + 999
        self._set_count(count)
        self._write_header()
        return True

    def flush(self) -> None:
        """Return when everything put so far survives a power cut."""
        self.file.sync()

    def _first_item_from(self, physical_end: int) -> int:
        import numpy as np

        items = np.frombuffer(self._view, INDEX_ITEM.dtype, self.index_count, self._items)
        return 1 + int(np.searchsorted(items["physical_offset"][1:], physical_end))

    def _set_count(self, count: int) -> None:
        self.index_count = count
        # Largest number a slot may hold; none as long as the file is empty.
        self._last_readable = min(count, self.max_items - 1) if count > 1 else 0

    def _item(self, number: int) -> tuple[int, int, int, int]:
        key_hash, physical_offset, seconds, previous = _ITEM.unpack_from(
            self._view, self._items + INDEX_ITEM.size * number
        )
        return key_hash, physical_offset, seconds, previous

    def _write_header(self) -> None:
        _HEADER.pack_into(
            self._view, 0,
            self.begin_timestamp, self.end_timestamp, self.begin_physical, self.end_physical,
            self.used_slots, self.index_count,
        )  # fmt: skip

    def _word_array(self) -> "NDArray[np.uint32]":
        if self._words is None:
            import numpy as np

            self._words = np.frombuffer(self._view, np.uint32)
        return self._words
