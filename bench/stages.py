"""An item's processor time from enqueue to completion, stage by stage.

    python -m bench.stages [--json] [--quick]

No-op items, 2.5 to a tenant, go through the product's own classes in one process, one stage after the other. The
figures are microseconds of processor time per item, with the kernel's, and bytes written to the disk:

    enqueue     a hundred to a transaction
    scan        read the vested pointers, in order
    dequeue     128 pointers to a transaction: lease the items of their zones
    hand_over   assign items to a worker, packed and unpacked as between Ray actors
    run         accept the item, call the handler, record its end
    complete    complete some five hundred items in a transaction

`body_us` is the time of the bodies of a stage's transactions. `commit_us` is the time of their commits: conflicts, log,
pages, fsync. `floor` has the same figures for a plain loop over LMDB (`bench.floor`). A fleet needs more: switches
between threads and processes, messages, and pages that another process has changed.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
import psutil

from bench import harness
from bench.enqueueing import BULK, fill
from bench.floor import Floor
from bench.handlers import app
from bench.machine import describe, scratch
from bench.report import options, say, show
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry
from fairlead.actors.manager import Manager
from fairlead.actors.messages import ItemRef, Report
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.thread_host import Done, ThreadHost, ThreadRunners, thread_supervisor
from fairlead.actors.scanning.reading import oldest
from fairlead.actors.scanning.tenant_turns import batches
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.worker import Worker
from fairlead.shards import Shards
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import DEFAULT_PART_COUNT, Shard
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

IDENTITY = Identity(consumer_id=b"stages", host="here", pid=0, started_us=0)

FULL_ITEMS = 20_000
QUICK_ITEMS = 2_000
WARM_ITEMS = 500
AT_ONCE = 3  # Batches that a worker gets together: the size of its prefetch.

_unpack = msgspec.msgpack.Decoder(list[ItemRef]).decode


@dataclass(slots=True)
class Spent:
    """The time of a stage. `inside_ns`: in its transactions; `body_ns`: in their bodies."""

    total_ns: int = 0
    inside_ns: int = 0
    body_ns: int = 0
    written_bytes: int = 0


class TimedShard(Shard):
    """A shard that records the processor time of its transactions in `spent`."""

    spent: Spent

    def transact(self, body: Callable[[Attempt], T], **how: Any) -> T:
        """See `Shard.transact`."""
        spent = self.spent

        def timed(attempt: Attempt) -> T:
            began_ns = time.thread_time_ns()
            try:
                return body(attempt)
            finally:
                spent.body_ns += time.thread_time_ns() - began_ns

        began_ns = time.thread_time_ns()
        try:
            return super().transact(timed, **how)
        finally:
            spent.inside_ns += time.thread_time_ns() - began_ns


class TimedShards(Shards):
    """One timed shard, in place of an application's shards."""

    def __init__(self, store: Path) -> None:
        self._made: dict[str, Any] = {"clock": app.clock, "random": Random(0)}
        super().__init__(
            {"main": harness.store_url(store)}, **self._made, settings=ZoneSettings(), part_count=DEFAULT_PART_COUNT
        )
        shard = super().__getitem__("main")
        self.main = TimedShard(shard.name, shard.db, shard.layout, **self._made)

    def __getitem__(self, name: str) -> Shard:
        """Return the shard."""
        return self.main


class RecordingWorker:
    """A worker for the manager's calls. It accepts all items, and always has capacity."""

    def __init__(self, host: ThreadHost) -> None:
        self._host = host
        self.packed: list[bytes] = []

    def call(self, method: str, *args: Any, done: Done) -> None:
        """See `fairlead.actors.runtime.host.Remote`."""
        report = Report(self._host.incarnation, 1 << 20, 0, 0, {})
        if method == "place":
            self.packed.append(msgspec.msgpack.encode(args[0]))
            done(report, None)
        else:  # The manager calls this under the lock that `done` takes.
            self._host.spawn("answer", lambda: done(report, None))


class Line:
    """The classes of one consumer, and the time of each stage."""

    def __init__(self, store: Path) -> None:
        self.shards = TimedShards(store)
        self.shard = self.shards.main
        self.spent: dict[str, Spent] = {}
        self._settings = ConsumerSettings()
        self._supervisor = thread_supervisor(print)
        host = ThreadHost(clock=self.shard.clock, random=Random(0), supervisor=self._supervisor)
        submitted = SubmittedHandlers(Registry(dict(app.registry.handlers)), b"", allow=False)
        self._host = host
        self._recording_worker = RecordingWorker(host)
        self._manager = Manager(
            host, self.shards, submitted.registry, self._settings, [self._recording_worker], consumer_id=b"stages"
        )
        self._worker = Worker(host, self.shards, submitted, self._settings, ThreadRunners(host), IDENTITY)
        self._worker.start()

    def run(self, items: int) -> None:
        """Run `items` items from enqueue to completion."""
        with self._stage("enqueue"), app.using(self.shards, clock=self.shard.clock, random=Random(0)):
            fill(app, 0, items, harness.tenants_of(items))
        while refs := self._scan():
            pointer_batches = list(batches(refs, self._settings.batch_pointers))
            for begin in range(0, len(pointer_batches), AT_ONCE):
                with self._stage("dequeue"):
                    for batch in pointer_batches[begin : begin + AT_ONCE]:
                        self._manager.serve("main", batch)
                self._run_items()

    def completed(self) -> int:
        """Return the number of completed items."""
        return self._worker.counts()["completed"]

    def stop(self) -> None:
        """End the manager's and the worker's threads."""
        self._manager.stop()
        self._worker.drain(0)
        self._supervisor.stop()

    def _scan(self) -> Sequence[Any]:
        now_us = self.shard.clock.now_us()
        parts, settings = self.shard.layout.parts, self._settings
        with self._stage("scan"):
            return self.shard.transact(
                lambda attempt: oldest(attempt.tr, parts, lambda ref: True, settings=settings, now_us=now_us)
            )

    def _run_items(self) -> None:
        with self._stage("run"):
            packed, self._recording_worker.packed = self._recording_worker.packed, []
            report = self._worker.place([ref for each in packed for ref in _unpack(each)], self._host.incarnation)
            while report.held:
                report = self._worker.await_progress(report.progress)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        spent = self.shard.spent = self.spent.setdefault(name, Spent())
        began_ns, began_bytes = time.process_time_ns(), written_bytes()
        yield
        spent.total_ns += time.process_time_ns() - began_ns
        spent.written_bytes += written_bytes() - began_bytes


def measure(directory: Path, items: int) -> dict[str, Any]:
    """Return the microseconds of each stage per item."""
    say(f"{items:,} items through all stages")
    line = Line(directory / "store")
    line.run(WARM_ITEMS)
    line.spent.clear()
    line.run(items)
    line.stop()
    say("the floor")
    floor = Floor(directory / "floor")
    floors = {
        "write": _floor_us(lambda: floor.write(0, items, zones=harness.tenants_of(items), batch=BULK), items),
        "lease_and_complete": _floor_us(floor.lease_and_complete, items),
    }
    return {**figures(line.spent, items), "floor": floors, "machine": describe(directory)}


def figures(spent: dict[str, Spent], items: int) -> dict[str, dict[str, float]]:
    """Return the cost of each stage per item: microseconds, in all and by part, and bytes written.

    The time of `serve` outside its transactions is `hand_over`. The time of a worker in transactions is `complete`.
    """
    enqueue, scan, dequeue, run = (spent[name] for name in ("enqueue", "scan", "dequeue", "run"))
    whole = {
        "enqueue": Spent(enqueue.total_ns, enqueue.total_ns, enqueue.body_ns, enqueue.written_bytes),
        "dequeue": Spent(dequeue.inside_ns, dequeue.inside_ns, dequeue.body_ns, dequeue.written_bytes),
        "complete": Spent(run.inside_ns, run.inside_ns, run.body_ns, run.written_bytes),
    }
    rows = {name: _transacted(each, items) for name, each in whole.items()}
    rest = {
        "scan": scan.total_ns,
        "hand_over": dequeue.total_ns - dequeue.inside_ns,
        "run": run.total_ns - run.inside_ns,
    }
    rows |= {name: {"us": round(ns / 1000 / items, 2)} for name, ns in rest.items()}
    rows["all"] = {"us": round(sum(row["us"] for row in rows.values()), 2)}
    return {name: rows[name] for name in ("enqueue", "scan", "dequeue", "hand_over", "run", "complete", "all")}


def _transacted(spent: Spent, items: int) -> dict[str, float]:
    return {
        "us": round(spent.total_ns / 1000 / items, 2),
        "body_us": round(spent.body_ns / 1000 / items, 2),
        "commit_us": round((spent.inside_ns - spent.body_ns) / 1000 / items, 2),
        "written_bytes": round(spent.written_bytes / items),
    }


def _floor_us(work: Callable[[], object], items: int) -> dict[str, float]:
    began_ns, began_bytes = time.process_time_ns(), written_bytes()
    work()
    return {
        "us": round((time.process_time_ns() - began_ns) / 1000 / items, 2),
        "written_bytes": round((written_bytes() - began_bytes) / items),
    }


def written_bytes() -> int:
    """Return the bytes that this process has written; 0 if the system does not count them."""
    if not hasattr(psutil.Process, "io_counters"):
        return 0
    return psutil.Process().io_counters().write_chars


def main() -> int:
    """Measure and print."""
    opts = options(__doc__)
    with scratch() as directory:
        show(measure(directory, QUICK_ITEMS if opts.quick else FULL_ITEMS), opts, "processor time per item")
    return 0


if __name__ == "__main__":
    sys.exit(main())
