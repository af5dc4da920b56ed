"""One event, one counter: the worker's totals, telemetry, and the hourly history show the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import PermanentError
from fairlead.actors.telemetry.errors import GIVEN_UP
from fairlead.actors.telemetry.metrics import CONSUMED, DURATION, FAILED, OUTCOME_METRICS
from fairlead.actors.worker import Worker
from fairlead.zones.reporting import rollups
from fairlead.zones.reporting.rollups import INTERVAL_US, Interval, KindRollup
from fairlead.zones.shard import Shard
from tests.actors.stage import ALICE, MS, Stage

KINDS = tuple(OUTCOME_METRICS)  # Named after the outcomes of their items.
RUN_MS = 200


@pytest.fixture
def stage() -> Stage:
    return Stage()


def worker_of(stage: Stage, *, shards: dict[str, Shard] | None = None) -> Worker:
    """Start a worker that knows the kinds."""

    def handle(job: Job) -> None:
        stage.sleep_ms(RUN_MS)
        if job.kind in ("dead_lettered", "dropped"):
            raise PermanentError("no")
        if job.kind == "retried":
            raise ConnectionError("no")
        if job.kind in ("suspended", "cancelled", "returned"):  # As a workflow that has committed its item's end.
            job.transact(job.complete_in)
            job.completed, job.committed_end = False, job.kind

    handlers = [stage.handler(kind, handle, drop=kind == "dropped") for kind in KINDS]
    return stage.worker(handlers, shards=shards, slots=len(KINDS))


def run_round(stage: Stage, worker: Worker, shard: Shard) -> None:
    """Let a worker run an item of each kind."""
    ids = {kind: stage.enqueue(kind, shard=shard) for kind in KINDS}
    stage.place(worker, stage.lease(KINDS, shard=shard))
    cancel(shard, ids["lost"])
    stage.settled(worker)
    cancel(shard, ids["retried"])  # The next round leases only items of its own.


def cancel(shard: Shard, item_id: bytes) -> None:
    """Cancel an item, as its enqueuer may."""
    zone = shard.zone(ALICE)
    shard.transact(lambda attempt: zone.complete(attempt.tr, item_id, now_us=attempt.now_us))


def pass_until_before_a_boundary(stage: Stage, ms: int) -> None:
    """Let time pass until so long before the next interval begins."""
    stage.pass_ms((INTERVAL_US - stage.now_us % INTERVAL_US) / MS + INTERVAL_US / MS - ms)


def intervals_of(shard: Shard) -> list[Interval]:
    return shard.transact(lambda attempt: rollups.read(attempt.tr, now_us=attempt.now_us))


def in_worker(stage: Stage, worker: Worker) -> dict[str, int]:
    """Return how many items had each outcome, by the worker's own counts."""
    return {outcome: count for outcome, count in stage.do(worker.counts).items() if outcome in OUTCOME_METRICS}


def in_telemetry(stage: Stage) -> dict[str, int]:
    """Return the same by what Prometheus reads."""
    names = {metric.name: outcome for outcome, metric in OUTCOME_METRICS.items()}
    found: Counter[str] = Counter()
    for (name, _), count in stage.host.telemetry.read().numbers.items():
        if name in names:
            found[names[name]] += round(count)
    return dict(found)


def in_history(shards: Iterable[Shard]) -> KindRollup:
    """Return the same by what the stores hold, with the handlers' time."""
    total = KindRollup()
    for shard in shards:
        for interval in intervals_of(shard):
            for rollup in interval.rollup.kinds.values():
                total.add(rollup)
    return total


def assert_all_show(stage: Stage, worker: Worker, shards: Iterable[Shard], *, each: int) -> None:
    """Assert that all three show each outcome so often, and telemetry and history the same handler time."""
    expected = dict.fromkeys(OUTCOME_METRICS, each)
    assert in_worker(stage, worker) == expected
    assert in_telemetry(stage) == expected
    history = in_history(shards)
    assert {outcome: getattr(history, outcome) for outcome in OUTCOME_METRICS} == expected
    reading = stage.host.telemetry.read()
    durations_s = sum(sum_s for (name, _), (_, sum_s) in reading.histograms.items() if name == DURATION.name)
    assert round(durations_s * 1e6) == history.run_us
    assert sum(count for (name, _), count in reading.numbers.items() if name == FAILED.name) == 3 * each


def test_each_outcome_shows_equally_in_the_worker_in_telemetry_and_in_the_history(stage: Stage) -> None:
    worker = worker_of(stage)
    run_round(stage, worker, stage.shard)
    stage.pass_ms(1_500)
    assert_all_show(stage, worker, [stage.shard], each=1)


def test_outcomes_on_both_sides_of_an_intervals_begin_show_once_each(stage: Stage) -> None:
    worker = worker_of(stage)
    run_round(stage, worker, stage.shard)
    pass_until_before_a_boundary(stage, RUN_MS + 100)
    run_round(stage, worker, stage.shard)
    run_round(stage, worker, stage.shard)
    stage.pass_ms(1_500)
    done = [sum(each.completed for each in one.rollup.kinds.values()) for one in intervals_of(stage.shard)]
    assert done == [1, 1, 1], "in the first interval, just before the last one, and in the last one"
    assert_all_show(stage, worker, [stage.shard], each=3)
    stage.pass_ms(3 * INTERVAL_US / MS)
    stage.shard.transact(lambda attempt: rollups.sum_up(attempt.tr, stage.shard.layout, now_us=attempt.now_us))
    assert_all_show(stage, worker, [stage.shard], each=3)


def test_outcomes_show_equally_after_the_store_has_refused_the_rollups(stage: Stage) -> None:
    worker = worker_of(stage)
    for _ in range(2):
        run_round(stage, worker, stage.shard)
        stage.store.full = True
        stage.pass_ms(1.2 * INTERVAL_US / MS)
        stage.store.full = False
    run_round(stage, worker, stage.shard)
    stage.pass_ms(1_500)
    assert_all_show(stage, worker, [stage.shard], each=3)


def test_outcomes_on_two_shards_show_in_the_history_of_their_own_and_in_one_sum_elsewhere(stage: Stage) -> None:
    _, other = stage.open_shard("other")
    shards = {"main": stage.shard, "other": other}
    worker = worker_of(stage, shards=shards)
    for shard in shards.values():
        run_round(stage, worker, shard)
    run_round(stage, worker, other)
    stage.pass_ms(1_500)
    assert in_history([stage.shard]).completed == 1
    assert in_history([other]).completed == 2
    assert_all_show(stage, worker, shards.values(), each=3)


def test_the_time_of_a_handler_that_was_given_up_is_the_same_in_telemetry_and_in_the_history(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: stage.sleep_ms(20_000), timeout=3)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    stage.pass_ms(30_000)
    reading = stage.host.telemetry.read()
    _, run_s = reading.histograms[DURATION.name, ("mail", GIVEN_UP)]
    assert round(run_s * 1e6) == in_history([stage.shard]).run_us > 0
    assert reading.numbers[CONSUMED.name, ("mail", GIVEN_UP)] == 1
    assert reading.numbers[CONSUMED.name, ("mail", "")] == 0
