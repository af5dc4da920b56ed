"""Fairlead on its embedded store, with its default settings except for the number of slots, on both runtimes.

Each job goes into the queue of its tenant. Workers run as in production: `fairlead run APP`. On Ray one consumer has
two worker actors, which Ray restarts. On threads there are two consumers, and each is one process with all roles.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import fairlead
from bench.drain import depth
from bench.peers import processes
from bench.peers.job import STEPS, Job, run
from bench.peers.round_context import CONTEXT
from bench.peers.servers import Server
from bench.peers.system import WORKERS, Producer, System
from fairlead.workflows.context import WorkflowContext

TENANT_APP = "peers"

app = fairlead.App(f"embedded:{CONTEXT.directory.resolve() / 'store'}")


@app.handler("work")
def work(job: fairlead.Job) -> None:
    """Run a job."""
    run(job.payload)


@app.workflow("work_in_steps")
def work_in_steps(wf: WorkflowContext, **job: Any) -> None:
    """Run a job, and then do its steps."""
    run(job)
    for number in range(STEPS):
        wf.step(step, number)


def step(tr: fairlead.TenantTransaction, number: int) -> int:
    """Write a key of the tenant, and return the number, which Fairlead records."""
    tr.set(("step",), number.to_bytes(8, "big"))
    return number


class _Producer:
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def send(self, job: Job) -> None:
        app.tenant(TENANT_APP, job["tenant"]).enqueue(self._kind, job)

    def send_many(self, jobs: Sequence[Job]) -> None:
        app.enqueue_many((app.tenant(TENANT_APP, job["tenant"]), fairlead.new_item(self._kind, job)) for job in jobs)


class Fairlead(System):
    """The common part of both runtimes."""

    packages: ClassVar[tuple[str, ...]] = ("lmdb", "ray")
    application = f"{__name__}:app"
    best_slots = 16
    kind = "work"
    drain_factor = 5
    server: Server | None = None
    durable = True
    durability = "LMDB, fsync of every commit"

    def versions(self) -> Mapping[str, str]:
        """See `System`. A checkout that is not installed has the version `checkout`."""
        try:
            own = version("fairlead")
        except PackageNotFoundError:
            own = "checkout"
        return {"fairlead": own, **super().versions()}

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """See `System`."""
        yield _Producer(self.kind)

    def left(self) -> int:
        """See `System`."""
        return sum(depth(app.shards[name]) for name in app.shards)

    def _run(self, runtime: str, *, workers: int, slots: int) -> list[str]:
        settings = [f"consumer.workers={workers}", f"consumer.slots={slots}"]
        options = [text for each in settings for text in ("--set", each)]
        return [sys.executable, "-m", "fairlead", "run", self.application, "--runtime", runtime, *options]


class OnRay(Fairlead):
    """One consumer of Ray actors, two of them workers."""

    title = "Fairlead, Ray"
    settings = "defaults"
    worker_count = 1

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        slots = self.best_slots if CONTEXT.slots is None else CONTEXT.slots // WORKERS
        return self._run("ray", workers=WORKERS, slots=slots)

    def processes_to_kill(self, worker: int, ran: int) -> list[int]:
        """See `System`. The consumer's actors, all at once; Ray's own daemons are its supervisor."""
        actors = {pid: processes.name(pid) for pid in processes.below(worker)}
        roles = ("ray::Scanner", "ray::Manager", "ray::Worker")
        return [pid for pid, name in actors.items() if name.startswith(roles)]


class OnThreads(Fairlead):
    """Two consumers, each in one process."""

    title = "Fairlead, threads"
    settings = "two processes of one worker each"

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        return self._run("threads", workers=1, slots=self.slots_per_worker)


class Steps(Fairlead):
    """One process, and 16 steps in each workflow. Each step writes a key, and is recorded, in one transaction."""

    title = "Fairlead, one worker, 16 steps"
    settings = "threads, one process of 64 slots"
    best_slots = 64
    worker_count = 1
    kind = "work_in_steps"

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        return self._run("threads", workers=1, slots=self.slots_per_worker)
