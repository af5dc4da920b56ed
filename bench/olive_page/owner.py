"""The cost of the ownership record, which each transaction on a tenant reads (the paper has no such record)."""

from matplotlib.figure import Figure

from bench.figures import Row, Run, Runs, Section
from bench.olive_owner import ONE_READ, QUEUE, THE_READ
from bench.olive_page.data import ENGINE_NAMES, FOUNDATIONDB
from bench.olive_page.plots import Value, groups_of_bars, limit
from bench.olive_page.sections import reached
from bench.paper.plots import panels


def draw_owner(runs: Runs) -> Figure:
    """Draw the ratios, a panel for each engine."""
    drawn, axes = panels("Transactions beside those that read no ownership record", len(runs))
    for (engine, run), ax in zip(runs.items(), axes, strict=True):
        rows = [row for row in run.rows if row["what"] != ONE_READ]
        names = list(dict.fromkeys(row["what"] for row in rows))
        series = {
            f"beside {beside}" if beside != THE_READ else beside: [_of(rows, name, beside) for name in names]
            for beside in dict.fromkeys(row["beside"] for row in rows)
        }
        groups_of_bars(ax, [name.replace(" and then", "\nand then") for name in names], series, unit="ratio")
        limit(ax, 1, "equal")
        ax.set_title(ENGINE_NAMES[engine])
    return drawn


def _of(rows: list[Row], name: str, beside: str) -> Value | None:
    found = [row for row in rows if (row["what"], row["beside"]) == (name, beside)]
    return Value(found[0]["ratio"]) if found else None


def one_read_us(run: Run) -> float:
    """Return how long a read in a transaction takes that has a read version."""
    return float(next(row["now_us"] for row in run.rows if row["what"] == ONE_READ))


def is_reached(engine: str, run: Run, row: Row) -> bool:
    """Return whether a bar is reached: on FoundationDB a transaction may cost one read more."""
    if engine == FOUNDATIONDB and row["what"] not in QUEUE:
        return bool(row["more_us"] <= one_read_us(run))
    return bool(row["ratio"] <= row["bar"])


def shown_bar(engine: str, run: Run, row: Row) -> str:
    """Return a bar in words."""
    if engine == FOUNDATIONDB and row["what"] not in QUEUE:
        return f"one read, {one_read_us(run) / 1000:.3f} ms more"
    return f"{row['bar']:g}"


def table_of_owner(runs: Runs) -> list[list[str]]:
    """Return a line for each comparison."""
    head = ["store", "what", "beside", "then, us", "now, us", "ratio", "quartiles", "of cpu", "bar", "reached", "load"]
    body = [
        [
            ENGINE_NAMES[engine], row["what"], row["beside"], f"{row['before_us']:,g}", f"{row['now_us']:,g}",
            f"{row['ratio']:g}", f"{row['low']:g} to {row['high']:g}", f"{row['cpu_ratio']:g}",
            shown_bar(engine, run, row), reached(is_reached(engine, run, row)), f"{row['load_1m']:g}",
        ]
        for engine, run in runs.items()
        for row in run.rows
        if row["what"] != ONE_READ
    ]  # fmt: skip
    return [head, *body]


OWNER = Section(
    title="The cost of the ownership record",
    draw=draw_owner,
    table=table_of_owner,
    what="""
Every transaction on a tenant reads the tenant's ownership record, because a lock or a move may restrict it. *Without
the read* is the same transaction of the same process, but for this read: blocks of calls take turns. A commit names an
earlier checkout, in which transactions did not read the record: processes of both checkouts take turns. Such a ratio
contains all that has changed since, not only the read.

The ratio is the median over the rounds. *Of cpu* is the ratio of the processor times, which other programs change
less. On FoundationDB the bar is the time of one read in a transaction that has a read version.
""",
    differences="""
**The paper** has no such record: its store does not move the data of a tenant from shard to shard.
""",
)
