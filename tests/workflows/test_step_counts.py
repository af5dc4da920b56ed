"""What a worker counts of the steps of its workflows: how each try ended, how long it took, and replays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fairlead import PermanentError
from fairlead.actors.execution.retry import Retry
from fairlead.actors.telemetry.metrics import REPLAYS, STEP_DURATION, STEPS, SUSPENDED
from fairlead.actors.worker import Worker
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.workflow_kind import WorkflowKind, workflow_handler
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.actors.stage import Stage
from tests.workflows.application import add


@pytest.fixture
def stage() -> Stage:
    return Stage()


def run(stage: Stage, function: Callable[..., Any], *, attempts: int = 1, **options: Any) -> Worker:
    """Let a worker run so many attempts at a workflow."""
    runner = WorkflowKind(function, version=1, home_of=lambda tenant: stage.shard)
    worker = stage.worker([workflow_handler("w", runner, **options)])
    stage.enqueue("w")
    for _ in range(attempts):
        stage.place(worker, stage.lease(["w"]))
        stage.settled(worker)
        stage.pass_ms(60_000)
    return worker


def tries(stage: Stage) -> dict[str, float]:
    """Return how many tries had each outcome."""
    numbers = stage.host.telemetry.read().numbers
    return {labels[1]: count for (name, labels), count in numbers.items() if name == STEPS.name}


def number(stage: Stage, name: str) -> float:
    return stage.host.telemetry.read().numbers.get((name, ("w",)), 0)


def refuse(tr: TenantTransaction) -> None:
    raise PermanentError("sold out")


def test_every_kind_of_step_that_got_a_result_is_counted_as_done(stage: Stage) -> None:
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.effect(lambda key: None, name="pay")
        wf.read(lambda tr: None, name="look")
        wf.enqueue("mail")
        wf.finish(add, "b")

    run(stage, work)
    assert tries(stage) == {"done": 5}


def test_a_step_whose_error_is_recorded_is_counted_as_failed_and_its_undos_are_steps(stage: Stage) -> None:
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=lambda tr, name: None)
        wf.effect(lambda key: None, name="pay", undo=lambda key: None)
        with suppress(PermanentError):
            wf.step(refuse, name="first")
        wf.finish(refuse)

    run(stage, work)
    assert tries(stage) == {"done": 4, "failed": 2}


def test_each_failed_try_of_a_step_that_is_tried_again_is_counted_as_retried(stage: Stage) -> None:
    fails = [ConnectionError(), ConnectionError(), TimeoutError()]

    def pay(key: str) -> None:
        if fails:
            raise fails.pop()

    run(stage, lambda wf: wf.effect(pay, retry=Retry(attempts=4, backoff=0.01)))
    assert tries(stage) == {"done": 1, "retried": 3}


def test_a_step_that_ends_an_attempt_is_counted_as_retried_and_what_replays_is_not_counted(stage: Stage) -> None:
    fails = [True]

    def ship(tr: TenantTransaction) -> None:
        if fails:
            fails.pop()
            raise ConnectionError

    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.step(ship)

    run(stage, work, attempts=2)
    assert tries(stage) == {"done": 2, "retried": 1}
    assert number(stage, REPLAYS.name) == 1


def test_an_effect_whose_answer_is_lost_is_counted_as_failed(stage: Stage) -> None:
    def pay(key: str) -> None:
        stage.store.full = True

    def work(wf: WorkflowContext) -> None:
        wf.effect(pay, once=True)

    runner = WorkflowKind(work, version=1, home_of=lambda tenant: stage.shard)
    worker = stage.worker([workflow_handler("w", runner)])
    stage.enqueue("w")
    stage.place(worker, stage.lease(["w"]))
    stage.wait_for(lambda: tries(stage) == {"retried": 1})
    stage.store.full = False
    stage.settled(worker)
    stage.pass_ms(60_000)
    stage.place(worker, stage.lease(["w"]))
    stage.settled(worker)
    assert tries(stage) == {"retried": 1, "failed": 1}


def test_a_wait_is_no_step_and_the_attempt_behind_it_is_a_replay(stage: Stage) -> None:
    run(stage, lambda wf: wf.sleep(30), attempts=2)
    assert tries(stage) == {}
    assert (number(stage, SUSPENDED.name), number(stage, REPLAYS.name)) == (1, 1)


def test_a_first_attempt_is_no_replay(stage: Stage) -> None:
    run(stage, lambda wf: wf.step(add, "a"))
    assert number(stage, REPLAYS.name) == 0


def test_a_try_lasts_from_its_beginning_to_its_end_without_the_pauses_between_tries(stage: Stage) -> None:
    fails = [True]

    def pay(key: str) -> None:
        stage.sleep_ms(200)
        if fails:
            fails.pop()
            raise ConnectionError

    run(stage, lambda wf: wf.effect(pay, retry=Retry(attempts=2, backoff=4)))
    histograms = stage.host.telemetry.read().histograms
    for outcome in ("done", "retried"):
        counts, sum_s = histograms[STEP_DURATION.name, ("w", outcome)]
        assert sum(counts) == 1
        assert 0.2 <= sum_s < 0.3


def test_names_of_steps_are_no_labels(stage: Stage) -> None:
    def work(wf: WorkflowContext) -> None:
        for at in range(50):
            wf.step(add, "a", name=f"reserve {at}")

    run(stage, work)
    reading = stage.host.telemetry.read()
    assert not [labels for _, labels in [*reading.numbers, *reading.histograms] if any("reserve" in x for x in labels)]
    assert tries(stage) == {"done": 50}
