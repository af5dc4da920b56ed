"""What a fleet counts for its metrics: items enqueued, and what became of them."""

from __future__ import annotations

import time

from fairlead import App, Job, PermanentError, Retry, fleet, new_item
from fairlead.actors.telemetry.enqueue_counts import ENQUEUE_COUNTS
from fairlead.actors.telemetry.metrics import SENT
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.live_consumers import eventually


def test_each_outcome_of_an_attempt_is_counted(app: App, alice: Queues) -> None:
    app.handler("done")(lambda job: None)

    @app.handler("retried", retry=Retry(attempts=2, backoff=0.01))
    def retried(job: Job) -> None:
        raise ValueError("no")

    @app.handler("dropped", drop=True)
    def dropped(job: Job) -> None:
        raise PermanentError("no")

    @app.handler("slow", timeout=0.2, retry=Retry(attempts=1))
    def slow(job: Job) -> None:
        while not job.cancelled:
            time.sleep(0.01)

    alice.enqueue_many(new_item(kind) for kind in ("done", "done", "retried", "dropped", "slow"))
    running = fleet.start(app, "tests:app", runtime="threads")
    try:
        eventually(lambda: alice.count() == {} and running.counts().get("held") == 0)
        counts = running.counts()
    finally:
        running.stop(drain=0.1)
    wanted = {"completed": 2, "retried": 1, "dead_lettered": 2, "dropped": 1, "timed_out": 1, "lost": 0}
    assert {outcome: counts.get(outcome, 0) for outcome in wanted} == wanted


def test_items_that_are_enqueued_are_counted_by_kind_and_those_that_are_present_are_not(alice: Queues) -> None:
    def sent() -> float:
        return ENQUEUE_COUNTS.read().numbers.get((SENT.name, ("counted", "")), 0)

    before = sent()
    alice.enqueue("counted", item_id="order 7")
    alice.enqueue("counted", item_id="order 7")
    alice.enqueue_many([new_item("counted")] * 3)
    assert sent() - before == 4
