"""Start and drain an application's consumer, as `fairlead run` does.

The runtime `threads` keeps everything in this process. The runtime `ray` starts Ray here, or joins the cluster at
`address`, and gives every actor a process of its own. This process loads the application by its name, and gets the
configuration of the fleet.
"""

import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fairlead.actors.consumer import Consumer, Resources
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Form, describe
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.thread_host import NeedsRay
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.telemetry import Exports
from fairlead.app import App
from fairlead.config import Config
from fairlead.loading import load_app
from fairlead.telemetry import otel_environment
from fairlead.telemetry.exports import ProcessExports
from fairlead.workflows.system_kinds import with_hold_handler
from fairlead.zones.durations import Duration
from fairlead.zones.errors import QueueError

if TYPE_CHECKING:
    from fairlead.actors.runtime.ray_host import RayConsumer

RUNTIMES = ("ray", "threads")
HERE = "local"  # Ray's name for the address of a cluster that this process starts.


class MemoryNeedsThreads(QueueError):
    """A `memory:` shard belongs to one process, and Ray runs every actor in a process of its own.

    Do: run it with `--runtime threads`, or name a store on disk, `embedded:PATH`.
    """

    message = "a memory: shard cannot be shared by processes"


class FleetLost(QueueError):
    """Ray has declared this node dead, and the fleet with it: its daemon ended, or was unreachable for too long.

    Do: restart the fleet; if Ray was started separately on this node, restart Ray first. The items that the fleet held
    run again after their lease expiry.
    """

    message = "the fleet is gone: this node of the Ray cluster is dead"


class RayMissing(QueueError):
    """The fleet is to run on Ray, and Ray is not installed here.

    Do: install it, `pip install 'fairlead[ray]'`, or run the fleet in threads of one process:
    `fairlead run APP --runtime threads`.
    """

    message = "Ray is not installed"


class Fleet(Protocol):
    """A running consumer."""

    def counts(self) -> dict[str, int]:
        """Return the counts of outcomes since the start, summed over the actors."""
        ...

    def readings(self) -> Mapping[str, Reading]:
        """Return the telemetry counters of the actors, by their names."""
        ...

    def check(self) -> None:
        """Raise an error if the fleet no longer runs.

        Raises:
          FleetLost: the fleet ended without `stop`.
          ActorFailed: a loop in this process died, or made no progress.
        """
        ...

    def begin_drain(self) -> None:
        """Start nothing new from now on, and return prefetched items; `stop` does the rest."""
        ...

    def stop(self, *, drain: Duration | None = None) -> dict[str, int]:
        """Drain: start nothing new, let running items finish within `drain`, and return the others at once.

        `drain`: seconds or a `timedelta`; None: the setting `drain_ms`.
        """
        ...


@dataclass(frozen=True, slots=True)
class AppOpening:
    """Opens the application in an actor's process: imports it by its name, and configures it."""

    reference: str
    directory: str
    config: Config
    variables: Mapping[str, str] = field(default_factory=otel_environment.otel_variables, repr=False)
    """OpenTelemetry's variables of the process that starts the fleet: a cluster's nodes have other environments. Never
    shown: they may hold a collector's key."""

    def __call__(self) -> Resources:
        """Load the application in this process and open what it works with."""
        if self.directory not in sys.path:
            sys.path.insert(0, self.directory)
        app = load_app(self.reference)
        app.configure(self.config)
        return open_for_actors(app, ProcessExports(self.variables, log_level=self.config.log_level))


class RayFleet:
    """A consumer of Ray actors, and this process's connection to the cluster."""

    def __init__(self, consumer: "RayConsumer", disconnect: Callable[[], None]) -> None:
        self._consumer = consumer
        self._disconnect = disconnect

    def pids(self) -> dict[str, list[int]]:
        """Return the process ids of the actors by role; one that is being restarted has none."""
        return self._consumer.pids()

    def counts(self) -> dict[str, int]:
        """See `Fleet`."""
        return self._consumer.counts()

    def readings(self) -> dict[str, Reading]:
        """See `Fleet`."""
        return self._consumer.readings()

    def check(self) -> None:
        """See `Fleet`."""
        self._consumer.check()
        if not self._consumer.is_node_alive():
            raise FleetLost

    def begin_drain(self) -> None:
        """See `Fleet`."""
        self._consumer.begin_drain()

    def stop(self, *, drain: Duration | None = None) -> dict[str, int]:
        """See `Fleet`. Disconnects from the cluster; a cluster that this process started ends."""
        try:
            return self._consumer.stop(drain=drain)
        finally:
            self._disconnect()


def start(app: App, reference: str, *, runtime: str, address: str | None = None, show_output: bool = True) -> Fleet:
    """Start a consumer of `app`, which processes find as `reference` (`shop:app`), and return it running.

    Args:
      runtime: "ray" or "threads".
      address: of a Ray cluster to join; None: start Ray here.
      show_output: with Ray: whether the output of handlers in their actors appears here too.

    Raises:
      MemoryNeedsThreads: a shard is `memory:` and the runtime is Ray.
      NeedsRay: a handler is a Ray remote function and the runtime is threads.
      StoreUnavailable, ShardRefused: a store cannot be opened.
      RayMissing: the runtime is Ray, which is not installed.
      NoSuchExporter: the environment asks for an exporter that is not installed.
    """
    assert runtime in RUNTIMES
    otel_environment.check()
    if runtime == "threads":
        _refuse_ray_functions(app)
    identity = Identity(app.random.randbytes(8), socket.gethostname(), os.getpid(), app.clock.now_us())
    if runtime == "threads":
        return Consumer(open_for_actors(app, ProcessExports()), identity)
    open_for_actors(app)  # So that an error appears here once, and not in every actor.
    if any(url.startswith("memory:") for url in app.config.shards.values()):
        raise MemoryNeedsThreads(shards=dict(app.config.shards))
    # Imported when chosen: Ray takes a second to import, and most commands do without.
    try:
        from fairlead.actors.runtime import ray_host
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise RayMissing from None

    ray_host.connect(address or HERE, show_output=show_output)
    with ExitStack() as undo:
        undo.callback(ray_host.disconnect)
        consumer = ray_host.RayConsumer(AppOpening(reference, str(Path.cwd()), app.config), identity)
        undo.pop_all()
    return RayFleet(consumer, ray_host.disconnect)


def _refuse_ray_functions(app: App) -> None:
    """Raise NeedsRay now if threads would raise it for every item of a kind."""
    for handler in app.registry:
        if handler.form is Form.REMOTE:
            raise NeedsRay(kind=handler.kind, handler=describe(handler.function))


def open_for_actors(app: App, exports: Exports | None = None) -> Resources:
    """Open an application's shards and return what its actors work with; their telemetry goes to `exports`, if any.

    Raises:
      StoreUnavailable, ShardRefused: a store cannot be opened.
    """
    config = app.config
    app.serve_system_kinds()
    return Resources(
        shards={name: app.shards[name] for name in app.shards},
        settings=config.consumer,
        periods=app.periods,
        submitted=SubmittedHandlers(with_hold_handler(app.registry), config.signing_key.encode(), config.submissions),
        clock=app.clock,
        random=app.random,
        exports=exports or Exports(),
        externals=app.externals,
    )
