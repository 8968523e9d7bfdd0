"""The victim of ``test_kill_nine.py``: a process that forks writers, each to be killed with SIGKILL.

Imports once and forks per round, so that fifty rounds take seconds. A writer opens the store, puts
from several threads and notes every acknowledgement in a file before it goes on.
"""

import itertools
import os
import sys
import threading

from rockstrata.message.model import Message
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import PutStatus
from store.store_kit import SYNC, small_config

THREADS = 4


def config_of(root: str):
    return small_config(
        root,
        flush_disk_type=SYNC,
        commit_log_file_bytes=65_536,
        consume_queue_file_bytes=2_000,
        max_hash_slot_num=50,
        max_index_num=2_000,
        flush_interval_consume_queue_ms=20,
        flush_consume_queue_thorough_interval_ms=60,
    )


def message(round_number: int, thread: int, n: int) -> Message:
    body = f"{round_number}-{thread}-{n} ".encode() * (1 + n % 9)
    return Message.of(f"topic{thread}", body, queue_id=n % 2, tags="t", keys=f"k{round_number}-{thread}-{n}")


def write(root: str, acks: str, round_number: int) -> None:
    """Put until killed; round numbers divisible by ten end by themselves."""
    store = LocalMessageStore.open(config_of(root))
    out = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = itertools.count() if round_number % 10 else range(40)

    def put_one_by_one(thread: int) -> None:
        for n in numbers if isinstance(numbers, range) else itertools.count():
            result = store.put(message(round_number, thread, n))
            if result.status is PutStatus.PUT_OK:
                os.write(out, f"{thread} {n} {result.queue_offset} {result.physical_offset}\n".encode())

    def put_batches(thread: int) -> None:
        for first in range(0, 40, 8) if isinstance(numbers, range) else itertools.count(0, 8):
            result = store.put_batch([message(round_number, thread, n) for n in range(first, first + 8)])
            if result.status is PutStatus.PUT_OK:
                lines = [
                    f"{thread} {first + k} {one.queue_offset} {one.physical_offset}\n"
                    for k, one in enumerate(result)
                ]
                os.write(out, "".join(lines).encode())

    workers = [threading.Thread(target=put_one_by_one, args=(t,)) for t in range(THREADS - 1)]
    workers.append(threading.Thread(target=put_batches, args=(THREADS - 1,)))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()


def main() -> None:
    root, ack_dir = sys.argv[1:3]
    # Compiled and imported before the first fork.
    import rockstrata.message.kernels
    import rockstrata.store.kernels  # noqa: F401

    for line in sys.stdin:
        round_number = int(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                write(root, f"{ack_dir}/{round_number}", round_number)
                code = 0
            finally:
                os._exit(code)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
