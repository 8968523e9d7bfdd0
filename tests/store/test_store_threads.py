"""Eight threads put, put batches, read and query at once, on a real disk with files that roll."""

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockstrata.message.batch import BatchElement, encode_batch
from rockstrata.message.model import Message, StoredMessage
from rockstrata.store.check import StoreCheck
from rockstrata.store.check_findings import Finding
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import GetStatus, PutResult, PutStatus
from rockstrata.store.store_config import StoreConfig
from store.store_kit import ASYNC, SYNC, read_queue_of, small_config

THREADS = 8
TOPICS, QUEUES = 2, 3
Place = tuple[str, int, int]


def message_of(thread: int, n: int, queue: tuple[str, int] | None = None) -> Message:
    """Everything about a message follows from its name, or from the queue it shares with its batch."""
    luck = random.Random(thread << 32 | n)
    topic, queue_id = queue or (f"topic{luck.randrange(TOPICS)}", luck.randrange(QUEUES))
    body = f"{thread}-{n};".encode() + luck.randbytes(luck.randrange(300))
    return Message.of(topic, body, queue_id=queue_id, keys=f"key{thread}-{n}", tags=f"tag{thread}")


class Crowd:
    """The threads and what they were answered."""

    def __init__(self, store: LocalMessageStore, calls: int) -> None:
        self.store = store
        self.calls = calls
        self.put: dict[Place, Message] = {}
        self.errors: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._live, args=(n,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        if self.errors:
            raise self.errors[0]

    def _live(self, thread: int) -> None:
        luck = random.Random(thread)
        n = 0
        try:
            for _ in range(self.calls):
                n += self._write(thread, n, luck)
                self._read(luck)
        except BaseException as error:
            self.errors.append(error)

    def _write(self, thread: int, n: int, luck: random.Random) -> int:
        kind = luck.choice(("one", "one", "many", "client batch"))
        count = 1 if kind == "one" else luck.randrange(1, 12)
        queue = ("topic0", luck.randrange(QUEUES)) if kind == "client batch" else None
        messages = [message_of(thread, n + k, queue) for k in range(count)]
        if kind == "one":
            results = [self.store.put(messages[0])]
        elif kind == "many":
            results = list(self.store.put_batch(messages))
        else:
            elements = [BatchElement(0, m.body, m.properties) for m in messages]
            batch = Message(messages[0].topic, encode_batch(elements), messages[0].queue_id)
            results = list(self.store.put_client_batch(batch))
        for message, result in zip(messages, results, strict=True):
            self._note(message, result)
        return count

    def _note(self, message: Message, result: PutResult) -> None:
        assert result.status is PutStatus.PUT_OK, result
        place = (message.topic, message.queue_id, result.queue_offset)
        assert self.put.setdefault(place, message) is message, f"{place} was given twice"

    def _read(self, luck: random.Random) -> None:
        store = self.store
        topic, queue_id = f"topic{luck.randrange(TOPICS)}", luck.randrange(QUEUES)
        end = store.max_offset(topic, queue_id)
        offset = luck.randrange(end + 2)
        result = store.get(topic, queue_id, offset)
        messages = result.messages()
        assert [m.queue_offset for m in messages] == list(range(offset, offset + len(messages)))
        assert all((m.topic, m.queue_id) == (topic, queue_id) for m in messages)
        if offset < end:
            assert result.status is GetStatus.FOUND
        if not messages:
            return
        # Its record is in the queue; the index may follow a moment later.
        one = luck.choice(messages)
        assert store.query(topic, one.keys or "") in ([one], [])
        assert store.message_at(one.physical_offset) == one
        assert store.message_by_id(one.message_id) == one
        assert store.offset_by_time(topic, queue_id, one.store_timestamp) <= one.queue_offset

    def check(self, found: dict[Place, StoredMessage]) -> None:
        assert found.keys() == self.put.keys()
        for place, message in self.put.items():
            assert (found[place].body, found[place].properties) == (message.body, message.properties)


def everything(store: LocalMessageStore) -> dict[Place, StoredMessage]:
    found: dict[Place, StoredMessage] = {}
    for topic, queue_ids in store.topic_queues().items():
        for queue_id in queue_ids:
            queue = read_queue_of(store, topic, queue_id)
            assert [m.queue_offset for m in queue] == list(range(store.max_offset(topic, queue_id)))
            found |= {(topic, queue_id, m.queue_offset): m for m in queue}
    return found


def findings(config: StoreConfig) -> list[Finding]:
    return [event for event in StoreCheck(config).run() if isinstance(event, Finding)]


@pytest.fixture(autouse=True)
def hasty() -> Iterator[None]:
    """Threads change places a hundred times more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        pytest.param({"flush_disk_type": SYNC}, 150, id="sync"),
        pytest.param({"flush_disk_type": ASYNC}, 250, id="async"),
        pytest.param({"flush_disk_type": ASYNC, "transient_store_pool_enable": True}, 250, id="pool"),
    ],
)
def test_eight_threads_get_contiguous_offsets_and_their_own_contents(
    tmp_path: Path, settings: dict[str, Any], calls: int
) -> None:
    config = small_config(
        tmp_path / "store",
        commit_log_file_bytes=32 << 10,
        consume_queue_file_bytes=2_000,
        clean_file_forcibly_enable=False,
        **settings,
    )
    with LocalMessageStore.open(config) as store:
        crowd = Crowd(store, calls)
        crowd.run()
        assert len(store.commit_log.queue.files) > 3
    assert not config.abort_path.exists()
    assert findings(config) == []

    with LocalMessageStore.open(config) as store:
        found = everything(store)
        crowd.check(found)
        for message in random.Random(1).sample(list(found.values()), 200):
            assert store.query(message.topic, message.keys or "") == [message]
        in_log_order = sorted(found.values(), key=lambda m: m.physical_offset)
        times = [message.store_timestamp for message in in_log_order]
        assert times == sorted(times)
        # A new life goes on where the last one ended.
        put = message_of(99, 0)
        result = store.put(put)
        last = max(
            offset for topic, queue_id, offset in found if (topic, queue_id) == (put.topic, put.queue_id)
        )
        assert result.queue_offset == last + 1
