"""Errors of a broken world, each saying what, where, expected, found, and what to do next.

Expected outcomes are enum members in results, never exceptions. Every error knows whether trying
the same call again can help (``retryable``). Each also derives from the builtin it resembles.
"""

from pathlib import Path
from typing import Any, ClassVar

_UNSET: Any = object()


class RockstrataError(Exception):
    """Base of all our errors.

    ``str(error)`` reads: what at path:position: expected X, found Y; hint.
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self,
        what: str,
        *,
        path: Path | str | None = None,
        position: int | None = None,
        expected: Any = _UNSET,
        found: Any = _UNSET,
        hint: str = "",
    ) -> None:
        self.what = what
        self.path = None if path is None else str(path)
        self.position = position
        self.expected = None if expected is _UNSET else expected
        self.found = None if found is _UNSET else found
        self.hint = hint
        super().__init__(self._render(expected is not _UNSET, found is not _UNSET))

    def _render(self, has_expected: bool, has_found: bool) -> str:
        text = self.what
        if self.path is not None:
            text += f" at {self.path}"
            if self.position is not None:
                text += f":{self.position}"
        elif self.position is not None:
            text += f" at {self.position}"
        facts = []
        if has_expected:
            facts.append(f"expected {self.expected}")
        if has_found:
            facts.append(f"found {self.found}")
        if facts:
            text += ": " + ", ".join(facts)
        return f"{text}; {self.hint}" if self.hint else text


class CorruptionError(RockstrataError, ValueError):
    """Bytes that should be valid are not. Never turned into "no message"."""


class ForeignFileError(CorruptionError):
    """A file lies where only the store's own files may lie, or has the wrong size."""


class ConfigError(RockstrataError, ValueError):
    """A setting, or a config file, cannot be used."""


class IllegalMessageError(RockstrataError, ValueError):
    """A message that cannot be encoded as asked: too long a field, or fields that contradict."""


class StoreLockedError(RockstrataError, BlockingIOError):
    """Another process owns the store directory."""

    retryable = True


class StoreClosedError(RockstrataError, RuntimeError):
    """The store was shut down, or was never started."""


class StoreStateError(RockstrataError, RuntimeError):
    """A call the store cannot serve in its present state."""


class DiskError(RockstrataError, OSError):
    """The operating system refused a read, a write or a sync."""


class DiskFullError(DiskError):
    """No space left for a file the store must create or extend."""

    retryable = True


class ServiceStopError(RockstrataError, TimeoutError):
    """A background service did not stop in its time."""
