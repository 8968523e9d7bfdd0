"""The live peer: the real Apache RocketMQ store, driven from tests and benchmarks.

Runs tests/peer/java (built by build.sh against Maven Central) as a subprocess and reads its answers.
Called by the compatibility tests and the benchmarks; imports nothing of Rockstrata.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEWEST = "5.5.0"
OLDER = "5.3.3"
VERSIONS = (NEWEST, OLDER)

PREFIX = "@peer "
TIMEOUT_S = 300.0
BUILD_TIMEOUT_S = 900.0
STDERR_TAIL_CHARACTERS = 4000

_BUILD = Path(__file__).with_name("build.sh")
# RocketMQ unmaps files and reads Netty internals by reflection.
_OPENS = tuple(
    word
    for package in ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang")
    for word in ("--add-opens", f"{package}=ALL-UNNAMED")
)

Answer = dict[str, Any]

SMALL_FILES: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "mapperFileSizeBatchConsumeQueue": 4600,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
"""Settings that make a few hundred messages span several files of every kind."""


class PeerError(RuntimeError):
    """The Java side failed; the message carries the end of its stderr and of RocketMQ's log."""


def peer_available() -> tuple[bool, str]:
    """Whether the peer can run here, and why not."""
    missing = [tool for tool in ("java", "mvn", "flock", "sha256sum") if shutil.which(tool) is None]
    if missing:
        return False, f"the live RocketMQ peer needs {', '.join(missing)} on PATH"
    return True, "java and mvn found"


def put(topic: str, body: bytes, *, queue_id: int = 0, **fields: Any) -> Answer:
    """A plan line for one message; further fields as in the plan (properties, born_host, …)."""
    return {"kind": "single", "topic": topic, "queue_id": queue_id, "body": _base64(body), **fields}


def put_batch(
    topic: str,
    elements: Iterable[Mapping[str, Any]],
    *,
    queue_id: int = 0,
    inner: bool = False,
    **fields: Any,
) -> Answer:
    """A plan line for a batch; each element has body (bytes), and may have properties and flag."""
    encoded = [{**element, "body": _base64(element["body"])} for element in elements]
    kind = "inner_batch" if inner else "batch"
    return {"kind": kind, "topic": topic, "queue_id": queue_id, "elements": encoded, **fields}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@dataclass(frozen=True)
class Written:
    """What `write` reported."""

    facts: Answer
    puts: list[Answer]
    done: Answer


@dataclass(frozen=True)
class Dumped:
    """What `dump` read: every queue, and the messages of each in the order read."""

    facts: Answer
    done: Answer
    queues: dict[tuple[str, int], Answer] = field(default_factory=dict)
    messages: dict[tuple[str, int], list[Answer]] = field(default_factory=dict)

    def all_messages(self) -> list[Answer]:
        return [message for queue in self.messages.values() for message in queue]


class Peer:
    """One version of RocketMQ. Building happens at the first use and is shared by all processes."""

    def __init__(self, version: str = NEWEST, *, heap: str = "1g", log_level: str | None = None) -> None:
        self.version = version
        self._heap = heap
        self._log_level = log_level or os.environ.get("ROCKSTRATA_PEER_LOG", "WARN")
        self._built: Path | None = None
        # RocketMQ logs and some of its defaults go to user.home: never the real one.
        self.home = Path(tempfile.mkdtemp(prefix=f"rockstrata-peer-{version}-"))
        weakref.finalize(self, shutil.rmtree, self.home, ignore_errors=True)

    def build(self) -> Path:
        if self._built is None:
            done = subprocess.run(
                [str(_BUILD), self.version],
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if done.returncode != 0:
                raise PeerError(
                    f"build of the {self.version} peer failed:\n{done.stderr[-STDERR_TAIL_CHARACTERS:]}"
                )
            self._built = Path(done.stdout.strip().splitlines()[-1])
        return self._built

    def write(
        self,
        directory: Path | str,
        plan: Sequence[Mapping[str, Any]],
        *,
        conf: Mapping[str, object] | None = None,
        batch_topics: Iterable[str] = (),
        ending: str = "clean",
    ) -> Written:
        """Puts the plan; ending is clean, halt (after dispatch) or halt-now."""
        topics = list(batch_topics)
        lines = self.run("write", directory, conf=conf, plan=plan, exit=ending, batch_topic=topics)
        return Written(_facts(lines), [line for line in lines if "put" in line], _done(lines))

    def dump(
        self,
        directory: Path | str,
        *,
        conf: Mapping[str, object] | None = None,
        batch_topics: Iterable[str] = (),
        ending: str = "clean",
    ) -> Dumped:
        """Recovers the store and reads every queue from its minimum to its maximum."""
        lines = self.run("dump", directory, conf=conf, exit=ending, batch_topic=list(batch_topics))
        dumped = Dumped(_facts(lines), _done(lines))
        key = ("", 0)
        for line in lines:
            if "queue" in line:
                key = (line["queue"]["topic"], line["queue"]["queue_id"])
                dumped.queues[key] = line["queue"]
                dumped.messages[key] = []
            elif "message" in line:
                dumped.messages[key].append(line["message"])
        return dumped

    def query(
        self,
        directory: Path | str,
        plan: Sequence[Mapping[str, Any]],
        *,
        conf: Mapping[str, object] | None = None,
        batch_topics: Iterable[str] = (),
        ending: str = "clean",
    ) -> list[Answer]:
        """One answer per question, in order."""
        topics = list(batch_topics)
        lines = self.run("query", directory, conf=conf, plan=plan, exit=ending, batch_topic=topics)
        return [line for line in lines if "query" in line]

    def broker(
        self,
        directory: Path | str,
        plan: Sequence[Mapping[str, Any]],
        *,
        conf: Mapping[str, object] | None = None,
        ending: str = "clean",
    ) -> list[Answer]:
        """Runs the plan in a whole broker; one answer per step, then one line with "done"."""
        return self.run("broker", directory, conf=conf, plan=plan, exit=ending)

    def bench(
        self,
        name: str,
        directory: Path | str,
        *,
        conf: Mapping[str, object] | None = None,
        timeout_s: float = 1800.0,
        **options: object,
    ) -> Answer:
        """The figures of one benchmark: put, put-batch, sync, rebuild, start, read or index."""
        lines = self.run("bench", directory, name, conf=conf, plan=None, timeout_s=timeout_s, **options)
        return next(line for line in lines if "bench" in line)

    def run(
        self,
        command: str,
        directory: Path | str,
        *words: str,
        conf: Mapping[str, object] | None = None,
        plan: Sequence[Mapping[str, Any]] | None = None,
        timeout_s: float = TIMEOUT_S,
        **options: object,
    ) -> list[Answer]:
        """Runs one command to its end and returns its answer lines."""
        call = self.command_line(command, directory, *words, conf=conf, plan=plan, **options)
        try:
            done = subprocess.run(
                call, capture_output=True, timeout=timeout_s, check=False, env=self._environment()
            )
        except subprocess.TimeoutExpired as late:
            raise PeerError(
                f"{command} took longer than {timeout_s} s\n{self._tails(late.stderr or b'')}"
            ) from late
        if done.returncode != 0:
            raise PeerError(f"{command} ended with {done.returncode}\n{self._tails(done.stderr)}")
        return list(answers(done.stdout.decode("utf-8").split("\n")))

    def spawn(
        self,
        command: str,
        directory: Path | str,
        *words: str,
        conf: Mapping[str, object] | None = None,
        plan: Sequence[Mapping[str, Any]] | None = None,
        **options: object,
    ) -> subprocess.Popen[str]:
        """Starts a command and returns at once; read `answers(process.stdout)`, then kill it."""
        call = self.command_line(command, directory, *words, conf=conf, plan=plan, **options)
        errors = (self.home / "stderr").open("ab")
        with errors:
            return subprocess.Popen(
                call, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8", env=self._environment()
            )

    def command_line(
        self,
        command: str,
        directory: Path | str,
        *words: str,
        conf: Mapping[str, object] | None = None,
        plan: Sequence[Mapping[str, Any]] | None = None,
        **options: object,
    ) -> list[str]:
        """Underscores of option names become hyphens; a list repeats the option; True is a flag."""
        built = self.build()
        call = ["java", f"-Xmx{self._heap}", *_OPENS, f"-Duser.home={self.home}"]
        call += [f"-Dpeer.log.level={self._log_level}", "-cp", f"{built}/classes:{built}/lib/*"]
        call += ["rockstrata.peer.Main", command, *words, "--dir", os.fspath(directory)]
        for key, value in (conf or {}).items():
            call += ["--conf", f"{key}={_text(value)}"]
        if plan is not None:
            call += ["--plan", str(self._save(plan))]
        for name, value in options.items():
            call += _option(name.replace("_", "-"), value)
        return call

    def _save(self, plan: Sequence[Mapping[str, Any]]) -> Path:
        with tempfile.NamedTemporaryFile(
            "w", dir=self.home, suffix=".plan", delete=False, encoding="utf-8"
        ) as file:
            for step in plan:
                file.write(json.dumps(step) + "\n")
            return Path(file.name)

    def _tails(self, stderr: bytes) -> str:
        tail = stderr.decode("utf-8", "replace")[-STDERR_TAIL_CHARACTERS:]
        log = self.home / "rocketmq.log"
        logged = log.read_text("utf-8", "replace")[-STDERR_TAIL_CHARACTERS:] if log.exists() else ""
        return f"--- stderr\n{tail}\n--- rocketmq.log\n{logged}"

    def _environment(self) -> dict[str, str]:
        # A broker started here must not find a name server of the developer's.
        return {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV")}


def answers(lines: Iterable[str]) -> Iterator[Answer]:
    """The answers among lines of output; anything else, and a line cut by a kill, is passed over."""
    for line in lines:
        if line.startswith(PREFIX):
            try:
                yield json.loads(line[len(PREFIX) :])
            except json.JSONDecodeError:
                return


def _option(name: str, value: object) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, (list, tuple)):
        return [word for item in value for word in (f"--{name}", str(item))]
    return [f"--{name}", str(value)]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _facts(lines: list[Answer]) -> Answer:
    return next(line for line in lines if "facts" in line)


def _done(lines: list[Answer]) -> Answer:
    return next(line for line in lines if "done" in line)
