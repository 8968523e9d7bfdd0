"""The consumer groups of a store and how they may consume: ``subscriptionGroup.json``.

Answers to RocketMQ's SubscriptionGroupManager and SubscriptionGroupConfig. Called by the broker,
and wherever a message goes back for another try.
"""

import threading
from typing import Any

import msgspec

from rockstrata.clock import Clock
from rockstrata.errors import ConfigError
from rockstrata.store import fastjson
from rockstrata.store.config_file import ConfigFile, DataVersion

FILE_NAME = "subscriptionGroup.json"


class SubscriptionGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One consumer group, with RocketMQ's defaults."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = {}


class _Document(msgspec.Struct, rename="camel"):
    """Groups stay as read: what we do not know of them is written back."""

    subscription_group_table: dict[str, dict[str, Any]] = {}
    forbidden_table: dict[str, dict[str, int]] | None = None
    data_version: DataVersion | None = None


class SubscriptionGroups:
    """All consumer groups of one store. Thread-safe; every change is on disk when the call returns."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.RLock()
        self._document = _Document()
        self._groups: dict[str, SubscriptionGroup] = {}

    @property
    def data_version(self) -> DataVersion:
        """Moves with every change."""
        return self._document.data_version or DataVersion()

    def get(self, group: str) -> SubscriptionGroup | None:
        """The group, None if unknown."""
        return self._groups.get(group)

    def all(self) -> dict[str, SubscriptionGroup]:
        """A copy of the table."""
        with self._lock:
            return dict(self._groups)

    def ensure(self, *groups: SubscriptionGroup) -> None:
        """Create those that do not exist, in one save; the others stay as they are."""
        with self._lock:
            fresh = {group.group_name: group for group in groups if group.group_name not in self._groups}
            if fresh:
                self._replace({**self._groups, **fresh})

    def create_or_update(self, group: SubscriptionGroup) -> None:
        """Set everything this class knows of a group; what only RocketMQ knows stays."""
        with self._lock:
            self._replace({**self._groups, group.group_name: group})

    def delete(self, group: str) -> bool:
        """Forget a group; False if it was unknown."""
        with self._lock:
            if group not in self._groups:
                return False
            self._replace({name: other for name, other in self._groups.items() if name != group})
            return True

    def load(self, *, read_only: bool = False) -> None:
        """Take the file's content in place of ours; no file, no change."""
        loaded = self._file.load(self._parse, read_only=read_only)
        if loaded is not None:
            with self._lock:
                self._document, self._groups = loaded

    def _parse(self, data: bytes) -> tuple[_Document, dict[str, SubscriptionGroup]]:
        document = fastjson.loads(data, _Document, self._file.path)
        groups = {}
        for name, raw in document.subscription_group_table.items():
            known = {key: value for key, value in raw.items() if value is not None}
            try:
                groups[name] = msgspec.convert({**known, "groupName": name}, SubscriptionGroup)
            except msgspec.ValidationError as error:
                raise ConfigError(f"group {name} is not usable: {error}", path=self._file.path) from error
        return document, groups

    def _replace(self, groups: dict[str, SubscriptionGroup]) -> None:
        """Save first: a change that could not be saved did not happen."""
        if "" in groups:
            raise ConfigError("a consumer group needs a name")
        old = self._document.subscription_group_table
        table: dict[str, dict[str, Any]] = {}
        for name, group in groups.items():
            changed = group is not self._groups.get(name)
            table[name] = {**old.get(name, {}), **msgspec.to_builtins(group)} if changed else old[name]
        document = _Document(
            subscription_group_table=table,
            forbidden_table=self._document.forbidden_table or {},
            data_version=self.data_version.next(self._clock.now_ms()),
        )
        self._file.save(fastjson.dumps(msgspec.to_builtins(document)))
        self._document, self._groups = document, groups
