"""The cost of intents (Olive, section 7.1): operations as steps of workflows, beside the same operations bare.

    python -m bench.olive figure9 [--json] [--quick] [--store fdb:CLUSTER_FILE]
    python -m bench.olive figure10 [--json] [--quick] [--store fdb:CLUSTER_FILE]
    python -m bench.olive figure11 [--json] [--quick] [--store fdb:CLUSTER_FILE]
    python -m bench.olive figure12|storage|spanning [--json] [--quick]
    python -m bench.olive moves [--json] [--quick] [--store fdb:CLUSTER_FILE [--store fdb:CLUSTER_FILE]]
    python -m bench.olive locks [--json] [--quick] [--store fdb:CLUSTER_FILE --store fdb:CLUSTER_FILE]
    python -m bench.olive owner [--json] [--quick] [--store fdb:CLUSTER_FILE] [--against CHECKOUT]
    python -m bench.olive page [--out DIRECTORY]

With `--out`, a figure saves its rows in that directory, and writes the page. `page` writes the page and its plots from
the rows that are saved there (default: docs/paper). See `bench.olive_page`.

Olive's intent is a workflow, and its operation a step. As in the paper, an operation reads or updates an object with a
key of 64 bytes and a value of 1,000. Bare, it is a `transact` of its tenant. Each workflow has a tenant of its own.

Figure 9: one operation, one intent at a time; means of 1,000, with the 95 % confidence interval.

    bare            `transact`
    in an intent    from the begin of the workflow's function to the completion of its item, by `finish`
    intent          from the call of `enqueue` to the completion: what Olive measures

A bare read commits nothing, and every intent commits its end. So the ratios of reads say how much dearer a commit is
than a read on that store. Only an update has a ratio that says what the intent costs.

Figure 10: 64 intents at once, of k updates each, beside k `transact` calls in each of 64 threads.

    of a workflow   the mean time from its first step's start to its completion, of that of a bare thread
    of all          the time until all 64 have ended, of the time until all 64 threads have
    returning       the same, if the last step is a `step` too, and the worker completes the item after the return
    bare cpu, step cpu
                    the processor time of the process meanwhile, in percent of one core; 100: the interpreter lock is
                    the limit, and not the store
    of cpu          the processor time of a step, of that of a bare operation

The bars are for "of a workflow". No figure contains the enqueue and the dequeue of figure 10's workflows.

Figure 11, operations on a tenant that has a snapshot: see `bench.olive_snapshots`.

Figure 12, the storage, and moves under load, of a tenant that moves: see `bench.olive_moves`.
Spanning: transactions over two embedded shards (section 4.4) beside bare ones; see `bench.across_shards`.

Locks, free again after the death of who holds them: see `bench.olive_locks`.
Owner, the cost of the ownership record that each transaction reads: see `bench.olive_owner`.

The workflows run in threads of the measuring process, which makes the bare calls, too. The two take turns, batch by
batch, and the ratios are those of neighbours. Durable, on the embedded engine or on FoundationDB.
"""

import os
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import sqrt
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import fairlead
from bench import across_shards, harness, olive_load, olive_locks, olive_moves, olive_owner, olive_snapshots, ycsb
from bench.figures import Run
from bench.harness import config_of, tenant_name
from bench.olive_page import data, page
from bench.olive_page.data import ENGINE_NAMES
from bench.report import Options, parser, say, show_rows
from bench.stores import Stores, cluster_file_of, prepared_stores
from fairlead import Config, TenantTransaction, fleet
from fairlead.tenant_database import TenantDatabase
from fairlead.workflows.context import WorkflowContext

AT_ONCE = 64
OPERATIONS = (1, 4, 16)
BARS = {"embedded": (1.6, 1.2, 1.1), "foundationdb": (1.8, 1.4, 1.3)}  # Of a workflow, for 1, 4 and 16 operations.
FULL_BATCHES, QUICK_BATCHES = 20, 3
FULL_INTENTS, QUICK_INTENTS = 1_000, 50
VALUE = bytes(1_000)
TENANT_APP = "olive"
GATE_S_MAX = 60.0
POLL_S = 0.001
NORMAL_95 = 1.96  # Standard errors on either side of a mean, within which it is with a probability of 95 %.

app = fairlead.App()


class Took(NamedTuple):
    """Seconds that a batch took: those of each thread or workflow, and from the first begin to the last end.

    `cpu_s`: processor time of the process from the first begin to the last end.
    """

    each_s: list[float]
    all_s: float
    cpu_s: float


class Moment(NamedTuple):
    """The time, and the processor time of the process, both in seconds. Both only grow."""

    at_s: float
    cpu_s: float


def moment() -> Moment:
    """Return the present moment."""
    return Moment(time.perf_counter(), time.process_time())


def took(began: Collection[Moment], ended: Collection[Moment]) -> Took:
    """Return the times of a batch: `ended` in the order of `began`."""
    each_s = [end.at_s - begin.at_s for begin, end in zip(began, ended, strict=True)]
    first, last = min(began), max(ended)
    return Took(each_s, last.at_s - first.at_s, last.cpu_s - first.cpu_s)


@dataclass(slots=True)
class Batch:
    """Workflows that begin together, and when each of them began and ended."""

    gate: threading.Barrier
    began: dict[int, Moment] = field(default_factory=dict)
    ended: dict[int, Moment] = field(default_factory=dict)
    done: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def took(self) -> Took:
        """Return the times of a batch whose workflows all have ended."""
        return took(self.began.values(), [self.ended[number] for number in self.began])


_batches: dict[int, Batch] = {}
_numbers = count()


def update(tr: TenantTransaction, key: bytes) -> None:
    """Update an object."""
    tr.set((key,), VALUE)


def read(tr: TenantTransaction, key: bytes) -> int:
    """Read an object; return its size."""
    return len(tr.get((key,)) or b"")


@app.workflow("intent")
def intent(wf: WorkflowContext, batch: int, number: int, operations: int, kind: str) -> None:
    """Carry out the operations, once all workflows of the batch have come here."""
    mine = _batches[batch]
    mine.gate.wait(GATE_S_MAX)
    mine.began[number] = moment()
    keys = keys_of(number, operations)
    if kind == "read":
        wf.read(read, keys[0])
        wf.finish(_nothing)
    elif kind == "return":
        for key in keys:
            wf.step(update, key)
    else:
        for key in keys[:-1]:
            wf.step(update, key)
        wf.finish(update, keys[-1])
    mine.ended[number] = moment()
    mine.done.release()


def keys_of(number: int, operations: int) -> list[bytes]:
    """Return the keys of the objects of a workflow or thread."""
    return [b"%032d%032d" % (number, operation) for operation in range(operations)]


def _nothing(tr: TenantTransaction) -> None:
    """Do nothing: the last step of an intent that has read."""


# --- Batches ---


def bare(pool: ThreadPoolExecutor, threads: int, operations: int, body: Callable[..., Any]) -> Took:
    """Carry out operations in threads that begin together."""
    gate = threading.Barrier(threads)

    def run(number: int) -> tuple[Moment, Moment]:
        tenant, keys = tenant_of(number), keys_of(number, operations)
        gate.wait(GATE_S_MAX)
        began = moment()
        for key in keys:
            tenant.transact(lambda tr, key=key: body(tr, key))  # type: ignore[misc]
        return began, moment()

    began, ended = zip(*pool.map(run, range(threads)), strict=True)
    return took(began, ended)


def intents(running: fleet.Fleet, at_once: int, operations: int, kind: str) -> Took:
    """Enqueue workflows and wait for their ends. If they return, `all_s` contains their completion by the worker."""
    batch_number = next(_numbers)
    batch = _batches[batch_number] = Batch(threading.Barrier(at_once))
    completed = running.counts().get("completed", 0)
    payload = {"batch": batch_number, "operations": operations, "kind": kind}
    for number in range(at_once):
        tenant_of(number).enqueue("intent", {**payload, "number": number})
    for _ in range(at_once):
        if not batch.done.acquire(timeout=GATE_S_MAX):
            raise TimeoutError(f"{len(batch.ended)} of {at_once} workflows have ended")
    del _batches[batch_number]
    times = batch.took()
    while running.counts().get("completed", 0) < completed + at_once:
        time.sleep(POLL_S)
    if kind == "return":
        return times._replace(all_s=time.perf_counter() - min(batch.began.values()).at_s)
    return times


def tenant_of(number: int) -> TenantDatabase:
    """Return the tenant of a workflow or thread."""
    return app.tenant(TENANT_APP, tenant_name(number))


@contextmanager
def running_here(config: Config) -> Iterator[fleet.Fleet]:
    """Run a fleet in threads of this process meanwhile."""
    app.configure(config)
    started = fleet.start(app, "bench.olive:app", runtime="threads")
    try:
        yield started
    finally:
        started.stop(drain=1)
        app.close()


# --- Figures ---


def figure9(store: Path, number: int) -> list[dict[str, Any]]:
    """Return the rows of figure 9: an operation alone, bare and in an intent, in turns."""
    rows = []
    with running_here(config_of(store, workers=1, slots=AT_ONCE)) as running, ThreadPoolExecutor(1) as pool:
        for kind, body in (("read", read), ("update", update)):
            say(f"{kind}, {number} times")
            bare(pool, 1, 1, update)
            intents(running, 1, 1, kind)
            bare_ms, inside_ms, whole_ms = [], [], []
            for _ in range(number):
                bare_ms.append(bare(pool, 1, 1, body).all_s * 1000)
                began_s = time.perf_counter()
                inside_ms.append(intents(running, 1, 1, kind).all_s * 1000)
                whole_ms.append((time.perf_counter() - began_s) * 1000)
            bare_mean = mean(bare_ms)
            for what, found in (("bare", bare_ms), ("in an intent", inside_ms), ("intent", whole_ms)):
                rows.append(
                    {
                        "operation": kind,
                        "what": what,
                        "mean_ms": round(mean(found), 3),
                        "within_ms": round(NORMAL_95 * stdev(found) / sqrt(len(found)), 3),
                        "of_bare": round(mean(found) / bare_mean, 2),
                    }
                )
    return rows


def figure10(store: Path, batches: int) -> list[dict[str, Any]]:
    """Return the rows of figure 10, one for each number of operations."""
    engine = "foundationdb" if store.is_file() else "embedded"
    rows = []
    with running_here(config_of(store, workers=1, slots=AT_ONCE)) as running, ThreadPoolExecutor(AT_ONCE) as pool:
        for operations, bar in zip(OPERATIONS, BARS[engine], strict=True):
            say(f"{AT_ONCE} at once, {operations} operations, {batches} batches")
            pairs = []
            for number in range(batches + 1):
                bare_took = bare(pool, AT_ONCE, operations, update)
                finishing = intents(running, AT_ONCE, operations, "finish")
                returning = intents(running, AT_ONCE, operations, "return")
                if number:  # The first batch opens the tenants.
                    pairs.append((bare_took, finishing, returning))
            each_ratio = median(mean(ours.each_s) / mean(theirs.each_s) for theirs, ours, _ in pairs)
            rows.append(
                {
                    "engine": engine,
                    "operations": operations,
                    "bare_ms": round(median(mean(theirs.each_s) for theirs, _, _ in pairs) * 1000 / operations, 3),
                    "step_ms": round(median(mean(ours.each_s) for _, ours, _ in pairs) * 1000 / operations, 3),
                    "bare_per_s": round(median(AT_ONCE * operations / theirs.all_s for theirs, _, _ in pairs)),
                    "steps_per_s": round(median(AT_ONCE * operations / ours.all_s for _, ours, _ in pairs)),
                    "of_a_workflow": round(each_ratio, 2),
                    "of_all": round(median(ours.all_s / theirs.all_s for theirs, ours, _ in pairs), 2),
                    "returning": round(median(ours.all_s / theirs.all_s for theirs, _, ours in pairs), 2),
                    "bare_cpu_percent": round(median(theirs.cpu_s / theirs.all_s for theirs, _, _ in pairs) * 100),
                    "step_cpu_percent": round(median(ours.cpu_s / ours.all_s for _, ours, _ in pairs) * 100),
                    "of_cpu": round(median(ours.cpu_s / theirs.cpu_s for theirs, ours, _ in pairs), 2),
                    "bar": bar,
                }
            )
    return rows


# --- The command ---


def _table9(rows: list[dict[str, Any]]) -> list[list[str]]:
    head = ["operation", "what", "ms", "±", "of bare"]
    return [
        head,
        *([str(row[name]) for name in ("operation", "what", "mean_ms", "within_ms", "of_bare")] for row in rows),
    ]


def _table10(rows: list[dict[str, Any]]) -> list[list[str]]:
    head = [
        "k", "bare ms", "step ms", "bare/s", "steps/s", "of a workflow", "bar", "of all", "returning",
        "bare cpu", "step cpu", "of cpu",
    ]  # fmt: skip
    names = (
        "operations", "bare_ms", "step_ms", "bare_per_s", "steps_per_s", "of_a_workflow", "bar", "of_all", "returning",
        "bare_cpu_percent", "step_cpu_percent", "of_cpu",
    )  # fmt: skip
    return [head, *([str(row[name]) for name in names] for row in rows)]


class Sizes(NamedTuple):
    """How much is measured. `megabytes`, `items`: of the larger tenants that move. `against`: an earlier checkout."""

    quick: bool
    megabytes: int
    items: int
    against: Path | None = None


Rows = list[dict[str, Any]]


class Figure(NamedTuple):
    """What is measured, by a function of two places for stores: returns the rows and their table.

    `title`: `{on}` is where. `clusters`: of how many clusters it can be measured, beside none.
    """

    measure: Callable[[Sequence[Stores], Sizes], tuple[Rows, list[list[str]]]]
    title: str
    clusters: tuple[int, ...] = (1,)


def _figure9(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    number = QUICK_INTENTS if sizes.quick else FULL_INTENTS
    rows = harness.run_in_process(figure9, places[0].new("figure9"), number)
    return rows, _table9(rows)


def _figure10(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    batches = QUICK_BATCHES if sizes.quick else FULL_BATCHES
    rows = harness.run_in_process(figure10, places[0].new("figure10"), batches)
    return rows, _table10(rows)


def _figure11(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    rows = harness.run_in_process(olive_snapshots.figure11, places[0].new("figure11"), sizes.quick)
    return rows, olive_snapshots.table11(rows)


def _both(places: Sequence[Stores], name: str) -> list[Path]:
    """Return a new store in each place."""
    return [place.new(f"{name}-{number}") for number, place in enumerate(places)]


def _figure12(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    requests = ycsb.QUICK_REQUESTS if sizes.quick else ycsb.FULL_REQUESTS
    rows = harness.run_in_process(olive_moves.figure12, _both(places, "figure12"), requests)
    return rows, olive_moves.table12(rows)


def _storage(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    objects = olive_moves.QUICK_OBJECTS if sizes.quick else ycsb.OBJECTS
    rows = harness.run_in_process(olive_moves.storage, _both(places, "storage"), objects)
    return rows, olive_moves.table_of_storage(rows)


def _moves(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    stores = _both(places, "moves")
    rows = harness.run_in_process(olive_load.moves, stores, sizes.megabytes, sizes.items, sizes.quick)
    return rows, olive_load.table_of_moves(rows)


def _locks(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    rows = olive_locks.measure(_both(places, "locks"), sizes.quick)
    return rows, olive_locks.table_of_locks(rows)


def _owner(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    rows = olive_owner.measure(places[0], sizes.against, sizes.quick)
    return rows, olive_owner.table_of_costs(rows)


def _spanning(places: Sequence[Stores], sizes: Sizes) -> tuple[Rows, list[list[str]]]:
    shards = _both(places, "spanning")
    rounds = across_shards.QUICK_ROUNDS if sizes.quick else across_shards.FULL_ROUNDS
    rows = harness.run_in_process(across_shards.measure, shards, rounds)
    return rows, [list(rows[0]), *([str(each) for each in row.values()] for row in rows)]


FIGURES = {
    "figure9": Figure(_figure9, "Operations in workflows beside bare ones, on {on}, durable"),
    "figure10": Figure(_figure10, "Operations in workflows beside bare ones, on {on}, durable"),
    "figure11": Figure(_figure11, "Operations with a snapshot beside bare ones, on {on}, durable"),
    "figure12": Figure(_figure12, "Operations on a tenant that moves, on two embedded shards, durable", ()),
    "storage": Figure(_storage, "Bytes stored before, during and after a move, on two embedded shards", ()),
    "moves": Figure(_moves, "Moves under load, {on}, durable", (1, 2)),
    "spanning": Figure(_spanning, "Transactions over two embedded shards beside bare ones, durable", ()),
    "locks": Figure(_locks, "Locks of processes that were killed, on {on}", (2,)),
    "owner": Figure(_owner, "The cost of the ownership record, on {on}, durable"),
}


def _parsed() -> Namespace:
    commands = parser(__doc__)
    commands.add_argument("figure", choices=[*FIGURES, "page"])
    commands.add_argument("--store", type=cluster_file_of, metavar="URL", action="append", default=[],
        help="fdb:CLUSTER_FILE, of a cluster without a store; it is emptied (default: new embedded ones)")  # fmt: skip
    commands.add_argument("--out", type=Path, metavar="DIRECTORY", help="where rows are saved, and the page is written")
    commands.add_argument("--megabytes", type=int, help="of the large tenant that moves (default 1,000; quick 5)")
    commands.add_argument(
        "--items", type=int, help="of the tenant with items that moves (default 1,000,000; quick 2,000)"
    )
    commands.add_argument("--against", type=Path, metavar="CHECKOUT", help="an earlier checkout to compare with: owner")
    parsed = commands.parse_args()
    if parsed.store and parsed.figure != "page" and len(parsed.store) not in FIGURES[parsed.figure].clusters:
        allowed = " or ".join(map(str, (0, *FIGURES[parsed.figure].clusters)))
        commands.error(f"{parsed.figure} takes --store {allowed} times, not {len(parsed.store)} times")
    return parsed


def _engine(clusters: int, figure: str) -> str:
    """Return the name under which a run is saved."""
    if clusters == 0:
        return data.EMBEDDED
    return data.BETWEEN if figure == "moves" and clusters == 1 else data.FOUNDATIONDB


def main() -> None:
    """Measure and print, or write the page."""
    parsed = _parsed()
    if parsed.figure == "page":
        page.write(parsed.out or page.DEFAULT_OUT)
        return
    opts = Options(as_json=parsed.json, quick=parsed.quick)
    figure = FIGURES[parsed.figure]
    megabytes = parsed.megabytes or (olive_load.QUICK_MB if opts.quick else olive_load.FULL_MB)
    items = parsed.items or (olive_load.QUICK_ITEMS if opts.quick else olive_load.FULL_ITEMS)
    engine = _engine(len(parsed.store), parsed.figure)
    with ExitStack() as opened:
        first, second = [None, *parsed.store] if engine == data.BETWEEN else [*parsed.store, None, None][:2]
        places = [opened.enter_context(prepared_stores(cluster_file)) for cluster_file in (first, second)]
        machine = places[-1 if engine == data.BETWEEN else 0].describe() if parsed.out else {}
        rows, table = figure.measure(places, Sizes(opts.quick, megabytes, items, parsed.against))
    if parsed.out:
        machine["load_1m_after"] = round(os.getloadavg()[0], 2)
        data.SAVED.save(parsed.out, parsed.figure, engine, Run(opts.quick, machine, rows))
        page.write(parsed.out)
    show_rows(rows, table, opts, figure.title.format(on=ENGINE_NAMES[engine]))


if __name__ == "__main__":
    main()
