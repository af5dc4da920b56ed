"""The bars of the design, each with what was measured and the command that measures it."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bench.across_shards import COMMITS_BAR, THROUGHPUT_BAR, TIME_BAR
from bench.olive_moves import FULL_ITEMS, FULL_MB, LONGEST_WAIT_MS_MAX, OTHERS_RATIO_MAX
from bench.olive_page import spanning
from bench.olive_page.data import EMBEDDED, FOUNDATIONDB, Row, Runs
from bench.olive_page.sections import ENGINE_NAMES, reached
from bench.olive_snapshots import BARS as SNAPSHOT_BARS

NOT_RUN = "not run yet"
NO_COMMAND = "no command measures it"
RELIABILITY = "[Reliability](../reliability.md)"
DECISION_70 = "[decision 70](../decisions/070-every-transaction-reads-the-owner.md)"


class Bar(NamedTuple):
    """A line of the table. `is_reached`: None if nothing was measured."""

    measure: str
    limit: str
    measured: str
    is_reached: bool | None = None
    command: str = ""


LOCKS = (
    Bar(
        "lock of a handler, free again after its worker was killed, with Ray",
        "under 0.5 s",
        f"median 0.21 s, 0.25 s at most; from {RELIABILITY}",
        True,
        "`pytest tests/acceptance/test_locks.py`",
    ),
    Bar(
        "lock of a process outside of workflows, free again after the process was killed",
        "under 7 s",
        f"4.3 to 5.0 s; from {RELIABILITY}",
        True,
        "`pytest tests/fairlead/test_locks_outside.py`",
    ),
    Bar("lock of a library workflow that is a second old, finished by its next caller", "under 10 ms", NO_COMMAND),
)
OTHERS = (
    Bar("cost of reading the owner record: `transact`", "at most 5 %", f"{NO_COMMAND}; see {DECISION_70}"),
    Bar("the same: enqueue and drain", "at most 3 %", NO_COMMAND),
    Bar(
        "workflow, queue and transactions across shards while the tenant moves, there and back",
        "nothing lost, nothing twice, in 1,000 seeds",
        f"see {RELIABILITY}",
        command="`fairlead simulate --seeds 1000`",
    ),
)
ON_FOUNDATIONDB = Bar("the same moves on FoundationDB: longest wait", "under 100 ms", NO_COMMAND)


def table(saved: Mapping[str, Runs]) -> list[list[str]]:
    """Return a line for each bar, its head first. `saved`: the runs of each figure."""
    lines = [
        *_spanning(saved["spanning"]),
        *LOCKS,
        *_snapshots(saved["figure11"]),
        *_moves(saved["moves"]),
        ON_FOUNDATIONDB,
        *OTHERS,
    ]
    body = [
        [bar.measure, bar.limit, bar.measured, "" if bar.is_reached is None else reached(bar.is_reached), bar.command]
        for bar in lines
    ]
    return [["measure", "bar", "measured", "reached", "command"], *body]


def _spanning(runs: Runs) -> Iterator[Bar]:
    rows = {row["what"]: row for run in runs.values() for row in run.rows}
    for what, measure, limit, shown in (
        (spanning.COMMITS, "transaction over two shards: commits", f"{COMMITS_BAR}", "across"),
        (spanning.ALONE, "its time to the answer, of that of one commit", f"at most {TIME_BAR:g}", "ratio"),
        (spanning.AT_ONCE, "its throughput, of that of two bare commits", f"at least {THROUGHPUT_BAR:g}", "ratio"),
    ):
        row = rows.get(what)
        measured = NOT_RUN if row is None else f"{row[shown]:g}"
        is_reached = None if row is None else spanning.is_reached(row)
        yield Bar(measure, limit, measured, is_reached, "`python -m bench.olive spanning`")


def _snapshots(runs: Runs) -> Iterator[Bar]:
    for engine in (EMBEDDED, FOUNDATIONDB):
        rows = {row["operation"]: row for row in runs[engine].rows} if engine in runs else {}
        for operation, measure in (
            ("take", "snapshot of many objects, of one of few"),
            ("first update", "first update of a key after a snapshot, of a plain one"),
            ("later update", "later updates"),
        ):
            bar, row = SNAPSHOT_BARS.get(operation), rows.get(operation)
            yield Bar(
                f"{measure}, {ENGINE_NAMES[engine]}",
                "O(1): about 1" if bar is None else f"at most {bar:g}",
                NOT_RUN if row is None else f"{row['of_plain']:g}",
                None if row is None or bar is None else row["of_plain"] <= bar,
                "`python -m bench.olive figure11`",
            )


class Worst(NamedTuple):
    """A measure of a move, and the most that it may be."""

    measure: str
    limit: str
    value: Callable[[Row], float]
    most: float


TENANTS = ("1 MB", f"{FULL_MB:,} MB", f"{FULL_ITEMS:,} items")  # For which the design sets the bars.
MOVE_BARS = (
    Worst("longest wait", f"under {LONGEST_WAIT_MS_MAX:g} ms", lambda row: row["longest_wait_ms"], LONGEST_WAIT_MS_MAX),
    Worst("failed transactions", "0", lambda row: row["failed"], 0),
    Worst("others' p99, of before", f"at most {OTHERS_RATIO_MAX:g}", lambda row: row["others_ratio"], OTHERS_RATIO_MAX),
)


def _moves(runs: Runs) -> Iterator[Bar]:
    rows = [row for run in runs.values() for row in run.rows]
    for what in dict.fromkeys([*TENANTS, *(row["what"] for row in rows)]):
        some = [row for row in rows if row["what"] == what]
        for each in MOVE_BARS:
            values = [each.value(row) for row in some]
            yield Bar(
                f"move of {what}: {each.measure}",
                each.limit,
                " and ".join(f"{value:g}" for value in values) or NOT_RUN,
                max(values) <= each.most if values else None,
                "`python -m bench.olive moves`",
            )
