"""Figure 11: operations on a tenant that has a snapshot, beside one that has none (section 7.2)."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from bench.figures import Row, Runs, Section
from bench.olive_page.data import ENGINE_NAMES
from bench.olive_page.plots import Value, groups_of_bars
from bench.olive_page.published import FIRST_UPDATE, FIRST_UPDATE_OF_AZURE_SQL
from bench.olive_page.sections import ms, reached
from bench.paper.plots import panels

WRITES = ("first update", "later update", "create")
READS = ("read", "read at it")


def draw11(runs: Runs) -> Figure:
    """Draw the latencies of writes, of reads, and of workloads, in panels of their own, for each engine."""
    drawn, axes = panels("Figure 11: operations with a snapshot", 3, rows=len(runs))
    places = [(engine, rows) for engine, run in runs.items() for rows in _panels(run.rows)]
    for (engine, rows), ax in zip(places, axes, strict=True):
        mixed = rows[0]["workload"] is not None  # A write takes up to a hundred times as long as a read.
        series = {
            "without a snapshot": [Value(row["plain_ms"], row["plain_within_ms"]) for row in rows],
            "with a snapshot": [Value(row["copied_ms"], row["copied_within_ms"]) for row in rows],
        }
        operations = [f"{row['operation']}\nof {row['workload']}" if mixed else row["operation"] for row in rows]
        groups_of_bars(ax, operations, series, unit="ms", log=mixed)
        ax.set_title(ENGINE_NAMES[engine])
    return drawn


def _panels(rows: Sequence[Row]) -> Sequence[Sequence[Row]]:
    """Return the rows of each panel."""
    alone = {row["operation"]: row for row in rows if row["workload"] is None}
    return [
        [alone[operation] for operation in WRITES],
        [alone[operation] for operation in READS],
        [row for row in rows if row["workload"] is not None],
    ]


def table11(runs: Runs) -> list[list[str]]:
    """Return a line for each operation on each engine, with the paper's number."""
    head = ["store", "workload", "operation", "without, ms", "with, ms", "ratio", "bar", "reached", "the paper"]
    return [head, *(_line(engine, row) for engine, run in runs.items() for row in run.rows)]


def _line(engine: str, row: Row) -> list[str]:
    ratio, bar = row["of_plain"], row["bar"]
    stated = f"{FIRST_UPDATE:g} (Azure SQL {FIRST_UPDATE_OF_AZURE_SQL:g})" if row["operation"] == "first update" else ""
    return [
        ENGINE_NAMES[engine],
        row["workload"] or "alone",
        row["operation"],
        ms(row["plain_ms"], row["plain_within_ms"]),
        ms(row["copied_ms"], row["copied_within_ms"]),
        f"{ratio:g}",
        "" if bar is None else f"{bar:g}",
        "" if bar is None else reached(ratio <= bar),
        stated,
    ]


FIGURE_11 = Section(
    title="Figure 11: operations after a snapshot",
    draw=draw11,
    table=table11,
    what="""
Operations on a tenant with a snapshot and on a tenant without one take turns, one by one, in one thread. *Alone* means
that one operation is sent many times in a row. The *first update* of an object after the snapshot copies the object. A
*create* keeps that there was none. *Read at it* is a read of the snapshot, beside a plain read. *Take* is the snapshot
itself: of 2,000 objects, beside one of 10 objects. The column *without* then has the smaller tenant, and a ratio of
about 1 says that the time does not depend on the size.

Below are YCSB's core workloads a to d, as the paper sends them. A workload has 1,000 requests, and 1,000 objects of ten
attributes with 100 bytes each. The snapshot is taken after the objects were stored. The same requests go to a tenant
without a snapshot, in turns. The first *update* of each object copies it; later updates do not.
""",
    differences="""
**Differences and their causes.** Olive copies under a lock on the object, by an intent, because its store commits
only rows of one partition at once. That takes several round trips. Here the copy is two more reads and one more key
in the writer's own transaction, so there is neither a lock nor an intent.

The paper's baseline is Azure SQL, with snapshots of its own. Ours is the same store without a snapshot. Operations
alone are not in the paper: they go to 2,000 objects of 1,000 bytes, and say what the first copy costs.
""",
)
