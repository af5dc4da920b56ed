"""docs/paper/README.md: every figure's plot and table, and the differences from the paper."""

from pathlib import Path

from bench.paper import data
from bench.paper.differences import DIFFERENCES
from bench.paper.experiments import EXPERIMENTS
from bench.paper.forms import REAL

HEAD = """# The paper's experiments, on this system

`python -m bench.paper` writes this page. It repeats the evaluation of QuiCK (Lev-Ari et al., SIGMOD '21, section 8).
Each figure has two forms:

- *real*: on the machine, with consumers on Ray and one embedded store; every commit is fsynced.
- *simulated*: at the paper's scale, with 150,000 tenants, FoundationDB's latencies, and the product's own scanners,
  managers and workers in virtual time. `bench/paper/model.py` describes its latencies and its limits.

No number is read off the paper's plots. If the paper's text states a number, the table shows it.

*Pointer latency* is from a pointer's vesting until a manager has leased it. *Item latency* is from the due time of an
enqueue until the item's handler starts. A *failed lease* is an attempt to lease a pointer that another consumer has
leased: found at the read, or refused at the commit. "The paper's consumer" has 128 manager threads that lease one
pointer each, and 128 slots (64 managers with two batches of one pointer). "Ours" has one manager with two batches of up
to 128 pointers, and 128 slots.
"""


def write(out: Path) -> None:
    """Write the page of all experiments that have data in `out`."""
    parts = [HEAD]
    for name, experiment in EXPERIMENTS.items():
        saved = data.load(out, name)
        if saved["rows"]:
            parts.append(f"## {experiment.title}\n\n![{experiment.title}]({name}.png)\n")
            parts.append(markdown(experiment.table(saved["rows"])))
            parts.append(f"{DIFFERENCES[name].lstrip()}\n{_machine(saved['machine'].get(REAL))}")
    (out / "README.md").write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def markdown(table: list[list[str]]) -> str:
    """Return a table, its head first, as Markdown."""
    head, *body = table
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _machine(machine: dict[str, object] | None) -> str:
    if machine is None:
        return "The real form has not been measured yet.\n"
    properties = ", ".join(f"{name} {value}" for name, value in machine.items())
    return f"The machine of the real form before the run: {properties}.\n"
