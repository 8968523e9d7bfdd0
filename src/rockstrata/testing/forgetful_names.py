"""Directories of the forgetful disk: the names programs see, and those a power cut leaves.

Answers to nothing in RocketMQ; the model is a journal per directory. Used by ForgetfulDisk alone.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from rockstrata.errors import DiskError
from rockstrata.testing.forgetful_inode import Inode


class Directory(Enum):
    """Marks a name as a directory."""

    DIRECTORY = "directory"


DIRECTORY = Directory.DIRECTORY


class Entry(NamedTuple):
    """An operation that waits for ``sync_dir``: names set to a file, a directory or nothing."""

    links: tuple[tuple[Path, Inode | Directory | None], ...]

    @property
    def path(self) -> Path:
        """The name it is about; of a rename, the new one."""
        return self.links[-1][0]

    @property
    def parents(self) -> set[Path]:
        """Directories it changes."""
        return {path.parent for path, _ in self.links}


def _by_path(link: tuple[Path, object]) -> Path:
    return link[0]


class Names:
    """All names of one disk. Roots (``/`` and ``.``) always exist."""

    def __init__(self) -> None:
        self.seen: dict[Path, Inode | Directory] = {}
        self.durable: dict[Path, Inode | Directory] = {}
        self.waiting: list[Entry] = []

    def copy(self, copy_file: Callable[[Inode], Inode]) -> "Names":
        """A twin whose files are made by ``copy_file``; a file with two names stays one."""
        files: dict[int, Inode] = {}

        def one(node: Inode | Directory | None) -> "Inode | Directory | None":
            if not isinstance(node, Inode):
                return node
            if id(node) not in files:
                files[id(node)] = copy_file(node)
            return files[id(node)]

        twin = Names()
        twin.seen = {p: n for p, node in self.seen.items() if (n := one(node)) is not None}
        twin.durable = {p: n for p, node in self.durable.items() if (n := one(node)) is not None}
        twin.waiting = [Entry(tuple((p, one(node)) for p, node in e.links)) for e in self.waiting]
        return twin

    def is_dir(self, path: Path) -> bool:
        """True for a directory."""
        return path.parent == path or self.seen.get(path) is DIRECTORY

    def file(self, path: Path) -> Inode:
        """The file of this name, or DiskError."""
        node = self.find_file(path)
        if node is None:
            raise DiskError("cannot open: no such file", path=path)
        return node

    def find_file(self, path: Path) -> Inode | None:
        """The file of this name if there is one; a directory is a DiskError."""
        node = self.seen.get(path)
        if node is None and not self.is_dir(path):
            return None
        if not isinstance(node, Inode):
            raise DiskError("cannot open: is a directory", path=path)
        return node

    def files(self) -> Iterator[tuple[Path, Inode]]:
        """All files, by path."""
        found = [(path, node) for path, node in self.seen.items() if isinstance(node, Inode)]
        return iter(sorted(found, key=_by_path))

    def inodes(self) -> list[tuple[Path, Inode]]:
        """Every file a power cut could leave, once each: also those whose removal is not durable."""
        links = [*sorted(self.seen.items(), key=_by_path), *sorted(self.durable.items(), key=_by_path)]
        links += [(path, node) for entry in self.waiting for path, node in entry.links if node is not None]
        found: dict[int, tuple[Path, Inode]] = {}
        for path, node in links:
            if isinstance(node, Inode):
                found.setdefault(id(node), (path, node))
        return list(found.values())

    def make_dirs(self, path: Path) -> None:
        """The directory and those above it."""
        for folder in (*reversed(path.parents), path):
            if folder in self.seen and not self.is_dir(folder):
                raise DiskError("cannot create: a file is in the way", path=folder)
            if not self.is_dir(folder):
                self.change((folder, DIRECTORY))

    def change(self, *links: tuple[Path, Inode | Directory | None]) -> None:
        """One atomic operation, seen at once, durable later."""
        self._apply(self.seen, Entry(links))
        self.waiting.append(Entry(links))

    def save(self, folders: set[Path]) -> None:
        """Make all waiting operations of these directories durable, and what a rename ties to them."""
        folders = set(folders)
        saved: list[Entry] = []
        rest: list[Entry] = []
        for entry in reversed(self.waiting):
            if entry.parents & folders:
                folders |= entry.parents
                saved.append(entry)
            else:
                rest.append(entry)
        for entry in reversed(saved):
            self._apply(self.durable, entry)
        self.waiting = rest[::-1]

    def keep(self, numbers: set[int]) -> None:
        """Make the waiting operations of these numbers durable, except behind a lost one of the same
        directory: a journal is replayed from its start."""
        broken: set[Path] = set()
        rest: list[Entry] = []
        for n, entry in enumerate(self.waiting):
            if n in numbers and not entry.parents & broken:
                self._apply(self.durable, entry)
            else:
                broken |= entry.parents
                rest.append(entry)
        self.waiting = rest

    def after_power_cut(self) -> "Names":
        """What the next boot finds: names that are durable, as is the way to them."""
        twin = Names()
        for path in sorted(self.durable, key=lambda p: len(p.parts)):
            node = self.durable[path]
            if twin.is_dir(path.parent):
                twin.seen[path] = node
        twin.durable = dict(twin.seen)
        return twin

    @staticmethod
    def _apply(names: dict[Path, Inode | Directory], entry: Entry) -> None:
        for path, node in entry.links:
            if node is None:
                names.pop(path, None)
            else:
                names[path] = node
