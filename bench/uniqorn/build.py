"""The online build of an index: what `bench.index_build` measures, as a figure of the page. The paper has none."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bench import index_build
from bench.figures import Row, Runs
from bench.olive_page.plots import Value, groups_of_bars, limit
from bench.paper.plots import panels

HEAD = ("store", "measure", "measured", "bar", "reached")


def measure(directory: Path, *, quick: bool) -> list[Row]:
    """Return one row: the figures of `bench.index_build`. `directory`: where its shards are made."""
    return [index_build.measure(directory, *index_build.sizes(quick=quick))]


def draw(runs: Runs) -> Figure:
    """Draw the rates of a build, and the p99 of users without one and beside one."""
    drawn, axes = panels("An index that is built beside users", 2)
    names, rows = list(runs), [run.rows[0] for run in runs.values()]
    rates = {name: [Value(row[name]["per_s"]) for row in rows] for name in ("alone", "throttled")}
    groups_of_bars(axes[0], names, rates, unit="records indexed per second")
    limit(axes[0], index_build.RATE_BAR, "the bar, for a build alone")
    users = [row["users' p99"] for row in rows]
    series = {
        "without a build": [Value(each["before_ms"]) for each in users],
        "beside a build": [Value(each["beside_ms"]) for each in users],
    }
    groups_of_bars(axes[1], names, series, unit="users' p99, ms")
    return drawn


def table(store_names: Sequence[str], rows: Sequence[Row]) -> list[list[str]]:
    """Return lines for each kind of store: the rate of a build alone, the throttled rate, and users' p99."""
    return [list(HEAD), *(line for name, row in zip(store_names, rows, strict=True) for line in _lines(name, row))]


def _lines(store: str, row: Row) -> list[list[str]]:
    alone, throttled, users = row["alone"]["per_s"], row["throttled"]["per_s"], row["users' p99"]
    p99 = f"{users['before_ms']:g} ms, {users['beside_ms']:g} ms"
    return [
        [store, "records that a build alone indexes per second", f"{alone:,}", *_bar_and_reached(alone)],
        [store, f"the same beside users, throttled to {index_build.RATE_BAR:,}", f"{throttled:,}", "", ""],
        [store, "users' p99 without a build, and beside one", p99, "", ""],
        [
            store,
            "ratio of users' p99: median of the rounds, lowest and highest",
            f"{users['ratio']:g} ({users['min']:g} to {users['max']:g})",
            f"at most {index_build.P99_BAR:g}",
            "yes" if users["ratio"] <= index_build.P99_BAR else "**no**",
        ],
    ]


def _bar_and_reached(per_s: float) -> tuple[str, str]:
    return f"at least {index_build.RATE_BAR:,}", "yes" if per_s >= index_build.RATE_BAR else "**no**"
