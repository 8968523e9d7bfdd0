"""``rockstrata store check``: is everything there and whole? And ``--repair``, which cuts what is not.

Answers to no RocketMQ command. Checking reads beside a running broker; repairing takes the lock.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from rockstrata.cli.options import (
    ConfigOption,
    DirArgument,
    DirOption,
    JsonOption,
    SetOption,
    existing_store,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rockstrata.store.check import CheckSummary, Finding, FindingKind, StoreCheck
    from rockstrata.store.recovery import RecoveryReport
    from rockstrata.store.store_config import StoreConfig

EXIT_CORRUPTION = 3
_SHOWN_MAX = 100


def check(
    place: DirArgument = None,
    directory: DirOption = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Then recover the store, cutting the log where it cannot be read on."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair without asking.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Check every record, unit, index item and the checkpoint against each other.

    Damage exits with 3; notes (what the next start puts right by itself) do not. --repair does what
    opening the store after a crash does, and also cuts damage that was durable: it says first what
    will be lost, and asks.
    """
    settings = existing_store(place or directory, config, sets)
    findings, summary = run_check(settings)
    if not repair:
        _report(settings, findings, summary, json=json)
    else:
        _repair(settings, findings, summary, yes=yes, json=json)
        findings, summary = run_check(settings)
        _report(settings, findings, summary, json=json)
    if any(not finding.note for finding in findings):
        raise typer.Exit(EXIT_CORRUPTION)


def run_check(config: "StoreConfig") -> "tuple[list[Finding], CheckSummary]":
    """Check with a progress bar."""
    from rockstrata.store.check import StoreCheck

    checking = StoreCheck(config)
    return _collect(checking), checking.summary


def _collect(checking: "StoreCheck") -> "list[Finding]":
    from rockstrata.cli import render
    from rockstrata.store.check import Finding

    findings: list[Finding] = []
    with render.progress("checking the log", None, "bytes") as advance:
        for event in checking.run():
            if isinstance(event, Finding):
                findings.append(event)
            elif event.stage == "commit log":
                advance(event.done, event.total)
    return findings


def _report(config: "StoreConfig", findings: "list[Finding]", summary: "CheckSummary", *, json: bool) -> None:
    from rockstrata.cli import render

    damage = sum(not finding.note for finding in findings)
    if json:
        render.json_line(
            {"ok": damage == 0, "root": str(config.root), "summary": summary, "findings": findings}
        )
        return
    show_findings(config, findings)
    looked_at = (
        f"{render.plural(summary.records, 'record')} ({render.size_text(summary.record_bytes)}) in "
        f"[{summary.log_begin}, {summary.log_end}), {render.plural(summary.units, 'unit')}, "
        f"{render.plural(summary.keys, 'key')}"
    )
    if damage:
        render.line(f"{render.plural(damage, 'finding')}; checked {looked_at}", "bold red")
        for advice in _advice({finding.kind for finding in findings if not finding.note}):
            render.note(advice)
    else:
        render.line(f"nothing wrong; checked {looked_at}", "bold green")
        if findings:
            render.note(
                "notes are no damage: the next start of the store puts them right, or they were meant"
            )


def _advice(kinds: "set[FindingKind]") -> "Iterator[str]":
    """What can be done about it."""
    from rockstrata.store.check import FindingKind as Kind

    if kinds & {
        Kind.MISSING_UNIT,
        Kind.WRONG_UNIT,
        Kind.STRAY_UNIT,
        Kind.NO_QUEUE,
        Kind.BAD_INDEX,
        Kind.MISSING_KEY,
    }:
        yield (
            "queues and index hold nothing that the log does not: delete consumequeue/, batchconsumequeue/ "
            "and index/ together while the store is closed, and its next start rebuilds them"
        )
    if kinds & {Kind.BAD_RECORD, Kind.BAD_BODY, Kind.WRONG_PLACE}:
        yield (
            "a damaged record is lost unless you have a copy of its file; all others can be read, and saved "
            "with `rockstrata store dump --bodies --keep-going`"
        )


def show_findings(config: "StoreConfig", findings: "list[Finding]") -> None:
    """A table of what was found; notes of one kind are one line."""
    from rockstrata.cli import render

    if not findings:
        return
    shown = [finding for finding in findings if not finding.note] + _gathered_notes(findings)
    rows = [
        (
            f"note: {finding.kind.value}" if finding.note else finding.kind.value,
            finding.path.removeprefix(f"{config.root}/") + f":{finding.position}",
            finding.count,
            finding.what,
            finding.expected,
            finding.found,
        )
        for finding in shown[:_SHOWN_MAX]
    ]
    render.table(("finding", "at", "count", "what", "expected", "found"), rows, right=("count",))
    if len(shown) > _SHOWN_MAX:
        render.line(f"… and {len(shown) - _SHOWN_MAX} more; --json lists all")


def _gathered_notes(findings: "list[Finding]") -> "list[Finding]":
    """The first note of each kind, with the count of all."""
    import msgspec

    gathered: dict[FindingKind, Finding] = {}
    for finding in findings:
        if finding.note:
            first = gathered.get(finding.kind)
            count = finding.count + (first.count if first is not None else 0)
            gathered[finding.kind] = msgspec.structs.replace(first or finding, count=count)
    return list(gathered.values())


def _repair(
    config: "StoreConfig", findings: "list[Finding]", summary: "CheckSummary", *, yes: bool, json: bool
) -> None:
    """Say what will be cut, ask, and do it."""
    from rockstrata.cli import render
    from rockstrata.store.dry_disk import plan_repair
    from rockstrata.store.local_store import LocalMessageStore

    if not json:
        show_findings(config, findings)
    plan = plan_repair(config)
    lost = _told(config, plan, summary)
    render.err().print(lost, soft_wrap=True)
    if not yes and not render.confirm("Repair now?"):
        render.note("nothing was changed")
        raise typer.Exit(1)
    store = LocalMessageStore.open(config, repair=True)
    done = store.recovery
    store.close()
    render.note(f"repaired: the log ends at {done.end}, {render.plural(done.records, 'record')} gone through")


def _told(config: "StoreConfig", plan: "RecoveryReport", summary: "CheckSummary") -> str:
    """What the repair will do, for people."""
    from rockstrata.cli import render

    cut = max(plan.cut_bytes, summary.log_end - plan.end, 0)
    start = plan.end - plan.end % config.commit_log_file_bytes
    where = f"physical offset {plan.end} (commitlog/{start:020d}:{plan.end - start})"
    lines = [
        f"will cut {render.plural(cut, 'byte')} from {where} on: whatever messages lie there are lost"
        if cut
        else f"will cut nothing: the log is readable to its end at {where}"
    ]
    if plan.rebuilt:
        lines.append("will rebuild all consume queues and the index from the log")
    if plan.damaged:
        places = ", ".join(map(str, plan.damaged[:5]))
        kept = render.plural(len(plan.damaged), "damaged record")
        lines.append(f"will keep {kept} (at {places}): reading them fails")
    return "\n".join(lines)
