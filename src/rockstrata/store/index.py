"""The key index of a store: a row of index files, one of them being written.

Answers to RocketMQ's IndexService. The dispatcher adds, everybody may query, the cleaner deletes,
recovery asks from where records must be dispatched again.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rockstrata.clock import Clock, local_stamp
from rockstrata.errors import DiskError
from rockstrata.message.tags import INDEX_TAG_TYPE, index_hash, index_key, index_tags_key
from rockstrata.store.checkpoint import Checkpoint
from rockstrata.store.disk import Disk
from rockstrata.store.index_file import IndexFile
from rockstrata.store.index_load import load_index_files
from rockstrata.store.store_config import StoreConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROLLBACK = 0xC  # Transaction bits of a record that is not indexed.
# Fewer keys than this are put one by one: a kernel call costs as much as a handful of puts, and
# importing numba costs a quarter of a second.
_FEW_KEYS, _FEW_KEYS_WITHOUT_NUMBA = 6, 256


def query_hash(topic: str, key: str, index_type: str | None = None) -> int:
    """What the index looks for: a key of a topic, or (type ``T``) its tags, which 5.5.0 indexes."""
    return index_hash(_query_text(topic, key, index_type))


def _query_text(topic: str, key: str, index_type: str | None) -> str:
    return index_tags_key(topic, key) if index_type == INDEX_TAG_TYPE else index_key(topic, key)


class Index:
    """All index files of one store.

    One thread adds; any number may query meanwhile, without locks: files are replaced, never changed
    under a reader, and a deleted one stays readable. ``on_full`` is told when a file has filled up;
    somebody must then call ``seal`` soon. Without it ``add`` seals by itself, which takes as long as
    writing a whole file.

    After a crash RocketMQ deletes the file that was being written, and with it the keys of everything
    since. Here its whole items are kept and ``rebuild_from_physical`` says where recovery must start.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        checkpoint: Checkpoint,
        on_full: Callable[[], None] | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._checkpoint = checkpoint
        self._directory = config.index_dir
        self._hash_slots = config.max_hash_slot_num
        self._max_items = config.max_index_num
        self._on_full = on_full
        self._files: tuple[IndexFile, ...] = ()
        self._unsealed: list[IndexFile] = []
        self._failure: DiskError | None = None
        self._swap_lock = threading.Lock()
        self._sync_lock = threading.Lock()

    # Life

    def load(self, clean: bool, checkpoint: Checkpoint) -> None:
        """Open the files, by the rules of ``index_load``."""
        self._checkpoint = checkpoint
        sealed_to = None if clean else checkpoint.index_msg_timestamp
        files = load_index_files(self._disk, self._directory, self._hash_slots, self._max_items, sealed_to)
        self._unsealed = []
        self._files = tuple(files)

    @property
    def rebuild_from_physical(self) -> int:
        """Records before this physical offset are indexed; those from it on must be dispatched (again).

        The one at this very offset may be there already and is then indexed twice, as in RocketMQ.
        """
        return self._files[-1].end_physical if self._files else 0

    def truncate_physical(self, physical_end: int) -> None:
        """Forget records from ``physical_end`` on: the log lost them, and others will take their place."""
        files = list(self._files)
        while files and files[-1].end_physical >= physical_end:
            last = files[-1]
            if last.begin_physical < physical_end and last.truncate(physical_end, doubt=False):
                self._sync(last)
                break
            self._disk.unlink(files.pop().path)
        if len(files) < len(self._files):
            self._disk.sync_dir(self._directory)
        self._unsealed = [file for file in self._unsealed if file in files]
        self._files = tuple(files)

    def close(self) -> None:
        """Make everything durable and let go of the files."""
        self.flush()
        self._files = ()

    def destroy(self) -> None:
        """Delete all files."""
        with self._swap_lock:
            files, self._files, self._unsealed = self._files, (), []
        for file in files:
            self._disk.unlink(file.path)
        if files:
            self._disk.sync_dir(self._directory)

    # Adding

    def add(
        self,
        physical_offsets: "NDArray[np.int64]",
        store_timestamps: "NDArray[np.int64]",
        key_first: "NDArray[np.int64]",
        key_hash: "NDArray[np.int32]",
        sys_flags: "NDArray[np.int32]",
    ) -> None:
        """Index records in log order; row i has the hashes ``key_hash[key_first[i] : key_first[i + 1]]``.

        Records already indexed, and rolled-back ones, are skipped. Raises DiskError if a new file
        cannot be made; what was added before stays, and adding all again is harmless.
        """
        rows = len(physical_offsets)
        if not rows:
            return
        file = self._writable()
        first, end = int(key_first[0]), int(key_first[rows])
        if end - first <= (_FEW_KEYS if "numba" in sys.modules else _FEW_KEYS_WITHOUT_NUMBA):
            self._add_few(file, physical_offsets, store_timestamps, key_first, key_hash, sys_flags)
            return
        import numpy as np

        wanted = (physical_offsets >= file.end_physical) & (sys_flags & ROLLBACK != ROLLBACK)
        counts = np.diff(key_first)
        hashes = key_hash[first:end]
        if not wanted.all():
            hashes = hashes[np.repeat(wanted, counts)]
            counts = counts * wanted
        physical, timestamps = np.repeat(physical_offsets, counts), np.repeat(store_timestamps, counts)
        done = file.put_keys(hashes, physical, timestamps)
        while done < len(hashes):
            done += self._writable().put_keys(hashes[done:], physical[done:], timestamps[done:])

    def _add_few(
        self,
        file: IndexFile,
        physical_offsets: "NDArray[np.int64]",
        store_timestamps: "NDArray[np.int64]",
        key_first: "NDArray[np.int64]",
        key_hash: "NDArray[np.int32]",
        sys_flags: "NDArray[np.int32]",
    ) -> None:
        indexed_to = file.end_physical
        edges = key_first.tolist()
        rows = zip(physical_offsets.tolist(), store_timestamps.tolist(), sys_flags.tolist(), strict=True)
        for i, (physical_offset, store_timestamp, sys_flag) in enumerate(rows):
            if physical_offset >= indexed_to and sys_flag & ROLLBACK != ROLLBACK:
                for h in key_hash[edges[i] : edges[i + 1]].tolist():
                    while not file.put_key(h, physical_offset, store_timestamp):
                        file = self._writable()

    def _writable(self) -> IndexFile:
        """The last file, or a new one if there is none or it is full."""
        full = self._files[-1] if self._files else None
        if full is not None and not full.is_full:
            return full
        if full is not None:
            with self._swap_lock:
                if full not in self._unsealed:
                    self._unsealed.append(full)
            # A file that ends no later than the checkpoint's index time (the clock was set back, or
            # it filled up within a millisecond) would pass for durable while it is not.
            if self._on_full is None or full.end_timestamp <= self._checkpoint.index_msg_timestamp:
                self.seal()
        path = self._directory / self._next_name()
        file = IndexFile.create(self._disk, path, self._hash_slots, self._max_items, full)
        with self._swap_lock:
            self._files = (*self._files, file)
        if full is not None and self._on_full is not None:
            self._on_full()
        return file

    def _next_name(self) -> str:
        """The local time, but later than any other name, whatever the clock says."""
        stamp = int(local_stamp(self._clock.now_ms()))
        if self._files:
            stamp = max(stamp, int(self._files[-1].path.name) + 1)
        return f"{stamp:017d}"

    # Durability

    def seal(self) -> None:
        """Sync the files that have filled up and say so in the checkpoint. Any thread; may take long."""
        with self._sync_lock:
            for file in list(self._unsealed):
                self._sync(file)
                self._disk.sync_dir(self._directory)
                self._checkpoint.index_msg_timestamp = max(
                    self._checkpoint.index_msg_timestamp, file.end_timestamp
                )
                self._checkpoint.flush()
                with self._swap_lock:
                    self._unsealed = [other for other in self._unsealed if other is not file]

    def flush(self) -> None:
        """Return when everything added so far survives a power cut."""
        self.seal()
        with self._sync_lock:
            files = self._files
            if files:
                self._sync(files[-1])
                self._disk.sync_dir(self._directory)

    def _sync(self, file: IndexFile) -> None:
        # After a failed sync the kernel takes lost pages for clean: no later success can be believed.
        if self._failure is not None:
            raise self._failure
        try:
            file.flush()
        except DiskError as error:
            self._failure = error
            raise

    def delete_expired(self, min_physical: int) -> int:
        """Delete files whose records are all before ``min_physical``, never the last; how many."""
        with self._swap_lock:
            old = []
            for file in self._files[:-1]:
                if file.end_physical >= min_physical:
                    break
                old.append(file)
            self._files = self._files[len(old) :]
            self._unsealed = [file for file in self._unsealed if file not in old]
        for file in old:
            self._disk.unlink(file.path)
        return len(old)

    # Queries

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first."""
        return self._files

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and physical offset of the last record indexed."""
        files = self._files
        return (files[-1].end_timestamp, files[-1].end_physical) if files else (0, 0)

    def query_offsets(
        self, topic: str, key: str, max_num: int, begin: int, end: int, index_type: str | None = None
    ) -> list[int]:
        """Physical offsets of records that may have the key and were stored in [begin, end], newest first.

        Only hashes are compared; times as in ``IndexFile.query``. Callers cap ``max_num``.
        """
        key_hash = query_hash(topic, key, index_type)
        found: list[int] = []
        for file in self._in_time(begin, end):
            found += file.query(key_hash, begin, end, max_num - len(found))
            if len(found) >= max_num:
                break
        return found

    def query_offsets_many(
        self,
        topic: str,
        keys: Sequence[str],
        max_num: int,
        begin: int,
        end: int,
        index_type: str | None = None,
    ) -> list[list[int]]:
        """``query_offsets`` for each key."""
        import numpy as np

        from rockstrata.message.key_hashes import index_hashes

        hashes = index_hashes(_query_text(topic, "", index_type), keys)
        found: list[list[int]] = [[] for _ in keys]
        for file in self._in_time(begin, end):
            first, physical = file.query_many(hashes, begin, end, max_num)
            edges, offsets = first.tolist(), physical.tolist()
            for i in np.flatnonzero(np.diff(first)).tolist():
                found[i] += offsets[edges[i] : edges[i + 1]][: max_num - len(found[i])]
        return found

    def _in_time(self, begin: int, end: int) -> list[IndexFile]:
        """Files to look into, newest first: back to the first that begins before ``begin``."""
        chosen = []
        for file in reversed(self._files):
            if file.index_count > 1:
                if file.overlaps(begin, end):
                    chosen.append(file)
                if file.begin_timestamp < begin:
                    break
        return chosen
