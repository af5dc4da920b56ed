"""docs/paper/olive.md: every figure's plot and table, the differences from the paper, and the bars."""

from pathlib import Path

from bench.olive_page import bars, data
from bench.olive_page.data import Runs
from bench.olive_page.intents import FIGURE_9, FIGURE_10
from bench.olive_page.locks import LOCKS
from bench.olive_page.moves import FIGURE_12, MOVES, STORAGE
from bench.olive_page.owner import OWNER
from bench.olive_page.sections import ENGINE_NAMES, Section
from bench.olive_page.snapshots import FIGURE_11
from bench.olive_page.spanning import SPANNING
from bench.paper.page import markdown

ALL = (FIGURE_9, FIGURE_10, FIGURE_11, FIGURE_12, STORAGE, MOVES, SPANNING, LOCKS, OWNER)
SECTIONS = {each.command: each for each in ALL}
DEFAULT_OUT = Path("docs/paper")

HEAD = """# Olive's experiments, on this system

`python -m bench.olive page` writes this page from the data beside it. It repeats the evaluation of Olive (Setty et al.,
"Realizing the Fault-Tolerance Promise of Cloud Storage Using Locks with Intent", OSDI '16, sections 7.1 to 7.3).
`python -m bench.olive figure11 --out docs/paper` measures a figure again, and writes the page.

No number is read off the paper's plots. If the paper's text states a number, the table shows it. A mean has its 95 %
confidence interval behind it. Below each table, `load_1m` is the load of the machine in the minute before the run, and
`load_1m_after` in its last minute: above 2, other programs may have used the two cores, too.

**What differs from the paper in all figures.**

- *The store.* The paper uses Azure tables across a network. We use the embedded store, on the disk of the same machine,
  with an fsync for each commit. Where a line says so, we use FoundationDB, a cluster of one process on that machine. So
  compare ratios, never milliseconds.
- *The unit of a commit.* A commit of Azure tables covers rows of one partition, and Olive keeps the log entry of a
  write there. Here a commit covers all keys of a shard: the data of a tenant, its queue, its logs and its snapshots.
- *Intents.* There is no intents table and no results table. An intent is an item in the queue of its tenant, and the
  log of its steps lies beside the data of the tenant.
- *Shards.* A second table of the paper is a second shard here: two embedded stores on one machine.
- *The unit of a lock.* The paper locks objects. Moves and transactions across shards lock or freeze a tenant.
"""

THE_BARS = """## The bars, and how far we are

The design of transactions, snapshots and moves across shards sets these bars. Two numbers with "and" between them are
those of the way there and of the way back. In brackets stands the longest wait of another tenant's clients during the
same moves: if it is as long, the disk or the processor stood still, and not the move.
"""


def write(out: Path) -> None:
    """Write the page and its plots, from the data in `out`. A figure without data is "not run yet"."""
    saved = {name: data.load(out, name) for name in SECTIONS}
    parts = [HEAD]
    for name, section in SECTIONS.items():
        parts.append(f"## {section.title}\n{section.what}")
        parts.append(_measured(out, name, section, saved[name]))
        parts.append(section.differences.lstrip())
    parts.append(THE_BARS)
    parts.append(markdown(bars.table(saved)))
    (out / "olive.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def _measured(out: Path, name: str, section: Section, runs: Runs) -> str:
    """Draw a figure; return its plot, its table, and its machines, as Markdown."""
    if not runs:
        return f"Not run yet: `python -m bench.olive {section.command} --out docs/paper`.\n"
    plot = data.plot_path(out, name)
    section.draw(runs).savefig(plot, bbox_inches="tight")
    machines = "\n".join(_machine(engine, runs) for engine in runs)
    return f"![{section.title}]({plot.name})\n\n{markdown(section.table(runs))}\n{machines}\n"


def _machine(engine: str, runs: Runs) -> str:
    run = runs[engine]
    properties = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    warning = " **This was a quick run: its numbers mean little.**" if run.quick else ""
    return f"The machine ({ENGINE_NAMES[engine]}): {properties}.{warning}"
