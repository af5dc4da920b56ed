"""An application as the simulator takes it: what it handles, requests and checks, and a way to lend it a machine."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial, update_wrapper
from random import Random
from typing import TypeVar

from fairlead.actors.handlers import Registry
from fairlead.app import App
from fairlead.app_simulation.machine import Machine, stdlib_patched, use_machine
from fairlead.loading import load_app
from fairlead.shards import Shards
from fairlead.store_threads import POLL_S_MAX, Watchable
from fairlead.zones.engines import Database, StoreError
from fairlead.zones.errors import QueueError
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.periodic import Period
from fairlead.zones.shard import Shard

T = TypeVar("T")


class NothingToSimulate(QueueError):
    """The application does not say what its requests do, so that nothing would be enqueued for its handlers.

    Do: write one, in the application's module or in one that imports it and is named on the command line:
    `@app.simulation.request`, then `def somebody_orders(random): ...`. docs/simulate.md has an example.
    """

    message = "the application has no simulated requests"


class NoWorldYet(QueueError):
    """The application used its stores where a world has not begun: in `app.simulation.begin`, or when it was imported.

    Do: use them in requests, handlers and checks; a first request can write what the others need.
    """

    message = "there are no stores before a simulated world begins"


class NotDeterministic(QueueError):
    """A seed run twice went two ways, so that what it finds cannot be found again.

    `first`, `second`: the event with which they part; without them, they part only in another process.

    Do: look for what the application takes from outside of its world: `datetime.now()` (`time.time()` is virtual), a
    `random.Random()` without a seed, the order of a set of texts, files and sockets; or what a world leaves in the
    process for the next: clear it in `@app.simulation.begin`.
    """

    message = "the application is not deterministic"


class SimulatedApp:
    """An application for the simulator; see `fairlead.simulation.application.Code`."""

    def __init__(self, app: App) -> None:
        self.app = app

    @property
    def registry(self) -> Registry:
        """The handlers."""
        return self.app.registry

    @property
    def periods(self) -> Sequence[Period]:
        """The periodic items."""
        return self.app.periods

    @property
    def requests(self) -> Sequence[Callable[[Random], object]]:
        """What its requests do."""
        return self.app.simulation.requests

    @property
    def checks(self) -> Sequence[Callable[[Sequence[Tenant]], object]]:
        """Its checks, each to be told the names of all tenants."""
        return [update_wrapper(partial(self._check, check), check) for check in self.app.simulation.checks]

    @contextmanager
    def on(self, machine: Machine) -> Iterator[None]:
        """Let the application, and what it imports, find clock, dice and stores on `machine` meanwhile."""
        with (
            use_machine(machine),
            self.app.using(_MachineShards(self.app, machine), clock=machine, random=machine.random),
        ):
            for begin in self.app.simulation.begins:
                begin()
            yield

    def _check(self, check: Callable[..., object], tenants: Sequence[Tenant]) -> None:
        answer = check([self.app.tenant(tenant.app, tenant.user) for tenant in tenants])
        assert answer is None, f"it returns {answer!r}, which nobody looks at: let it assert what must be true"


@cache
def simulated_app(reference: str) -> SimulatedApp:
    """Return the application that `reference` names. Each process loads it once.

    Raises:
      ReferenceNotFound: see `load_app`.
      NothingToSimulate: it has no requests.
      Whatever the module itself raises when it is imported.
    """
    with stdlib_patched():
        app = load_app(reference)
    if not app.simulation.requests:
        raise NothingToSimulate(app=reference)
    return SimulatedApp(app)


class _CallsHere:
    """How coroutines of a simulated process wait for stores: on their event loop; virtual time needs no thread."""

    async def run(self, call: Callable[[], T], /) -> T:
        """See `AwaitableCalls`."""
        return call()

    async def wait_for(self, watch: Watchable, timeout_s: float | None) -> bool:
        """See `AwaitableCalls`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not watch.is_ready():  # noqa: ASYNC110 - nobody in this world would set an event
                    await asyncio.sleep(POLL_S_MAX)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """See `AwaitableCalls`."""


class _MachineShards(Shards):
    """The shards of whichever simulated process asks."""

    def __init__(self, app: App, machine: Machine) -> None:
        urls = dict.fromkeys(machine.shard_names, "simulated:")
        config = app.config
        super().__init__(
            urls, clock=machine, random=machine.random, settings=config.zones, part_count=config.part_count
        )
        self._machine = machine
        self.calls = _CallsHere()

    def __getitem__(self, name: str) -> Shard:
        """See `Shards`."""
        shards = self._machine.shards()
        if shards is None:
            raise NoWorldYet(shard=name)
        return shards[name]

    def store(self, name: str) -> Database:
        """See `Shards`."""
        return self[name].db

    def errors(self) -> set[type[Exception]]:
        """See `Shards`."""
        return {StoreError}

    def close(self) -> None:
        """Do nothing: the stores go with the world."""
