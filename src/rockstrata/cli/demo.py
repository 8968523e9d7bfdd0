"""``rockstrata demo``: put, kill, recover, find and check, shown to a person.

Answers to RocketMQ's quickstart. Needs no root, no network and no Java; leaves its store behind, with
commands to try on it.
"""

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rockstrata.store.local_store import LocalMessageStore

MESSAGES = 200_000
ACKS = 20_000
_BATCH = 500
_KILL_AFTER_S = 8.0
_ARRIVES_IN_S = 10.0


def demo(
    directory: Annotated[
        Path | None,
        typer.Option("--dir", "-d", metavar="DIR", help="An empty directory; else a temporary one."),
    ] = None,
    messages: Annotated[int, typer.Option(min=1_000, help="Messages to put before the crash.")] = MESSAGES,
) -> None:
    """Watch the store at work for half a minute: put, kill -9, recover, query, delay, check."""
    from rockstrata.cli import render

    root = _root(directory)
    render.line(f"A store in {root}, with the files of Apache RocketMQ.", "bold")
    _put(root, messages)
    acked = _crash(root, min(ACKS, messages))
    _recover_and_look(root, messages, acked)
    _stat(root)
    _check(root)
    _try_next(root)


def _root(directory: Path | None) -> Path:
    import tempfile

    from rockstrata.errors import ConfigError

    if directory is None:
        return Path(tempfile.mkdtemp(prefix="rockstrata-demo-"))
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError("the demo needs an empty directory", path=directory)
    return directory.resolve()


def _step(number: int, title: str) -> None:
    from rockstrata.cli import render

    render.line()
    render.line(f"{number}. {title}", "bold cyan")


def _put(root: Path, count: int) -> None:
    from rockstrata.cli import render
    from rockstrata.cli.demo_child import demo_config
    from rockstrata.cli.demo_letters import letters
    from rockstrata.clock import duration_s
    from rockstrata.store.local_store import LocalMessageStore

    _step(1, f"Put {count:,} messages of a small shop: clicks, orders, payments, shipments.")
    shop = letters(seed=7)
    with LocalMessageStore.open(demo_config(root, sync=False)) as store:
        # The first batch loads the compiled kernels; it is not what we measure.
        store.put_batch([next(shop) for _ in range(_BATCH)])
        began, done = duration_s(), _BATCH
        with render.progress("putting", count) as advance:
            while done < count:
                batch = [next(shop) for _ in range(min(_BATCH, count - done))]
                result = store.put_batch(batch)
                assert result.ok, result.status
                done += len(batch)
                advance(done)
        seconds = duration_s() - began
    rate = (count - _BATCH) / max(seconds, 1e-9)
    render.line(f"   {count:,} messages stored, {rate:,.0f} a second (making them up included).")


def _crash(root: Path, wanted: int) -> dict[tuple[str, int, int], str]:
    """Let a child put with SYNC_FLUSH and kill it; what it was told is stored, by queue and offset."""
    import signal
    import subprocess
    import sys

    from rockstrata.cli import render
    from rockstrata.clock import duration_s
    from rockstrata.errors import StoreStateError

    _step(2, "Another process goes on, with SYNC_FLUSH, and is killed with SIGKILL while four threads write.")
    child = subprocess.Popen(
        [sys.executable, "-m", "rockstrata.cli.demo_child", str(root)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    acked: dict[tuple[str, int, int], str] = {}
    deadline = duration_s() + _KILL_AFTER_S
    with render.progress("acknowledged", wanted) as advance:
        for line in child.stdout:
            _note(acked, line)
            advance(min(len(acked), wanted))
            if len(acked) >= wanted or duration_s() > deadline:
                break
    child.kill()
    for line in child.stdout:
        # Acknowledged before the kill, still in the pipe.
        _note(acked, line)
    child.stdout.close()
    code = child.wait()
    if code != -signal.SIGKILL:
        raise StoreStateError("the child process failed by itself", expected="killed", found=f"exit {code}")
    render.line(f"   Process {child.pid} is dead (exit {code}); {len(acked):,} messages were acknowledged.")
    return acked


def _note(acked: dict[tuple[str, int, int], str], line: bytes) -> None:
    words = line.decode().split()
    if line.endswith(b"\n") and len(words) == 4:
        acked[words[0], int(words[1]), int(words[2])] = words[3]


def _recover_and_look(root: Path, before: int, acked: dict[tuple[str, int, int], str]) -> None:
    from rockstrata.cli import render
    from rockstrata.cli.demo_child import demo_config
    from rockstrata.store.local_store import LocalMessageStore

    _step(3, "Open it again. The file `abort` tells of the crash, so the log is gone through.")
    with LocalMessageStore.open(demo_config(root, sync=False)) as store:
        report = store.recovery
        render.line(
            f"   {report.records:,} records checked from {report.scanned_from:,} to {report.end:,}; "
            f"{render.plural(report.cut_bytes, 'byte')} of an unfinished record cut off."
        )
        found = sum(_is_there(store, place, order) for place, order in acked.items())
        verdict = "every one of them is there" if found == len(acked) else "MESSAGES ARE MISSING"
        render.line(
            f"   {len(acked):,} acknowledged, {found:,} found: {verdict}.",
            "green" if found == len(acked) else "bold red",
        )
        if found != len(acked):
            raise typer.Exit(1)
        queues = ((topic, queue) for topic, ids in store.topic_queues().items() for queue in ids)
        more = sum(store.message_count(*queue) for queue in queues) - before - len(acked)
        render.line(f"   {more:,} more were in the log before their producer heard of it; they are kept.")
        _find(store)
        _delay(store)


def _is_there(store: "LocalMessageStore", place: tuple[str, int, int], order: str) -> bool:
    messages = store.get(*place, 1).messages()
    return bool(messages) and (messages[0].keys or "").split()[:1] == [order]


def _find(store: "LocalMessageStore") -> None:
    from rockstrata.cli import messages, render
    from rockstrata.clock import duration_s
    from rockstrata.store.message_filter import SqlFilter, TagFilter

    _step(4, "Find messages: by key, by time, by tag, by SQL.")
    began = duration_s()
    found = store.query("orders", "order-000042")
    took_ms = 1000 * (duration_s() - began)
    render.line(f"   Key order-000042 in topic orders ({took_ms:.1f} ms):")
    messages.show(found, json=False)
    first = store.get("payments", 0, 0, 1).messages()[0].store_timestamp
    last = store.store_time("payments", 0, store.max_offset("payments", 0) - 1)
    middle = (first + last) // 2
    offset = store.offset_by_time("payments", 0, middle)
    when = render.time_text(middle)
    render.line(f"   The first payment in queue 0 stored at {when} or later has offset {offset:,}.")
    refused = store.get("payments", 0, 0, 3, message_filter=TagFilter("REFUSED"))
    render.line(f"   Refused payments among the first {refused.next_begin_offset:,} of queue 0, by tag:")
    messages.show(refused.messages(), json=False)
    north = store.get("shipments", 1, 0, 3, message_filter=SqlFilter("region = 'north' AND TAGS = 'SENT'"))
    render.line("   Shipments to the north, by the SQL filter region = 'north' AND TAGS = 'SENT':")
    messages.show(north.messages(), json=False)


def _delay(store: "LocalMessageStore") -> None:
    from rockstrata.cli import render
    from rockstrata.clock import duration_s
    from rockstrata.message.model import Message

    _step(5, "Put a message with delay level 1 (one second) and wait for it.")
    before = store.max_offset("reminders", 0)
    began = duration_s()
    store.put(Message.of("reminders", "your basket is waiting", delay_level=1, keys="customer-0001"))
    while store.max_offset("reminders", 0) == before and duration_s() - began < _ARRIVES_IN_S:
        store.clock.sleep_s(0.02)
    arrived = store.get("reminders", 0, before, 1).messages()
    if not arrived:
        render.line(f"   It did not arrive in {_ARRIVES_IN_S:.0f} s.", "bold red")
        raise typer.Exit(1)
    render.line(f"   {render.body_text(arrived[0].body)!r} arrived after {duration_s() - began:.2f} s.")


def _stat(root: Path) -> None:
    from rockstrata.cli import stat
    from rockstrata.cli.demo_child import demo_config
    from rockstrata.cli.overview import overview
    from rockstrata.store.reader import StoreReader

    _step(6, "What is in it now.")
    stat.show(overview(StoreReader(demo_config(root, sync=False))))


def _check(root: Path) -> None:
    from rockstrata.cli import check, render
    from rockstrata.cli.demo_child import demo_config
    from rockstrata.clock import duration_s

    _step(7, "Check every record, queue unit and index item against each other.")
    began = duration_s()
    config = demo_config(root, sync=False)
    findings, summary = check.run_check(config)
    check.show_findings(config, findings)
    damage = [finding for finding in findings if not finding.note]
    render.line(
        f"   {summary.records:,} records, {summary.units:,} units and {summary.keys:,} keys checked in "
        f"{duration_s() - began:.1f} s: {'nothing wrong' if not damage else 'DAMAGE FOUND'}.",
        "green" if not damage else "bold red",
    )
    if damage:
        raise typer.Exit(3)


def _try_next(root: Path) -> None:
    from rockstrata.cli import render

    render.line()
    program = _program()
    render.line(f"The store is in {root}. Try:", "bold")
    for command in (
        f"{program} store stat {root}",
        f"{program} store get -d {root} orders 0 0 --count 5",
        f"{program} store query -d {root} orders order-000042",
        f"{program} store put -d {root} orders 'a new one' --keys mine --tags CREATED",
        f"{program} store dump -d {root} payments --queue 0 --to-offset 3 --bodies",
        f"{program} store check {root}",
        f"rm -r {root}",
    ):
        render.line(f"  {command}")


def _program() -> str:
    """How to call us again: after `make demo` the command is not on the path."""
    if shutil.which("rockstrata"):
        return "rockstrata"
    called = Path(sys.argv[0])
    return (
        shlex.quote(str(called))
        if called.name == "rockstrata"
        else f"{sys.executable} -m rockstrata.cli.main"
    )
