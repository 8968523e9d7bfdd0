"""What is measured, how each side is asked, and the bar that ours must reach."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One number of a case. ``bar`` is ours over theirs, or theirs over ours where less is better."""

    key: str
    title: str
    bar: float
    unit: str = "msg/s"
    less_is_better: bool = False
    java_key: str = ""
    better: float = 0.0

    def ratio(self, ours: float, java: float) -> float:
        return java / ours if self.less_is_better else ours / java


@dataclass(frozen=True)
class Case:
    """A benchmark run by both sides, in turns."""

    name: str
    command: str
    figures: tuple[Figure, ...]
    options: dict[str, Any] = field(default_factory=dict)
    prepare: str = "empty"
    heap: str = "4g"


def cases(scale: float) -> list[Case]:
    """All cases; ``scale`` 1 is the full size, less is quicker and less telling."""

    def n(count: int) -> int:
        return max(1000, int(count * scale))

    put = {"count": n(600_000), "warmup": n(100_000)}
    return [
        Case(
            "put",
            "put",
            (
                Figure("dispatched_per_s", "put 1 KiB until readable", 1.5),
                Figure("calls_per_s", "put 1 KiB, calls", 0.0),
                Figure("p50_us", "put call p50", 1 / 1.5, "µs", less_is_better=True, better=1.0),
                Figure("p99_us", "put call p99", 0.0, "µs", less_is_better=True),
            ),
            put,
        ),
        Case(
            "put-batch",
            "put-batch",
            (Figure("messages_per_s", "put_batch 256 × 1 KiB", 3.0),),
            {"count": n(512_000), "warmup": n(100_000), "batch": 256},
        ),
        *(
            Case(
                f"sync-{threads}",
                "sync",
                (Figure("messages_per_s", f"SYNC_FLUSH, {threads} writers", 1.2),),
                {"threads": threads, "seconds": max(1.0, 4.0 * scale)},
            )
            for threads in (1, 16, 64)
        ),
        Case(
            "rebuild",
            "rebuild",
            (Figure("total_s", "rebuild queues and index", 8.0, "s", less_is_better=True),),
            prepare="log",
        ),
        Case(
            "unclean",
            "start",
            (Figure("total_s", "unclean start", 3.0, "s", less_is_better=True),),
            prepare="unclean",
        ),
        Case(
            "clean",
            "start",
            (Figure("total_s", "clean start", 0.0, "s", less_is_better=True),),
            prepare="clean",
        ),
        Case(
            "read",
            "read",
            (
                Figure("messages_per_s", "read by queue, 32 a call", 0.5, better=1.0),
                Figure("copied_messages_per_s", "the same, records copied out", 0.0),
            ),
            {"passes": 3, "batch": 32},
            prepare="clean",
        ),
        Case(
            "index",
            "index",
            (
                Figure("puts_per_s", "index build", 2.5, "keys/s"),
                Figure(
                    "many_queries_per_s",
                    "index look-ups, many a call",
                    3.0,
                    "keys/s",
                    java_key="queries_per_s",
                ),
                Figure("queries_per_s", "index look-ups, one a call", 0.4, "keys/s"),
            ),
            {"keys": n(20_000_000), "queries": n(500_000)},
        ),
    ]


Runner = Callable[[Case, str], dict[str, Any]]
