"""Workflows in a worker: timeouts, lost leases, cancellations and refusals of the store while an attempt runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.actors.execution.retry import Retry
from fairlead.actors.worker import Worker
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.workflow_kind import WorkflowKind, workflow_handler
from tests.actors.stage import Stage
from tests.workflows.application import add


@pytest.fixture
def stage() -> Stage:
    return Stage()


def begin(stage: Stage, function: Callable[..., Any], **options: Any) -> tuple[Worker, bytes]:
    """Let a worker run a workflow; return both the worker and the item."""
    runner = WorkflowKind(function, version=1, home_of=lambda tenant: stage.shard)
    worker = stage.worker([workflow_handler("w", runner, **options)])
    item_id = stage.enqueue("w")
    stage.place(worker, stage.lease(["w"]))
    return worker, item_id


def test_an_effect_is_not_tried_again_once_its_item_is_lost(stage: Stage) -> None:
    """Otherwise the thread of an attempt that has ended long ago would call the provider for ever."""
    tries: list[int] = []

    def down(key: str) -> None:
        tries.append(stage.now_us)
        raise ConnectionError

    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before")
        wf.effect(down, retry=Retry(attempts=None, backoff=1, backoff_max=2))

    begun_us = stage.now_us
    begin(stage, work, timeout=10)
    stage.pass_ms(60_000)
    assert len(tries) > 3
    assert tries[-1] - begun_us < 12_000_000
    assert stage.recycled == []


def test_an_effect_is_not_tried_again_once_its_run_is_cancelled(stage: Stage) -> None:
    tries: list[int] = []

    def down(key: str) -> None:
        tries.append(stage.now_us)
        raise ConnectionError

    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before")
        wf.effect(down, retry=Retry(attempts=None, backoff=1, backoff_max=2))

    worker, item_id = begin(stage, work)
    stage.wait_for(lambda: len(tries) == 3)
    stage.change(item_id, cancelling=True)
    cancelled_us = stage.now_us
    assert stage.settled(worker)["cancelled"] == 1
    assert tries[-1] - cancelled_us < 4_000_000


def test_the_last_step_is_bounded_by_the_timeout_like_any_other(stage: Stage) -> None:
    def slow(tr: object) -> None:
        stage.sleep_ms(60_000)

    worker, _ = begin(stage, lambda wf: wf.finish(slow), timeout=3)
    stage.pass_ms(5_000)
    assert stage.do(worker.counts)["timed_out"] == 1
    assert stage.settled(worker)["retried"] == 1


def test_a_lease_is_kept_while_a_run_is_undone_that_was_cancelled_as_it_would_wait(stage: Stage) -> None:
    def slow(key: str) -> None:
        stage.sleep_ms(30_000)

    def work(wf: WorkflowContext) -> None:
        wf.effect(lambda key: None, name="pay", undo=slow)
        stage.change(wf.item_id, cancelling=True)
        wf.wait_for("go")

    worker, item_id = begin(stage, work)
    stage.pass_ms(20_000)
    record = stage.record(item_id)
    assert record is not None
    assert record.vesting_us > stage.now_us
    assert stage.settled(worker)["cancelled"] == 1


def test_a_lease_is_kept_though_the_store_refused_a_suspension(stage: Stage) -> None:
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before")
        stage.store.full = len(starts) == 0
        starts.append(stage.now_us)
        if len(starts) > 1:
            stage.sleep_ms(30_000)
        wf.wait_for("go")

    starts: list[int] = []
    worker, item_id = begin(stage, work, retry=Retry(in_line=1))
    stage.wait_for(lambda: starts)
    stage.pass_ms(100)
    stage.store.full = False
    stage.pass_ms(20_000)
    record = stage.record(item_id)
    assert record is not None
    assert record.vesting_us > stage.now_us
    assert stage.settled(worker)["suspended"] == 1


def test_an_effect_during_which_its_run_is_cancelled_is_undone(stage: Stage) -> None:
    """It has happened, though its answer is not recorded."""
    repaid: list[Any] = []

    def pay(key: str, item_id: bytes) -> str:
        stage.change(item_id, cancelling=True)
        return "paid"

    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before")
        wf.effect(pay, wf.item_id, undo=lambda key, item_id, result: repaid.append(result))

    worker, _ = begin(stage, work)
    assert stage.settled(worker)["cancelled"] == 1
    assert repaid == [None]
