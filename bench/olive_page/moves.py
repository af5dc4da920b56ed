"""Figure 12, the storage, and moves under load: a tenant that moves to another shard (sections 7.2 and 7.3)."""

from matplotlib.figure import Figure

from bench.figures import Row, Run, Runs, Section
from bench.olive_load import BACK, OTHERS_RATIO_MAX, RATES, TO_OTHER, WAIT_MS_MAX
from bench.olive_page import published
from bench.olive_page.data import ENGINE_NAMES
from bench.olive_page.plots import Value, groups_of_bars, limit
from bench.olive_page.sections import ms
from bench.paper.plots import panels

OPERATIONS = ("read", "update", "create")
HOWS = ("at rest", "moving", "by transactions")
MB = 1_000_000


def only(runs: Runs) -> Run:
    """Return the run of a figure that has the embedded engine only."""
    (run,) = runs.values()
    return run


# --- Figure 12 ---


def draw12(runs: Runs) -> Figure:
    """Draw the latencies, a panel for each operation."""
    drawn, axes = panels("Figure 12: operations on a tenant that moves", len(OPERATIONS))
    found = by_operation(runs)
    for operation, ax in zip(OPERATIONS, axes, strict=True):
        workloads = [workload for workload, what in found if what == operation]
        series = {how: [_bar(found[workload, operation].get(how)) for workload in workloads] for how in HOWS}
        groups_of_bars(ax, [f"workload {workload}" for workload in workloads], series, unit="ms", log=True)
        ax.set_title(operation)
    return drawn


def _bar(row: Row | None) -> Value | None:
    return None if row is None else Value(row["mean_ms"], row["within_ms"])


def by_operation(runs: Runs) -> dict[tuple[str, str], dict[str, Row]]:
    """Return the rows of each workload's operations, by how they were carried out."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in only(runs).rows:
        found.setdefault((row["workload"], row["operation"]), {})[row["how"]] = row
    return found


def table12(runs: Runs) -> list[list[str]]:
    """Return a line for each operation of each workload, with the paper's number."""
    head = [
        "workload", "operation", "at rest, ms", "moving, ms", "by transactions, ms",
        "moving, of at rest", "by transactions, of moving", "the paper",
    ]  # fmt: skip
    return [head, *(_line12(*names, rows) for names, rows in by_operation(runs).items() if len(rows) == len(HOWS))]


def _line12(workload: str, operation: str, rows: dict[str, Row]) -> list[str]:
    rest, moving, library = (rows[how] for how in HOWS)
    stated = f"roughly {published.UPDATE_BY_TRANSACTIONS:g}" if operation == "update" else "at least 1"
    return [
        workload,
        operation,
        *(ms(row["mean_ms"], row["within_ms"]) for row in (rest, moving, library)),
        f"{moving['of_rest']:g}",
        f"{library['mean_ms'] / moving['mean_ms']:.1f}",
        stated,
    ]


# --- Storage ---


def draw_storage(runs: Runs) -> Figure:
    """Draw the bytes before, during and after a move, in multiples of the data."""
    drawn, (ax,) = panels("Bytes stored, of the data", 1)
    rows = only(runs).rows
    before, after = (each / published.DATA_MB for each in (published.BEFORE_MB, published.AFTER_MB))
    collected = 1 + published.OVERHEAD_AFTER_COLLECTION_PERCENT / 100
    series = {
        "here": [Value(row["of_data"]) for row in rows],
        "the paper's text (after: less than that)": [Value(before), Value(after), Value(collected)],
    }
    groups_of_bars(ax, [row["when"].replace(", at most", "") for row in rows], series, unit="of the data")
    return drawn


def table_of_storage(runs: Runs) -> list[list[str]]:
    """Return a line for each moment, with the paper's number."""
    stated = [
        f"{published.BEFORE_MB:g} MB",
        f"{published.AFTER_MB:g} MB, once all is copied",
        f"less than {published.OVERHEAD_AFTER_COLLECTION_PERCENT:g} % more than the data, after garbage collection",
    ]
    body = [
        [row["when"], f"{row['bytes'] / MB:.2f} MB", f"{row['of_data']:g}", text]
        for row, text in zip(only(runs).rows, stated, strict=True)
    ]
    return [["when", "here", "of the data", "the paper"], *body]


# --- Moves ---


def draw_moves(runs: Runs) -> Figure:
    """Draw the longest waits, and the slowdown of other tenants, with their bars; two panels for each run."""
    drawn, axes = panels("Moves under load", 2, rows=len(runs))
    for (engine, run), waits, others in zip(runs.items(), axes[::2], axes[1::2], strict=True):
        tenants = list(dict.fromkeys(row["what"] for row in run.rows))
        series = {f"to {to}, {shown_rate(rate)}": (to, rate) for rate in RATES for to in (TO_OTHER, BACK)}
        for ax, name, unit in ((waits, "longest_wait_ms", "ms"), (others, "others_ratio", "of at rest")):
            found = {
                shown: [Value(row[name]) for row in run.rows if (row["to"], row["mb_per_s"]) == which]
                for shown, which in series.items()
            }
            groups_of_bars(ax, tenants, found, unit=unit)
        limit(waits, run.rows[0]["wait_ms_max"], "bar")
        waits.set_title(f"{ENGINE_NAMES[engine]}: longest wait")
        limit(others, OTHERS_RATIO_MAX, "bar")
        others.set_title(f"{ENGINE_NAMES[engine]}: p99 of another tenant")
    return drawn


def shown_rate(mb_per_s: float) -> str:
    """Return how fast a move may copy, in words."""
    return "fast" if mb_per_s == RATES[0] else f"{mb_per_s:g} MB/s"


def shown_flush(row: Row) -> str:
    """Return the longest flush during a move; nothing if the run did not measure it."""
    return f"{row['longest_flush_ms']:g}" if "longest_flush_ms" in row else ""


def table_of_moves(runs: Runs) -> list[list[str]]:
    """Return a line for each way of each tenant."""
    head = [
        "shards", "tenant", "to", "rate", "move, s", "frozen, ms", "longest wait, ms", "others', ms",
        "the disk's, ms", "at rest, ms", "failed", "others' p99, ms", "at rest, ms", "ratio", "load",
    ]  # fmt: skip
    body = [
        [
            ENGINE_NAMES[engine], row["what"], row["to"], shown_rate(row["mb_per_s"]), f"{row['seconds']:g}",
            f"{row['frozen_ms']:g}", f"{row['longest_wait_ms']:g}", f"{row['others_longest_ms']:g}",
            shown_flush(row), f"{row['longest_wait_at_rest_ms']:g}",
            str(row["failed"] + row["others_failed"]), f"{row['others_p99_ms']:g}", f"{row['others_p99_at_rest_ms']:g}",
            f"{row['others_ratio']:g}", f"{row['load_1m']:g}",
        ]
        for engine, run in runs.items()
        for row in run.rows
    ]  # fmt: skip
    return [head, *body]


FIGURE_12 = Section(
    title="Figure 12: operations on a tenant that moves",
    draw=draw12,
    table=table12,
    what="""
A client in one thread sends 1,000 requests of each of YCSB's core workloads a to d, three times: while the tenant is
*at rest*, while `app.move` moves it (*moving*), and on two tenants between which a copier moves one object after the
other by `app.transact` (*by transactions*). The last is what one could build without `app.move`: each operation looks
where its object is. There are 1,000 objects of ten attributes with 100 bytes each.
""",
    differences="""
**Differences and their causes.** The paper re-partitions a table: it moves one object after the other, each under a
lock with intent. Its update needs no lock by intents, and needs one by its transaction library. We move a whole
tenant in chunks: a write of a client only marks the key that it changes, and the last marks are copied while the
tenant is frozen. So *moving* has the place of the paper's intents, and *by transactions* that of its transaction
library. For reads and creates the paper states only that intents are as fast or faster.

The load differs, too. The move is slowed, so that it lasts as long as the requests. The copier pauses 10 ms after each
object, because otherwise its commits starve the client.
""",
)

STORAGE = Section(
    title="Storage before, during and after a move",
    draw=draw_storage,
    table=table_of_storage,
    what="""
The bytes of all keys and values of both shards, without those of two empty stores. The tenant has 1,000 objects of ten
attributes with 100 bytes each. *During* is the most that was seen.
""",
    differences="""
**Differences and their causes.** The paper's insert is an intent that contains the object. So the data are stored
twice before the migration, beside logs and invisible attributes. Our insert is a plain transaction. During a move the
tenant is on both shards. The source is cleared at the end of the move, by the mover itself. The paper reaches its
last number later, by garbage collection and by the deletion of the old table.
""",
)

MOVES = Section(
    title="Moves under load",
    draw=draw_moves,
    table=table_of_moves,
    what=f"""
Three tenants move to shard b and back to shard a, one after the other. Meanwhile two clients read and write the tenant
that moves, and two clients another tenant on shard a. Each tenant moves as *fast* as the mover can, and at the default
rate of `app.move`. The clients run for three seconds *at rest* before, between and after the moves, too. A tenant of
1 MB moves five times there and back.

- *Frozen* is the time in which the tenant takes no transaction, at most.
- *Longest wait* is that of one transaction of the moving tenant's clients. *Others'* is that of the other tenant's
  clients during the same moves. *The disk's* is the longest time that a process beside them waited for a page to be
  durable on the same disk during these moves: no write can be answered sooner. It is empty for runs that did not
  measure it. *At rest* is the longest wait of the first clients outside of the moves. The bar is
  {WAIT_MS_MAX["embedded"]:g} ms, and {WAIT_MS_MAX["foundationdb"]:g} ms if one of the shards is a cluster.
- *Failed* are transactions of all clients that raised an error; the bar is none.
- *Others' p99* is that of the other tenant's clients during the moves, and beside it that *at rest*: medians over
  stretches of 500 transactions. The bar is a *ratio* of {OTHERS_RATIO_MAX:g}.
- *Load* is that of the machine in the minute before the last of these moves ended. Clients, mover and stores need about
  two.
""",
    differences="""
**The paper** has no such figure. Its clients wait for one object at a time, as long as the mover has its lock, and its
figure 12 does not contain these waits. Here they are the measure. Clients, mover and both stores share one machine of
two cores. So a mover that copies as fast as it can takes the processor from the clients of all tenants. The default
rate of `app.move` exists for that reason. With a *load* far above two, other programs decide both the longest waits and
the p99: the ratios of neighbouring moves then differ by more than the bar.
""",
)
