"""A disk in memory that forgets what was not synced, tears pages, fills up and fails on demand.

The treacherous twin of ``store.disk.PosixDisk``; answers to nothing in RocketMQ. Given to stores by
crash tests; users may test their own code with it.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rockstrata.clock import Clock
from rockstrata.errors import DiskError, DiskFullError, RockstrataError, StoreLockedError
from rockstrata.store.disk import PAGE_BYTES, DiskUsage
from rockstrata.testing.forgetful_file import ForgetfulFile
from rockstrata.testing.forgetful_inode import SECTOR_BYTES, Change, Inode
from rockstrata.testing.forgetful_names import DIRECTORY, Names
from rockstrata.testing.manual_clock import ManualClock

Keeps = Callable[[Change], bool] | Set[int] | random.Random | None
SECTORS = PAGE_BYTES // SECTOR_BYTES


class PowerCut(BaseException):
    """The machine stopped in this call; the disk answers no more. See ``ForgetfulDisk.stop_after``.

    Not an Exception: no handler of the store may swallow it.
    """


class _Fault(NamedTuple):
    kind: str
    first: int
    end: int
    error: type[BaseException]


class ForgetfulDisk:
    """``Disk`` in memory.

    Content is durable after ``sync`` of the file. A directory entry (creation, rename, removal) is
    durable after ``sync_dir`` of its directory, which also saves the way there from the root; a
    rename is atomic. That is what POSIX promises and no more: syncing a new file does not save its
    name. ``names_follow_sync=True`` gives the milder behaviour of ext4, where it does. Within one
    directory, operations are lost from the last backwards, as a journal loses them.

    ``quota_bytes`` bounds what ``create(reserve=True)``, ``pwrite`` and ``write_file`` may claim;
    writes through the view of a file that was not reserved are not seen and not counted.
    """

    def __init__(
        self, clock: Clock | None = None, *, quota_bytes: int | None = None, names_follow_sync: bool = False
    ) -> None:
        self.clock: Clock = ManualClock() if clock is None else clock
        self.quota_bytes = quota_bytes
        self.names_follow_sync = names_follow_sync
        self.calls: Counter[str] = Counter()
        self._names = Names()
        self._locks: set[Path] = set()
        self._faults: list[_Fault] = []
        self._stops_at: int | None = None
        self._stopped = False
        self._usages: dict[Path, DiskUsage] = {}
        self._guard = threading.RLock()

    # What happens to the machine.

    def kill(self) -> "ForgetfulDisk":
        """The process died: a new disk with everything written so far, and the same things unsynced."""
        with self._guard:
            return self._with(self._names.copy(Inode.copy))

    def power_cut(self, keeps: Keeps = None, *, tear: tuple[int, int] | None = None) -> "ForgetfulDisk":
        """The machine died: a new disk with what was durable, and of ``unsynced()`` what ``keeps`` says.

        ``None`` keeps nothing, a function is asked per change, a set holds places in ``unsynced()``,
        a ``Random`` tosses coins and may tear one page. ``tear=(n, k)``: of dirty page n (modulo their
        number) the first k of 8 sectors are new and the rest old.
        """
        survivor = self.kill()
        survivor.write_back(keeps, tear=tear)
        return self._with(survivor._names.after_power_cut().copy(Inode.after_power_cut))

    def write_back(self, keeps: Keeps = None, *, tear: tuple[int, int] | None = None) -> None:
        """The kernel makes changes durable of its own accord; arguments as in ``power_cut``.

        A later power cut can then find an older state of a page than the last one written.
        """
        with self._guard:
            changes = self._changes()
            keep, tear = _chooser(keeps, tear)
            kept = {n for n, (change, _) in enumerate(changes) if keep(n, change)}
            dirty = [n for n, (change, _) in enumerate(changes) if change.kind == "page"]
            torn = dirty[tear[0] % len(dirty)] if tear is not None and dirty else -1
            sectors = dict.fromkeys(kept, SECTORS) | ({torn: tear[1]} if tear is not None else {})
            for _, inode in self._names.inodes():
                own = [n for n in sectors if n >= 0 and changes[n][1] is inode]
                pages = {changes[n][0].number: sectors[n] for n in own if changes[n][0].kind == "page"}
                inode.write_back(pages, size=any(changes[n][0].kind == "size" for n in own))
            self._names.keep({changes[n][0].number for n in kept if changes[n][0].kind == "entry"})

    def unsynced(self) -> list[Change]:
        """Everything a power cut could lose, in a stable order: entries, then sizes and pages by file."""
        with self._guard:
            return [change for change, _ in self._changes()]

    def fail(
        self, kind: str, nth: int = 1, *, times: int = 1, error: type[BaseException] = DiskError
    ) -> None:
        """Let the ``nth`` call of ``kind`` from now, and ``times`` - 1 after it, raise ``error``.

        Kinds are the method names of ``Disk`` and ``DiskFile``, or ``any``. A failed ``pwrite`` or
        ``write_file`` has written half. A failed sync behaves as Linux's: its pages count as clean
        afterwards, so syncing again does not save them.
        """
        with self._guard:
            first = self._count(kind) + nth
            self._faults.append(_Fault(kind, first, first + times, error))

    def stop_after(self, calls: int) -> None:
        """The machine stops in the call after so many more: it and all later ones raise ``PowerCut``.

        That call is half done: half of the bytes written, a file created but empty.
        """
        with self._guard:
            self._stops_at = self._count("any") + calls

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Age a file."""
        self._names.file(path).modified_ms = modified_ms

    def set_usage(self, path: Path, used_percent: int) -> None:
        """Let ``path``, and what is below it, lie on a disk of its own that is so full."""
        self._usages[path] = DiskUsage(used_percent << 30, (100 - used_percent) << 30)

    # What the store calls.

    def create(self, path: Path, size: int, *, reserve: bool) -> ForgetfulFile:
        """Create or extend, with the directories on the way."""
        with self.called("create", path, halfway=lambda: self._stopped and self._make(path, 0)):
            inode = self._make(path, size if reserve else 0)
            inode.grow(size, path)
            return ForgetfulFile(self, path, inode, size, writable=True)

    def open(self, path: Path, *, writable: bool = True) -> ForgetfulFile:
        """Open an existing file at its present size."""
        with self.called("open", path):
            inode = self._names.file(path)
            return ForgetfulFile(self, path, inode, len(inode.volatile), writable)

    def exists(self, path: Path) -> bool:
        """True if something is there."""
        with self.called("exists", path):
            return path in self._names.seen or self._names.is_dir(path)

    def file_bytes(self, path: Path) -> int:
        """Length of a file."""
        with self.called("file_bytes", path):
            return len(self._names.file(path).volatile)

    def modified_ms(self, path: Path) -> int:
        """Time of the last change we saw: creation, ``pwrite``, or a sync that found dirty pages."""
        with self.called("modified_ms", path):
            return self._names.file(path).modified_ms

    def list_files(self, path: Path) -> list[str]:
        """Sorted names of plain files."""
        with self.called("list_files", path):
            return [p.name for p, _ in self._names.files() if p.parent == path]

    def list_dirs(self, path: Path) -> list[str]:
        """Sorted names of sub-directories."""
        with self.called("list_dirs", path):
            seen = self._names.seen.items()
            return sorted(p.name for p, node in seen if node is DIRECTORY and p.parent == path)

    def read_bytes(self, path: Path) -> bytes:
        """The whole content."""
        with self.called("read_bytes", path):
            return bytes(self._names.file(path).volatile)

    def write_file(self, path: Path, data: bytes) -> None:
        """Create or replace, content synced; the name of a new file still waits for ``sync_dir``."""
        half = data[: len(data) // 2]
        with self.called("write_file", path, halfway=lambda: self._make(path, 0).replace(half)):
            inode = self._make(path, len(data))
            inode.replace(data)
            inode.modified_ms = self.clock.now_ms()
            self.synced(inode)

    def rename(self, source: Path, target: Path) -> None:
        """Atomic replace, of files only."""
        with self.called("rename", source):
            inode = self._names.file(source)
            if self._names.is_dir(target) or not self._names.is_dir(target.parent):
                raise DiskError("cannot rename: no such place", path=target)
            self._names.change((source, None), (target, inode))

    def unlink(self, path: Path) -> None:
        """Remove a file; open ones stay readable."""
        with self.called("unlink", path):
            if self._names.find_file(path) is not None:
                self._names.change((path, None))

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory."""
        with self.called("remove_dir", path):
            if any(p.parent == path for p in self._names.seen):
                raise DiskError("cannot remove: directory not empty", path=path)
            if self._names.is_dir(path):
                self._names.change((path, None))

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents."""
        with self.called("make_dirs", path):
            self._names.make_dirs(path)

    def sync_dir(self, path: Path) -> None:
        """Save the directory's entries and the way to it."""
        with self.called("sync_dir", path):
            if not self._names.is_dir(path):
                raise DiskError("cannot sync: no such directory", path=path)
            self._names.save({path, *path.parents})

    def usage(self, path: Path) -> DiskUsage:
        """Claimed bytes against the quota, or what ``set_usage`` said."""
        with self.called("usage", path):
            for place in (path, *path.parents):
                if place in self._usages:
                    return self._usages[place]
            used = self._used_bytes()
            return DiskUsage(used, (1 << 40 if self.quota_bytes is None else self.quota_bytes) - used)

    def lock(self, path: Path) -> "ForgetfulLock":
        """Exclusive until released; a disk made by ``kill`` or ``power_cut`` holds no lock."""
        with self.called("lock", path):
            if path in self._locks:
                raise StoreLockedError("store is already open", path=path, hint="close it first")
            self._make(path, 4).replace(b"lock")
            self._locks.add(path)
            return ForgetfulLock(self, path)

    # What the files call.

    @contextmanager
    def called(self, kind: str, path: Path, halfway: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Count a call, let it fail after ``halfway`` if that is due, keep other threads out meanwhile."""
        with self._guard:
            if self._stopped:
                raise PowerCut(f"{kind} of {path} on a machine that stopped")
            if self._stops_at is not None and self._count("any") >= self._stops_at:
                self._stopped = True
                halfway()
                raise PowerCut(f"the machine stopped in {kind} of {path}")
            self.calls[kind] += 1
            for fault in self._faults:
                if fault.kind in (kind, "any") and fault.first <= self._count(fault.kind) < fault.end:
                    halfway()
                    if issubclass(fault.error, RockstrataError):
                        raise fault.error(f"cannot {kind}: asked to fail", path=path)
                    raise fault.error(f"{kind} of {path}: asked to fail")
            yield

    def claim(self, path: Path, inode: Inode, size: int) -> None:
        """Take space up to ``size`` for a file, or raise DiskFullError."""
        more = max(0, size - inode.claimed_bytes)
        if more and self.quota_bytes is not None and self._used_bytes() + more > self.quota_bytes:
            raise DiskFullError("disk full", path=path, hint="free space or raise quota_bytes, then retry")
        inode.claimed_bytes += more

    def synced(self, inode: Inode) -> None:
        """Content of a file reached the platter; on a mild disk its names did too."""
        inode.sync()
        if self.names_follow_sync:
            own = {p.parent for p, node in self._names.seen.items() if node is inode}
            self._names.save({folder for p in own for folder in (p, *p.parents)})

    def holds(self, path: Path, inode: Inode) -> bool:
        """Does the name belong to this file?"""
        return self._names.seen.get(path) is inode

    def unlock(self, path: Path) -> None:
        """Give a lock back."""
        with self._guard:
            self._locks.discard(path)

    def _make(self, path: Path, claimed_bytes: int) -> Inode:
        inode = self._names.find_file(path)
        fresh = inode is None
        inode = inode or Inode(0, self.clock.now_ms())
        self.claim(path, inode, claimed_bytes)
        if fresh:
            self._names.make_dirs(path.parent)
            self._names.change((path, inode))
        return inode

    def _changes(self) -> list[tuple[Change, Inode | None]]:
        waiting = enumerate(self._names.waiting)
        found: list[tuple[Change, Inode | None]] = [(Change("entry", e.path, n), None) for n, e in waiting]
        for path, inode in self._names.inodes():
            if inode.size_is_dirty:
                found.append((Change("size", path, len(inode.volatile)), inode))
            found += [(Change("page", path, number), inode) for number in inode.dirty_pages()]
        return found

    def _used_bytes(self) -> int:
        return sum({id(inode): inode.claimed_bytes for _, inode in self._names.files()}.values())

    def _count(self, kind: str) -> int:
        return self.calls.total() if kind == "any" else self.calls[kind]

    def _with(self, names: Names) -> "ForgetfulDisk":
        twin = ForgetfulDisk(
            self.clock, quota_bytes=self.quota_bytes, names_follow_sync=self.names_follow_sync
        )
        twin._names = names
        twin._usages = dict(self._usages)
        return twin


class ForgetfulLock:
    """A lock in the table of its disk."""

    def __init__(self, disk: ForgetfulDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Give it back; twice is harmless."""
        self._disk.unlock(self._path)


def _chooser(
    keeps: Keeps, tear: tuple[int, int] | None
) -> tuple[Callable[[int, Change], bool], tuple[int, int] | None]:
    if keeps is None:
        return (lambda n, change: False), tear
    if isinstance(keeps, random.Random):
        dice = keeps
        if tear is None and dice.random() < 0.5:
            tear = (dice.randrange(1 << 16), dice.randrange(1, SECTORS))
        # A fair coin for every page would almost never keep all or nothing.
        share = dice.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        return (lambda n, change: dice.random() < share), tear
    if isinstance(keeps, Set):
        places = keeps
        return (lambda n, change: n in places), tear
    ask = keeps
    return (lambda n, change: ask(change)), tear
