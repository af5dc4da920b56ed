"""The bars of the design, each with what was measured and the command that measures it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.across_shards import COMMITS_BAR, THROUGHPUT_BAR, TIME_BAR
from bench.figures import Row, Runs
from bench.olive_load import BACK, FULL_ITEMS, FULL_MB, OTHERS_RATIO_MAX, RATES, TO_OTHER, WAIT_MS_MAX
from bench.olive_locks import BARS_S as LOCK_BARS
from bench.olive_owner import ONE_READ, QUEUE, THE_READ
from bench.olive_page import locks, owner, spanning
from bench.olive_page.data import BETWEEN, EMBEDDED, ENGINE_NAMES, FOUNDATIONDB
from bench.olive_page.moves import shown_rate
from bench.olive_page.sections import reached
from bench.olive_snapshots import BARS as SNAPSHOT_BARS

NOT_RUN = "not run yet"
RELIABILITY = "[Reliability](../reliability.md)"


class Bar(NamedTuple):
    """A line of the table. `is_reached`: None if nothing was measured."""

    measure: str
    limit: str
    measured: str
    is_reached: bool | None = None
    command: str = ""


SEEDS = Bar(
    "workflow, queue and transactions across shards while the tenant moves, there and back",
    "nothing lost, nothing twice, in 1,000 seeds",
    f"see {RELIABILITY}",
    command="`fairlead simulate --seeds 1000`",
)


def table(saved: Mapping[str, Runs]) -> list[list[str]]:
    """Return a line for each bar, its head first. `saved`: the runs of each figure."""
    lines = [
        *_spanning(saved["spanning"]),
        *_locks(saved["locks"]),
        *_snapshots(saved["figure11"]),
        *_moves(saved["moves"]),
        *_owner(saved["owner"]),
        SEEDS,
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
        rows = {row["operation"]: row for row in runs[engine].rows if not row["workload"]} if engine in runs else {}
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


def _locks(runs: Runs) -> Iterator[Bar]:
    for engine in (EMBEDDED, FOUNDATIONDB):
        rows = {row["killed"]: row for row in runs[engine].rows} if engine in runs else {}
        for killed, measure in locks.MEASURES.items():
            row = rows.get(killed)
            yield Bar(
                f"lock of {measure}, {ENGINE_NAMES[engine]}",
                f"under {LOCK_BARS[killed] * 1000:,g} ms",
                NOT_RUN if row is None else f"median {row['median_ms']:,g}, at most {row['longest_ms']:,g}",
                None if row is None else locks.is_reached(row),
                "`python -m bench.olive locks`",
            )


class Worst(NamedTuple):
    """A measure of a move, and the most that it may be.

    `mb_per_s`: of moves at this rate; None: of all. `beside`: what is shown beside the measure, and is no part of it.
    """

    measure: str
    limit: str
    value: Callable[[Row], float]
    most: float
    mb_per_s: float | None = None
    beside: str = ""

    def shown(self, rows: Sequence[Row]) -> str:
        """Return the worst of some moves, and what is beside it."""
        worst = max(rows, key=self.value)
        return f"{self.value(worst):g}" + (f" (the disk's {worst[self.beside]:g})" if self.beside in worst else "")


TENANTS = ("1 MB", f"{FULL_MB:,} MB", f"{FULL_ITEMS:,} items")  # For which the design sets the bars.


MOVES_COMMAND = "`python -m bench.olive moves`"


def _move_bars(engine: str) -> Iterator[Worst]:
    wait_ms = WAIT_MS_MAX["embedded" if engine == EMBEDDED else "foundationdb"]
    yield Worst(
        "longest wait", f"under {wait_ms:g} ms", lambda row: row["longest_wait_ms"], wait_ms, beside="longest_flush_ms"
    )
    yield Worst("failed transactions", "0", lambda row: row["failed"] + row["others_failed"], 0)
    for rate in RATES:
        measure, limit = f"others' p99, of at rest, {shown_rate(rate)}", f"at most {OTHERS_RATIO_MAX:g}"
        yield Worst(measure, limit, lambda row: row["others_ratio"], OTHERS_RATIO_MAX, rate)


def _moves(runs: Runs) -> Iterator[Bar]:
    for engine in (EMBEDDED, BETWEEN, FOUNDATIONDB):
        rows = runs[engine].rows if engine in runs else []
        measured = dict.fromkeys(row["what"] for row in rows)
        for what in dict.fromkeys([*TENANTS, *measured]):
            if what not in measured:
                yield Bar(f"move of {what}, {ENGINE_NAMES[engine]}", "as of the others", NOT_RUN, command=MOVES_COMMAND)
                continue
            for each in _move_bars(engine):
                some = [row for row in rows if row["what"] == what and each.mb_per_s in (None, row["mb_per_s"])]
                ways = [way for to in (TO_OTHER, BACK) if (way := [row for row in some if row["to"] == to])]
                yield Bar(
                    f"move of {what}, {ENGINE_NAMES[engine]}: {each.measure}",
                    each.limit,
                    " and ".join(map(each.shown, ways)) or NOT_RUN,
                    max(map(each.value, some)) <= each.most if some else None,
                    MOVES_COMMAND,
                )


def _owner(runs: Runs) -> Iterator[Bar]:
    for engine in (EMBEDDED, FOUNDATIONDB):
        if engine not in runs:
            measure = f"cost of the ownership record, {ENGINE_NAMES[engine]}"
            yield Bar(measure, "see above", NOT_RUN, command="`python -m bench.olive owner`")
            continue
        run = runs[engine]
        for row in run.rows:
            if row["what"] != ONE_READ:
                more = f", {row['more_us'] / 1000:.3f} ms more" if engine == FOUNDATIONDB else ""
                yield Bar(
                    f"{_named(row['what'])}, {_beside(row['beside'])}, {ENGINE_NAMES[engine]}",
                    f"at most {owner.shown_bar(engine, run, row)}",
                    f"{row['ratio']:g}{more}; of cpu {row['cpu_ratio']:g}",
                    owner.is_reached(engine, run, row),
                    "`python -m bench.olive owner`",
                )


def _named(what: str) -> str:
    return what if what in QUEUE else f"a transaction that only {what}".replace("only reads and", "reads and")


def _beside(beside: str) -> str:
    return f"beside one {THE_READ}" if beside == THE_READ else f"beside {beside}"
