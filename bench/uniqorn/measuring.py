"""What is measured in real time: table 1 and figure 7, with systems that take turns, round by round."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from bench.report import percentile, say
from bench.uniqorn.garbage import Planting
from bench.uniqorn.systems import TAIL, Latencies, System, figures, run_for, workloads_of
from bench.uniqorn.workload import FOUR, Kind


class Sizes(NamedTuple):
    """How much is measured. `pool`: keys in each pool. `threads`: of the client, two for each core."""

    rounds: int
    round_s: float
    pool: int
    threads: int = 4


FULL, QUICK = Sizes(10, 10.0, 2_000), Sizes(2, 1.0, 100)
FIGURE_7_S = 5.0  # of a round, of which there are four at a time
GARBAGE_RATIOS = (0.0, 1.0, 2.0, 3.0)
RECORDS_OF_POOL = 0.24  # With three times as many garbage index records, some names of the pool are free.


def run_rounds(
    systems: Mapping[str, System],
    sizes: Sizes,
    kinds: tuple[Kind, ...],
    prepare: Callable[[str], object] = lambda name: None,
) -> dict[str, list[Latencies]]:
    """Run each system for a round, again and again; return the rounds of each.

    The system that begins alternates. `prepare` is called before each round of a system.
    """
    rounds: dict[str, list[Latencies]] = {name: [] for name in systems}
    for number in range(sizes.rounds):
        say(f"round {number + 1} of {sizes.rounds}")
        for name in list(systems) if number % 2 else reversed(list(systems)):
            prepare(name)
            workloads = workloads_of(sizes.threads, number, sizes.pool, kinds)
            rounds[name].append(run_for(systems[name], workloads, sizes.round_s))
    return rounds


def table1(systems: Mapping[str, System], sizes: Sizes) -> list[dict[str, Any]]:
    """Return a row for each kind of requests: each system's figures, and the ratio of the second to the first.

    The ratio of the p99 is the median of the rounds' own ratios: the systems of a round had the same load beside them.
    """
    rounds = run_rounds(systems, sizes, tuple(Kind))
    first, second = systems
    rows = []
    for kind in Kind:
        found = {name: figures(rounds[name], kind) for name in systems}
        row: dict[str, Any] = {"operation": kind.value, **found}
        row["p50_ratio"] = round(found[second]["p50_ms"] / found[first]["p50_ms"], 2)
        pairs = list(zip(rounds[first], rounds[second], strict=True))
        row |= _ratios("p99_ratio", [(theirs.ms.get(kind), ours.ms.get(kind)) for theirs, ours in pairs])
        row |= _ratios("done_ratio", [(theirs.done_ms.get(kind), ours.done_ms.get(kind)) for theirs, ours in pairs])
        rows.append(row)
    return rows


def _ratios(name: str, pairs: Sequence[tuple[list[float] | None, list[float] | None]]) -> dict[str, float]:
    """Return the median, the lowest and the highest of the rounds' ratios of p99: the second's of the first's."""
    ratios = [percentile(ours, TAIL) / percentile(theirs, TAIL) for theirs, ours in pairs if theirs and ours]
    return {
        name: round(median(ratios), 2),
        f"{name}_min": round(min(ratios), 2),
        f"{name}_max": round(max(ratios), 2),
    }


def figure7(systems: Mapping[str, System], plantings: Mapping[str, Planting], sizes: Sizes) -> list[dict[str, Any]]:
    """Return a row for each ratio of garbage and each kind of requests, with its p99 of that without garbage.

    Before each round, as many index records are made garbage, or removed, as the ratio wants: `plantings`, by system.
    """
    ratios = dict(zip(systems, GARBAGE_RATIOS, strict=True))
    rounds = run_rounds(systems, sizes, FOUR, lambda name: plantings[name].plant(ratios[name]))
    first = next(iter(systems))
    rows = []
    for name, ratio in ratios.items():
        after = plantings[name].ratio()
        for kind in FOUR:
            row = {"ratio": ratio, "after": round(after, 2), "operation": kind.value, **figures(rounds[name], kind)}
            pairs = list(zip(rounds[first], rounds[name], strict=True))
            row |= _ratios("p99_ratio", [(none.ms.get(kind), some.ms.get(kind)) for none, some in pairs])
            rows.append({**row, "p50_ratio": round(row["p50_ms"] / figures(rounds[first], kind)["p50_ms"], 2)})
    return rows
