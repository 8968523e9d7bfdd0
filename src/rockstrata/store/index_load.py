"""What is kept of the index files a last run left behind.

Answers to IndexService.load, which deletes every file a crash may have torn. Called by ``Index.load``.
"""

import logging
from pathlib import Path

from rockstrata.errors import CorruptionError, ForeignFileError
from rockstrata.store.disk import Disk
from rockstrata.store.index_file import IndexFile, index_file_bytes

log = logging.getLogger(__name__)

LONG_MAX = 2**63 - 1


def load_index_files(
    disk: Disk, directory: Path, hash_slots: int, max_items: int, sealed_to: int | None
) -> list[IndexFile]:
    """The files of a directory, oldest first.

    After a clean exit (``sealed_to`` is None) all of them. After an unclean one, ``sealed_to`` being
    the checkpoint's index time, those that were synced when full, and the next one as far as its items
    are whole; later ones are deleted, since records are dispatched again in order.

    Names that are no numbers are skipped with a warning. A file of another size raises
    ForeignFileError; but one that is shorter and empty, the last or after an unclean exit any, was
    never born and is removed. (RocketMQ extends any short file, and misreads it if it was written with
    other settings.) A bad header raises CorruptionError, after a clean exit only.
    """
    size = index_file_bytes(hash_slots, max_items)
    names = [name for name in disk.list_files(directory) if _is_ours(directory, name)]
    files: list[IndexFile] = []
    for name in names:
        path = directory / name
        if (sealed_to is not None or name == names[-1]) and _is_unborn(disk, path, size):
            break
        try:
            files.append(IndexFile(disk.open(path), hash_slots, max_items))
        except CorruptionError as error:
            if sealed_to is None or isinstance(error, ForeignFileError):
                raise
            log.warning("index built anew from %s on: %s", name, error)
            break
    if sealed_to is not None:
        files = _salvage(files, sealed_to)
    for name in names[len(files) :]:
        disk.unlink(directory / name)
    if len(files) < len(names):
        disk.sync_dir(directory)
    return files


def _is_ours(directory: Path, name: str) -> bool:
    if name.isascii() and name.isdigit():
        return True
    log.warning("%s is no index file, left alone", directory / name)
    return False


def _is_unborn(disk: Disk, path: Path, size: int) -> bool:
    """True for a file whose creation a crash cut short."""
    return disk.file_bytes(path) < size and not any(disk.read_bytes(path))


def _salvage(files: list[IndexFile], sealed_to: int) -> list[IndexFile]:
    for n, file in enumerate(files):
        if not _is_sealed(n, files, sealed_to):
            if not file.truncate(LONG_MAX, doubt=True):
                return files[:n]
            # Durable before anything is added: a second crash must not find old items and new ones
            # in turns, each of them whole.
            file.flush()
            return files[: n + 1]
    return files


def _is_sealed(n: int, files: list[IndexFile], sealed_to: int) -> bool:
    """Whether file n was synced when it was full.

    The checkpoint says so for every file that ends at its index time or before. Only of the last one
    this is not sure if its end is not exactly that time or another file ends then, too.
    """
    file = files[n]
    if not file.is_full or file.end_timestamp > sealed_to:
        return False
    others = [other.end_timestamp for other in files if other is not file]
    return n < len(files) - 1 or (file.end_timestamp == sealed_to and sealed_to not in others)
