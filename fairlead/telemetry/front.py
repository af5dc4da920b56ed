"""What `fairlead run` tells of its fleet as a whole: its actors' counts, and what the stores hold, in one place."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from actors.telemetry.metrics import DEPTH, OLDEST_AGE
from actors.telemetry.sent import LEDGER
from actors.telemetry.tally import Reading
from fairlead.app import App
from fairlead.fleet import Fleet
from fairlead.telemetry.exports import ProcessExports
from zones import depth as depths
from zones.attempt import Attempt
from zones.layout import Layout

# Who tells what the stores hold, and what this process enqueues: with threads its handlers, where actors tell the rest.
STORES, PROCESS = "stores", "process"


class Front:
    """The fleet of this process, once it has started, and the stores of its application."""

    def __init__(self, app: App) -> None:
        self.fleet: Fleet | None = None
        self._app = app

    def readings(self) -> dict[str, Reading]:
        """Return what the actors count, by their names, and what the stores hold. One that does not answer is out."""
        of_actors = {} if self.fleet is None else dict(self.fleet.readings())
        return {**of_actors, STORES: self.of_stores(), PROCESS: LEDGER.read()}

    def of_stores(self) -> Reading:
        """Return depth and oldest age of every shard that can be read. Snapshot reads; see `zones.depth`."""
        reading = Reading()
        for name, shard in self._app.shards.items():
            try:
                depth, age_us = shard.transact(partial(_depth_and_age_us, layout=shard.layout))
            except shard.db.errors:  # The fleet says so, and the others' are still worth to be told.
                continue
            for kind, count in depth.items():
                reading.numbers[DEPTH.name, (name, kind)] = count
            reading.numbers[OLDEST_AGE.name, (name,)] = age_us / 1e6
        return reading


@contextmanager
def front(app: App) -> Iterator[Front]:
    """Tell of a fleet, which the caller puts into what this yields, where the configuration and the environment say so.

    Raises:
      EndpointRefused: the port cannot be had.
    """
    telling = Front(app)
    exports = ProcessExports()
    exports.add(STORES, telling.of_stores)
    try:
        if app.config.metrics_port:
            from fairlead.telemetry import prometheus

            with prometheus.endpoint(app.config.metrics_host, app.config.metrics_port, telling.readings):
                yield telling
        else:
            yield telling
    finally:
        exports.close()


def _depth_and_age_us(attempt: Attempt, layout: Layout) -> tuple[dict[str, int], int]:
    since_us = depths.oldest_us(attempt.tr, layout, attempt.now_us)
    return depths.depth(attempt.tr, layout), 0 if since_us is None else attempt.now_us - since_us
