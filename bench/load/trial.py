"""A load against fleets of consumers, on the Ray cluster that this process is connected to."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

from hdrh.histogram import HdrHistogram

from bench.fleets import RunningFleet, running
from bench.handlers import app
from bench.load.generator_actors import Generators, GeneratorsResult
from bench.load.histograms import Waits, waits
from bench.load.load_spec import Load
from bench.load.outcome import Outcome, outcome
from bench.load.wait_recorder import FLUSH_EVERY_S, recorded_waits
from bench.report import say
from fairlead import Config
from fairlead.clock import SystemClock

LAST_S_MAX = 120.0  # The time for the last items to start after all are enqueued.
_runs = count(1)  # Run 0 is not measured.


class NotAllStarted(Exception):
    """Items that were enqueued did not start in time: the load is too high, or leases expired."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load. `enqueue`: from the due time until durable; `late_ms_max`: longest delay of a begin."""

    outcome: Outcome
    enqueue: Waits
    late_ms_max: float


@contextmanager
def fleets(config: Config, count: int, address: str) -> Iterator[list[RunningFleet]]:
    """Run `count` consumers, each a fleet of Ray actors that joins the cluster at `address`."""
    with ExitStack() as stack:
        yield [stack.enter_context(running(config, runtime="ray", address=address)) for _ in range(count)]


def run_load(load: Load, config: Config, consumers: Sequence[RunningFleet], *, generators: int) -> LoadResult:
    """Put consumers under a load. Return the result once all its items have started.

    The counts of the consumers are those from the end of the warm-up to the last enqueue. Every measured item counts.

    Args:
      consumers: empty if they run elsewhere, as `fairlead run --app bench.handlers:app`; then their counts are unknown.

    Raises:
      NotAllStarted: an item has not started two minutes after the last enqueue.
    """
    run = next(_runs)
    app.configure(config)
    sending = Generators(config, load, count=generators, run=run)
    start_us = sending.begin()
    SystemClock().sleep_us(start_us + int(load.warm_s * 1e6) - SystemClock().now_us())
    before, before_s = counts(consumers), time.monotonic()
    sent = sending.await_end()
    after, seconds = counts(consumers), time.monotonic() - before_s
    items = _await_starts(run, sent, load)
    found = outcome(seconds=seconds, before=before, after=after, items=items)
    return LoadResult(found, waits(sent.enqueues), round(sent.late_ms_max, 2))


def counts(consumers: Sequence[RunningFleet]) -> Counter[str]:
    """Return the sum of the counts of all consumers."""
    total: Counter[str] = Counter()
    for each in consumers:
        total.update(each.counts())
    return total


def _await_starts(run: int, sent: GeneratorsResult, load: Load) -> HdrHistogram:
    until_s = time.monotonic() + LAST_S_MAX
    wanted = sent.measured_enqueues * load.items
    while (found := recorded_waits(app, run)).total_count < wanted:
        if time.monotonic() > until_s:
            raise NotAllStarted(f"{wanted:,} items enqueued, {found.total_count:,} started {LAST_S_MAX:g} s later")
        say(f"{found.total_count:,} of {wanted:,} items have started")
        time.sleep(FLUSH_EVERY_S)
    return found
