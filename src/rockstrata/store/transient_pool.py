"""Buffers that take appends in place of the file map; a committer writes them out later.

Answers to RocketMQ's TransientStorePool. Used by the commit log when ``transientStorePoolEnable``.
"""

from collections import deque

from rockstrata.errors import StoreStateError
from rockstrata.store.store_config import StoreConfig


class TransientPool:
    """A fixed number of buffers of one commit-log file each."""

    def __init__(self, config: StoreConfig) -> None:
        self._file_bytes = config.commit_log_file_bytes
        self._limit = config.transient_store_pool_size
        self._fail_fast = config.fast_fail_if_no_buffer_in_store_pool
        self._free: deque[bytearray] = deque()
        self._made = 0

    def borrow(self) -> bytearray | None:
        """A buffer, or None when all are lent: the file is then written through its map, as in Java.

        With ``fastFailIfNoBufferInStorePool`` it raises instead.
        """
        if self._free:
            return self._free.popleft()
        if self._made < self._limit:
            self._made += 1
            return bytearray(self._file_bytes)
        if self._fail_fast:
            raise StoreStateError(
                "no free buffer in the transient store pool", hint="raise transientStorePoolSize"
            )
        return None

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer whose content is in its file."""
        self._free.append(buffer)
