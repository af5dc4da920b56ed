"""The generators as Ray actors, spread over the nodes of the cluster, started together, and watched until they end."""

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hdrh.histogram import HdrHistogram

from bench.handlers import app, work_payload
from bench.harness import TENANT_APP, tenant_name
from bench.load.generator import Generator, Progress
from bench.load.histograms import merged
from bench.load.load_spec import Load
from bench.load.schedule import Sending
from bench.load.wait_recorder import UNMEASURED
from bench.report import say
from fairlead import Config, new_item
from fairlead.clock import SystemClock

# A spawned process imports its parent's main module, and with it this one; only whoever spreads generators needs Ray.
if multiprocessing.parent_process() is None:
    import ray

SENDERS = 16  # Threads of a generator: on the embedded engine, enqueues that wait for a commit share one.
HEADSTART_US = 500_000  # In which all generators hear when to start.
LOOK_EVERY_S = 1.0
SAY_EVERY_S = 5.0


class GeneratorActor:
    """A `Generator` with a process of its own, and threads that send."""

    def __init__(self, config: Config, load: Load, share: int, of: int, run: int) -> None:
        app.configure(config)
        for name in app.shards:
            _ = app.shards[name]  # Opened now, and not while the time counts.
        self._load = load
        self._run = run
        self._generator = Generator(load, share=share, of=of, send=self._send, clock=app.clock)
        self._pool = ThreadPoolExecutor(SENDERS)
        self._senders: list[Future[None]] = []

    def begin(self, start_us: int) -> None:
        """Start sending."""
        self._senders = [self._pool.submit(self._generator.run, start_us) for _ in range(SENDERS)]

    def progress(self) -> Progress:
        """Return how far it is; raise what the store raised."""
        for sender in self._senders:
            if sender.done():
                sender.result()
        return self._generator.progress()

    def enqueues(self) -> bytes:
        """Return how long enqueues took, packed."""
        packed: bytes = self._generator.enqueues().encode()
        return packed

    def _send(self, sending: Sending, due_us: int) -> None:
        run = UNMEASURED if sending.warm else self._run
        tenant = app.tenant(TENANT_APP, tenant_name(sending.tenant))
        order = work_payload(run, due_us=due_us, work_ms=self._load.work_ms)
        tenant.enqueue_many([new_item("work", order) for _ in range(self._load.items)])


@dataclass(frozen=True, slots=True)
class GeneratorsResult:
    """What the generators did. `enqueues`: how long each took from when it was due; `late_ms_max`: to be begun."""

    measured_enqueues: int
    enqueues: HdrHistogram
    late_ms_max: float


class Generators:
    """So many generators of a load, on the Ray cluster that this process is connected to."""

    def __init__(self, config: Config, load: Load, *, count: int, run: int) -> None:
        kind: Any = ray.remote(GeneratorActor)
        placed = kind.options(num_cpus=0, scheduling_strategy="SPREAD", max_concurrency=2)
        self._load = load
        self._actors = [placed.remote(config, load, share, count, run) for share in range(count)]
        ray.get([actor.progress.remote() for actor in self._actors])

    def begin(self) -> int:
        """Start all at one instant, and return which, in microseconds since the epoch."""
        start_us = SystemClock().now_us() + HEADSTART_US
        ray.get([actor.begin.remote(start_us) for actor in self._actors])
        return start_us

    def await_end(self) -> GeneratorsResult:
        """Say how far they are until they have sent everything, end them, and return what they did."""
        said_s = time.monotonic()
        while True:
            heard = self._progress()
            if all(each.ended for each in heard):
                break
            if time.monotonic() - said_s >= SAY_EVERY_S:
                said_s = time.monotonic()
                say(progress_line(self._load, heard))
            time.sleep(LOOK_EVERY_S)
        enqueues = merged(ray.get([actor.enqueues.remote() for actor in self._actors]))
        for actor in self._actors:
            ray.kill(actor)
        late_ms_max = max(each.late_us_max for each in heard) / 1000
        return GeneratorsResult(sum(each.measured for each in heard), enqueues, late_ms_max)

    def _progress(self) -> list[Progress]:
        heard: list[Progress] = ray.get([actor.progress.remote() for actor in self._actors])
        return heard


def progress_line(load: Load, heard: Sequence[Progress]) -> str:
    """Return what a waiting person is told."""
    acknowledged = sum(each.acknowledged for each in heard)
    wanted = load.enqueues_per_s * (load.warm_s + load.seconds)
    late_ms = max(each.late_us_max for each in heard) / 1000
    return f"about {100 * acknowledged / wanted:.0f} % enqueued, {acknowledged:,}; the latest {late_ms:,.0f} ms late"
