"""All consume queues of a store, by topic and queue id.

Answers to RocketMQ's ConsumeQueueStore. Loaded and recovered at start, written by the dispatcher,
flushed by its own service, asked by every read.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rockstrata.errors import ConfigError, DiskError
from rockstrata.store.batch_consume_queue import BatchConsumeQueue
from rockstrata.store.consume_queue import ConsumeQueue
from rockstrata.store.handles import FileHandles
from rockstrata.store.store_config import StoreConfig

log = logging.getLogger(__name__)

Queue = ConsumeQueue | BatchConsumeQueue
_INT_MAX = 2**31 - 1


class ConsumeQueues:
    """The table of queues. A queue has no directory until its first unit."""

    def __init__(
        self, config: StoreConfig, handles: FileHandles, is_batch_topic: Callable[[str], bool]
    ) -> None:
        self._config = config
        self._handles = handles
        self._is_batch_topic = is_batch_topic
        self._table: dict[str, dict[int, Queue]] = {}
        self._dirty: set[Queue] = set()
        self._lock = threading.Lock()

    # Finding

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """A queue that exists."""
        queues = self._table.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def ensure(self, topic: str, queue_id: int) -> Queue:
        """A queue, made if there is none."""
        queue = self.get(topic, queue_id)
        if queue is None:
            with self._lock:
                queue = self.get(topic, queue_id)
                if queue is None:
                    queue = self._make(topic, queue_id, batch=self._is_batch_topic(topic))
                    # Copied, not changed: readers iterate without the lock.
                    self._table = {**self._table, topic: {**self._table.get(topic, {}), queue_id: queue}}
        return queue

    def __iter__(self) -> Iterator[Queue]:
        for queues in tuple(self._table.values()):
            yield from tuple(queues.values())

    def topics(self) -> dict[str, list[int]]:
        """Queue ids of every topic that has queues, sorted."""
        return {topic: sorted(queues) for topic, queues in sorted(self._table.items())}

    def _make(self, topic: str, queue_id: int, *, batch: bool) -> Queue:
        config = self._config
        if batch:
            directory = config.batch_consume_queue_dir / topic / str(queue_id)
            return BatchConsumeQueue(
                self._handles, directory, topic, queue_id, config.batch_consume_queue_file_bytes
            )
        directory = config.consume_queue_dir / topic / str(queue_id)
        return ConsumeQueue(self._handles, directory, topic, queue_id, config.consume_queue_file_bytes)

    # Starting

    def load(self, *, clean: bool = True) -> None:
        """Find every queue on disk. A queue of the wrong kind for its topic is refused."""
        self._table = {}
        self._load_from(self._config.consume_queue_dir, batch=False, clean=clean)
        self._load_from(self._config.batch_consume_queue_dir, batch=True, clean=clean)

    def _load_from(self, root: Path, *, batch: bool, clean: bool) -> None:
        disk = self._handles.disk
        for topic in disk.list_dirs(root):
            for name in disk.list_dirs(root / topic):
                if not (name.isascii() and name.isdigit() and int(name) <= _INT_MAX):
                    log.warning("skipping %s: not a queue id", root / topic / name)
                    continue
                if self._is_batch_topic(topic) is not batch:
                    raise ConfigError(
                        "queue of the wrong kind", path=root / topic / name,
                        expected="queue.type=BatchCQ" if batch else "queue.type=SimpleCQ",
                        found="another type in topics.json",
                        hint="correct the topic's attributes in config/topics.json",
                    )  # fmt: skip
                queue = self._make(topic, int(name), batch=batch)
                queue.load(clean=clean)
                if queue.queue.files:
                    self._table.setdefault(topic, {})[int(name)] = queue
                elif not clean:
                    disk.sync_dir(root / topic / name)
            if not clean:
                disk.sync_dir(root / topic)
        if not clean and disk.exists(root):
            # Who removed files or queues may have died before that was durable. They must not come back.
            disk.sync_dir(root)

    def recover(self, *, clean: bool, whole_before: int = 0) -> None:
        """Find the end of every queue; units of records before ``whole_before`` are durable."""
        for queue in self:
            queue.recover(clean=clean, whole_before=whole_before)

    @property
    def max_physical(self) -> int:
        """End of the last record any queue has a unit for, -1 if there is none."""
        return max((queue.max_physical for queue in self), default=-1)

    def truncate_physical(self, end: int) -> None:
        """Drop units of records at or after ``end``."""
        for queue in self:
            queue.truncate_physical(end)

    def correct_min(self, min_physical: int) -> None:
        """Move every queue's minimum to the first record still in the log."""
        for queue in self:
            queue.correct_min(min_physical)

    # Writing

    def mark_dirty(self, queue: Queue) -> None:
        """The dispatcher wrote to this queue."""
        self._dirty.add(queue)

    def flush(self, least_pages: int = 0) -> None:
        """Make units durable; with 0 every unit written before the call."""
        failed: DiskError | None = None
        for queue in tuple(self._dirty):
            # Discarded first: what is written from now on marks the queue again.
            if least_pages == 0:
                self._dirty.discard(queue)
            try:
                queue.flush(least_pages)
            except DiskError as error:
                self._dirty.add(queue)
                failed = failed or error
        if failed is not None:
            raise failed

    # Removing

    def delete_topic(self, topic: str) -> int:
        """Destroy the queues of a topic; returns how many there were."""
        return self.delete_queues(topic, self._table.get(topic, {}))

    def delete_queues(self, topic: str, queue_ids: Iterable[int]) -> int:
        """Destroy some queues of a topic; returns how many there were. Nobody may write meanwhile."""
        with self._lock:
            queues = dict(self._table.get(topic, {}))
            doomed = [queues.pop(queue_id) for queue_id in tuple(queue_ids) if queue_id in queues]
            table = {name: others for name, others in self._table.items() if name != topic}
            self._table = {**table, topic: queues} if queues else table
        for queue in doomed:
            self._dirty.discard(queue)
            queue.destroy()
        for root in (self._config.consume_queue_dir, self._config.batch_consume_queue_dir):
            disk = self._handles.disk
            if not disk.list_dirs(root / topic) and not disk.list_files(root / topic):
                disk.remove_dir(root / topic)
        return len(doomed)

    def destroy(self) -> None:
        """Destroy every queue: they will be rebuilt from the log."""
        for topic in self.topics():
            self.delete_topic(topic)
        # Durably: a queue that came back would point into a log that has other records by then.
        for root in (self._config.consume_queue_dir, self._config.batch_consume_queue_dir):
            if self._handles.disk.exists(root):
                self._handles.disk.sync_dir(root)
