"""What `fairlead run` tells of its fleet as a whole: its actors' counts, and what the stores hold, in one place."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from fairlead.actors.runtime.supervisor import ActorFailed
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.enqueue_counts import ENQUEUE_COUNTS
from fairlead.actors.telemetry.metrics import (
    DEPTH,
    EXTERNAL_DEAD_LETTERS,
    EXTERNAL_DEAD_ROWS,
    EXTERNAL_DEPTH,
    EXTERNAL_OLDEST_AGE,
    EXTERNAL_READER_LAG,
    EXTERNAL_UNSEEN,
    EXTERNAL_UP,
    HELD_BACK,
    HELD_BACK_AGE,
    MOVES,
    MOVES_COPIED,
    OLDEST_AGE,
    Metric,
)
from fairlead.actors.telemetry.record_counts import RECORD_COUNTS
from fairlead.app import App
from fairlead.fleet import Fleet
from fairlead.move_views import MovesUnderWay, moves_under_way
from fairlead.queries.external_stores import ExternalStatus, read_externals
from fairlead.telemetry.exports import ProcessExports
from fairlead.zones.layout import ShardLayout
from fairlead.zones.policy.policies import read_policies
from fairlead.zones.top_level import depth as depths
from fairlead.zones.top_level.depth import Backlog
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.telemetry")

# Who tells what the stores hold, and what this process enqueues: with threads its handlers, where actors tell the rest.
STORES, PROCESS = "stores", "process"


class FleetMetrics:
    """The fleet of this process, once it has started, and the stores of its application."""

    def __init__(self, app: App) -> None:
        self.fleet: Fleet | None = None
        self._app = app
        self._failure: str | None = None

    def fail(self, reason: str, error: BaseException) -> None:
        """Note that a loop of the front died. Logs the error with its traceback."""
        log.critical("%s", reason, exc_info=error)
        self._failure = reason

    def check(self) -> None:
        """Say nothing if the metrics of the front are still exported.

        Raises:
          ActorFailed: the loop that exports them died of an error.
        """
        if self._failure is not None:
            raise ActorFailed(reason=self._failure)

    def readings(self) -> dict[str, Reading]:
        """Return what the actors count, by their names, and what the stores hold. One that does not answer is out."""
        of_actors = {} if self.fleet is None else dict(self.fleet.readings())
        return {**of_actors, STORES: self.read_stores(), PROCESS: ENQUEUE_COUNTS.read() + RECORD_COUNTS.read()}

    def read_stores(self) -> Reading:
        """Return depths, oldest ages and moves of every store that can be read. Bounded reads."""
        reading = Reading()
        for name, shard in self._app.shards.items():
            try:
                depth, waits, moves, now_us = shard.transact(partial(_read_store, layout=shard.layout))
            except shard.db.errors:  # The fleet says so, and the others' are still worth to be told.
                continue
            for kind, count in depth.items():
                reading.numbers[DEPTH.name, (name, kind)] = count
            reading.numbers[OLDEST_AGE.name, (name,)] = _age_s(waits.oldest_us, now_us)
            reading.numbers[HELD_BACK.name, (name,)] = waits.blocked_items
            reading.numbers[HELD_BACK_AGE.name, (name,)] = _age_s(waits.blocked_oldest_us, now_us)
            reading.numbers[MOVES.name, (name,)] = moves.number
            reading.numbers[MOVES_COPIED.name, (name,)] = moves.copied_bytes
        for status in read_externals(self._app.shards, self._app.externals):
            reading.numbers.update(_external_numbers(status))
        return reading


@contextmanager
def export_fleet_metrics(app: App) -> Iterator[FleetMetrics]:
    """Tell of a fleet, which the caller puts into what this yields, where the configuration and the environment say so.

    Raises:
      EndpointRefused: the port cannot be had.
    """
    fleet_metrics = FleetMetrics(app)
    exports = ProcessExports()
    exports.add(STORES, fleet_metrics.read_stores, fleet_metrics.fail)
    try:
        if app.config.metrics_port:
            from fairlead.telemetry import prometheus

            with prometheus.endpoint(app.config.metrics_host, app.config.metrics_port, fleet_metrics.readings):
                yield fleet_metrics
        else:
            yield fleet_metrics
    finally:
        exports.close()


def _read_store(attempt: Attempt, layout: ShardLayout) -> tuple[dict[str, int], Backlog, MovesUnderWay, int]:
    tr, now_us = attempt.tr, attempt.now_us
    paused = read_policies(tr).shard_paused
    backlog = depths.backlog(tr, layout, now_us, paused=paused)
    return depths.depth(tr, layout).kinds, backlog, moves_under_way(tr), now_us


def _external_numbers(status: ExternalStatus) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the numbers of an external store; of one that cannot be read only that."""
    totals = status.totals
    found: dict[Metric, float] = {EXTERNAL_UP: float(totals is not None)}
    if totals is not None:
        found |= {
            EXTERNAL_DEPTH: totals.items,
            EXTERNAL_OLDEST_AGE: (totals.waits_us or 0) / 1e6,
            EXTERNAL_UNSEEN: totals.unseen_items,
            EXTERNAL_READER_LAG: (totals.unseen_us or 0) / 1e6,
            EXTERNAL_DEAD_LETTERS: totals.dead_letters,
            EXTERNAL_DEAD_ROWS: totals.dead_rows,
        }
    return {(metric.name, (status.name,)): number for metric, number in found.items()}


def _age_s(since_us: int | None, now_us: int) -> float:
    return 0 if since_us is None else (now_us - since_us) / 1e6
