"""An application in the form that the simulator needs: handlers, requests, checks, and a machine to run on."""

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
from fairlead.workflows.lock_keeper import LockKeeper
from fairlead.zones.engines import Database, StoreError
from fairlead.zones.errors import QueueError
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.periodic import Period
from fairlead.zones.shard import Shard

T = TypeVar("T")


class NothingToSimulate(QueueError):
    """The application has no simulated requests, so nothing would be enqueued for its handlers.

    Do: write a request, in the application's module, or in a module that imports the application and that you name on
    the command line: `@app.simulation.request`, then `def order(random): ...`. docs/simulate.md has an example.
    """

    message = "the application has no simulated requests"


class NoWorldYet(QueueError):
    """The application used its stores before a world began: in `app.simulation.begin`, or while it was imported.

    Do: use the stores in requests, handlers and checks. A first request can write what the others need.
    """

    message = "there are no stores before a simulated world begins"


class LocksNotSimulated(QueueError):
    """The application takes a lock outside of a workflow, `tenant.lock`, in a simulated world.

    A thread keeps such a lock, and a simulated world has none.

    Do: leave the lock out in the simulation; or take it in a workflow, by `wf.lock`, which is simulated.
    """

    message = "locks outside of workflows are not simulated"


class NotDeterministic(QueueError):
    """Two runs of a seed differed, so a violation could not be reproduced.

    `first`, `second`: the first events that differ; without them, the runs differ only in another process.

    Do: find the input that the application takes from outside of its world: `datetime.now()` (`time.time()` is
    virtual), a `random.Random()` without a seed, the order of a set of texts, files, sockets. Or state that one world
    leaves in the process for the next: clear it in `@app.simulation.begin`.
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
        """Its requests."""
        return self.app.simulation.requests

    @property
    def checks(self) -> Sequence[Callable[[Sequence[Tenant]], object]]:
        """Its checks; each takes the names of all tenants."""
        return [update_wrapper(partial(self._check, check), check) for check in self.app.simulation.checks]

    @contextmanager
    def on(self, machine: Machine) -> Iterator[None]:
        """Redirect clock, randomness and stores of the application, and of what it imports, to `machine` meanwhile."""
        with (
            use_machine(machine),
            self.app.using(_MachineShards(self.app, machine), clock=machine, random=machine.random),
        ):
            for begin in self.app.simulation.begins:
                begin()
            yield

    def _check(self, check: Callable[..., object], tenants: Sequence[Tenant]) -> None:
        answer = check([self.app.tenant(tenant.app, tenant.user) for tenant in tenants])
        assert answer is None, f"it returns {answer!r}, which is ignored: a check asserts what must be true"


@cache
def simulated_app(reference: str) -> SimulatedApp:
    """Return the application that `reference` names. Each process loads it once.

    Raises:
      ReferenceNotFound: see `load_app`.
      NothingToSimulate: it has no requests.
      NotImportable: its module raises an error when it is imported.
    """
    with stdlib_patched():
        app = load_app(reference)
    if not app.simulation.requests:
        raise NothingToSimulate(app=reference)
    return SimulatedApp(app)


class _CallsHere:
    """Calls of coroutines in a simulated process, made on their event loop: virtual time needs no thread."""

    async def run(self, call: Callable[[], T], /) -> T:
        """See `AwaitableCalls`."""
        return call()

    async def wait_for(self, watch: Watchable, timeout_s: float | None) -> bool:
        """See `AwaitableCalls`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not watch.is_ready():  # noqa: ASYNC110 - the simulated store sets no event
                    await asyncio.sleep(POLL_S_MAX)
        except TimeoutError:
            return False
        return True

    def start(self, call: Callable[[], None], /) -> None:
        """See `AwaitableCalls`."""
        call()

    def close(self) -> None:
        """See `AwaitableCalls`."""


class _MachineShards(Shards):
    """The shards of the simulated process whose turn it is."""

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

    @property
    def locks(self) -> LockKeeper:
        """Refuse: a session of locks is kept by a thread, and the simulator has none.

        Raises:
          LocksNotSimulated: always.
        """
        raise LocksNotSimulated

    def errors(self) -> set[type[Exception]]:
        """See `Shards`."""
        return {StoreError}

    def close(self) -> None:
        """Do nothing: the world closes the stores."""
