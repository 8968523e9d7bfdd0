"""What a store directory holds, found by looking: queues, log, index, checkpoint, owner.

Answers to RocketMQ's topicStatus and brokerStatus. Pure of printing; called by stat, query and demo.
Nothing is locked and nothing is written.
"""

from pathlib import Path
from typing import Any

import msgspec

from rockstrata.errors import RockstrataError
from rockstrata.store.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from rockstrata.store.checkpoint import CHECKPOINT, Checkpoint
from rockstrata.store.index_file import INDEX_HEADER
from rockstrata.store.multi_dispatch import LIGHT_QUEUE_PREFIX
from rockstrata.store.posix_lock import PosixLock
from rockstrata.store.reader import StoreReader
from rockstrata.store.reader_queues import ReaderQueue
from rockstrata.store.store_config import StoreConfig
from rockstrata.store.unit_queue import PRE_BLANK_SIZE

_UNITS_AT_ONCE = 300_000
# Up to so many units are added up without numpy.
_FEW_UNITS = 20_000


class QueueOverview(msgspec.Struct, frozen=True):
    """One queue: offsets [min, max), and what its units say of the records."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    record_bytes: int
    oldest: int
    newest: int
    end_physical: int


class IndexOverview(msgspec.Struct, frozen=True):
    """The header of one index file."""

    name: str
    items: int
    used_slots: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical: int
    end_physical: int


class LogOverview(msgspec.Struct, frozen=True):
    """The commit log: [min, end), where ``end`` is the end of the last record a queue knows."""

    min_offset: int
    end_offset: int
    files: int
    file_bytes: int


class StoreOverview(msgspec.Struct, frozen=True):
    """Everything."""

    root: str
    state: str
    owner_pid: int | None
    abort_pid: int | None
    log: LogOverview
    queues: list[QueueOverview]
    index: list[IndexOverview]
    checkpoint: dict[str, int]

    @property
    def messages(self) -> int:
        """Messages in all queues; a message in several light queues counts once."""
        return sum(q.messages for q in self.queues if not q.topic.startswith(LIGHT_QUEUE_PREFIX))

    @property
    def record_bytes(self) -> int:
        """Bytes of their records."""
        return sum(q.record_bytes for q in self.queues if not q.topic.startswith(LIGHT_QUEUE_PREFIX))


def overview(reader: StoreReader) -> StoreOverview:
    """Look at everything."""
    config = reader.config
    owner, abort = PosixLock.holder(config.lock_path), abort_pid(config)
    queues = [
        queue_overview(reader, queue)
        for topic, ids in reader.topic_queues().items()
        for queue_id in ids
        if (queue := reader.queues.get(topic, queue_id)) is not None
    ]
    reader.log.refresh()
    minimum = max(0, reader.log.min_offset)
    log = LogOverview(
        minimum,
        max((q.end_physical for q in queues), default=minimum),
        len(reader.log.starts),
        reader.log.file_bytes,
    )
    return StoreOverview(
        str(config.root), _state(owner, config.abort_path), owner, abort, log, queues, index_files(reader),
        _checkpoint(reader, config.checkpoint_path),
    )  # fmt: skip


def _state(owner: int | None, abort: Path) -> str:
    if owner is not None:
        return "open"
    return "not closed" if abort.exists() else "closed"


def abort_pid(config: StoreConfig) -> int | None:
    """The process that last opened the store and has not closed it, if it says so."""
    try:
        text = config.abort_path.read_text("ascii", "replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def queue_overview(reader: StoreReader, queue: ReaderQueue) -> QueueOverview:
    """One queue; reads all of its units."""
    minimum, maximum = queue.min_offset, queue.max_offset
    is_batch = queue.layout is BATCH_CONSUME_QUEUE_UNIT
    first = getattr(queue, "min_unit", minimum) if is_batch else minimum
    count = queue.unit_count
    messages = max(0, maximum - max(0, minimum))
    end = 0
    if count > first:
        physical, size = queue.unit(count - 1)[:2]
        end = physical + size if size != PRE_BLANK_SIZE else 0
    return QueueOverview(
        queue.topic,
        queue.queue_id,
        minimum,
        maximum,
        messages,
        _record_bytes(queue, first, count),
        reader.store_time(queue.topic, queue.queue_id, minimum) if messages else -1,
        reader.store_time(queue.topic, queue.queue_id, maximum - 1) if messages else -1,
        end,
    )


def _record_bytes(queue: ReaderQueue, first: int, end: int) -> int:
    """The exact sum of the sizes in the units [first, end)."""
    total = 0
    few = end - first <= _FEW_UNITS
    while first < end:
        data = queue.units(first, min(_UNITS_AT_ONCE, end - first))
        if not data:
            break
        total += sum(unit[1] for unit in queue.layout.struct.iter_unpack(data)) if few else _sum(queue, data)
        first += len(data) // queue.layout.size
    return total


def _sum(queue: ReaderQueue, data: bytes) -> int:
    import numpy as np

    units: Any = np.frombuffer(data, queue.layout.dtype)
    return int(units["size"].sum(dtype=np.int64))


def index_files(reader: StoreReader) -> list[IndexOverview]:
    """The headers of the index files, oldest first."""
    found = []
    folder = reader.config.index_dir
    for name in reader.disk.list_files(folder):
        if not name.isdigit():
            continue
        try:
            header = reader.disk.open(folder / name, writable=False).pread(0, INDEX_HEADER.size)
        except RockstrataError:
            continue
        if len(header) == INDEX_HEADER.size:
            begin, end, begin_physical, end_physical, slots, count = INDEX_HEADER.struct.unpack(header)
            found.append(
                IndexOverview(name, max(0, count - 1), slots, begin, end, begin_physical, end_physical)
            )
    return found


def _checkpoint(reader: StoreReader, path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    checkpoint = Checkpoint(reader.disk, path)
    return {field.name: getattr(checkpoint, field.name) for field in CHECKPOINT.fields}
