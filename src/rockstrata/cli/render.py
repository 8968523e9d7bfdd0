"""The one place that talks to the terminal: tables, progress bars, sizes and times as people read them.

Answers to no RocketMQ class. Called by every command; what a command prints for programs (``--json``)
goes through ``json_line``, past rich.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rockstrata.clock import iso_time

if TYPE_CHECKING:
    from rich.console import Console

PREVIEW_CHARS = 120
_PIPE_COLUMNS = 180
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


@cache
def _console(stderr: bool) -> "Console":
    from rich.console import Console

    # A pipe has no width: tables are not squeezed into 80 columns there.
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_COLUMNS
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def out() -> "Console":
    """The console for answers."""
    return _console(False)


def err() -> "Console":
    """The console for errors, notes and progress."""
    return _console(True)


# --- Text ----------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Text with everything escaped that could move the cursor or change colours."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count_text(number: int) -> str:
    """``1,234,567``."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """``1 message``, ``2 messages``, ``2 index entries``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{number:,} {noun}s"


def size_text(size: float) -> str:
    """``512 B``, ``1.5 MiB``."""
    if size < 1024:
        return f"{int(size)} B"
    for unit in _UNITS:
        size /= 1024
        if size < 1024 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}"


def time_text(timestamp_ms: int) -> str:
    """Local time to the millisecond, ``-`` for none."""
    text = iso_time(timestamp_ms)
    return text[:23].replace("T", " ")


def body_text(body: bytes, limit: int = PREVIEW_CHARS) -> str:
    """A body for people: text if it is UTF-8 without control characters, else hex, cut to ``limit``."""
    try:
        text = body.decode()
        if all(c.isprintable() or c in "\n\t\r" for c in text[:limit]):
            return _cut(clean(text[: limit + 1]), limit, len(text) > limit)
    except UnicodeDecodeError:
        pass
    return _cut("0x" + body[: limit // 2].hex(), limit, 2 + 2 * len(body) > limit)


def _cut(text: str, limit: int, is_cut: bool) -> str:
    return text[: limit - 1] + "…" if is_cut or len(text) > limit else text


# --- Printing ------------------------------------------------------------------------------------


def line(text: str = "", style: str = "") -> None:
    """One line of an answer, never wrapped."""
    out().print(text, style=style or None, soft_wrap=True)


def note(text: str) -> None:
    """One line beside the answer, on stderr."""
    err().print(text, style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """One line the reader should not miss, on stderr."""
    err().print(f"warning: {clean(text)}", style="yellow", soft_wrap=True)


def error(text: str) -> None:
    """Why the command failed, in one line on stderr."""
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), clean(text)), soft_wrap=True)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", right: Sequence[str] = ()
) -> None:
    """A table; the columns named in ``right`` hold numbers. Integers get thousands separators."""
    from rich import box
    from rich.table import Table

    drawn = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in columns:
        is_number = column in right
        drawn.add_column(
            column,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            header_style="bold",
        )
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    _print(drawn)


def facts(pairs: Iterable[tuple[str, object]], *, title: str = "") -> None:
    """Names and values, one pair a line."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, _cell(value))
    if title:
        out().print(Text(title, style="bold"))
    _print(grid)


def _print(drawn: Any) -> None:
    """Print; for a pipe without the blanks rich fills lines with."""
    console = out()
    if console.is_terminal:
        console.print(drawn)
        return
    with console.capture() as captured:
        console.print(drawn)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def _cell(value: object) -> Any:
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return count_text(value)
    return Text(clean(str(value)))


def json_line(value: object) -> None:
    """One JSON document on a line of stdout."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


# --- Progress ------------------------------------------------------------------------------------


class Advance(Protocol):
    """Says how much is done, and of how much if that was not known before."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Move the bar."""


@contextmanager
def progress(what: str, total: int | None, unit: Literal["bytes", "count"] = "count") -> Iterator[Advance]:
    """A bar on stderr while the block runs; call the yielded function with how much is done.

    Draws nothing if stderr is not a terminal.
    """
    if not err().is_terminal:
        yield lambda done, total=None: None
        return
    from rich import progress as bars

    amount = bars.DownloadColumn() if unit == "bytes" else bars.MofNCompleteColumn()
    speed = bars.TransferSpeedColumn() if unit == "bytes" else bars.TextColumn("{task.fields[rate]}")
    with bars.Progress(
        bars.TextColumn("{task.description}"), bars.BarColumn(), amount, speed,
        bars.TimeRemainingColumn(), console=err(), transient=True,
    ) as drawn:  # fmt: skip
        task = drawn.add_task(what, total=total, rate="")

        def advance(done: int, total: int | None = None) -> None:
            rate = drawn.tasks[0].speed
            drawn.update(task, completed=done, total=total, rate=f"{rate:,.0f}/s" if rate else "")

        yield advance


def confirm(question: str) -> bool:
    """Ask on the terminal; no answer is no."""
    import typer

    return typer.confirm(question, default=False, err=True)
