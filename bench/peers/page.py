"""The page that a run writes: the method and the tables. Only the text at its top does not come from the rows."""

from collections.abc import Iterable, Mapping, Sequence

from bench.peers import bars
from bench.peers.measures import FIGURES
from bench.peers.results import Conditions, Results, Row

TABLES: Mapping[str, Sequence[str]] = {
    "Enqueue and drain, jobs per second": ("enqueue_one", "enqueue_bulk", "enqueue_four", "drain"),
    "Latency, ms": ("at_100_p50", "at_100_p99", "held", "at_half_p50", "at_half_p99"),
    "Fairness, recovery, idleness": ("quiet_p50", "quiet_p99", "heavy_done", "rerun_process", "rerun", "idle"),
    "Workflows of 16 steps, one worker": ("steps",),
    "In PostgreSQL": ("within_one", "within_four", "drain_snapshot", "flush_16", "flush_16_silent", "idle_million"),
}

HEADER = """# Fairlead and the queues that people use, side by side

Written by `make bench-peers`; do not edit it. The data is in `results.json`, with every repetition.

![the figures](peers.png)

One machine ran all systems: {cores} cores, {fsync_ms} ms for an fsync of one page, Python {python}. All systems of a
measure are from the same run.
{warning}
Each repetition of a measure runs all systems, one after the other. Each starts with a new server, a new store and new
workers, on the same disk. Every system runs the same function for the same jobs of about 200 bytes; the function
records its start, and does nothing else. Each system has two workers, on all cores. Cells are medians of the
repetitions, in brackets the smallest and the largest. **Durable**: an acknowledged job survives a power cut.

- *Enqueue*: acknowledged jobs per second, with no worker running. By 100: in one call or one transaction, if the
  interface has one.
- *Drain*: jobs per second from the first start to the last recorded completion, of a queue filled before.
- *Latency*: from the time to send a job to its first line. The senders do not wait for the system, and the delay of a
  late sender counts. *Rate held*: jobs per second that four processes can enqueue one by one while the workers keep up.
- *Quiet tenants*: one tenant enqueues thousands of jobs of 5 ms, then fifty others one each per second; there are eight
  slots. The latencies are those during the flood. *Heavy tenant done* is the time of its last job, from its first call.
- *Run again*: the worker of a job is killed with SIGKILL three seconds into it, with all its processes, and started
  again at once. In every system with heartbeats or extended leases, these expire after 10 s of silence. A system
  without them must wait for as long as the longest job may take.
- *Idle*: CPU seconds of workers and server together; for Ray also its daemons.
- *Steps*: recorded steps per second of workflows, from the first start to the last recorded completion, of a queue
  filled before. One process runs them. A step of Fairlead also writes a key in its transaction; one of DBOS does not.
- *In a user's transaction*: it inserts a row, and enqueues a job. *A snapshot is held*: another transaction has seen
  the full queue, and stays open; the index entries of ended jobs stay as long as it does. *Flush of 2 ms*: as on a
  network disk, by `commit_delay`; workers run, and the jobs are for tomorrow. Commits that notify happen one by one.
  The first two seconds do not count. *A million tenants*: each has one job for tomorrow.

*SKIP LOCKED by hand* is a limit, not a product: it has no tenants, no fairness and no retries, which cost time.
"""

BUSY = """**The machine was not quiet**: its load was {load_1m} before a run. Do not compare these figures: {measures}.
"""
QUICK = """**A quick run**: small sizes, once each. It shows that everything works, not how fast it is: {measures}.
"""


def page(results: Results, conditions: Mapping[str, Conditions]) -> str:
    """Return the whole page, as Markdown. `conditions`: by measure."""
    header = HEADER.format(
        cores=_either(each.cores for each in conditions.values()),
        fsync_ms=_either(each.fsync_ms for each in conditions.values()),
        python=_either(each.python for each in conditions.values()),
        warning=_warning(conditions),
    )
    return "\n".join([header, *tables(results), *bars_reached(results), _systems(results), *_gaps(results)])


def _either(values: Iterable[float | str]) -> str:
    """Return the only value, or the first and the last."""
    ordered = sorted(set(values), key=lambda value: (str(type(value)), value))
    return " to ".join(str(value) for value in dict.fromkeys([*ordered[:1], *ordered[-1:]]))


def _warning(conditions: Mapping[str, Conditions]) -> str:
    """Return the warnings for a comparison of figures, by measure; empty if there are none."""
    busy = {measure: each for measure, each in conditions.items() if not each.quiet}
    quick = [measure for measure, each in conditions.items() if each.size == "quick"]
    warning = ""
    if busy:
        warning += BUSY.format(load_1m=max(each.load_1m for each in busy.values()), measures=", ".join(busy))
    if quick:
        warning += QUICK.format(measures=", ".join(quick))
    return warning


def tables(results: Results) -> list[str]:
    """Return the tables with the figures that were measured, as Markdown."""
    found: list[str] = []
    for title, keys in TABLES.items():
        measured = [key for key in keys if any(row.figure == key for row in results.rows)]
        rows = [
            [_name(results, system), _durable(results, system), *(_cell(results.row(system, key)) for key in measured)]
            for system in results.systems()
            if any(results.row(system, key) for key in measured)
        ]
        if rows:
            head = ["system", "durable", *(_head(key) for key in measured)]
            found.append(f"## {title}\n\n{table(head, rows)}\n")
    return found


def bars_reached(results: Results) -> list[str]:
    """Return the section on what was to be reached, if any of it was measured."""
    lines = bars.rows(results)
    head = ["medians", "bar", "Ray", "threads"]
    return [f"## What was to be reached in PostgreSQL\n\n{table(head, lines)}\n"] if lines else []


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns after the second are numbers."""
    rule = ["---", "---", *["--:" for _ in head[2:]]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows])


def _systems(results: Results) -> str:
    rows = [next(row for row in results.rows if row.system == system) for system in results.systems()]
    lines = [
        [
            row.title,
            row.durability,
            row.settings,
            ", ".join(f"{name} {number}" for name, number in row.versions.items()),
        ]
        for row in rows
    ]
    head = ["system", "durability", "settings that are not the default", "versions"]
    widths = "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines])
    return f"## The systems\n\n{widths}\n\nWhy each setting: the docstrings in `bench/peers/systems/`.\n"


def _gaps(results: Results) -> list[str]:
    """Return the section on systems and rounds without figures."""
    missing = [f"- `{system}` did not take part: {reason}" for system, reason in results.missing.items()]
    failed = [f"- {line.splitlines()[0]}" for line in results.failed]
    return [f"## What is missing\n\n{chr(10).join(missing + failed)}\n"] if missing or failed else []


def _head(key: str) -> str:
    figure = FIGURES[key]
    return f"{figure.title}, {figure.unit}"


def _name(results: Results, system: str) -> str:
    return next(row.title for row in results.rows if row.system == system)


def _durable(results: Results, system: str) -> str:
    row = next(row for row in results.rows if row.system == system)
    return f"{'yes' if row.durable else 'no'}: {row.durability}"


def _cell(row: Row | None) -> str:
    if row is None or row.median is None:
        return "-" if row is None or not row.figure.startswith("rerun") else "never seen"
    spread = f" ({number(min(row.values))}–{number(max(row.values))})" if len(row.values) > 1 else ""
    return f"{number(row.median)}{spread}"


def number(value: float) -> str:
    """Return a figure in the form for a person."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
