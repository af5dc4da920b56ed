"""A worker reports the end of a child job to the workflow that called it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.records import Parent
from fairlead.zones.workflow.children import ChildResult, ChildState, child_result_op
from tests.actors.stage import ALICE, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def returns_data(job: Job, *_: object) -> dict[str, int]:
    return {"order": 7}


def fails(job: Job) -> None:
    raise ValueError("no such order")


def returns_an_object(job: Job) -> object:
    return object()


def reported(stage: Stage, function: Any, **options: Any) -> ChildResult:
    """Run a child of a call in a worker, and return what is reported of it."""
    worker = stage.worker([stage.handler("mail", function, retry=Retry(attempts=1), **options)])
    parent, child = stage.enqueue("flow"), stage.enqueue("mail")
    stage.change(child, parent=Parent(*ALICE, "queue", parent, parent, "mail", 0))
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    location = stage.shard.layout.location(ALICE, "queue")
    found = stage.shard.transact(lambda attempt: run_one(child_result_op(attempt.tr, location, parent, "mail", 0)))
    assert found is not None
    return found


@pytest.mark.parametrize("options", [{}, {"keep_result": 60}, {"transactional": True}], ids=str)
def test_what_a_child_returned_is_reported_whether_its_kind_keeps_results_or_not(stage: Stage, options: Any) -> None:
    found = reported(stage, returns_data, **options)
    assert (found.state, unpack_payload(found.result)) == (ChildState.COMPLETED, {"order": 7})


def test_a_child_that_failed_for_good_is_reported_with_its_error(stage: Stage) -> None:
    found = reported(stage, fails)
    assert (found.state, found.error, found.result) == (ChildState.FAILED, "ValueError: no such order", b"")
    assert len(stage.dead_letters()) == 1


def test_a_child_that_is_dropped_is_reported_with_its_error(stage: Stage) -> None:
    found = reported(stage, fails, drop=True)
    assert (found.state, found.error) == (ChildState.DROPPED, "ValueError: no such order")


def test_a_child_whose_result_cannot_be_reported_has_failed(stage: Stage) -> None:
    found = reported(stage, returns_an_object)
    assert found.state == ChildState.FAILED
    assert "cannot be kept" in found.error
