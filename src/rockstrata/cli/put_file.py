"""Puts the lines of a file, many at a time, and can be interrupted between two batches.

Answers to no RocketMQ class. Called by ``store put --from``; the inverse of ``store dump --bodies``.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

from rockstrata.cli import render
from rockstrata.cli.lines import message_of
from rockstrata.cli.put import open_store, refusal
from rockstrata.errors import ConfigError, IllegalMessageError
from rockstrata.message.model import Message
from rockstrata.store.local_store import LocalMessageStore
from rockstrata.store.results import PutResult, PutStatus
from rockstrata.store.store_config import StoreConfig

BATCH_LINES = 2_000
BATCH_BYTES = 8 << 20
# Fewer messages than this are put one by one: the kernels cost more to load.
_FEW = 500


def put_file(config: StoreConfig, source: str, *, json: bool) -> None:
    """Put every line; a bad one raises, naming its number, after those before it are stored."""
    name = "stdin" if source == "-" else source
    with _opened(source) as (file, size), open_store(config) as store, _Interrupts() as interrupts:
        batches = _Batches(store, name, interrupts)
        try:
            with render.progress(f"putting {name}", size, "bytes" if size else "count") as advance:
                for line in file:
                    batches.add(line)
                    advance(batches.bytes_read if size else batches.stored)
                batches.put()
        except KeyboardInterrupt:
            batches.put()
            render.note(f"{batches.told()}; the rest of {name} is not")
            raise
    if batches.unsynced:
        render.warn(f"{render.plural(batches.unsynced, 'message')} stored but not on disk in time")
    if json:
        render.json_line({"stored": batches.stored, "lines": batches.lines})
    else:
        render.line(f"{batches.told()} in {config.root}")


class _Interrupts:
    """Ctrl-C waits while a batch is being put, and ends the command right after it."""

    def __init__(self) -> None:
        self.busy = False
        self._pending = False
        self._before: Any = None

    def __enter__(self) -> "_Interrupts":
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.busy:
            raise KeyboardInterrupt
        self._pending = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """The block runs to its end."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt


class _Batches:
    """Collects messages and puts them when there are enough."""

    def __init__(self, store: LocalMessageStore, name: str, interrupts: _Interrupts) -> None:
        self.lines = self.stored = self.bytes_read = self.unsynced = 0
        self._store = store
        self._name = name
        self._interrupts = interrupts
        self._messages: list[Message] = []
        self._numbers: list[int] = []
        self._bytes = 0

    def add(self, line: bytes) -> None:
        """One line of the file; empty ones are skipped."""
        self.lines += 1
        self.bytes_read += len(line)
        if not line.strip():
            return
        try:
            message, delay_level = message_of(line)
        except IllegalMessageError as error:
            self.put()
            raise self._bad_line(error, self.lines) from error
        self._messages.append(message)
        self._numbers.append(self.lines)
        self._bytes += len(message.body) + len(message.properties)
        if delay_level or b"DEL" in message.properties:
            # Not for the batch: the hooks that delay a message look for DELAY among its properties.
            self._put_special(delay_level)
        elif len(self._messages) >= BATCH_LINES or self._bytes >= BATCH_BYTES:
            self.put()

    def told(self) -> str:
        """What is in the store, for people."""
        return f"{render.plural(self.stored, 'message')} stored"

    def put(self) -> None:
        """Put what was collected."""
        messages, numbers = self._take()
        if not messages:
            return
        with self._interrupts.held():
            if len(messages) < _FEW and "numba" not in sys.modules:
                self._one_by_one(messages, numbers)
                return
            result = self._store.put_batch(messages)
            self._store.dispatcher.catch_up()
            if result.ok:
                self.stored += len(messages)
                self.unsynced += len(messages) * (result.status is not PutStatus.PUT_OK)
                return
            # One message refuses its whole batch: find out which, and store those before it.
            first = next((n for n, one in enumerate(result) if not one.ok), 0) if result.stored else 0
            self.stored += first
            self._one_by_one(messages[first:], numbers[first:])

    def _take(self) -> tuple[list[Message], list[int]]:
        taken = self._messages, self._numbers
        self._messages, self._numbers, self._bytes = [], [], 0
        return taken

    def _put_special(self, delay_level: int) -> None:
        message, number = self._messages.pop(), self._numbers.pop()
        self.put()
        with self._interrupts.held():
            if delay_level:
                from rockstrata.message import properties as props

                wire = props.put(message.properties, props.DELAY, str(delay_level))
                result = self._store.put(_with_properties(message, wire))
            else:
                result = self._store.put_without_hooks(message)
            self._count(result, number)

    def _one_by_one(self, messages: list[Message], numbers: list[int]) -> None:
        for message, number in zip(messages, numbers, strict=True):
            self._count(self._store.put(message), number)

    def _count(self, result: PutResult, number: int) -> None:
        if not result.ok:
            raise refusal(result, path=self._name, position=number, hint=self._so_far(number))
        self.stored += 1
        self.unsynced += result.status is not PutStatus.PUT_OK

    def _bad_line(self, error: IllegalMessageError, number: int) -> IllegalMessageError:
        hint = "; ".join(filter(None, (error.hint, self._so_far(number))))
        what = str(error).removesuffix(f"; {error.hint}") if error.hint else str(error)
        return IllegalMessageError(f"{self._name}:{number}: {what}", hint=hint)

    def _so_far(self, number: int) -> str:
        return f"{self.told()} before line {number}"


def _with_properties(message: Message, wire: bytes) -> Message:
    import msgspec

    return msgspec.structs.replace(message, properties=wire)


@contextmanager
def _opened(source: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The lines, and how many bytes they are if that is known."""
    if source == "-":
        yield sys.stdin.buffer, None
        return
    path = Path(source)
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read the file: {error.strerror}", path=path) from error
    with file:
        yield file, path.stat().st_size or None
