"""One file of the forgetful disk: what programs see, and what a power cut leaves of it.

Answers to nothing in RocketMQ; the model is Linux's page cache. Used by ForgetfulDisk alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rockstrata.errors import DiskError
from rockstrata.store.disk import PAGE_BYTES, Buffer

SECTOR_BYTES = 512


class Change(NamedTuple):
    """Something that is not durable yet and that a power cut may keep or lose.

    ``kind`` is ``page`` (``number`` counts the file's pages from 0), ``size`` (the file's new length),
    or ``entry`` (a directory operation, counted from the oldest: a creation, rename or removal).
    """

    kind: str
    path: Path
    number: int


class Inode:
    """Content of one file.

    ``volatile`` is what every reader sees and ``view`` maps. ``durable`` is what is on the platter.
    Nobody tells us of writes through a view, so dirty pages are found by comparing the two.
    """

    def __init__(self, size: int, modified_ms: int) -> None:
        self.volatile = bytearray(size)
        self.durable = b""
        self.claimed_bytes = 0
        self.modified_ms = modified_ms
        # Pages a failed sync gave up: Linux marks them clean, so a later sync that "succeeds" skips
        # them unless they were written again. Page number -> content at the failure.
        self._given_up: dict[int, bytes] = {}

    def copy(self) -> "Inode":
        """An independent twin, cache and platter alike."""
        twin = Inode(0, self.modified_ms)
        twin.volatile = bytearray(self.volatile)
        twin.durable = self.durable
        twin.claimed_bytes = self.claimed_bytes
        twin._given_up = dict(self._given_up)
        return twin

    def grow(self, size: int, path: Path) -> None:
        """Extend with zeros; a map of the old size in some reader's hands forbids it here."""
        if size <= len(self.volatile):
            return
        try:
            self.volatile.extend(bytes(size - len(self.volatile)))
        except BufferError as error:
            raise DiskError(
                "cannot extend a file that is mapped",
                path=path,
                hint="the forgetful disk is stricter than Linux here: drop the view first",
            ) from error

    def write(self, position: int, data: Buffer) -> None:
        """Write inside the length; pages that a sync gave up are dirty again, even if nothing changes."""
        end = position + len(data)
        self.volatile[position:end] = data
        for number in range(position // PAGE_BYTES, -(-end // PAGE_BYTES)):
            self._given_up.pop(number, None)

    def replace(self, data: bytes) -> None:
        """New content of a new length; old views keep the old bytes."""
        self.volatile = bytearray(data)
        self._given_up.clear()

    def page(self, number: int) -> bytes:
        """A page as programs see it."""
        return bytes(self.volatile[number * PAGE_BYTES : (number + 1) * PAGE_BYTES])

    def dirty_pages(self) -> Iterator[int]:
        """Pages the kernel would still write: different from the platter and not given up."""
        if self.volatile == self.durable:
            return
        size = len(self.volatile)
        platter = self.durable[:size].ljust(size, b"\0")
        for number in range(-(-size // PAGE_BYTES)):
            start = number * PAGE_BYTES
            page = bytes(self.volatile[start : start + PAGE_BYTES])
            if page != platter[start : start + PAGE_BYTES] and self._given_up.get(number) != page:
                yield number

    @property
    def size_is_dirty(self) -> bool:
        """The length on the platter is another one."""
        return len(self.durable) != len(self.volatile)

    def write_back(self, pages: dict[int, int], size: bool) -> None:
        """Bring the first ``pages[n]`` sectors of page n, and the length if ``size``, to the platter.

        Pages past the length that the platter knows are lost with it.
        """
        length = len(self.volatile) if size else len(self.durable)
        platter = bytearray(self.durable[:length].ljust(length, b"\0"))
        for number, sectors in pages.items():
            start = number * PAGE_BYTES
            end = min(start + sectors * SECTOR_BYTES, length, len(self.volatile))
            if end > start:
                platter[start:end] = self.volatile[start:end]
                self._given_up.pop(number, None)
        self.durable = bytes(platter)

    def sync(self) -> None:
        """Everything but pages given up becomes durable."""
        if not self._given_up:
            self.durable = bytes(self.volatile)
            return
        whole = PAGE_BYTES // SECTOR_BYTES
        self.write_back(dict.fromkeys(self.dirty_pages(), whole), size=True)

    def give_up(self) -> None:
        """A sync failed: what was dirty is neither durable nor dirty any more."""
        self._given_up.update({number: self.page(number) for number in self.dirty_pages()})

    def after_power_cut(self) -> "Inode":
        """What the next boot finds."""
        twin = Inode(0, self.modified_ms)
        twin.volatile = bytearray(self.durable)
        twin.durable = self.durable
        twin.claimed_bytes = min(self.claimed_bytes, len(self.durable))
        return twin
