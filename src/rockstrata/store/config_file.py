"""One file of ``config/``: saved so that a crash leaves the new or the old content, never none.

Answers to RocketMQ's ConfigManager (load, persist) and DataVersion. Called by what keeps topics,
consumer offsets and delay offsets.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from rockstrata.errors import ConfigError
from rockstrata.store.disk import Disk

T = TypeVar("T")
log = logging.getLogger(__name__)


class DataVersion(msgspec.Struct, frozen=True, rename="camel"):
    """How often a table changed, and when last; RocketMQ compares them between brokers."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(counter=self.counter + 1, state_version=self.state_version, timestamp=now_ms)


class ConfigFile:
    """``X`` with its predecessor ``X.bak``, by names RocketMQ knows.

    Unlike RocketMQ's, a save writes beside (``X.tmp``) and renames, so that a full disk or a power
    cut cannot tear ``X``; and a load never deletes what it cannot read.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._disk = disk
        self._lock = threading.Lock()

    def save(self, data: bytes) -> None:
        """Make ``data`` the content; the old content becomes the backup. Durable on return."""
        with self._lock:
            fresh = self.path.with_name(self.path.name + ".tmp")
            self._disk.make_dirs(self.path.parent)
            self._disk.write_file(fresh, data)
            if self._disk.exists(self.path):
                self._disk.rename(self.path, self.backup_path)
                self._disk.sync_dir(self.path.parent)
            self._disk.rename(fresh, self.path)
            self._disk.sync_dir(self.path.parent)

    def load(self, parse: Callable[[bytes], T], *, read_only: bool = False) -> T | None:
        """What ``parse`` makes of the content, or of the backup's if that is missing or unusable.

        None if there is neither. ``parse`` raises ConfigError for bad content. Unusable content is
        moved to ``X.bad-<n>`` once the backup was read, unless ``read_only``; if the backup cannot
        help, ConfigError, and nothing is touched.
        """
        with self._lock:
            data = self._disk.read_bytes(self.path) if self._disk.exists(self.path) else b""
            failure: ConfigError | None = None
            if data:
                try:
                    return parse(data)
                except ConfigError as error:
                    failure = error
            backup = self._disk.read_bytes(self.backup_path) if self._disk.exists(self.backup_path) else b""
            if not backup:
                if failure is None:
                    return None
                raise self._hopeless(failure, "it has no backup")
            try:
                value = parse(backup)
            except ConfigError as error:
                raise self._hopeless(
                    failure or error, f"its backup {self.backup_path.name} is bad too"
                ) from error
            if failure is None:
                log.warning("%s is missing or empty; its backup was loaded", self.path)
            else:
                log.warning("%s; its backup was loaded", failure)
            if not read_only:
                self._set_aside()
            return value

    def _set_aside(self) -> None:
        """Out of the way of the next save, which would make it the backup."""
        if not self._disk.exists(self.path):
            return
        number = 1
        while self._disk.exists(bad := self.path.with_name(f"{self.path.name}.bad-{number}")):
            number += 1
        self._disk.rename(self.path, bad)
        self._disk.sync_dir(self.path.parent)

    def _hopeless(self, failure: ConfigError, why: str) -> ConfigError:
        return ConfigError(
            f"{failure.what}, and {why}",
            path=failure.path or self.path,
            position=failure.position,
            hint=f"restore {self.path.name} from a copy, or move it and its backup away to start without",
        )
