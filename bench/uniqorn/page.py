"""docs/paper/uniqorn.md: every figure's plot and table, and the paper's numbers beside ours."""

from pathlib import Path

from bench.uniqorn.data import SAVED
from bench.uniqorn.sections import SECTIONS

DEFAULT_OUT = Path("docs/paper")

HEAD = """# Uniqorn's experiments, on this system

`python -m bench.uniqorn page` writes this page from the data beside it. It repeats section 4 of the Uniqorn paper
("Scalable and Consistent Global Secondary Indexes for Sharded Data Stores") with the protocol in `records/protocol.py`.
`python -m bench.uniqorn table1 --out docs/paper` measures a figure again, and writes the page.

No number is read off the paper's plots. If the paper's text states a number, the table shows it. Below a table that
was measured in real time, `load_1m` is the load of the machine in the minute before the run, and `load_1m_after` in its
last minute. Above 2, other programs used the two cores, too. Then only ratios of systems that took turns mean anything.

**The workload** is the paper's: records of 2,000 to 3,000 bytes, random operations, keys from pools of one size.
Updates change all alternate keys. Aborted operations count, as in the paper. An operation that finds no record is not
counted: it is one read. *AK* means alternate key.

**What differs from the paper in all figures.**

- *The store.* The paper's shards are MySQL clusters of five replicated servers, across a network. In real time we use
  tables of one PostgreSQL server on the client's machine, with an fsync for each commit. So compare ratios, never
  milliseconds.
- *Simulated time.* One machine's disk and cores do not grow with the number of shards. So figures 4 to 6 run the
  protocol's own code in simulated time: each access takes a drawn time, and parallel accesses take the longest of
  theirs. Two numbers of the paper's table 1 calibrate the times: a p99 of 12 ms for a read, and of 16 ms for a write.
- *Garbage is replaced.* A write replaces an index record that it has found to be garbage. The paper deletes and
  inserts, or replaces where the store can.
- *A create that is refused removes its dummy and its index records before it answers.* The paper leaves that to the
  background.
"""


def write(out: Path) -> None:
    """Write the page and its plots, from the data in `out`. A figure without data is "not run yet"."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        parts += SAVED.section(out, name, section)
    (out / "uniqorn.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
