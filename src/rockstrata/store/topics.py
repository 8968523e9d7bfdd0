"""The topics of a store, their queues, permissions and attributes: ``topics.json``.

Answers to RocketMQ's TopicConfigManager, TopicConfig, PermName and TopicAttributes. Called by the
store (queue type of a topic) and by the broker and the command line (create, change, delete).
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntFlag
from typing import TypeVar

import msgspec

from rockstrata.clock import Clock
from rockstrata.errors import ConfigError
from rockstrata.store import fastjson
from rockstrata.store.config_file import ConfigFile, DataVersion

FILE_NAME = "topics.json"
E = TypeVar("E", bound=Enum)


class Perm(IntFlag):
    """What may be done with a topic."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class QueueType(Enum):
    """Form of a topic's consume queues."""

    SIMPLE = "SimpleCQ"
    BATCH = "BatchCQ"


class CleanupPolicy(Enum):
    """What becomes of old messages: deleted, or all but the last of each key."""

    DELETE = "DELETE"
    COMPACTION = "COMPACTION"


class MessageType(Enum):
    """Kind of messages a topic is meant for."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    PRIORITY = "PRIORITY"
    LITE = "LITE"
    MIXED = "MIXED"


class TopicFilterType(Enum):
    """Whether a message of the topic has one tag or several."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


_LONG_MAX = 2**63 - 1
_LITE_MINUTES_MAX = 30 * 24 * 60


def _one_of(kind: type[Enum]) -> Callable[[str], bool]:
    return frozenset(member.value for member in kind).__contains__


def _between(low: int, high: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        digits = text[1:] if text[:1] in ("-", "+") else text
        return digits.isascii() and digits.isdecimal() and len(digits) < 25 and low <= int(text) <= high

    return check


# Name → (may change after creation, test of a value).
ATTRIBUTES: Mapping[str, tuple[bool, Callable[[str], bool]]] = {
    "queue.type": (False, _one_of(QueueType)),
    "cleanup.policy": (False, _one_of(CleanupPolicy)),
    "message.type": (True, _one_of(MessageType)),
    "reserve.time": (True, _between(-1, _LONG_MAX)),
    "lite.topic.expiration": (True, _between(-1, _LITE_MINUTES_MAX)),
}


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One topic, with RocketMQ's defaults."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = int(Perm.READ | Perm.WRITE)
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    def attribute(self, name: str) -> str | None:
        """Value of an attribute, None if it is not set."""
        return self.attributes.get(name)

    @property
    def queue_type(self) -> QueueType:
        """Form of the consume queues; SimpleCQ unless the attribute says otherwise."""
        return self._member("queue.type", QueueType.SIMPLE)

    @property
    def cleanup_policy(self) -> CleanupPolicy:
        """What becomes of old messages."""
        return self._member("cleanup.policy", CleanupPolicy.DELETE)

    @property
    def message_type(self) -> MessageType:
        """Kind of messages."""
        return self._member("message.type", MessageType.NORMAL)

    @property
    def reserve_time_hours(self) -> int:
        """Hours the tier keeps this topic; -1 for as long as it keeps any."""
        text = self.attribute("reserve.time")
        if text is None:
            return -1
        if not ATTRIBUTES["reserve.time"][1](text):
            raise _bad(self, "attribute reserve.time", text)
        return int(text)

    @property
    def readable(self) -> bool:
        """Consumers may read."""
        return bool(self.perm & Perm.READ)

    @property
    def writable(self) -> bool:
        """Producers may write."""
        return bool(self.perm & Perm.WRITE)

    def _member(self, name: str, default: E) -> E:
        text = self.attribute(name)
        if text is None:
            return default
        try:
            return type(default)(text)
        except ValueError:
            raise _bad(self, f"attribute {name}", text) from None


class _Read(TopicConfig, frozen=True, kw_only=True, rename="camel"):
    """A topic as RocketMQ may have written it."""

    attributes: dict[str, str] | None = {}  # type: ignore[assignment]


class _Document(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, _Read] = {}
    data_version: DataVersion | None = None


class Topics:
    """All topics of one store. Thread-safe; every change is on disk when the call returns."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.RLock()
        self._table: dict[str, TopicConfig] = {}
        self._data_version = DataVersion()

    @property
    def data_version(self) -> DataVersion:
        """Moves with every change."""
        return self._data_version

    def get(self, topic: str) -> TopicConfig | None:
        """The topic, None if unknown."""
        return self._table.get(topic)

    def all(self) -> dict[str, TopicConfig]:
        """A copy of the table."""
        with self._lock:
            return dict(self._table)

    def queue_type(self, topic: str) -> QueueType:
        """Form of a topic's queues; an unknown topic has simple ones, as in RocketMQ."""
        config = self._table.get(topic)
        return QueueType.SIMPLE if config is None else config.queue_type

    def ensure(self, *configs: TopicConfig) -> None:
        """Create those that do not exist, in one save; the others stay as they are."""
        with self._lock:
            fresh = {c.topic_name: c for c in configs if c.topic_name not in self._table}
            if fresh:
                self._replace({**self._table, **{name: check_topic(c) for name, c in fresh.items()}})

    def create_or_update(self, config: TopicConfig) -> None:
        """Set everything but the attributes, which stay those of an existing topic.

        ``config.attributes`` are those of a new topic. See ``alter`` to change them later.
        """
        with self._lock:
            old = self._table.get(config.topic_name)
            if old is None:
                check_topic(config)
            else:
                config = _check_numbers(msgspec.structs.replace(config, attributes=old.attributes))
            self._replace({**self._table, config.topic_name: config})

    def alter(self, topic: str, set_to: Mapping[str, str], remove: Iterable[str] = ()) -> TopicConfig:
        """Set and remove attributes of an existing topic, if they may change after creation."""
        with self._lock:
            old = self._table.get(topic)
            if old is None:
                raise ConfigError(f"unknown topic {topic}")
            attributes = dict(old.attributes)
            for name in (*set_to, *remove):
                if name in ATTRIBUTES and not ATTRIBUTES[name][0]:
                    raise ConfigError(
                        f"attribute {name} of topic {topic} cannot change once the topic exists"
                    )
            for name in remove:
                if name not in attributes:
                    raise ConfigError(f"topic {topic} has no attribute {name} to remove")
                del attributes[name]
            check_attributes(old, set_to)
            changed = msgspec.structs.replace(old, attributes={**attributes, **set_to})
            self._replace({**self._table, topic: changed})
            return changed

    def delete(self, topic: str) -> bool:
        """Forget a topic; False if it was unknown. Its messages are the store's affair."""
        with self._lock:
            if topic not in self._table:
                return False
            self._replace({name: config for name, config in self._table.items() if name != topic})
            return True

    def load(self, *, read_only: bool = False) -> None:
        """Add the file's topics to ours, replacing those of equal name; no file, no change.

        Attributes are taken as they are: one we do not know may be a later RocketMQ's.
        """
        document = self._file.load(self._parse, read_only=read_only)
        if document is None:
            return
        table = {
            name: TopicConfig(
                **{**msgspec.structs.asdict(topic), "topic_name": name, "attributes": topic.attributes or {}}
            )
            for name, topic in document.topic_config_table.items()
        }
        with self._lock:
            self._table = {**self._table, **table}
            self._data_version = document.data_version or DataVersion()

    def _parse(self, data: bytes) -> _Document:
        return fastjson.loads(data, _Document, self._file.path)

    def _replace(self, table: dict[str, TopicConfig]) -> None:
        """Save first: a topic that could not be saved does not exist."""
        version = self._data_version.next(self._clock.now_ms())
        document = {"dataVersion": version, "topicConfigTable": table}
        self._file.save(fastjson.dumps(msgspec.to_builtins(document)))
        self._table, self._data_version = table, version


def check_topic(config: TopicConfig) -> TopicConfig:
    """The topic itself if RocketMQ would create it, else ConfigError."""
    check_attributes(config, config.attributes)
    return _check_numbers(config)


def check_attributes(config: TopicConfig, attributes: Mapping[str, str]) -> None:
    """ConfigError if one of them is unknown or has an impossible value."""
    for name, value in attributes.items():
        if name not in ATTRIBUTES:
            raise _bad(config, "unknown attribute", name)
        if not ATTRIBUTES[name][1](value):
            raise _bad(config, f"attribute {name}", value)


def _check_numbers(config: TopicConfig) -> TopicConfig:
    for label, number in (("read queues", config.read_queue_nums), ("write queues", config.write_queue_nums)):
        if not 0 <= number < 2**31:
            raise _bad(config, label, number)
    if not config.topic_name:
        raise _bad(config, "name", config.topic_name)
    return config


def _bad(config: TopicConfig, what: str, found: object) -> ConfigError:
    return ConfigError(f"{what} of topic {config.topic_name} cannot be used", found=repr(found)[:100])
