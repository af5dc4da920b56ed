"""What carries requests out in real time: systems beside each other, under one workload."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from bench.report import percentile
from bench.uniqorn.operations import request_op
from bench.uniqorn.workload import Kind, Request, Workload
from fairlead.records.accesses import run_op
from fairlead.records.errors import RecordError
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.storage_model.record_store import RecordStore


class Aborted(Exception):
    """A request was refused: a key is taken, a record is there, or another request was faster."""


class Carried(NamedTuple):
    """How a request has ended: see `operations.Done`."""

    found: bool = True
    cleanup: Callable[[], object] | None = None


class System(Protocol):
    """A data system. Safe for threads."""

    name: str

    def carry_out(self, request: Request) -> Carried:
        """Carry a request out.

        Raises:
          Aborted: it was refused.
        """
        ...


class OverStores:
    """The protocol over stores of records. `cleans`: whether index records that are left are deleted afterwards."""

    def __init__(
        self, data: Sequence[RecordStore], index: Sequence[RecordStore], threads: Executor, *, cleans: bool = True
    ) -> None:
        self.name = f"Uniqorn ({len(data)}-shard)"
        self._perform = partial(ModelStores(data, index).perform_in_parallel, threads)
        self._cleans = cleans

    def carry_out(self, request: Request) -> Carried:
        """See `System`."""
        try:
            done = run_op(request_op(request), self._perform)
        except RecordError as error:
            raise Aborted from error
        cleanup = done.cleanup
        if cleanup is None or not (self._cleans or request.kind is Kind.CREATE_BARE):
            return Carried(done.found)
        return Carried(done.found, lambda: run_op(cleanup, self._perform))


class Latencies:
    """Milliseconds of each kind of requests: of all of them, as in the paper, and of those that were not aborted.

    Requests that found no record are not counted: each was one read.
    """

    def __init__(self) -> None:
        self.ms: dict[Kind, list[float]] = {}
        self.done_ms: dict[Kind, list[float]] = {}

    def add(self, kind: Kind, ms: float, *, aborted: bool) -> None:
        """Count a request."""
        self.ms.setdefault(kind, []).append(ms)
        if not aborted:
            self.done_ms.setdefault(kind, []).append(ms)

    def include(self, other: "Latencies") -> None:
        """Count all requests of another."""
        for ours, theirs in ((self.ms, other.ms), (self.done_ms, other.done_ms)):
            for kind, ms in theirs.items():
                ours.setdefault(kind, []).extend(ms)


TAIL = 99


def figures(rounds: Sequence[Latencies], kind: Kind) -> dict[str, Any]:
    """Return the figures of one kind of requests.

    The p50 is that of all rounds, without aborted requests: one table refuses a request sooner than it carries it out.
    A p99 is the median of those of the rounds, with the lowest and the highest. `done_p99_ms`: without aborted ones.
    """
    tails = [percentile(each.ms[kind], TAIL) for each in rounds if each.ms.get(kind)]
    done = [percentile(each.done_ms[kind], TAIL) for each in rounds if each.done_ms.get(kind)]
    carried_out = [ms for each in rounds for ms in each.done_ms.get(kind, [])]
    requests = sum(len(each.ms.get(kind, [])) for each in rounds)
    return {
        "p50_ms": round(percentile(carried_out, 50), 2) if carried_out else None,
        "p99_ms": round(median(tails), 2),
        "p99_min_ms": round(min(tails), 2),
        "p99_max_ms": round(max(tails), 2),
        "done_p99_ms": round(median(done), 2) if done else None,
        "requests": requests,
        "aborted": requests - len(carried_out),
    }


def run_for(system: System, workloads: Sequence[Workload], seconds: float) -> Latencies:
    """Let a thread for each workload carry requests out, one after the other, for a time; return their latencies."""
    until_s = perf_counter() + seconds
    gate = threading.Barrier(len(workloads))

    def run(workload: Workload) -> Latencies:
        found = Latencies()
        gate.wait()
        while perf_counter() < until_s:
            carry_out_timed(system, workload.next(), found)
        return found

    total = Latencies()
    with ThreadPoolExecutor(len(workloads)) as threads:
        for found in threads.map(run, workloads):
            total.include(found)
    return total


def carry_out_timed(system: System, request: Request, found: Latencies) -> None:
    """Carry a request out, and its cleanup, which is not timed."""
    began_s = perf_counter()
    try:
        carried = system.carry_out(request)
    except Aborted:
        found.add(request.kind, (perf_counter() - began_s) * 1_000, aborted=True)
        return
    if carried.found:
        found.add(request.kind, (perf_counter() - began_s) * 1_000, aborted=False)
    if carried.cleanup is not None:
        with suppress(RecordError):  # It is only garbage.
            carried.cleanup()


def fill(system: System, workload: Workload, records: int) -> None:
    """Create records, less those that are refused."""
    for _ in range(records):
        carry_out_timed(system, workload.next(Kind.CREATE), Latencies())


def workloads_of(threads: int, seed: int, pool: int, kinds: tuple[Kind, ...], fields: int = 2) -> list[Workload]:
    """Return a workload for each thread."""
    return [Workload(Random(seed * 1_000 + n), pool=pool, fields=fields, kinds=kinds) for n in range(threads)]
