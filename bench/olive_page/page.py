"""docs/paper/olive.md: every figure's plot and table, the differences from the paper, and the bars."""

from pathlib import Path

from bench.olive_page import bars
from bench.olive_page.data import SAVED
from bench.olive_page.intents import FIGURE_9, FIGURE_10
from bench.olive_page.locks import LOCKS
from bench.olive_page.moves import FIGURE_12, MOVES, STORAGE
from bench.olive_page.owner import OWNER
from bench.olive_page.snapshots import FIGURE_11
from bench.olive_page.spanning import SPANNING
from bench.paper.page import markdown

SECTIONS = {
    "figure9": FIGURE_9,
    "figure10": FIGURE_10,
    "figure11": FIGURE_11,
    "figure12": FIGURE_12,
    "storage": STORAGE,
    "moves": MOVES,
    "spanning": SPANNING,
    "locks": LOCKS,
    "owner": OWNER,
}  # By the command that measures each.
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
those of the way there and of the way back. In brackets stands the longest flush of a page on the same disk during the
same moves. If it is as long, the disk stood still, and not the move.
"""


def write(out: Path) -> None:
    """Write the page and its plots, from the data in `out`. A figure without data is "not run yet"."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        parts += SAVED.section(out, name, section)
    parts += [THE_BARS, markdown(bars.table({name: SAVED.load(out, name) for name in SECTIONS}))]
    (out / "olive.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
