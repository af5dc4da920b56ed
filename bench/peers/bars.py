"""What Fairlead's queues in PostgreSQL are to reach, set before they were measured: each bar beside its figure."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.peers.results import Results

RAY, THREADS = "fairlead-postgres-ray", "fairlead-postgres-threads"
EMBEDDED = {RAY: "fairlead-ray", THREADS: "fairlead-threads"}
SAME_COST = 1.2  # "As with none": repetitions of the measure differ by as much.


class Bar(NamedTuple):
    """One bar: a figure of Fairlead, over another figure if there is one, is at least or at most a number.

    Attributes:
      title: what is compared.
      limit: the number; for a figure alone, in its unit.
      other: the system that is compared with. None: another figure of the same system; "embedded": the same runtime
        with the embedded store.
      than: the figure that is compared with. None: the figure alone counts.
      is_most: whether the limit is an upper one.
      inverse: whether the other figure is divided by this one, as for durations.
      only: the runtimes that the bar is for.
    """

    title: str
    figure: str
    limit: float
    other: str | None = None
    than: str | None = None
    is_most: bool = False
    inverse: bool = False
    only: Sequence[str] = (RAY, THREADS)


def _against(title: str, figure: str, limits: Sequence[tuple[str, str, float]], *, inverse: bool = False) -> list[Bar]:
    return [Bar(f"{title} / {name}", figure, limit, other, figure, inverse=inverse) for name, other, limit in limits]


BY_HAND = "SKIP LOCKED by hand"
ENQUEUE = [("Procrastinate", "procrastinate", 2), ("DBOS", "dbos", 2), (BY_HAND, "skip-locked", 0.5)]
BARS: Sequence[Bar] = (
    *_against(
        "drain",
        "drain",
        [
            ("Procrastinate", "procrastinate", 8),
            ("DBOS", "dbos", 4),
            (BY_HAND, "skip-locked", 0.12),
            ("the embedded store", "embedded", 0.7),
        ],
    ),
    Bar("drain while a snapshot is held / without", "drain_snapshot", 0.8, than="drain"),
    *_against("enqueue one by one", "enqueue_one", ENQUEUE),
    *_against("enqueue one by one, 4 processes", "enqueue_four", ENQUEUE),
    Bar(f"in a user's transaction / {BY_HAND}", "within_one", 0.7, "skip-locked", "within_one"),
    Bar(f"in a user's transaction, 4 processes / {BY_HAND}", "within_four", 0.7, "skip-locked", "within_four"),
    Bar("16 clients, flush of 2 ms / without notifications", "flush_16", 0.9, than="flush_16_silent"),
    Bar("latency at 100/s, p50, ms", "at_100_p50", 10, is_most=True, only=(RAY,)),
    Bar("latency at 100/s, p99, ms", "at_100_p99", 20, is_most=True, only=(RAY,)),
    Bar("quiet tenants under a flood, p99, ms", "quiet_p99", 60, is_most=True),
    *_against(
        "heavy tenant done, times sooner", "heavy_done", [("DBOS, partitions", "dbos-partitions", 20)], inverse=True
    ),
    Bar("idle CPU beside a million tenants / with none", "idle_million", SAME_COST, than="idle", is_most=True),
)


def found(results: Results, bar: Bar, system: str) -> float | None:
    """Return what a bar is compared with; None: a figure was not measured, or the bar is not for this runtime."""
    mine = results.row(system, bar.figure)
    if system not in bar.only or mine is None or mine.median is None:
        return None
    if bar.than is None:
        return mine.median
    other = results.row(EMBEDDED[system] if bar.other == "embedded" else bar.other or system, bar.than)
    if other is None or not other.median or not mine.median:
        return None
    return other.median / mine.median if bar.inverse else mine.median / other.median


def rows(results: Results) -> list[list[str]]:
    """Return a row for each bar that has a figure: the bar, its limit, and what each runtime reached."""
    lines = []
    for bar in BARS:
        cells = [_cell(bar, found(results, bar, system)) for system in (RAY, THREADS)]
        if any(cell != "-" for cell in cells):
            limit = f"{'under' if bar.is_most else 'at least'} {bar.limit:g}"
            lines.append([bar.title, limit, *cells])
    return lines


def _cell(bar: Bar, value: float | None) -> str:
    if value is None:
        return "-"
    reached = value < bar.limit if bar.is_most else value >= bar.limit
    return f"{value:.3g}, {'reached' if reached else '**not reached**'}"
