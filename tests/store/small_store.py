"""Small stores on a forgetful disk, driven by hand: nothing runs unless a test says so."""

from pathlib import Path
from typing import Any

from rockstrata.message.model import StoredMessage
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.store_config import FlushDiskType, StoreConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock

ROOT = Path("/store")
START_MS = 1_700_000_000_000


def small_config(root: Path | str = ROOT, **settings: Any) -> StoreConfig:
    """Files so small that a few messages fill them; every put is durable unless told otherwise."""
    base: dict[str, Any] = {
        "store_path_root_dir": str(root),
        "commit_log_file_bytes": 65_536,
        "consume_queue_file_bytes": 2_000,
        "max_hash_slot_num": 100,
        "max_index_num": 1_000,
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "broker_ip": "127.0.0.1",
    }
    return StoreConfig(**{**base, **settings})


def new_disk() -> ForgetfulDisk:
    return ForgetfulDisk(ManualClock(START_MS))


def open_small(disk: ForgetfulDisk, **settings: Any) -> LocalMessageStore:
    return LocalMessageStore.open(small_config(**settings), disk=disk, clock=disk.clock, start_services=False)


def dispatch(store: LocalMessageStore) -> None:
    store.commit_log.sync()
    store.dispatcher.catch_up()


def messages_of(store: LocalMessageStore, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    """Everything a queue holds."""
    dispatch(store)
    found: list[StoredMessage] = []
    offset = max(0, store.min_offset(topic, queue_id))
    while offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset)
        found += result.messages()
        assert result.next_begin_offset > offset, result
        offset = result.next_begin_offset
    return found


def bodies_of(store: LocalMessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in messages_of(store, topic, queue_id)]
