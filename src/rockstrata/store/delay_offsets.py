"""How far each delay level is delivered: ``delayOffset.json``.

Answers to the table of RocketMQ's ScheduleMessageService and DelayOffsetSerializeWrapper. Owned by
the schedule service.
"""

from typing import Annotated

import msgspec

from rockstrata.clock import Clock
from rockstrata.store import fastjson
from rockstrata.store.config_file import ConfigFile, DataVersion

FILE_NAME = "delayOffset.json"

_Level = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Document(msgspec.Struct, rename="camel"):
    """The file; old releases wrote no version."""

    offset_table: dict[_Level, _Long] = {}
    data_version: DataVersion | None = None


class DelayOffsets:
    """Level (from 1) → next queue offset of its queue. One thread at a time."""

    def __init__(self, file: ConfigFile, clock: Clock, *, version_step: int = 200) -> None:
        self._file = file
        self._clock = clock
        self._version_step = version_step
        self._table: dict[int, int] = {}
        self._updates = 0
        self.data_version = DataVersion()
        self.changed = False

    def get(self, level: int) -> int | None:
        """Next queue offset to deliver, None if the level was never delivered from."""
        return self._table.get(level)

    def set(self, level: int, queue_offset: int) -> None:
        """Move a level; every ``version_step`` moves the data version counts one up."""
        self._table[level] = queue_offset
        self.changed = True
        self._updates += 1
        if self._updates % self._version_step == 0:
            self.data_version = self.data_version.next(self._clock.now_ms())

    def all(self) -> dict[int, int]:
        """A copy of the table, with levels that are no longer configured."""
        return dict(self._table)

    def load(self) -> None:
        """Add the file's offsets to ours; no file, no change."""
        document = self._file.load(self._parse)
        if document is not None:
            self._table.update(document.offset_table)
            self.data_version = document.data_version or self.data_version

    def _parse(self, data: bytes) -> _Document:
        return fastjson.loads(data, _Document, self._file.path)

    def persist(self) -> None:
        """Write the file if anything changed. The caller has made the deliveries durable."""
        if self.changed:
            table = {"dataVersion": msgspec.to_builtins(self.data_version), "offsetTable": self._table}
            self._file.save(fastjson.dumps(table))
            self.changed = False
