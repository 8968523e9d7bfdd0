"""Consume queues against the log: every record has its unit, every unit its record.

Answers to no RocketMQ class. Fed with the log window by window by ``StoreCheck``; keeps one cursor a
queue, so memory does not grow with the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rockstrata.errors import ConfigError
from rockstrata.message.record import decode_record
from rockstrata.message.scan import Scan
from rockstrata.message.topic_table import TopicTable
from rockstrata.store import fastjson
from rockstrata.store.check_findings import Finding, FindingKind
from rockstrata.store.check_units import (
    Units,
    batch_units_of,
    place_of,
    read_units,
    same_batches,
    told_unit,
    units_of,
)
from rockstrata.store.config_file import ConfigFile
from rockstrata.store.disk import DiskFile
from rockstrata.store.multi_dispatch import light_entries
from rockstrata.store.reader import StoreReader
from rockstrata.store.reader_queues import ReaderBatchQueue, ReaderQueue
from rockstrata.store.store_config import StoreConfig

_NOT_VISIBLE = 0x4
# More findings of one queue than this are one: the queue is lost.
_PENDING_MAX = 200


@dataclass
class _Cursor:
    """How far a queue is checked: units below ``next`` are accounted for, ``end`` was its count."""

    queue: ReaderQueue
    next: int
    end: int
    is_new: bool = True
    pending: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Keep a finding; one that goes on where the last one ends makes that one longer."""
        last = self.pending[-1] if self.pending else None
        if (
            last is not None
            and (last.kind, last.path, last.note) == (finding.kind, finding.path, finding.note)
            and last.position + last.count * self.queue.layout.size == finding.position
        ):
            self.pending[-1] = msgspec.structs.replace(last, count=last.count + finding.count)
        else:
            self.pending.append(finding)


class _TopicNames(msgspec.Struct):
    topicConfigTable: dict[str, Any] = {}  # noqa: N815


class QueueCheck:
    """All queues of a store. Findings at or after ``notes_from`` are notes: a start rebuilds those units.

    Beside an owner, what belongs to records from ``live_end`` on is not looked at.
    """

    def __init__(
        self,
        config: StoreConfig,
        reader: StoreReader,
        topics: TopicTable,
        notes_from: int | None,
        live_end: int | None,
    ) -> None:
        self.units = 0
        self._live_end = live_end
        self._config = config
        self._reader = reader
        self._topics = topics
        self._notes_from = notes_from
        self._cursors: dict[tuple[str, int], _Cursor | None] = {}
        # By topic: records without any queue, and where the first lies.
        self._homeless: dict[str, tuple[int, int]] = {}
        for topic, queue_ids in reader.topic_queues().items():
            for queue_id in queue_ids:
                self._cursor(topic, queue_id)

    def _cursor(self, topic: str, queue_id: int) -> _Cursor | None:
        key = (topic, queue_id)
        if key not in self._cursors:
            queue = self._reader.queues.get(topic, queue_id)
            if queue is None or not queue.starts:
                self._cursors[key] = None
            else:
                first = queue.min_unit if isinstance(queue, ReaderBatchQueue) else queue.min_offset
                self._cursors[key] = _Cursor(queue, first, self._unit_count(queue))
        return self._cursors[key]

    def _unit_count(self, queue: ReaderQueue) -> int:
        """Units to check: beside an owner those of records before ``live_end``, else all there are."""
        count = queue.unit_count
        if self._live_end is None:
            # The reader leaves out a last unit that fits no record. With nobody writing it is damage.
            while int(read_units(queue, count, 1)["size"][0]) > 0:
                count += 1
            return count
        low = 0
        while low < count:
            middle = (low + count) // 2
            is_before = int(read_units(queue, middle, 1)["physical_offset"][0]) < self._live_end
            low, count = (middle + 1, count) if is_before else (low, middle)
        return low

    # Records

    def records(self, found: Scan, start: int, file: DiskFile | None) -> None:
        """Compare the units of a window's records; ``file`` is given if some stand in light queues.

        Findings wait for ``finish``: units that differ are right if the topic turns out to be made anew.
        """
        visible = np.flatnonzero((found.sys_flag & _NOT_VISIBLE) == 0)
        if visible.size:
            self._visible(found, start, visible)
        if file is not None:
            self._light(found, start, file)

    def _visible(self, found: Scan, start: int, visible: NDArray[np.int64]) -> None:
        key = (found.topic_id[visible].astype(np.int64) << 32) | found.queue_id[visible].astype(np.uint32)
        order = visible[np.argsort(key, kind="stable")]
        topic_ids, queue_ids, offsets = (
            found.topic_id[order],
            found.queue_id[order],
            found.queue_offset[order],
        )
        is_edge = (np.diff(topic_ids) != 0) | (np.diff(queue_ids) != 0) | (np.diff(offsets) != 1)
        units = units_of(found, start, order)
        first = 0
        for end in [*(np.flatnonzero(is_edge) + 1).tolist(), len(order)]:
            topic = self._topics.names[int(topic_ids[first])]
            cursor = self._cursor(topic, int(queue_ids[first]))
            rows = order[first:end]
            if cursor is None:
                count, where = self._homeless.get(topic, (0, start + int(found.position[rows[0]])))
                self._homeless[topic] = count + len(rows), where
            elif isinstance(cursor.queue, ReaderBatchQueue):
                self._compare_batches(cursor, batch_units_of(found, start, rows))
            else:
                self._compare(cursor, int(offsets[first]), units[first:end])
            if cursor is not None and len(cursor.pending) > _PENDING_MAX:
                cursor.pending = [_merged(cursor.pending)]
            first = end

    def _light(self, found: Scan, start: int, file: DiskFile) -> None:
        """Units of records that stand in other queues too; a queue nobody made is not asked for."""
        for row in np.flatnonzero(found.multi_dispatch).tolist():
            data = file.pread(int(found.position[row]), int(found.size[row]))
            unit = units_of(found, start, np.array([row]))
            for name, offset in light_entries(decode_record(data, check_crc=False).properties):
                cursor = self._cursor(name, 0)
                if cursor is not None:
                    self._compare(cursor, offset, unit)

    def _compare(self, cursor: _Cursor, first: int, expected: Units) -> None:
        """Units [first, …) must be ``expected``; those skipped since the last call have no record."""
        if first < cursor.next and not cursor.is_new:
            # The topic was deleted and made again: the units of its former life went with it.
            cursor.pending.clear()
        elif first > cursor.next:
            self._stray(cursor, cursor.next, first)
        cursor.is_new = False
        cursor.next = first + len(expected)
        self.units += len(expected)
        actual = read_units(cursor.queue, first, len(expected))
        if actual.tobytes() == expected.tobytes():
            return
        wrong = np.flatnonzero(actual != expected)
        for run in np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1):
            at = int(run[0])
            self._differ(cursor, first + at, len(run), expected[at], actual[at])

    def _compare_batches(self, cursor: _Cursor, expected: Units) -> None:
        """Batch units stand in the order of the log, whatever their offsets."""
        cursor.is_new = False
        self.units += len(expected)
        number = cursor.next
        actual = read_units(cursor.queue, number, len(expected))
        if same_batches(actual, expected):
            cursor.next = number + len(expected)
            return
        for unit in expected:
            one = read_units(cursor.queue, number, 1)[0]
            skipped = number
            while number < cursor.end and one["physical_offset"] < unit["physical_offset"]:
                number += 1
                one = read_units(cursor.queue, number, 1)[0]
            if number > skipped:
                self._stray(cursor, skipped, number)
            if not same_batches(one, unit):
                self._differ(cursor, number, 1, unit, one)
            number += int(number < cursor.end and one["physical_offset"] == unit["physical_offset"])
        cursor.next = number

    # Findings

    def _differ(self, cursor: _Cursor, number: int, count: int, expected: Any, actual: Any) -> None:
        is_missing = number >= cursor.end or int(actual["size"]) <= 0
        queue = cursor.queue
        what = f"{queue.topic} queue {queue.queue_id} unit {number}"
        cursor.add(
            Finding(
                FindingKind.MISSING_UNIT if is_missing else FindingKind.WRONG_UNIT,
                *place_of(queue, number),
                f"{what} is missing" if is_missing else f"{what} is not its record's",
                told_unit(expected),
                "nothing" if is_missing else told_unit(actual),
                count,
                self._is_note(int(expected["physical_offset"])),
            )
        )

    def _stray(self, cursor: _Cursor, first: int, end: int) -> None:
        end = min(end, cursor.end)
        if first >= end:
            return
        queue, unit = cursor.queue, read_units(cursor.queue, first, 1)[0]
        cursor.add(
            Finding(
                FindingKind.STRAY_UNIT, *place_of(queue, first),
                f"{queue.topic} queue {queue.queue_id} unit {first} has no readable record",
                f"a record at {int(unit['physical_offset'])}", "none", end - first,
                self._is_note(int(unit["physical_offset"])),
            )
        )  # fmt: skip

    def finish(self) -> Iterator[Finding]:
        """Units that no record asked for, queues that are not there, and everything found on the way."""
        for cursor in self._cursors.values():
            if cursor is not None:
                self._stray(cursor, cursor.next, cursor.end)
                yield from cursor.pending
        if self._homeless:
            known = self._known_topics()
            for topic, (count, where) in self._homeless.items():
                # RocketMQ lists every living topic: one it does not list was deleted, its records stay.
                is_deleted = known is not None and topic not in known
                yield Finding(
                    FindingKind.NO_QUEUE, str(self._config.consume_queue_dir / topic), 0,
                    f"records of topic {topic} from {where} on have no queue"
                    + ("; the topic was deleted" if is_deleted else ""),
                    "a queue", "none", count, is_deleted or self._is_note(where),
                )  # fmt: skip

    def _is_note(self, physical_offset: int) -> bool:
        return self._notes_from is not None and physical_offset >= self._notes_from

    def _known_topics(self) -> set[str] | None:
        file = ConfigFile(self._config.config_dir / "topics.json", self._reader.disk)
        try:
            names = file.load(lambda data: fastjson.loads(data, _TopicNames), read_only=True)
        except ConfigError:
            return None
        return None if names is None else set(names.topicConfigTable)


def _merged(findings: list[Finding]) -> Finding:
    """Many findings of one queue as its first with the count of all."""
    count = sum(f.count for f in findings)
    note = all(f.note for f in findings)
    return msgspec.structs.replace(findings[0], count=count, note=note)
