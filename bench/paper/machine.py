"""The real form: consumers on Ray on this machine, one embedded store, and items of real milliseconds.

The store is durable, and on the disk of the current directory. The consumers and the enqueuers share the machine's
cores. So saturation shows the limit of this machine; the model shows the limit of the algorithm.
"""

import time
from itertools import count
from pathlib import Path

from bench import harness
from bench.handlers import app, work_payload
from bench.harness import TENANT_APP, tenant_name
from bench.load.histograms import histogram
from bench.load.load_spec import Load
from bench.load.outcome import Outcome, outcome
from bench.load.trial import counts, fleets, run_load
from bench.load.wait_recorder import UNMEASURED
from bench.paper.forms import REAL, Backlog, check_not_exhausted
from bench.paper.setup import Setup
from fairlead import Config, new_item
from fairlead.clock import SystemClock

GENERATORS = 2
FILLED_PER_S = 8_000  # The minimal rate of bulk enqueues beside idle fleets.
FILL_TENANTS = 1_000  # Between two readings of the clock.
LOOK_AROUND_S = 3.0


class Machine:
    """See `Form`. It creates its stores in `directory`. This process is connected to the Ray cluster at `address`."""

    name = REAL

    def __init__(self, directory: Path, address: str) -> None:
        self._directory = directory
        self._address = address
        self._numbers = count()

    def under_load(self, load: Load, setup: Setup) -> Outcome:
        """See `Form`."""
        config = self._config(setup)
        with fleets(config, setup.consumers, self._address) as consumers:
            return run_load(load, config, consumers, generators=GENERATORS).outcome

    def at_saturation(self, backlog: Backlog, setup: Setup) -> Outcome:
        """See `Form`. The whole backlog vests at one instant, after it is stored and the consumers run."""
        config = self._config(setup)
        with fleets(config, setup.consumers, self._address) as consumers:
            items = backlog.tenants * backlog.items
            vesting_us = SystemClock().now_us() + int((items / FILLED_PER_S + LOOK_AROUND_S) * 1e6)
            harness.run_in_process(fill, config, backlog, vesting_us)
            SystemClock().sleep_us(vesting_us + int(backlog.warm_s * 1e6) - SystemClock().now_us())
            before, before_s = counts(consumers), time.monotonic()
            time.sleep(backlog.seconds)
            after, seconds = counts(consumers), time.monotonic() - before_s
        check_not_exhausted(backlog, after)
        return outcome(seconds=seconds, before=before, after=after, items=histogram())

    def _config(self, setup: Setup) -> Config:
        store = self._directory / f"store-{next(self._numbers)}"
        return Config(shards={"main": harness.store_url(store)}, consumer=setup.settings)


def fill(config: Config, backlog: Backlog, vesting_us: int) -> None:
    """Enqueue the items of every tenant, to vest at one instant, or at once if the instant has passed."""
    app.configure(config)
    payload = work_payload(UNMEASURED, due_us=vesting_us, work_ms=backlog.work_ms)
    for first in range(0, backlog.tenants, FILL_TENANTS):
        some = range(first, min(first + FILL_TENANTS, backlog.tenants))
        delay_s = max(0, vesting_us - SystemClock().now_us()) / 1e6
        item = new_item("work", payload, delay=delay_s)
        app.enqueue_many((app.tenant(TENANT_APP, tenant_name(n)), item) for n in some for _ in range(backlog.items))
