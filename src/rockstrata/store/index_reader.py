"""Look-ups in index files that another live process writes: only reads, no maps, nothing kept open wrongly.

Answers to IndexService.queryOffset and IndexFile.selectPhyOffset. Used by StoreReader beside a broker.
"""

from pathlib import Path

from rockstrata.errors import DiskError, ForeignFileError
from rockstrata.store.disk import Disk, DiskFile
from rockstrata.store.index import query_hash
from rockstrata.store.index_file import INDEX_HEADER, INDEX_ITEM, SLOT, index_file_bytes


class IndexReader:
    """Queries over a directory of index files. Use from one thread.

    Every query lists the directory and reads the headers anew, so it sees what the owner has written.
    A file that vanishes meanwhile, or is just being made, counts as not there.
    """

    def __init__(
        self, disk: Disk, directory: Path, hash_slots: int = 5_000_000, max_items: int = 20_000_000
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._hash_slots = hash_slots
        self._max_items = max_items
        self._files: dict[str, DiskFile] = {}

    def query_offsets(
        self, topic: str, key: str, max_num: int, begin: int, end: int, index_type: str | None = None
    ) -> list[int]:
        """As ``Index.query_offsets``, without its cap."""
        key_hash = query_hash(topic, key, index_type)
        found: list[int] = []
        for file in self._newest_first():
            header = file.pread(0, INDEX_HEADER.size)
            if len(header) < INDEX_HEADER.size:
                continue
            begin_timestamp, end_timestamp, _, _, _, count = INDEX_HEADER.struct.unpack(header)
            if count <= 1:
                continue
            if begin <= end_timestamp and end >= begin_timestamp:
                last = min(count, self._max_items - 1)
                earliest = max(0, -((begin_timestamp - begin) // 1000))
                latest = (end - begin_timestamp) // 1000
                self._walk(file, key_hash, last, earliest, latest, max_num, found)
            if begin_timestamp < begin or len(found) >= max_num:
                break
        return found

    def _walk(
        self,
        file: DiskFile,
        key_hash: int,
        last: int,
        earliest: int,
        latest: int,
        max_num: int,
        found: list[int],
    ) -> None:
        """Follow a chain to ever older items, as ``IndexFile.query`` does."""
        number = last + 1
        data = file.pread(INDEX_HEADER.size + SLOT.size * (key_hash % self._hash_slots), SLOT.size)
        items = INDEX_HEADER.size + SLOT.size * self._hash_slots
        previous = SLOT.unpack(data)[0] if len(data) == SLOT.size else 0
        while 0 < previous < number and len(found) < max_num:
            number = previous
            data = file.pread(items + INDEX_ITEM.size * number, INDEX_ITEM.size)
            if len(data) < INDEX_ITEM.size:
                return
            hash_read, physical_offset, seconds, previous = INDEX_ITEM.struct.unpack(data)
            if seconds < earliest:
                return
            if hash_read == key_hash and seconds <= latest:
                found.append(physical_offset)

    def _newest_first(self) -> list[DiskFile]:
        names = [n for n in self._disk.list_files(self._directory) if n.isascii() and n.isdigit()]
        opened = {}
        for name in names:
            file = self._files.get(name) or self._open(name, is_last=name == names[-1])
            if file is not None:
                opened[name] = file
        self._files = opened
        return [opened[name] for name in reversed(names) if name in opened]

    def _open(self, name: str, *, is_last: bool) -> DiskFile | None:
        path = self._directory / name
        expected = index_file_bytes(self._hash_slots, self._max_items)
        try:
            file = self._disk.open(path, writable=False)
        except DiskError:
            if self._disk.exists(path):
                raise
            return None
        if file.size == expected:
            return file
        if is_last and file.size < expected:
            return None
        raise ForeignFileError(
            "index file of another size",
            path=path,
            expected=expected,
            found=file.size,
            hint="was it written with other maxHashSlotNum or maxIndexNum?",
        )
