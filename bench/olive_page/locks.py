"""Locks of processes that were killed (section 3.2; the paper measures no such times)."""

from matplotlib.figure import Figure

from bench.figures import Row, Runs, Section
from bench.olive_page.data import ENGINE_NAMES
from bench.olive_page.plots import Value, groups_of_bars
from bench.olive_page.sections import reached
from bench.paper.plots import panels

MEASURES = {
    "worker": "a handler; its worker was killed, with Ray",
    "machine": "a handler; the whole consumer was killed",
    "process": "a process outside of the fleet; it was killed",
    "decided": "a decided transaction across shards; its coordinator was killed",
    "undecided": "an undecided transaction across shards; its coordinator was killed",
    "frozen": "a move in its last milliseconds; its mover was killed",
}


def draw_locks(runs: Runs) -> Figure:
    """Draw the median times until a lock is free, a panel for each engine."""
    drawn, axes = panels("Locks that are free again", len(runs))
    for (engine, run), ax in zip(runs.items(), axes, strict=True):
        groups_of_bars(
            ax,
            [row["killed"] for row in run.rows],
            {
                "median": [Value(row["median_ms"]) for row in run.rows],
                "bar": [Value(row["bar_ms"]) for row in run.rows],
            },
            unit="ms",
            log=True,
        )
        ax.tick_params(axis="x", labelrotation=30)
        ax.set_title(ENGINE_NAMES[engine])
    return drawn


def table_of_locks(runs: Runs) -> list[list[str]]:
    """Return a line for each way to die on each engine."""
    body = [
        [
            ENGINE_NAMES[engine], f"*{row['killed']}*: {MEASURES[row['killed']]}", str(row["times"]),
            f"{row['median_ms']:,g}", f"{row['longest_ms']:,g}", f"{row['bar_ms']:,g}", reached(is_reached(row)),
        ]
        for engine, run in runs.items()
        for row in run.rows
    ]  # fmt: skip
    return [["store", "who held the lock", "kills", "median, ms", "longest, ms", "bar, ms", "reached"], *body]


def is_reached(row: Row) -> bool:
    """Return whether each time was below the bar."""
    return bool(row["longest_ms"] <= row["bar_ms"])


LOCKS = Section(
    title="Locks after a death",
    draw=draw_locks,
    table=table_of_locks,
    what="""
Each holder of a lock gets SIGKILL, and another process asks for the lock at once. The times are those until it has the
lock, or until its transaction on the tenant is answered.

*Decided*, *undecided* and *frozen* are locks of the library. They are ended by the first transaction that meets them.
It ends a decided one at once. It watches the others for a second first, because whoever holds them may be alive. So the
bar of these is a second and ten milliseconds.
""",
    differences="""
**The paper** states no times. Its locks with intent are free once another client, or the collector of intents, has
carried out the intent of the dead client. Here a lock of a handler is free once its manager has seen the death of the
worker. If the whole machine dies, it is free once another consumer has found the session silent for some seconds.
""",
)
