"""simulate: the product's own classes in hostile worlds, each drawn from a seed."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from rich.table import Table

from fairlead.cli.output import example, json_option, progress, show, table

if TYPE_CHECKING:
    from simulation.campaign import Broken

VIOLATED = 1  # The exit code when a promise was broken.
SEEDS = 100  # Half a minute on two cores.
SEED_MAX = 2**63 - 1


@click.command(epilog=example("fairlead simulate --seeds 1000"))
@click.option("--seeds", type=click.IntRange(1, 10_000_000), help=f"How many worlds.  [default: {SEEDS}]")
@click.option("--first", type=click.IntRange(0, SEED_MAX), help="The first seed; the others follow.  [default: 0]")
@click.option("--seed", type=click.IntRange(0, SEED_MAX), help="Replay this one instead, and show its events.")
@click.option(
    "--processes", type=click.IntRange(1, 1_024), default=os.cpu_count() or 1, help="How many at once; one per core."
)
@json_option
def simulate(seeds: int | None, first: int | None, seed: int | None, processes: int) -> None:
    """Run scanner, manager, worker, coordinator and zones through worlds in which everything goes wrong.

    Each seed draws a cluster of three consumers and two shards, the load, the settings, and which faults there are:
    kills, pauses, lost and late messages, commits of unknown result, clocks that jump. What must be true is checked
    after every commit and at the end. The same seed is the same world, event by event.

    The table shows how often the code's rare points were reached. Exits with 1 if a promise was broken.
    """
    if seed is None:
        _campaign(0 if first is None else first, SEEDS if seeds is None else seeds, processes)
    elif seeds is not None or first is not None:
        raise click.UsageError("--seed replays one world; --seeds and --first are for many.")
    else:
        _replay(seed)


# The simulator, and the greenlets it is made of, are loaded by these two only.


def _campaign(first: int, seeds: int, processes: int) -> None:
    from simulation.campaign import campaign
    from simulation.probes import probe_names

    started_s = time.monotonic()
    broken: list[Broken] = []
    virtual_us = 0
    reached: Counter[str] = Counter(dict.fromkeys(probe_names(), 0))
    with progress("simulating") as advance:
        for done, outcome in enumerate(campaign(range(first, first + seeds), processes=processes), start=1):
            broken += outcome.broken
            virtual_us += outcome.virtual_us
            reached.update(outcome.probes)
            advance(done, seeds)
    answer = {
        "seeds": seeds,
        "violations": [each._asdict() for each in broken],
        "probes": dict(reached),
        "virtual_s": round(virtual_us / 1e6, 1),
        "wall_s": round(time.monotonic() - started_s, 1),
    }
    show(answer, lambda: [_probes_table(reached), *_lines(broken), _summary(answer)])
    if broken:
        raise click.exceptions.Exit(VIOLATED)


def _replay(seed: int) -> None:
    from simulation.campaign import outcome_of
    from simulation.run import run

    report = run(seed)
    broken = outcome_of(report).broken
    answer = {
        "seeds": 1,
        "violations": [each._asdict() for each in broken],
        "virtual_s": round(report.virtual_us / 1e6, 1),
        "events": report.events,
    }
    end = _lines(broken) if broken else [f"seed {seed}: no violation"]
    show(answer, lambda: [*report.lines, f"digest of the events: {report.events}", *end])
    if broken:
        raise click.exceptions.Exit(VIOLATED)


def _probes_table(reached: Counter[str]) -> Table:
    """Return how often each rare point was reached, the rarest first."""
    rows = sorted(reached.items(), key=lambda row: (row[1], row[0]))
    return table(("#reached", "point"), [(f"{count:,}" if count else "never", name) for name, count in rows])


def _lines(broken: "list[Broken]") -> Iterator[str]:
    for each in broken:
        yield f"seed {each.seed}: {each.oracle}: {each.what}"
        yield f"  replay: fairlead simulate --seed {each.seed}"


def _summary(answer: dict[str, object]) -> str:
    violations = answer["violations"]
    assert isinstance(violations, list)
    found = f"violations: {len(violations)}" if violations else "no violation"
    return f"{answer['seeds']:,} seeds, {answer['virtual_s']:,} virtual seconds in {answer['wall_s']} s: {found}"
