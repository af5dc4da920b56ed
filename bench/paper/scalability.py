"""Figure 4: throughput at saturation against consumers and items per enqueue (QuiCK section 8, "Scalability").

The items of one enqueue wait for every tenant, `dequeue_max` is their number, and handlers take 50 ms. A second
simulated series has consumers of 8 slots each, so that a thousand of them need no more items than sixty-two large ones;
the simulator's speed limits their number. Lines without another note choose pointers as in the paper: one consumer in
order, the others at random.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from bench.paper.forms import REAL, SIMULATED, Backlog
from bench.paper.plots import lines, panels
from bench.paper.points import Point, Row
from bench.paper.setup import OURS, Shape, setup

TITLE = "Figure 4: throughput at saturation"
TENANTS = 150_000
SMALL = {**OURS, "slots": 8}
MANY = {"partitioned": "8 slots, 4 items, own parts", "in_order": "8 slots, 4 items"}


def series_of(items: int) -> str:
    """Return the name of the line for a number of items per enqueue."""
    return f"{items} item{'s' if items > 1 else ''} an enqueue"


def points(form: str, *, quick: bool) -> list[Point]:
    """Return the points, the longest first."""
    if form == REAL:
        backlog = Backlog(20_000, warm_s=1, seconds=3) if quick else Backlog(80_000, warm_s=2, seconds=6)
        return _grid([1], [4], backlog, OURS) if quick else _grid([1, 2, 3], [1, 4], backlog, OURS)
    if quick:
        return _grid([1, 2], [1, 4], Backlog(4_000, warm_s=0.25, seconds=0.5), {**OURS, "slots": 32})
    full = Backlog(TENANTS, warm_s=0.3, seconds=1)
    return [
        *_many([1_000, 256, 64, 16], "partitioned"),
        *_many([64, 16], "in_order"),  # Each of their scans reads 20,000 pointers; more consumers would take hours.
        *_grid([16, 8, 4, 2, 1], [4, 3, 2, 1], full, OURS),
        *_grid([16, 8, 4, 2, 1], [1], full, OURS, "partitioned"),
    ]


def _grid(
    consumers: Sequence[int], items: Sequence[int], backlog: Backlog, shape: Shape, selection: str = "in_order"
) -> list[Point]:
    """Return the points for these numbers of consumers and of items per tenant of the backlog."""
    return [
        Point(
            series_of(each) + (", own parts" if selection == "partitioned" else ""),
            {"consumers": count, "items_per_enqueue": each},
            setup(count, shape, dequeue_max=each, selection=selection),
            Backlog(backlog.tenants, each, warm_s=backlog.warm_s, seconds=backlog.seconds),
        )
        for count in consumers
        for each in items
    ]


def _many(consumers: Sequence[int], selection: str) -> list[Point]:
    backlog = Backlog(TENANTS, 4, warm_s=0.3, seconds=1)
    return [
        Point(
            MANY[selection],
            {"consumers": count, "items_per_enqueue": 4},
            setup(count, SMALL, dequeue_max=4, selection=selection),
            backlog,
        )
        for count in consumers
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Draw throughput against consumers, a panel per form, and one for many small consumers."""
    few = [row for row in rows if row["series"] not in MANY.values()]
    forms = [form for form in (SIMULATED, REAL) if any(row["form"] == form for row in few)]
    many = [row for row in rows if row["series"] in MANY.values()]
    figure, axes = panels(TITLE, len(forms) + bool(many))
    for form, ax in zip(forms, axes, strict=False):
        lines(ax, [row for row in few if row["form"] == form], x="consumers", y=lambda row: row["items_per_s"])
        ax.set(title=form, xlabel="consumers of 128 slots", ylabel="items per second", ylim=(0, None))
    if many:
        lines(axes[-1], many, x="consumers", y=lambda row: row["items_per_s"])
        axes[-1].set(title=f"{SIMULATED}, small consumers", xlabel="consumers", ylabel="items per second")
        axes[-1].set(xscale="log", yscale="log")
    return figure


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return a head and a row per form and number of consumers."""
    head = ["form", "consumers", "line", "items/s", "per consumer", "failed leases", "conflicts per 1,000 items"]
    body = []
    for row in sorted(rows, key=lambda row: (row["form"], row["series"], row["consumers"])):
        leases, per_s = row["leases"], row["items_per_s"]
        conflicts = 1_000 * leases["conflicts"] / max(1, leases["leased"] * row["items_per_enqueue"])
        each_per_s, failed = per_s / row["consumers"], f"{row['failed_percent']:g} %"
        counted = [f"{row['consumers']:,}", row["series"], f"{per_s:,.0f}", f"{each_per_s:,.0f}"]
        body.append([row["form"], *counted, failed, f"{conflicts:.1f}"])
    return [head, *body]
