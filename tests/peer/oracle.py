"""What a store must hold: a plain table of queue → acknowledged letters, and every road to read them.

Letters are those of ``stream``: the number is the key and opens the body. After a crash a letter may
be there that nobody was told of; it must be whole, and from then on it must stay.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peer.exchange import Contents, Key
from peer.peer import SMALL_FILES, Answer, answers
from peer.stream_puts import ack, letter, letter_body
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.message_filter import TagFilter
from rockstrata.store.reads import StoreReads
from rockstrata.store.results import BoundaryType, PutResult

CRASH_FILES: Mapping[str, object] = {
    **SMALL_FILES,
    # RocketMQ names index files by the millisecond, and rebuilds a small one in less: the next file
    # would be the same one.
    "maxHashSlotNum": 500,
    "maxIndexNum": 5000,
    # Otherwise a RocketMQ that recovers loses keys: of records before the file it starts at, and (5.5.0)
    # of records more than ten files back.
    "messageIndexSafe": True,
    "commitLogRecoverMaxNum": 1000,
}
"""Settings for stores that crash."""


@dataclass
class Oracle:
    """Acknowledged letters of one topic: by queue and offset, their number and physical offset."""

    topic: str = "Stream"
    letter_bytes: int = 256
    queues: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def acked(self, lines: Sequence[Answer]) -> None:
        """Believe what a writer printed."""
        for line in lines:
            assert line["status"] == "PUT_OK", line
            queue = self.queues.setdefault(line["queue_id"], {})
            assert line["queue_offset"] not in queue, "an offset was given twice"
            queue[line["queue_offset"]] = (line["ack"], line["physical_offset"])

    def acked_results(self, numbers: Sequence[int], results: Sequence[PutResult]) -> None:
        """Believe our own answers; letters went round the four queues."""
        lines = [ack(n, n % 4, result) for n, result in zip(numbers, results, strict=True)]
        self.acked(list(answers(lines)))

    def forget_before(self, physical_offset: int) -> None:
        """The log lost its oldest files."""
        for queue in self.queues.values():
            for offset in [o for o, (_, physical) in queue.items() if physical < physical_offset]:
                del queue[offset]

    def count(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def check(self, contents: Contents, *, unacked: int = 0, complete: bool = True) -> None:
        """Everything acknowledged is there, whole and in its place; at most ``unacked`` more.

        Without ``complete`` the newest may be missing: nobody dispatched them yet.
        """
        surplus = 0
        for key, messages in contents.messages.items():
            if key[0] != self.topic or not messages:
                continue
            known = self.queues.setdefault(key[1], {})
            low, high = contents.bounds[key]
            assert [m["read_at"] for m in messages] == list(range(low, high)), key
            for message in messages:
                number = self.check_letter(key, message)
                here = (number, message["physical_offset"])
                surplus += message["read_at"] not in known
                assert known.setdefault(message["read_at"], here) == here
        assert surplus <= unacked, f"{surplus} letters that nobody put"
        for queue_id, known in self.queues.items():
            if known and complete:
                assert contents.bounds[self.topic, queue_id] == (min(known), max(known) + 1)

    def check_letter(self, key: Key, message: Answer) -> int:
        """The number of a letter that is whole and of this queue."""
        number = int(message["keys"])
        assert message["body"] == letter_body(number, self.letter_bytes)
        assert (message["topic"], message["queue_id"]) == key
        assert message["queue_offset"] == message["read_at"]
        assert message["tags"] == f"Tag{number % 3}"
        assert message["properties"]["sequence"] == message["keys"]
        return number

    def check_every_road(self, reads: StoreReads, *, unacked: int = 0, by_key: bool = True) -> Contents:
        """By offset, physical offset, id, time, tag and (if the index may be trusted) key."""
        contents = Contents.of(reads)
        self.check(contents, unacked=unacked)
        for key, messages in contents.messages.items():
            if key[0] != self.topic or not messages:
                continue
            times = [message["store_timestamp"] for message in messages]
            assert times == sorted(times)
            first = {time: at for at, time in reversed([*enumerate(times, messages[0]["read_at"])])}
            last = {time: at for at, time in enumerate(times, messages[0]["read_at"])}
            for time in (times[0], times[len(times) // 2], times[-1]):
                assert reads.offset_by_time(*key, time, BoundaryType.LOWER) == first[time]
                assert reads.offset_by_time(*key, time, BoundaryType.UPPER) == last[time]
            tagged = reads.get(*key, messages[0]["read_at"], 32, message_filter=TagFilter("Tag1"))
            assert {m.tags for m in tagged.messages()} <= {"Tag1"}
            for message in messages[:: max(1, len(messages) // 50)]:
                found = reads.message_at(message["physical_offset"])
                assert found == reads.message_by_id(message["msg_id"])
                assert found is not None
                assert found.body == message["body"]
            if by_key:
                self._check_keys(reads, messages)
        return contents

    def _check_keys(self, reads: StoreReads, messages: Sequence[Answer]) -> None:
        """The newest and the oldest, and some between: those are where an index loses some."""
        for message in {*range(0, len(messages), 37), *range(max(0, len(messages) - 5), len(messages))}:
            wanted = messages[message]
            for name in ("keys", "unique_key"):
                found = reads.query(self.topic, wanted[name], 64)
                assert wanted["physical_offset"] in [m.physical_offset for m in found], (name, wanted)


def stream_until_killed(process: subprocess.Popen[str], count: int) -> list[Answer]:
    """Acks of a writer that is killed without warning after about ``count`` of them; all it printed."""
    acks = []
    with process:
        assert process.stdout is not None
        try:
            for line in answers(process.stdout):
                if "ack" in line:
                    acks.append(line)
                if len(acks) >= count:
                    process.kill()
        finally:
            process.kill()
    assert len(acks) >= count, f"the writer ended by itself after {len(acks)} acks"
    return acks


def spawn_puts(
    root: Path, conf: Mapping[str, object], *, letter_bytes: int, together: int = 1, first: int = 0
) -> subprocess.Popen[str]:
    """Our own writer, as a process that can be killed."""
    call = [sys.executable, "-m", "peer.stream_puts", str(root)]
    call += ["--bytes", str(letter_bytes), "--together", str(together), "--first", str(first)]
    for key, value in conf.items():
        call += ["--conf", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(call, stdout=subprocess.PIPE, encoding="utf-8", env=environment)


def put_more(store: LocalMessageStore, oracle: Oracle, first: int, count: int) -> None:
    """One by one and together, into the queues the other side wrote."""
    numbers = range(first, first + count)
    letters = [letter(oracle.topic, n % 4, n, oracle.letter_bytes) for n in numbers]
    half = count // 2
    results = [store.put(message) for message in letters[:half]]
    results += store.put_batch(letters[half:])
    oracle.acked_results(numbers, results)
