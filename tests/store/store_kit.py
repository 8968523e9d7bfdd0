"""A small store for tests, letters to put into it, and the plain list it is compared with."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import GetStatus, PutResult, PutStatus
from rockstrata.store.store_config import FlushDiskType, StoreConfig
from rockstrata.testing.forgetful_disk import ForgetfulDisk
from rockstrata.testing.manual_clock import ManualClock

ROOT = Path("/store")
NOW = 1_700_000_000_000
SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH


def small_config(root: Path | str = ROOT, **changes: Any) -> StoreConfig:
    """A config whose files fill up after a few messages."""
    settings: dict[str, Any] = {
        "store_path_root_dir": str(root),
        "broker_ip": "127.0.0.1",
        "commit_log_file_bytes": 4096,
        "consume_queue_file_bytes": 400,
        "batch_consume_queue_file_bytes": 460,
        "max_hash_slot_num": 50,
        "max_index_num": 200,
        "flush_disk_type": SYNC,
    }
    return StoreConfig(**(settings | changes))


def open_store(
    disk: Any = None, clock: Any = None, *, services: bool = False, repair: bool = False, **changes: Any
) -> LocalMessageStore:
    """A store on a forgetful disk, where nothing runs by itself."""
    disk = ForgetfulDisk() if disk is None else disk
    return LocalMessageStore.open(
        changes.pop("config", None) or small_config(**changes),
        disk=disk,
        clock=clock or getattr(disk, "clock", None) or ManualClock(NOW),
        random=random.Random(7),
        start_services=services,
        repair=repair,
    )


def letter(n: int, topic: str = "orders", queue_id: int = 0, body_bytes: int = 60, **more: Any) -> Message:
    """Message number n: its body and its key say so."""
    body = f"letter {n} ".encode()
    body += random.Random(n).randbytes(max(0, body_bytes - len(body)))
    return Message.of(
        topic,
        body,
        queue_id=queue_id,
        tags=more.pop("tags", f"tag{n % 3}"),
        keys=more.pop("keys", f"key{n}"),
        **more,
    )


def letters(count: int, first: int = 0, **more: Any) -> list[Message]:
    return [letter(n, **more) for n in range(first, first + count)]


def put_all(store: LocalMessageStore, messages: Iterable[Message]) -> list[PutResult]:
    """Put and dispatch; every one must be accepted."""
    results = [store.put(message) for message in messages]
    assert all(result.status is PutStatus.PUT_OK for result in results), [r for r in results if not r.ok][:3]
    settle(store)
    return results


def settle(store: LocalMessageStore) -> None:
    """Everything put so far becomes readable and durable in log and queues."""
    store.commit_log.commit()
    store.commit_log.sync()
    store.dispatcher.catch_up()


def read_queue_of(store: Any, topic: str = "orders", queue_id: int = 0) -> list[StoredMessage]:
    """All messages of a queue, pulled as a consumer would."""
    found: list[StoredMessage] = []
    offset = max(0, store.min_offset(topic, queue_id))
    while True:
        result = store.get(topic, queue_id, offset)
        if result.status is not GetStatus.FOUND:
            assert not result.records
            if result.next_begin_offset <= offset or offset >= result.max_offset:
                return found
        else:
            assert result.queue_offsets[0] == offset
        found += result.messages()
        offset = result.next_begin_offset


def bodies(store: Any, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in read_queue_of(store, topic, queue_id)]


def records_of(log_bytes: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
    """(position, size) of the records in a file's bytes."""
    at = start
    while at + 8 <= len(log_bytes):
        size, magic = int.from_bytes(log_bytes[at : at + 4], "big"), log_bytes[at + 4 : at + 8].hex()
        if magic not in ("daa320a7", "daa320ab"):
            return
        yield at, size
        at += size


@dataclass
class Oracle:
    """What was put: by queue, in order. ``acked`` must survive anything; ``maybe`` may be there or not."""

    acked: dict[tuple[str, int], dict[int, Message]] = field(default_factory=dict)

    def note(self, message: Message, result: PutResult) -> None:
        queue = self.acked.setdefault((message.topic, message.queue_id), {})
        assert result.queue_offset not in queue, (message.topic, result.queue_offset)
        queue[result.queue_offset] = message


def flip(disk: ForgetfulDisk, path: Path, position: int, mask: int = 0x01) -> None:
    """One bit of the platter turns."""
    file = disk.open(path)
    byte = file.pread(position, 1)[0] ^ mask
    file.pwrite(position, bytes([byte]))
    file.sync()


def log_path(start: int = 0, root: Path = ROOT) -> Path:
    return root / "commitlog" / f"{start:020d}"


def queue_path(topic: str = "orders", queue_id: int = 0, start: int = 0, root: Path = ROOT) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / f"{start:020d}"
