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
