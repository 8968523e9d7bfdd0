"""The process the demo kills: puts messages with SYNC_FLUSH and says which were acknowledged.

Answers to no RocketMQ class. Run as ``python -m rockstrata.cli.demo_child ROOT``; a line on stdout,
``topic queue offset order``, is written only after the store has answered PUT_OK.
"""

import dataclasses
import os
import sys
import threading
from pathlib import Path

from rockstrata.cli.demo_letters import letters
from rockstrata.message import properties as props
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import PutStatus
from rockstrata.store.store_config import FlushDiskType, StoreConfig

THREADS = 4
# The orders of the killed process have numbers of their own.
FIRST_ORDER = 900_000


def demo_config(root: Path, *, sync: bool) -> StoreConfig:
    """Small files, so that a demo has several of them and costs little disk."""
    config = StoreConfig(
        store_path_root_dir=str(root),
        commit_log_file_bytes=16 << 20,
        consume_queue_file_bytes=20_000 * 20,
        max_hash_slot_num=250_000,
        max_index_num=1_000_000,
        broker_ip="127.0.0.1",
    )
    return dataclasses.replace(config, flush_disk_type=FlushDiskType.SYNC_FLUSH) if sync else config


def put_until_killed(store: LocalMessageStore, seed: int) -> None:
    """One producer: puts and tells, for ever."""
    for message in letters(seed, FIRST_ORDER + 10_000 * seed):
        result = store.put(message)
        if result.status is PutStatus.PUT_OK:
            key = props.find(message.properties, props.KEYS) or "-"
            told = f"{message.topic} {message.queue_id} {result.queue_offset} {key.split()[0]}\n"
            # One write for one line: it is in the pipe as a whole or not at all.
            os.write(1, told.encode())


def main() -> None:
    """Open the store and put from several threads until somebody kills this process."""
    store = LocalMessageStore.open(demo_config(Path(sys.argv[1]), sync=True))
    threads = [
        threading.Thread(target=put_until_killed, args=(store, seed), daemon=True) for seed in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
