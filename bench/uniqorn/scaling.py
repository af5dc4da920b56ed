"""Figures 4 and 5, in simulated time: latencies from 1 to 8 shards, and from 0 to 6 alternate keys."""

from random import Random
from typing import Any

from bench.report import say
from bench.uniqorn.simulated import POOL, Setting, Simulation
from bench.uniqorn.systems import Latencies, figures
from bench.uniqorn.workload import FOUR, Kind

SHARDS = (1, 2, 4, 6, 8)
FIELDS = tuple(range(7))
FIELDS_SHARDS = 8
FILLED = 0.3  # of a pool: about as much as the load keeps
SPARSE = 10  # times larger pools, and as many records, where few keys are taken
FULL_SEEDS, QUICK_SEEDS = 3, 1
FULL_S, QUICK_S = 7.0, 1.5


def simulate(setting: Setting, *, quick: bool, filled: float = FILLED) -> list[Latencies]:
    """Return the latencies of some runs, each with a seed of its own. `filled`: the share of the pool at first."""
    runs = []
    for seed in range(QUICK_SEEDS if quick else FULL_SEEDS):
        simulation = Simulation(setting, Random(seed))
        simulation.fill(filled)
        runs.append(simulation.run((QUICK_S if quick else FULL_S) * 1_000))
    return runs


def figure4(*, quick: bool) -> list[dict[str, Any]]:
    """Return a row for each number of shards and each kind of requests."""
    rows = []
    for shards in SHARDS:
        say(f"{shards} shards")
        runs = simulate(Setting(shards, kinds=tuple(Kind)), quick=quick)
        rows += [{"shards": shards, "operation": kind.value, **figures(runs, kind)} for kind in Kind]
    return _beside_first(rows, "shards")


def figure5(*, quick: bool) -> list[dict[str, Any]]:
    """Return rows for each number of alternate keys: create, update, and create where few keys are taken."""
    rows = []
    for fields in FIELDS:
        say(f"{fields} alternate keys")
        kinds = FOUR if fields else (Kind.CREATE, Kind.UPDATE)
        pool = POOL if fields else SPARSE * POOL  # Nothing deletes a record that has no alternate key.
        runs = simulate(Setting(FIELDS_SHARDS, fields=fields, kinds=kinds, pool=pool), quick=quick)
        for kind in (Kind.CREATE, Kind.UPDATE):
            rows.append({"fields": fields, "operation": kind.value, **figures(runs, kind)})
        setting = Setting(FIELDS_SHARDS, fields=fields, kinds=kinds, pool=SPARSE * POOL)
        runs = simulate(setting, quick=quick, filled=FILLED / SPARSE)
        found = figures(runs, Kind.CREATE)
        rows.append({"fields": fields, "operation": Kind.CREATE.value, "load": "few keys taken", **found})
    return _beside_first(rows, "fields")


def _beside_first(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the rows with their p99 of that of the first row of the same operation and load, of one or more `name`."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    beside = []
    for row in rows:
        if not row[name]:
            beside.append(row)
            continue
        one = first.setdefault((row["operation"], row.get("load", "")), row)
        done = row["done_p99_ms"] and one["done_p99_ms"] and round(row["done_p99_ms"] / one["done_p99_ms"], 2)
        beside.append({**row, "of_first": round(row["p99_ms"] / one["p99_ms"], 2), "done_of_first": done})
    return beside
