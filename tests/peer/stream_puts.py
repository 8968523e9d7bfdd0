"""Our twin of the peer's ``stream`` command: puts letters and prints an ack for each, until it is killed.

Run as a child process by the crash tests. A letter's number is its key and opens its body, as on
RocketMQ's side; ``--together N`` puts N of them at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import count
from pathlib import Path

from peer.exchange import open_store
from peer.peer import PREFIX
from rockstrata.message.model import Message, parse_host
from rockstrata.store.results import PutResult

BORN_HOST = parse_host("127.0.0.1:54321")


def letter_body(number: int, size: int) -> bytes:
    """The number, and one letter of the alphabet to fill up."""
    head = b"%d;" % number
    return head.ljust(size, b"%c" % (ord("a") + number % 26))


def letter(topic: str, queue_id: int, number: int, size: int) -> Message:
    return Message.of(
        topic,
        letter_body(number, size),
        queue_id=queue_id,
        keys=str(number),
        tags=f"Tag{number % 3}",
        unique_key=f"AC{number:030X}",
        properties={"sequence": str(number)},
        born_host=BORN_HOST,
    )


def ack(number: int, queue_id: int, result: PutResult) -> str:
    line = {
        "ack": number,
        "status": result.status.value,
        "queue_id": queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
        "wrote_bytes": result.record_bytes,
    }
    return PREFIX + json.dumps(line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--topic", default="Stream")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=256)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--conf", action="append", default=[])
    args = parser.parse_args()
    store = open_store(args.directory, dict(setting.split("=", 1) for setting in args.conf))
    for first in count(args.first, args.together):
        numbers = range(first, first + args.together)
        letters = [letter(args.topic, n % args.queues, n, args.bytes) for n in numbers]
        results = [store.put(letters[0])] if args.together == 1 else list(store.put_batch(letters))
        lines = [ack(n, n % args.queues, result) for n, result in zip(numbers, results, strict=True)]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
