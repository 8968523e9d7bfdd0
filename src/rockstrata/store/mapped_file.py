"""One fixed-size file of a file queue, named by the offset of its first byte.

Answers to RocketMQ's DefaultMappedFile. The cursors live in memory only; recovery finds them again.
The commit log writes through ``target`` (the map, or a pool buffer), consume queues through
``write_at``.
"""

from pathlib import Path
from typing import Any

from rockstrata.store.disk import PAGE_BYTES, Buffer, DiskFile
from rockstrata.store.handles import FileHandles


class MappedFile:
    """A file with its cursors: bytes up to ``wrote`` are appended, up to ``flushed`` are durable.

    With a pool buffer, only bytes up to ``committed`` have reached the file and may be read.
    """

    __slots__ = (
        "_handles",
        "_pinned",
        "buffer",
        "committed",
        "committed_timestamp",
        "end",
        "flushed",
        "path",
        "size",
        "start",
        "store_timestamp",
        "target",
        "wrote",
    )

    def __init__(self, path: Path, start: int, size: int, handles: FileHandles) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size
        self.wrote = 0
        self.committed = 0
        self.flushed = 0
        self.store_timestamp = 0
        self.committed_timestamp = 0
        self.buffer: bytearray | None = None
        self.target: memoryview | None = None
        self._handles = handles
        self._pinned: DiskFile | None = None

    def __repr__(self) -> str:
        return f"MappedFile({self.path.name}, wrote={self.wrote}, flushed={self.flushed})"

    @property
    def file(self) -> DiskFile:
        """The open file."""
        return self._pinned or self._handles.get(self.path)

    @property
    def readable(self) -> int:
        """Position up to which the file itself holds valid bytes."""
        return self.wrote if self.buffer is None else self.committed

    @property
    def readable_timestamp(self) -> int:
        """Store time of the last readable record, or of one after it: older ones are all readable."""
        return self.store_timestamp if self.buffer is None else self.committed_timestamp

    @property
    def is_full(self) -> bool:
        """True when no further byte may be appended."""
        return self.wrote >= self.size

    def pin(self, buffer: bytearray | None = None) -> memoryview:
        """Keep the file open and give the memory to append to; ``buffer`` is the pool's, if used."""
        self._pinned = self.file
        self.buffer = buffer
        self.target = memoryview(buffer) if buffer is not None else self._pinned.view()
        return self.target

    def unpin(self) -> bytearray | None:
        """The file is full and committed: let it be evicted, and give the pool its buffer back."""
        buffer, self.buffer = self.buffer, None
        self.target = None
        self._pinned = None
        return buffer

    def commit(self) -> None:
        """Write what the pool buffer holds to the file."""
        if self.target is not None and self.buffer is not None:
            # In this order: a record between the two readings is not committed and must not count.
            timestamp = self.store_timestamp
            wrote = self.wrote
            if wrote > self.committed:
                self.file.pwrite(self.committed, self.target[self.committed : wrote])
                self.committed = wrote
                self.committed_timestamp = timestamp

    def can_flush(self, least_pages: int) -> bool:
        """RocketMQ's rule: full, or enough dirty pages, or (with 0) anything dirty."""
        readable = self.readable
        if readable >= self.size:
            return self.flushed < readable
        if least_pages > 0:
            return readable // PAGE_BYTES - self.flushed // PAGE_BYTES >= least_pages
        return readable > self.flushed

    def flush(self) -> int:
        """Make everything readable durable; returns the new flushed position."""
        readable = self.readable
        self.file.sync()
        self.flushed = max(self.flushed, readable)
        return self.flushed

    def put_bytes(self, position: int, data: Any) -> None:
        """Bytes of the log in place, in the pool buffer if there is one; ``wrote`` stays.

        If that fails nothing of them stays: records that were refused must not come back.
        """
        assert self.target is not None
        if self.buffer is not None:
            self.target[position : position + len(data)] = data
            return
        try:
            self.file.pwrite(position, memoryview(data))
        except BaseException:
            self.target[position : position + len(data)] = bytes(len(data))
            raise

    def write_at(self, position: int, data: Buffer) -> None:
        """Write through the descriptor and move ``wrote`` to the end of the data."""
        self.file.pwrite(position, data)
        self.wrote = self.committed = position + len(data)

    def set_cursors(self, position: int) -> None:
        """Recovery found the end of valid data here."""
        self.wrote = self.committed = self.flushed = position
