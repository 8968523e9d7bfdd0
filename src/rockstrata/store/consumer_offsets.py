"""How far each consumer group has come in each queue: ``consumerOffset.json``.

Answers to RocketMQ's ConsumerOffsetManager. Called by the broker for every commit, and by the
transaction service, whose own progress is two consumer offsets.
"""

import logging
import threading
from collections.abc import Callable
from typing import Annotated

import msgspec

from rockstrata.clock import Clock
from rockstrata.service import Service
from rockstrata.store import fastjson
from rockstrata.store.config_file import ConfigFile, DataVersion

log = logging.getLogger(__name__)

FILE_NAME = "consumerOffset.json"
UNKNOWN_OFFSET = -1
_SEPARATOR = "@"

_QueueId = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Document(msgspec.Struct, rename="camel"):
    """What is read of the file; ``groupTopicMap`` and ``pullOffsetTable`` only repeat or mislead."""

    offset_table: dict[str, dict[_QueueId, _Long]] = {}
    data_version: DataVersion | None = None


class ConsumerOffsets:
    """Consumer offsets of one store. Thread-safe."""

    def __init__(self, file: ConfigFile, clock: Clock, *, version_step: int = 500) -> None:
        self._file = file
        self._clock = clock
        self._version_step = version_step
        self._lock = threading.Lock()
        self._table: dict[str, dict[int, int]] = {}
        self._data_version = DataVersion()
        self._commits = 0
        self._changed = False

    @property
    def data_version(self) -> DataVersion:
        """Moves once per ``version_step`` commits."""
        return self._data_version

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The group wants ``queue_offset`` next. Going back is allowed, and said in the log."""
        with self._lock:
            queues = self._table.setdefault(f"{topic}{_SEPARATOR}{group}", {})
            before = queues.get(queue_id)
            queues[queue_id] = queue_offset
            self._changed = True
            self._commits += 1
            if self._commits % self._version_step == 0:
                self._data_version = self._data_version.next(self._clock.now_ms())
        if before is not None and queue_offset < before:
            log.warning(
                "group %s went back from %d to %d in %s queue %d",
                group,
                before,
                queue_offset,
                topic,
                queue_id,
            )

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Next queue offset of the group, -1 if it never committed one."""
        with self._lock:
            return self._table.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id, UNKNOWN_OFFSET)

    def query_all(self, group: str, topic: str) -> dict[int, int]:
        """Queue → next offset."""
        with self._lock:
            return dict(self._table.get(f"{topic}{_SEPARATOR}{group}", {}))

    def topics_of(self, group: str) -> set[str]:
        """Topics in which the group committed."""
        return {topic for topic, other in self._pairs() if other == group}

    def groups_of(self, topic: str) -> set[str]:
        """Groups that committed in the topic."""
        return {group for other, group in self._pairs() if other == topic}

    def remove_group(self, group: str) -> None:
        """Forget everything about a group."""
        self._remove(lambda pair: pair[1] == group)

    def remove_topic(self, topic: str) -> None:
        """Forget everything about a topic."""
        self._remove(lambda pair: pair[0] == topic)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget everything about a queue: it will start again at offset 0."""
        with self._lock:
            for key, queues in self._table.items():
                if (pair := _pair(key)) and pair[0] == topic and queues.pop(queue_id, None) is not None:
                    self._changed = True

    def load(self, *, read_only: bool = False) -> None:
        """Take the file's content in place of ours; no file, no change."""

        def parse(data: bytes) -> _Document:
            return fastjson.loads(data, _Document, self._file.path)

        document = self._file.load(parse, read_only=read_only)
        if document is None:
            return
        with self._lock:
            self._table = document.offset_table
            self._data_version = document.data_version or DataVersion()
            self._changed = False

    def persist(self) -> None:
        """Write the file if anything changed since it was last written or read."""
        with self._lock:
            if not self._changed:
                return
            self._changed = False
            table = {key: dict(queues) for key, queues in self._table.items()}
            version = self._data_version
        topics: dict[str, list[str]] = {}
        for pair in filter(None, map(_pair, sorted(table))):
            topics.setdefault(pair[1], []).append(pair[0])
        try:
            self._file.save(
                fastjson.dumps(
                    {
                        "dataVersion": msgspec.to_builtins(version),
                        "groupTopicMap": topics,
                        "offsetTable": table,
                    }
                )
            )
        except BaseException:
            self._changed = True
            raise

    def _pairs(self) -> list[tuple[str, str]]:
        with self._lock:
            return [pair for pair in map(_pair, self._table) if pair]

    def _remove(self, gone: Callable[[tuple[str, str]], bool]) -> None:
        with self._lock:
            doomed = [key for key in self._table if (pair := _pair(key)) and gone(pair)]
            for key in doomed:
                del self._table[key]
            self._changed |= bool(doomed)


class ConsumerOffsetSaver(Service):
    """Writes the offsets every so often, and once more at the end."""

    def __init__(self, offsets: ConsumerOffsets, interval_ms: int) -> None:
        super().__init__()
        self.interval_s = interval_ms / 1000
        self._offsets = offsets

    def run_once(self) -> None:
        """Save what changed."""
        self._offsets.persist()

    def on_stop(self) -> None:
        """Save what the last round missed."""
        self._offsets.persist()


def _pair(key: str) -> tuple[str, str] | None:
    """Topic and group of a table key; None for a key that RocketMQ would pass over too."""
    parts = key.split(_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None
