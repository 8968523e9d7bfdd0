"""`make bench`: every case, ours and Apache RocketMQ's in turns, on one file system, in one run."""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.cases import Case, cases

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from peer.peer import NEWEST, Peer, peer_available  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases to run; all if none is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 is a quick look")
    parser.add_argument("--dir", default=None, help="where the stores go; a temporary folder if not given")
    parser.add_argument("--out", default="local-store", help="name of the results")
    args = parser.parse_args()
    available, reason = peer_available()
    if not available:
        raise SystemExit(f"bench needs the Java peer: {reason}")
    chosen = [c for c in cases(args.scale) if not args.names or c.name in args.names]
    Peer(NEWEST).build()
    folder = Path(args.dir or tempfile.mkdtemp(prefix="rockstrata-bench-"))
    try:
        run(chosen, folder, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(chosen: list[Case], folder: Path, args: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sample = folder / "sample"
    if any(case.prepare != "empty" for case in chosen):
        say("writing the log that starts and reads use …")
        count = int(1_200_000 * args.scale)
        java("put", folder / "sample", "4g", {"count": count, "warmup": 0})
    warm_memory(folder, int(6 * args.scale * (1 << 30)))
    rounds: report.Rounds = {case.name: {"ours": [], "java": []} for case in chosen}
    for number in range(args.rounds):
        for case in chosen:
            # Whoever goes second finds memory as the first left it: take turns in that too.
            for side in ("ours", "java") if number % 2 == 0 else ("java", "ours"):
                figures = measure(case, side, folder, sample)
                rounds[case.name][side].append(figures)
                shown = {f.key: round(figures[f.key], 2) for f in case.figures if f.key in figures}
                say(f"round {number + 1}/{args.rounds} {case.name:10} {side:5} {shown}")
    measured = report.rows(chosen, rounds)
    document = {
        "date": datetime.date.today().isoformat(),
        "machine": report.machine(),
        "rounds": rounds,
        "rows": measured,
        "scale": args.scale,
    }
    report.write(RESULTS, args.out, document, measured)
    print(report.table(measured))
    print()
    print(report.memory(chosen, rounds))
    print(f"\nwritten: {RESULTS / args.out}.json and .png")


def measure(case: Case, side: str, folder: Path, sample: Path) -> dict[str, Any]:
    directory = folder / "store"
    shutil.rmtree(directory, ignore_errors=True)
    if case.prepare != "empty":
        copy_store(sample, directory, case.prepare)
    if side == "java":
        return java(case.command, directory, case.heap, case.options)
    return ours(case.command, directory, case.options)


def copy_store(sample: Path, directory: Path, state: str) -> None:
    """A copy of the sample in a state: clean, unclean (killed), or log (queues and index gone)."""
    subprocess.run(["cp", "-r", "--sparse=always", str(sample), str(directory)], check=True)
    if state == "log":
        # Without the checkpoint too: 5.5.0 otherwise rebuilds only from where it says.
        for name in ("consumequeue", "index"):
            shutil.rmtree(directory / name, ignore_errors=True)
        (directory / "checkpoint").unlink(missing_ok=True)
    if state == "unclean":
        (directory / "abort").write_text("1")
        (directory / "checkpoint").unlink(missing_ok=True)
    os.sync()


def ours(command: str, directory: Path, options: dict[str, Any]) -> dict[str, Any]:
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    line = [sys.executable, "-m", "benchmarks.ours", command, "--dir", str(directory), *words]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-4000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def java(command: str, directory: Path, heap: str, options: dict[str, Any]) -> dict[str, Any]:
    return Peer(NEWEST, heap=heap).bench(command, directory, **options)


def warm_memory(folder: Path, size: int) -> None:
    """Touch memory once: a virtual machine gets its pages from the host at the first touch, slowly."""
    path = folder / "warm"
    with path.open("wb") as file:
        block = bytes(16 << 20)
        for _ in range(size // len(block)):
            file.write(block)
    path.unlink()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
