"""The generators as Ray actors, spread over the nodes of the cluster and started together."""

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

# A spawned process imports the main module of its parent, and so this module; only the main process needs Ray.
if multiprocessing.parent_process() is None:
    import ray

SENDERS = 16  # Threads of a generator: on the embedded engine, enqueues that wait for a commit share one.
HEADSTART_US = 500_000  # Time for the start message to reach all generators.
LOOK_EVERY_S = 1.0
SAY_EVERY_S = 5.0


class GeneratorActor:
    """A `Generator` in a process of its own, with threads that send."""

    def __init__(self, config: Config, load: Load, share: int, of: int, run: int) -> None:
        app.configure(config)
        for name in app.shards:
            _ = app.shards[name]  # Opens the store before the measurement.
        self._load = load
        self._run = run
        self._generator = Generator(load, share=share, of=of, send=self._send, clock=app.clock)
        self._pool = ThreadPoolExecutor(SENDERS)
        self._senders: list[Future[None]] = []

    def begin(self, start_us: int) -> None:
        """Start sending."""
        self._senders = [self._pool.submit(self._generator.run, start_us) for _ in range(SENDERS)]

    def progress(self) -> Progress:
        """Return the progress. Raises an error of the store again."""
        for sender in self._senders:
            if sender.done():
                sender.result()
        return self._generator.progress()

    def enqueues(self) -> bytes:
        """Return the durations of the enqueues, packed."""
        packed: bytes = self._generator.enqueues().encode()
        return packed

    def _send(self, sending: Sending, due_us: int) -> None:
        run = UNMEASURED if sending.warm else self._run
        tenant = app.tenant(TENANT_APP, tenant_name(sending.tenant))
        order = work_payload(run, due_us=due_us, work_ms=self._load.work_ms)
        tenant.enqueue_many([new_item("work", order) for _ in range(self._load.items)])


@dataclass(frozen=True, slots=True)
class GeneratorsResult:
    """The result of the generators. `enqueues`: durations from due times; `late_ms_max`: longest delay of a begin."""

    measured_enqueues: int
    enqueues: HdrHistogram
    late_ms_max: float


class Generators:
    """The generators of a load, on the Ray cluster that this process is connected to."""

    def __init__(self, config: Config, load: Load, *, count: int, run: int) -> None:
        kind: Any = ray.remote(GeneratorActor)
        placed = kind.options(num_cpus=0, scheduling_strategy="SPREAD", max_concurrency=2)
        self._load = load
        self._actors = [placed.remote(config, load, share, count, run) for share in range(count)]
        ray.get([actor.progress.remote() for actor in self._actors])

    def begin(self) -> int:
        """Start all at one instant. Return the instant in microseconds since the epoch."""
        start_us = SystemClock().now_us() + HEADSTART_US
        ray.get([actor.begin.remote(start_us) for actor in self._actors])
        return start_us

    def await_end(self) -> GeneratorsResult:
        """Print the progress until all enqueues are sent. Then end the generators and return their result."""
        printed_s = time.monotonic()
        while True:
            progress = self._progress()
            if all(each.ended for each in progress):
                break
            if time.monotonic() - printed_s >= SAY_EVERY_S:
                printed_s = time.monotonic()
                say(progress_line(self._load, progress))
            time.sleep(LOOK_EVERY_S)
        enqueues = merged(ray.get([actor.enqueues.remote() for actor in self._actors]))
        for actor in self._actors:
            ray.kill(actor)
        late_ms_max = max(each.late_us_max for each in progress) / 1000
        return GeneratorsResult(sum(each.measured for each in progress), enqueues, late_ms_max)

    def _progress(self) -> list[Progress]:
        progress: list[Progress] = ray.get([actor.progress.remote() for actor in self._actors])
        return progress


def progress_line(load: Load, progress: Sequence[Progress]) -> str:
    """Return the line that shows the progress of all generators to a person."""
    acknowledged = sum(each.acknowledged for each in progress)
    wanted = load.enqueues_per_s * (load.warm_s + load.seconds)
    late_ms = max(each.late_us_max for each in progress) / 1000
    return f"about {100 * acknowledged / wanted:.0f} % enqueued, {acknowledged:,}; the latest {late_ms:,.0f} ms late"
