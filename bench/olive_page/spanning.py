"""Transactions over two shards, beside bare ones (section 4.4; the paper has no figure of its library alone)."""

from matplotlib.figure import Figure

from bench.across_shards import COMMITS_BAR
from bench.figures import Row, Runs, Section
from bench.olive_page.plots import Value, groups_of_bars
from bench.olive_page.sections import reached
from bench.paper.plots import panels

UNITS = {"ms to the answer, alone": "ms", "a second, 16 at once": "a second"}
COMMITS, ALONE, AT_ONCE = "commits of one", *UNITS


def draw_spanning(runs: Runs) -> Figure:
    """Draw the time to the answer, and the throughput."""
    drawn, axes = panels("Transactions over two shards", len(UNITS))
    (run,) = runs.values()
    by_what = {row["what"]: row for row in run.rows}
    for (what, unit), ax in zip(UNITS.items(), axes, strict=True):
        row = by_what[what]
        groups_of_bars(ax, [what], {"bare": [Value(row["bare"])], "over two shards": [Value(row["across"])]}, unit=unit)
    return drawn


def table_of_spanning(runs: Runs) -> list[list[str]]:
    """Return a line for each measure."""
    (run,) = runs.values()
    head = ["measure", "bare", "over two shards", "ratio", "bar", "reached"]
    return [
        head,
        *(
            [
                row["what"],
                f"{row['bare']:,}",
                f"{row['across']:,}",
                str(row["ratio"]),
                _bar(row),
                reached(is_reached(row)),
            ]
            for row in run.rows
        ),
    ]


def is_reached(row: Row) -> bool:
    """Return whether a measure reaches its bar."""
    if row["what"] == COMMITS:
        return bool(row["across"] <= COMMITS_BAR)
    return bool(row["ratio"] >= row["bar"]) if row["what"] == AT_ONCE else bool(row["ratio"] <= row["bar"])


def _bar(row: Row) -> str:
    return f"at least {row['bar']:g}" if row["what"] == AT_ONCE else f"at most {row['bar']:g}"


SPANNING = Section(
    title="Transactions over two shards",
    draw=draw_spanning,
    table=table_of_spanning,
    what="""
`app.transact` reads and writes one object on each of two shards. *Bare* is the same on one shard, and for the
throughput a pair of bare transactions, one on each shard. The medians are of 20 rounds in turns, and each ratio is of
neighbours. *Alone*: one at a time, and the next begins once both shards have applied the last. *At once*: 16 threads.
""",
    differences="""
**The paper** has no figure of its transaction library alone. Its library locks each object by an intent. Ours locks
each tenant, and the commit on the first tenant's shard is the decision: three commits, and the answer after the second.
""",
)
