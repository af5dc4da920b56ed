"""See `bench.uniqorn`."""

import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import bench.uniqorn
from bench.figures import Row, Run
from bench.report import Options, parser, say, show_rows
from bench.stores import Stores, cluster_file_of, prepared_stores
from bench.uniqorn import build, data, outage, page, scaling, shards
from bench.uniqorn.garbage import Planting
from bench.uniqorn.measuring import FIGURE_7_S, FULL, GARBAGE_RATIOS, QUICK, RECORDS_OF_POOL, Sizes, figure7, table1
from bench.uniqorn.sections import SECTIONS
from bench.uniqorn.stores_on_shards import shard_stores
from bench.uniqorn.systems import OverStores, System, fill
from bench.uniqorn.workload import Workload
from fairlead.records.storage_model.record_store import BatchingStore

FIELDS = 2
FIGURE_7_SHARDS = 8
SHARDS_FULL = FULL._replace(rounds=6, round_s=5.0)  # Of each of three systems, by one thread and by four.
PARALLEL = 2  # Accesses at once, of each thread.


Measure = Callable[[Sequence[Stores], bool], list[Row]]


class Figure(NamedTuple):
    """What a figure runs, on each kind of store that it can run on; the first kind if none is named.

    `on`: what is called with places for stores, and whether the sizes are small. `title`: `{on}` is where.
    `clusters`: so many FoundationDB clusters can be its places; 0: none.
    """

    on: Mapping[str, Measure]
    title: str
    clusters: int = 0

    @property
    def store(self) -> str:
        """The kind of store on which it runs if none is named."""
        return next(iter(self.on))


def _table1(places: Sequence[Stores], quick: bool) -> list[Row]:
    from bench.uniqorn.postgresql import OneTable, new_stores, server

    sizes = QUICK if quick else FULL
    with server(places[0].directory) as running, _threads(sizes) as threads:
        stores = [*new_stores(running.url, "data", 1), *new_stores(running.url, "index", 1)]
        one_table = OneTable(running.url, FIELDS)
        systems: dict[str, System] = {"monolithic": one_table, "uniqorn": OverStores(stores[:1], stores[1:], threads)}
        for name, system in systems.items():
            say(f"fill {name}")
            fill(system, Workload(Random(1), pool=sizes.pool), sizes.pool // 2)
        try:
            return table1(systems, sizes)
        finally:
            one_table.close()
            for store in stores:
                store.close()


def _figure7_on_postgresql(places: Sequence[Stores], quick: bool) -> list[Row]:
    from bench.uniqorn.postgresql import new_stores, server

    opened = []
    with server(places[0].directory) as running:

        def new(name: str, count: int) -> Sequence[BatchingStore]:
            made = new_stores(running.url, name, count)
            opened.extend(made)
            return made

        try:
            return _figure7(new, quick=quick)
        finally:
            for store in opened:
                store.close()


def _figure7_on_shards(places: Sequence[Stores], quick: bool) -> list[Row]:
    with shard_stores(places[0], 2 * _shards_of_figure7(quick=quick)) as new:
        return _figure7(new, quick=quick)


def _figure7(new: Callable[[str, int], Sequence[BatchingStore]], *, quick: bool) -> list[Row]:
    sizes = QUICK if quick else FULL._replace(round_s=FIGURE_7_S)
    count = _shards_of_figure7(quick=quick)
    systems: dict[str, System] = {}
    plantings: dict[str, Planting] = {}
    with _threads(sizes) as threads:
        for ratio in GARBAGE_RATIOS:
            name = f"ratio {ratio:g}"
            stores = new(name, 2 * count)
            data_stores, index_stores = stores[:count], stores[count:]
            systems[name] = OverStores(data_stores, index_stores, threads, cleans=False)
            records = int(RECORDS_OF_POOL * sizes.pool)
            plantings[name] = Planting(data_stores, index_stores, Random(1), pool=sizes.pool, records=records)
        return figure7(systems, plantings, sizes)


def _shards_of_figure7(*, quick: bool) -> int:
    return 2 if quick else FIGURE_7_SHARDS


def _shards(places: Sequence[Stores], quick: bool) -> list[Row]:
    stores = [place.new(f"shard-{number}") for number, place in enumerate(places)]
    return shards.measure(stores, QUICK if quick else SHARDS_FULL)


@contextmanager
def _threads(sizes: Sizes) -> Iterator[Executor]:
    with ThreadPoolExecutor(PARALLEL * sizes.threads) as threads:
        yield threads


FIGURES = {
    "table1": Figure({data.POSTGRESQL: _table1}, "Uniqorn, one shard, beside one table, on PostgreSQL"),
    "shards": Figure(
        {data.EMBEDDED: _shards, data.FOUNDATIONDB: _shards},
        "Records of an application, beside one tenant's keys, on shards: {on}",
        shards.STORES,
    ),
    "figure4": Figure({data.SIMULATED: lambda _, quick: scaling.figure4(quick=quick)}, "From 1 to 8 shards, simulated"),
    "figure5": Figure(
        {data.SIMULATED: lambda _, quick: scaling.figure5(quick=quick)}, "0 to 6 alternate keys, simulated"
    ),
    "figure6": Figure({data.SIMULATED: lambda _, quick: outage.figure6(quick=quick)}, "Index shards away, simulated"),
    "figure7": Figure(
        {data.POSTGRESQL: _figure7_on_postgresql, data.EMBEDDED: _figure7_on_shards}, "Garbage index records: {on}"
    ),
    "build": Figure(
        {data.EMBEDDED: lambda places, quick: build.measure(places[0].directory, quick=quick)},
        "An index that is built beside users, on two embedded shards",
    ),
}


def _parsed() -> Namespace:
    commands = parser(bench.uniqorn.__doc__)
    commands.add_argument("figure", choices=[*FIGURES, "page"])
    commands.add_argument("--on", metavar="KIND", help="embedded: figure 7 on embedded shards")
    commands.add_argument("--store", type=cluster_file_of, metavar="URL", action="append", default=[],
        help="fdb:CLUSTER_FILE, of a cluster without a store; it is emptied")  # fmt: skip
    commands.add_argument("--out", type=Path, metavar="DIRECTORY", help="where rows are saved, and the page is written")
    parsed = commands.parse_args()
    allowed = 0 if parsed.figure == "page" else FIGURES[parsed.figure].clusters
    if len(parsed.store) not in (0, allowed):
        times = f"{allowed} times, not {len(parsed.store)} times" if allowed else "not at all"
        commands.error(f"{parsed.figure} takes --store {times}")
    kinds = [] if parsed.figure == "page" else [kind for kind in FIGURES[parsed.figure].on if kind != data.FOUNDATIONDB]
    if parsed.on is not None and parsed.on not in kinds:
        commands.error(f"{parsed.figure} does not run on {parsed.on}; it runs on: {', '.join(kinds) or 'nothing'}")
    if parsed.on is not None and parsed.store:
        commands.error(f"--store names clusters, and --on {parsed.on} other stores: give one of them")
    return parsed


def main() -> None:
    """Measure and print, or write the page."""
    parsed = _parsed()
    if parsed.figure == "page":
        page.write(parsed.out or page.DEFAULT_OUT)
        return
    opts = Options(as_json=parsed.json, quick=parsed.quick)
    figure = FIGURES[parsed.figure]
    store = data.FOUNDATIONDB if parsed.store else parsed.on or figure.store
    with ExitStack() as opened:
        clusters = parsed.store or [None] * max(1, figure.clusters)
        places = [opened.enter_context(prepared_stores(cluster_file)) for cluster_file in clusters]
        machine = places[0].describe() if parsed.out and store != data.SIMULATED else {}
        rows = figure.on[store](places, opts.quick)
    run = Run(opts.quick, machine, rows)
    if parsed.out:
        if machine:
            machine["load_1m_after"] = round(os.getloadavg()[0], 2)
        data.SAVED.save(parsed.out, parsed.figure, store, run)
        page.write(parsed.out)
    title = figure.title.format(on=data.STORE_NAMES[store])
    show_rows(rows, SECTIONS[parsed.figure].table({store: run}), opts, title)


if __name__ == "__main__":
    main()
