"""The sections of the page: for each figure its plot, its table, and its text."""

from collections.abc import Callable, Sequence
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.figures import Row, Runs, Section
from bench.olive_page.plots import Value, groups_of_bars
from bench.paper.plots import explain, panels
from bench.uniqorn import build
from bench.uniqorn.data import STORE_NAMES
from bench.uniqorn.published import GARBAGE_RATIO_MAX, TABLE_1
from bench.uniqorn.shards import THREADS

BARS = {
    "create with AKs": 3.3,
    "create with no AKs": 1.05,
    "read by AK": 1.33,
    "update without AK changes": 1.05,
}
FLAT = 1.1  # The bar of figures 4, 5 and 7: at most 10 % more.


def rows_of(runs: Runs) -> list[Row]:
    """Return the rows of all runs."""
    return [row for run in runs.values() for row in run.rows]


def p99(row: Row) -> str:
    """Return a p99 with the lowest and the highest of the rounds."""
    return f"{row['p99_ms']:g} ({row['p99_min_ms']:g} to {row['p99_max_ms']:g})"


def within(ratio: float, bar: float | None) -> str:
    """Say whether a bar is reached."""
    return "" if bar is None else "yes" if ratio <= bar else "**no**"


def name_of(row: Row) -> str:
    """Return the operation of a row, and its load where there are several."""
    return f"{row['operation']}, {row['load']}" if "load" in row else str(row["operation"])


def order_of(row: Row) -> tuple[int, str]:
    """Return what puts the rows of a table in order."""
    return BY_OPERATION.index(row["operation"]), row.get("load", "")


def percent_aborted(row: Row) -> str:
    """Return how many of the requests were aborted."""
    return f"{100 * row['aborted'] / row['requests']:.0f} %"


# --- Table 1 ---


def draw_table1(runs: Runs) -> Figure:
    """Draw the p99 of both systems, and the ratios beside the paper's."""
    drawn, axes = panels("Table 1: the cost of a global index", 2)
    rows = rows_of(runs)
    names = [row["operation"].replace(" with", "\nwith").replace(" by", "\nby") for row in rows]
    series = {name: [Value(row[name]["p99_ms"]) for row in rows] for name in ("monolithic", "uniqorn")}
    groups_of_bars(axes[0], names, series, unit="p99, ms")
    ratios = {
        "ours": [Value(row["p99_ratio"]) for row in rows],
        "the paper": [Value(TABLE_1[row["operation"]][1] / TABLE_1[row["operation"]][0]) for row in rows],
    }
    groups_of_bars(axes[1], names, ratios, unit="Uniqorn's p99, of that of one table")
    for ax in axes:
        ax.tick_params(axis="x", labelsize=6)
    return drawn


def table_of_table1(runs: Runs) -> list[list[str]]:
    """Return a line for each operation."""
    head = ["operation", "one table: p50, p99 ms", "Uniqorn: p50, p99 ms", "ratio of p50", "ratio of p99"]
    head += ["the same without aborted", "the paper: p99 ms", "its ratio", "bar", "reached"]
    return [head, *(_line_of_table1(row) for row in rows_of(runs))]


def _line_of_table1(row: Row) -> list[str]:
    one, ours = TABLE_1[row["operation"]]
    bar = BARS.get(row["operation"])
    return [
        row["operation"],
        *(f"{row[name]['p50_ms']:g}, {p99(row[name])}" for name in ("monolithic", "uniqorn")),
        f"{row['p50_ratio']:g}",
        *(f"{row[name]:g} ({row[f'{name}_min']:g} to {row[f'{name}_max']:g})" for name in ("p99_ratio", "done_ratio")),
        f"{one}, {ours}",
        f"{ours / one:.2f}",
        "" if bar is None else f"{bar:g}",
        within(row["p99_ratio"], bar),
    ]


# --- Our own shards ---

SHARDS_BARS = {"records, one shard": {"create with AKs": 1.3}, "records, three shards": BARS}


def draw_shards(runs: Runs) -> Figure:
    """Draw the ratios of both kinds of records, on each kind of store by one thread and by four."""
    drawn, axes = panels("Records on shards, of one tenant", len(THREADS), rows=len(runs))
    for ax, (store, threads) in zip(axes, product(runs, THREADS), strict=True):
        shown = [row for row in runs[store].rows if row["threads"] == threads]
        names = [row["operation"].replace(" with", "\nwith").replace(" by", "\nby") for row in shown]
        series = {name: [Value(row[name]["p99_ratio"] or 0) for row in shown] for name in SHARDS_BARS}
        groups_of_bars(ax, names, series, unit=f"p99, of one tenant; {STORE_NAMES[store]}, {threads} threads")
        ax.tick_params(axis="x", labelsize=6)
    return drawn


def table_of_shards(runs: Runs) -> list[list[str]]:
    """Return a line for each kind of store, operation, number of threads, and number of shards."""
    head = [
        "store",
        "operation",
        "threads",
        "system",
        "p50, p99 ms",
        "one tenant: p50, p99 ms",
        "ratio of p50",
        "ratio of p99",
        "bar",
        "reached",
    ]
    rows = [
        (STORE_NAMES[store], row, system) for store, run in runs.items() for row in run.rows for system in SHARDS_BARS
    ]
    return [head, *(_line_of_shards(*each) for each in rows)]


def _line_of_shards(store: str, row: Row, system: str) -> list[str]:
    found, one, bar = row[system], row["one tenant"], SHARDS_BARS[system].get(row["operation"])
    ratio = found["p99_ratio"]
    return [
        store,
        row["operation"],
        str(row["threads"]),
        system,
        f"{found['p50_ms']}, {found['done_p99_ms']}",
        f"{one['p50_ms']}, {one['done_p99_ms']}",
        f"{found['p50_ratio']}",
        f"{ratio}",
        "" if bar is None else f"{bar:g}",
        "" if ratio is None else within(ratio, bar),
    ]


# --- Figures 4, 5 and 7: a line for each operation ---


def draw_lines(title: str, x: str, label: str) -> Callable[[Runs], Figure]:
    """Return what draws the p99 of each operation over `x`: of all requests, and of those that were not aborted."""

    def draw(runs: Runs) -> Figure:
        drawn, axes = panels(title, 2)
        rows = rows_of(runs)
        for ax, name, unit in ((axes[0], "p99_ms", "p99, ms"), (axes[1], "done_p99_ms", "p99 without aborted, ms")):
            _draw_lines(ax, rows, x, name)
            ax.set_xlabel(label)
            ax.set_ylabel(unit)
        return drawn

    return draw


def draw7(runs: Runs) -> Figure:
    """Draw the p99 of each operation over the ratio of garbage, on each kind of store."""
    drawn, axes = panels("Figure 7: latency and garbage index records", 2, rows=len(runs))
    for ax, ((store, run), name) in zip(axes, product(runs.items(), ("p99_ms", "done_p99_ms")), strict=True):
        _draw_lines(ax, run.rows, "ratio", name)
        ax.set_xlabel("garbage of valid index records")
        unit = "p99, ms" if name == "p99_ms" else "p99 without aborted, ms"
        ax.set_ylabel(f"{unit}; {STORE_NAMES[store]}")
    return drawn


def _draw_lines(ax: Axes, rows: Sequence[Row], x: str, y: str) -> None:
    for number, operation in enumerate(dict.fromkeys(map(name_of, rows))):
        line = [row for row in rows if name_of(row) == operation and row[y] is not None]
        ax.plot([row[x] for row in line], [row[y] for row in line], "-o", color=f"C{number}", label=operation)
    ax.set_ylim(bottom=0)
    explain(ax)


def table_of_lines(
    x: str, label: str, ratio: str, first: str, barred: Sequence[str]
) -> Callable[[Runs], list[list[str]]]:
    """Return what makes the table of such a figure.

    `ratio`: the column of the p99 of that of the `first`; `barred`: the operations for which the bar is set.
    """

    def line(row: Row) -> list[str]:
        of_first, has_bar = row.get(ratio), row["operation"] in barred
        return [
            name_of(row),
            f"{row[x]:g}",
            "" if row["p50_ms"] is None else f"{row['p50_ms']:g}",
            p99(row),
            "" if of_first is None else f"{of_first:.2f}",
            within(of_first, FLAT) if of_first is not None and has_bar else "",
            "" if row["done_p99_ms"] is None else f"{row['done_p99_ms']:g}",
            f"{row['done_of_first']:.2f}" if row.get("done_of_first") else "",
            percent_aborted(row),
            f"{row['requests']:,}",
        ]

    def table(runs: Runs) -> list[list[str]]:
        head = ["operation", label, "p50 ms", "p99 ms", f"of {first}", "reached"]
        rows = sorted(rows_of(runs), key=order_of)
        return [[*head, "p99 ms without aborted", f"of {first}", "aborted", "requests"], *map(line, rows)]

    return table


def table7(runs: Runs) -> list[list[str]]:
    """Return a line for each store, operation and ratio of garbage, with the p50, and the ratio after a round."""
    made: list[list[str]] = []
    head: list[str] = []
    for store, run in runs.items():
        of_one = {store: run}
        head, *lines = table_of_lines("ratio", "garbage of valid", "p99_ratio", "no garbage", [READ])(of_one)
        for cells, row in zip(lines, sorted(rows_of(of_one), key=order_of), strict=True):
            if row["ratio"] != GARBAGE_RATIO_MAX:
                cells[head.index("reached")] = ""
            made.append([STORE_NAMES[store], *cells, f"{row['p50_ratio']:.2f}", f"{row['after']:g}"])
    return [["store", *head, "p50 of no garbage", "garbage after a round"], *made]


BY_OPERATION = tuple(TABLE_1)
READ = "read by AK"


# --- Figure 6 ---


def draw6(runs: Runs) -> Figure:
    """Draw the share of requests that were answered over the phases, with and without local indexes."""
    drawn, axes = panels("Figure 6: index shards go away, and come back", 2)
    for ax, scatters in zip(axes, (True, False), strict=True):
        rows = [row for row in rows_of(runs) if row["scatters"] == scatters]
        for number, operation in enumerate(dict.fromkeys(row["operation"] for row in rows)):
            line = [row for row in rows if row["operation"] == operation]
            ax.step([row["phase"] for row in line], [100 * row["answered"] for row in line], where="post",
                color=f"C{number}", label=operation)  # fmt: skip
        away = [row["away"] for row in rows if row["operation"] == rows[0]["operation"]]
        ax.set_xticks(range(len(away)), [str(each) for each in away])
        ax.set_xlabel("index shards that are away, of 6")
        ax.set_ylabel("answered, %")
        ax.set_ylim(0, 105)
        ax.set_title("with local indexes" if scatters else "without")
        explain(ax)
    return drawn


def table6(runs: Runs) -> list[list[str]]:
    """Return a line for each number of shards away, while they go."""
    rows = [row for row in rows_of(runs) if row["phase"] <= row["away"]]
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    lines = []
    for scatters in (True, False):
        for away in sorted({row["away"] for row in rows}):
            of = {row["operation"]: row for row in rows if (row["away"], row["scatters"]) == (away, scatters)}
            shown = [f"{100 * of[operation]['answered']:.1f} %" for operation in operations]
            lines.append(["yes" if scatters else "no", str(away), *shown])
    return [["local indexes", "index shards away, of 6", *operations], *lines]


SECTIONS = {
    "table1": Section(
        title="Table 1: the cost of a global index",
        draw=draw_table1,
        table=table_of_table1,
        what="""
*One table* has a local unique index for each alternate key; an operation is one SQL statement, an update two. *Uniqorn*
has a data store and an index store, which are two tables of the same server. Its client makes parallel accesses in
threads. Both have one client with four threads, and take turns of ten seconds, ten times. A p99 is the median of those
of the rounds, with the lowest and the highest in parentheses. A ratio of p99 is the median of the rounds' own. A p50 is
that of operations that were not aborted. The deletion of index records that an update or a delete leaves follows each
operation, and is not timed. The bars are for the ratio of p99.
""",
        differences="""
**Differences and their causes.** A create with alternate keys is three commits in a row: the dummy, the index records
at once, the record. So it is four commits where one table has one. An update that changes keys is a read, and two
commits in a row. A read by alternate key is two reads in a row. Each is a statement of some tenths of a millisecond
here, where the paper's is 12 ms, so the client's own time counts for more: its threads share one interpreter lock. A
create that is refused removes what it has written before it answers, and one table has written nothing.
""",
    ),
    "shards": Section(
        title="Records on our own shards",
        draw=draw_shards,
        table=table_of_shards,
        what="""
Real time, shards on one disk: embedded ones, or a FoundationDB of one process for each shard. *One tenant* keeps
records and unique indexes among its own keys, and changes them by its transactions: a monolithic store with local
indexes. *Records* are those of `app.records`, on one shard, and on three. Each runs one client with one thread, then
with four, in turns. A ratio is of the p99 without aborted requests, to that of one tenant: the median of the rounds'
own.
""",
        differences="""
**Differences and their causes.** On one shard a write of a record and its index records is one transaction, as with one
tenant. Over three shards a create is three commits in a row, and the index records are written at once. The three
shards share one disk here, so their commits wait for each other more than those of three machines would.
""",
    ),
    "figure4": Section(
        title="Figure 4: from 1 to 8 shards",
        draw=draw_lines("Figure 4: latency while shards and clients grow", "shards", "shards"),
        table=table_of_lines("shards", "shards", "of_first", "1 shard", BY_OPERATION),
        what=f"""
Simulated time. Data shards, index shards and clients grow together; so do the records and the pools. The bar: at most
{FLAT:g} of the latency with one shard.
""",
        differences="""
**Differences and their causes.** The paper states no numbers for this figure: all latencies are about those of table 1.
One number of table 1 calibrates a read and one a write. What the protocol makes of them, in ms at p99, is beside the
paper's: create with 2 AKs 75, read by AK 16, update with changed AKs 85, update without 25, delete by AK 27.
""",
    ),
    "figure5": Section(
        title="Figure 5: from 0 to 6 alternate keys",
        draw=draw_lines("Figure 5: latency and alternate keys of a record", "fields", "alternate keys of a record"),
        table=table_of_lines("fields", "alternate keys", "of_first", "1 key", BY_OPERATION),
        what=f"""
Simulated time, 8 shards. All alternate keys of a record are written at once. *Few keys taken*: the pools are ten times
as large, with as many records. The bar: at most {FLAT:g} of the latency with one key.
""",
        differences="""
**Differences and their causes.** With more keys, more requests meet a key that another record has, and are aborted. A
create that is refused is slower than one that succeeds: it reads what it met, and then removes its index records and
its dummy before it answers. A request that succeeds has met garbage more often, which a refused update leaves. Where
few keys are taken, both are rare. What remains there are stragglers, as in the paper: the slowest of six accesses is
slower than one. The paper's text calls the latency nearly constant, and does not say how many keys are taken.
""",
    ),
    "figure6": Section(
        title="Figure 6: index shards go away, and come back",
        draw=draw6,
        table=table6,
        what="""
Simulated time, 6 shards. One index shard after the other goes away, and then they come back one by one, a phase each.
Shown is the share of requests that are answered. A request that is refused, because a key is taken or a record exists,
is answered, too. *With local indexes*, a read or a delete by alternate key whose index shard is away asks all data
shards. The table has the phases in which shards go away.
""",
        differences="""
**Differences and their causes.** The paper's phases are five minutes, ours five seconds of simulated time: the share
does not depend on the length. Its text says neither how many shards were away at once, nor a number. As there, a create
fails if one of its two keys lies on a shard that is away, and an update if a key that it adds does: with one of six
away, (5/6)² or 69 % are answered. Creates that are answered while all are away are those whose record exists already.
""",
    ),
    "figure7": Section(
        title="Figure 7: garbage index records",
        draw=draw7,
        table=table7,
        what=f"""
Real time, 8 data shards and 8 index shards: tables of one server, or embedded shards on one disk. No cleanup runs.
Before each round, all stores are brought back to the same number of records and to the ratio of garbage. The ratios
take turns, as the systems of table 1 do. The bar is for reads by alternate key at a ratio of 3: at most {FLAT:g} of the
p99 without garbage. Here the p99 of a ratio of garbage to none is the median of the rounds' own.
""",
        differences="""
**Differences and their causes.** The paper lets garbage grow in one run, and measures its ratio as it goes. Here each
ratio has its rounds, so that the load of the machine is the same beside all of them. A round changes the ratio, as the
last column shows. A create or an update that meets garbage reads the index record, and the record that it names, before
it replaces the former. So the p50 of both grows. The paper states no numbers, but that the increase is negligible up to
a ratio of 3.
""",
    ),
    "build": Section(
        title="An index that is built beside users",
        draw=build.draw,
        table=lambda runs: build.table([STORE_NAMES[store] for store in runs], rows_of(runs)),
        what="""
Real time, two shards on one disk with 50,000 records. A build runs in a process of its own. Users read records and
update them, without a change of keys, a hundred times a second. Rounds without a build and beside one take turns, and
each builds another field. At last one build runs alone, without a throttle.
""",
        differences="""
**The paper** has no such figure: its indexes are there from the beginning. The throttle of 10,000 records per second is
the default of FoundationDB's Record Layer. A throttled build is never faster, so the bar is for a build alone.
""",
    ),
}
