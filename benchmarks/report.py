"""The table, the JSON and the picture of a run."""

import json
import platform
import statistics
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, Figure

Rounds = dict[str, dict[str, list[dict[str, Any]]]]


def rows(cases: list[Case], rounds: Rounds) -> list[dict[str, Any]]:
    """One row per figure that was measured on both sides."""
    result = []
    for case in cases:
        ours, java = rounds.get(case.name, {}).get("ours", []), rounds.get(case.name, {}).get("java", [])
        for figure in case.figures:
            mine = [r[figure.key] for r in ours if figure.key in r]
            theirs = [r[figure.java_key or figure.key] for r in java if (figure.java_key or figure.key) in r]
            if mine and theirs:
                result.append(_row(figure, mine, theirs))
    return result


def _row(figure: Figure, mine: list[float], theirs: list[float]) -> dict[str, Any]:
    best = min if figure.less_is_better else max
    ratio = figure.ratio(statistics.median(mine), statistics.median(theirs))
    return {
        "title": figure.title,
        "unit": figure.unit,
        "ours_median": statistics.median(mine),
        "java_median": statistics.median(theirs),
        "ours_best": best(mine),
        "java_best": best(theirs),
        "ratio_median": ratio,
        "ratio_best": figure.ratio(best(mine), best(theirs)),
        "bar": figure.bar,
        "passed": None if not figure.bar else ratio >= figure.bar,
        "rounds": len(mine),
    }


def number(value: float, unit: str) -> str:
    if unit in ("s", "µs"):
        return f"{value:.2f} {unit}"
    if value >= 1e6:
        return f"{value / 1e6:.2f} M {unit}"
    return f"{value / 1e3:.1f} k {unit}"


def table(measured: list[dict[str, Any]]) -> str:
    lines = [
        "| what | ours, median (best) | Java 5.5.0, median (best) | ratio of medians (of bests) | bar |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in measured:
        bar = "–" if row["passed"] is None else f"{row['bar']:.2g} × {'✓' if row['passed'] else '✗'}"
        unit = row["unit"]
        lines.append(
            f"| {row['title']} | {number(row['ours_median'], unit)} ({number(row['ours_best'], unit)}) "
            f"| {number(row['java_median'], unit)} ({number(row['java_best'], unit)}) "
            f"| {row['ratio_median']:.2f} × ({row['ratio_best']:.2f} ×) | {bar} |"
        )
    return "\n".join(lines)


def memory(cases: list[Case], rounds: Rounds) -> str:
    lines = ["| peak memory (RSS; for ours also private) | ours | Java |", "|---|---:|---:|"]
    for case in cases:
        ours, java = rounds.get(case.name, {}).get("ours", []), rounds.get(case.name, {}).get("java", [])
        if ours and java:
            peak = max(r["peak_rss_kb"] for r in ours) // 1024
            private = max(r["private_kb"] for r in ours) // 1024
            lines.append(
                f"| {case.name} | {peak} MiB ({private} MiB private) "
                f"| {max(r['peak_rss_kb'] for r in java) // 1024} MiB |"
            )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "unknown",
    )
    return {"cpu": cpu, "python": platform.python_version(), "kernel": platform.release()}


def write(folder: Path, name: str, document: dict[str, Any], measured: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    plot(folder / f"{name}.png", measured, document)


def plot(path: Path, measured: list[dict[str, Any]], document: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    titles = [row["title"] for row in measured][::-1]
    ratios = [row["ratio_median"] for row in measured][::-1]
    bars = [row["bar"] for row in measured][::-1]
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(titles) + 1.4))
    colours = [
        "#2a9d5c" if not bar or ratio >= bar else "#c8452f" for ratio, bar in zip(ratios, bars, strict=True)
    ]
    axes.barh(titles, ratios, color=colours, height=0.62)
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=0.9)
    for y, (ratio, bar) in enumerate(zip(ratios, bars, strict=True)):
        axes.text(ratio * 1.04, y, f"{ratio:.2f} ×", va="center", fontsize=8)
        if bar:
            axes.plot([bar, bar], [y - 0.4, y + 0.4], color="black", linewidth=1.4, linestyle=":")
    axes.set_xlabel(
        "Rockstrata over Apache RocketMQ 5.5.0, medians (right of the line: ours is faster; dots: the bar)"
    )
    axes.set_title(f"Local store, {document['date']}, {document['machine']['cpu']}", fontsize=10)
    axes.margins(x=0.16)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
