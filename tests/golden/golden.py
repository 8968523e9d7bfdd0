"""The golden stores: directories RocketMQ wrote, kept with what it said about them.

``regenerate`` needs Java and Maven (see README.md); reading them needs nothing. Called by the golden
tests and as a script: ``PYTHONPATH=tests python tests/golden/golden.py``.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from peer.catalogue import INNER, beyond_a_broker, catalogue, odd_letters, questions
from peer.exchange import Contents, copy_of, declare_batch_topics, theirs
from peer.peer import NEWEST, Answer, Dumped, Peer

FOLDER = Path(__file__).parent
CLEAN = f"java-{NEWEST}-store"
CRASHED = f"java-{NEWEST}-crashed"
# Smaller than the live tests' files: a golden store is kept for ever.
CONF = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 400,
    "mapperFileSizeBatchConsumeQueue": 460,
    "maxHashSlotNum": 20,
    "maxIndexNum": 120,
}
LONGEST_STEP = 6_000


def plan() -> list[Answer]:
    """Every kind of letter that fits such files, several files of each kind."""
    large = [step for step in odd_letters() if len(json.dumps(step)) > LONGEST_STEP]
    letters = [step for step in catalogue(orders=90, inner_batches=30) if step not in large]
    return [step for step in letters if len(json.dumps(step)) <= LONGEST_STEP] + beyond_a_broker()


@dataclass(frozen=True)
class Golden:
    """One golden store: how it was made, what is in it, and answers to questions about it."""

    name: str
    plan: list[Answer]
    puts: list[Answer]
    contents: Contents
    asked: list[Answer]
    told: list[Answer]

    @staticmethod
    def load(name: str) -> Golden:
        lines = list(_read(FOLDER / f"{name}.jsonl")) + list(_read(FOLDER / f"{name}-answers.jsonl.gz"))
        dumped = Dumped({}, {})
        for line in lines:
            if "queue" in line:
                key = (line["queue"]["topic"], line["queue"]["queue_id"])
                dumped.queues[key], dumped.messages[key] = line["queue"], []
            elif "message" in line:
                dumped.messages[key].append(line["message"])
        return Golden(
            name,
            [line["plan"] for line in lines if "plan" in line],
            [line["answer"] for line in lines if "put" in line],
            Contents.of_dump(dumped),
            [line["question"] for line in lines if "question" in line],
            [line["told"] for line in lines if "question" in line],
        )

    def unpack(self, target: Path) -> Path:
        """A copy of the directory, to be opened by whoever likes."""
        with tarfile.open(FOLDER / f"{self.name}.tar.gz") as archive:
            archive.extractall(target, filter="data")
        return target / "store"

    def records(self) -> list[Answer]:
        """Every record of the log, those without a place in a queue included."""
        looked = [line["message"] for line in self.told if line["op"] == "look" and line.get("message")]
        return [*map(theirs, looked), *self.contents.all()]


def regenerate() -> None:
    """Let RocketMQ write both stores anew: one left in order, one halted in the middle of dispatch."""
    peer = Peer(NEWEST)
    for name, ending in ((CLEAN, "clean"), (CRASHED, "halt-now")):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "store"
            declare_batch_topics(root, INNER)
            steps = plan()
            written = peer.write(root, steps, conf=CONF, ending=ending)
            _pack(root, FOLDER / f"{name}.tar.gz")
            dumped = peer.dump(copy_of(root, "dump"), conf=CONF, ending="halt")
            contents = Contents.of_dump(dumped)
            asked = questions(
                written.puts, contents.bounds, contents.messages, tag_index=True, batch_file_units=10
            )
            told = peer.query(copy_of(root, "query"), asked, conf=CONF, ending="halt")
        lines: list[Answer] = [{"plan": step} for step in steps]
        lines += [{"put": number, "answer": line} for number, line in enumerate(written.puts)]
        for key, queue in dumped.queues.items():
            lines += [{"queue": queue}, *({"message": message} for message in dumped.messages[key])]
        _write(FOLDER / f"{name}.jsonl", lines)
        answers = [{"question": q, "told": a} for q, a in zip(asked, told, strict=True)]
        _write(FOLDER / f"{name}-answers.jsonl.gz", answers)


def _pack(root: Path, target: Path) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(root, "store", filter=plain)
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))


def _write(path: Path, lines: Sequence[Answer]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _read(path: Path) -> Iterator[Answer]:
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines():
        yield json.loads(line)


if __name__ == "__main__":
    regenerate()
