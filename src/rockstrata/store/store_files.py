"""Which files a store has: where they lie and how large they are.

Answers to RocketMQ's StorePathConfigHelper and that part of MessageStoreConfig. The base of
``StoreConfig``; a reader of somebody else's store needs no more than this.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rockstrata.config import INT_MAX, Config, setting
from rockstrata.errors import ConfigError

_CONSUME_QUEUE_UNIT_BYTES = 20
_BATCH_UNIT_BYTES = 46


@dataclass(frozen=True, kw_only=True)
class StoreFiles(Config):
    """Paths and file sizes of one store directory."""

    section: ClassVar[str] = "store"

    store_path_root_dir: str = setting(
        "", key="storePathRootDir", shown="$HOME/store", doc="Root of the store."
    )
    store_path_commit_log: str = setting(
        "",
        key="storePathCommitLog",
        shown="<root>/commitlog",
        doc="Directory of the commit log; several, separated by commas, take its files in turn.",
    )
    read_only_commit_log_store_paths: str = setting(
        "",
        key="readOnlyCommitLogStorePaths",
        doc="Commit log directories, separated by commas, that are read but get no new file.",
    )
    store_type: str = setting(
        "default",
        key="storeType",
        choices=("default",),
        doc="Form of the consume queues; RocketMQ's RocksDB form is not supported.",
    )
    enable_consume_queue_ext: bool = setting(
        False,
        key="enableConsumeQueueExt",
        choices=("false",),
        doc="Only false: consume queue extension files are not supported.",
    )
    enable_dleger_commit_log: bool = setting(
        False,
        key="enableDLegerCommitLog",
        choices=("false",),
        doc="Only false: DLedger's form of the commit log is not supported.",
    )
    duplication_enable: bool = setting(
        False, key="duplicationEnable", choices=("false",), doc="Only false: no outside replication."
    )

    # Sizes of files. They are part of the format: data written with one size is not read with another.
    commit_log_file_bytes: int = setting(
        1 << 30,
        key="mappedFileSizeCommitLog",
        unit="bytes",
        minimum=1,
        doc="Size of each commit log file. Cannot change once data exists.",
    )
    consume_queue_file_bytes: int = setting(
        300_000 * _CONSUME_QUEUE_UNIT_BYTES,
        key="mappedFileSizeConsumeQueue",
        unit="bytes",
        minimum=1,
        maximum=INT_MAX // _CONSUME_QUEUE_UNIT_BYTES * _CONSUME_QUEUE_UNIT_BYTES,
        doc="Size of each consume queue file, rounded up to whole 20-byte units. Cannot change once data "
        "exists.",
    )
    batch_consume_queue_file_bytes: int = setting(
        300_000 * _BATCH_UNIT_BYTES,
        key="mapperFileSizeBatchConsumeQueue",
        aliases=("mappedFileSizeBatchConsumeQueue",),
        unit="bytes",
        minimum=_BATCH_UNIT_BYTES,
        doc="Size of each batch consume queue file, a multiple of 46. Cannot change once data exists.",
    )
    max_hash_slot_num: int = setting(
        5_000_000, key="maxHashSlotNum", minimum=1, doc="Hash slots of an index file."
    )
    max_index_num: int = setting(20_000_000, key="maxIndexNum", minimum=2, doc="Items of an index file.")

    def check(self) -> None:
        """Round what RocketMQ rounds; refuse what cannot work."""
        whole_units = -(-self.consume_queue_file_bytes // _CONSUME_QUEUE_UNIT_BYTES)
        object.__setattr__(self, "consume_queue_file_bytes", whole_units * _CONSUME_QUEUE_UNIT_BYTES)
        if self.batch_consume_queue_file_bytes % _BATCH_UNIT_BYTES:
            raise ConfigError(
                "setting batch_consume_queue_file_bytes",
                expected=f"a multiple of {_BATCH_UNIT_BYTES}",
                found=self.batch_consume_queue_file_bytes,
            )

    @property
    def root(self) -> Path:
        """Root of the store."""
        return Path(self.store_path_root_dir) if self.store_path_root_dir else Path.home() / "store"

    @property
    def commit_log_paths(self) -> tuple[Path, ...]:
        """Directories that take new commit log files: number n goes to path n modulo count.

        Sorted as text, as RocketMQ does; those that are also read-only are left out.
        """
        if "," not in self.store_path_commit_log:
            return (
                Path(self.store_path_commit_log) if self.store_path_commit_log else self.root / "commitlog",
            )
        read_only = set(self.read_only_commit_log_paths)
        return tuple(path for path in _split(self.store_path_commit_log) if path not in read_only)

    @property
    def read_only_commit_log_paths(self) -> tuple[Path, ...]:
        """Directories that are loaded but get no new file."""
        return _split(self.read_only_commit_log_store_paths)

    @property
    def consume_queue_dir(self) -> Path:
        """``<topic>/<queueId>/`` directories of 20-byte units."""
        return self.root / "consumequeue"

    @property
    def batch_consume_queue_dir(self) -> Path:
        """``<topic>/<queueId>/`` directories of 46-byte units."""
        return self.root / "batchconsumequeue"

    @property
    def index_dir(self) -> Path:
        """The index files."""
        return self.root / "index"

    @property
    def checkpoint_path(self) -> Path:
        """The checkpoint file."""
        return self.root / "checkpoint"

    @property
    def abort_path(self) -> Path:
        """Exists while a store runs, and after a crash."""
        return self.root / "abort"

    @property
    def lock_path(self) -> Path:
        """Locked by the process that owns the store."""
        return self.root / "lock"

    @property
    def config_dir(self) -> Path:
        """``topics.json`` and its neighbours."""
        return self.root / "config"


def _split(paths: str) -> tuple[Path, ...]:
    return tuple(Path(path) for path in sorted({path.strip() for path in paths.split(",")}) if path)
