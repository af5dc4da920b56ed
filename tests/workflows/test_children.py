"""Children: jobs and workflows whose ends a run waits for."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead import App, Job, Retry
from fairlead.actors.handlers import PermanentError
from fairlead.workflows.child_jobs import UNFINISHED
from fairlead.workflows.context import WorkflowContext, child
from fairlead.workflows.errors import CallRefused, CallTimeout
from fairlead.workflows.run_log import RunLog
from fairlead.zones.errors import BadArgument, ItemFailed
from tests.workflows.application import ELSEWHERE, HOME, NEIGHBOUR, add, count, enqueue, run, two_shards


def with_children(app: App) -> None:
    @app.handler("double")
    def double(job: Job) -> int:
        return int(job.payload["n"]) * 2

    @app.handler("bad", retry=Retry(attempts=2, backoff=1))
    def bad(job: Job) -> None:
        raise ValueError("no")

    @app.workflow("nested")
    def nested(wf: WorkflowContext, n: int) -> Any:
        return wf.call("double", {"n": wf.call("double", {"n": n})})


def result_of(app: App, work: Any, within: float = 60) -> Any:
    app.workflow("w", keep_result=60)(work)
    item = enqueue(app, "w")
    run(app, within=within)
    return item.result(0)


@pytest.mark.parametrize("place", [HOME, NEIGHBOUR, ELSEWHERE])
@pytest.mark.parametrize("kind, result", [("double", 42), ("nested", 84)])
def test_a_call_returns_the_result_of_its_child(place: str, kind: str, result: int) -> None:
    app = two_shards()
    with_children(app)
    assert result_of(app, lambda wf: wf.call(kind, {"n": 21}, on=place)) == result


@pytest.mark.parametrize("place", [HOME, NEIGHBOUR, ELSEWHERE])
def test_a_drain_lets_the_50_ms_pass_after_which_a_parent_of_several_children_is_woken(place: str) -> None:
    app = two_shards()
    with_children(app)
    app.workflow("w")(lambda wf: wf.gather([child("double", {"n": n}, on=place) for n in range(3)]))
    enqueue(app, "w")
    assert run(app).completed["w"] == 1


def test_a_child_that_fails_for_good_raises_an_error_that_can_be_caught() -> None:
    app = two_shards()
    with_children(app)

    def work(wf: WorkflowContext) -> Any:
        try:
            wf.call("bad")
        except ItemFailed as error:
            return error.fields["error"]

    assert result_of(app, work) == "ValueError: no"


def test_a_child_that_fails_for_good_and_is_not_caught_fails_its_parent_once() -> None:
    app = two_shards()
    with_children(app)
    app.workflow("w")(lambda wf: wf.call("bad"))
    enqueue(app, "w")
    assert run(app, within=3600).dead_lettered["w"] == 1


def test_children_run_side_by_side_and_their_results_come_in_the_order_of_the_calls() -> None:
    app = two_shards()
    with_children(app)
    places = [HOME, NEIGHBOUR, ELSEWHERE] * 3
    calls = [child("double", {"n": n}, on=place) for n, place in enumerate(places)]
    assert result_of(app, lambda wf: wf.gather(calls)) == [2 * n for n in range(9)]


def test_the_results_of_all_children_may_be_more_than_fits_into_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, suspend, fails = two_shards(), RunLog.suspend, [True]
    app.handler("long")(lambda job: b"x" * 60_000)

    def failing(run_log: RunLog, *args: Any) -> Any:
        if fails:  # The next attempt finds that all children have ended.
            fails.clear()
            raise RuntimeError
        return suspend(run_log, *args)

    monkeypatch.setattr(RunLog, "suspend", failing)

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> int:
        results = wf.gather([child("long") for _ in range(200)])
        wf.step(add, "after")
        return len(results)

    item = enqueue(app, "w")
    run(app, within=60, replays=False)
    assert item.result(0) == 200


def test_a_run_may_wait_for_more_children_than_its_record_can_name() -> None:
    app, kind = two_shards(), "x" * 90
    app.handler(kind)(lambda job: 1)
    app.workflow("w", keep_result=60)(lambda wf: sum(wf.gather([child(kind, delay=60) for _ in range(1_200)])))
    item = enqueue(app, "w")
    run(app, within=30, replays=False)
    assert run(app, within=60, replays=False).suspended["w"] < 20
    assert item.result(0) == 1_200


def test_a_gather_that_needs_some_returns_once_so_many_have_succeeded() -> None:
    app = two_shards()
    with_children(app)

    def work(wf: WorkflowContext) -> Any:
        calls = [child("double", {"n": 1}), child("bad"), child("double", {"n": 3}, delay=3600)]
        return [repr(each)[:10] for each in wf.gather(calls, at_least=1)]

    result = result_of(app, work)
    assert (result[0], result[2]) == ("2", repr(UNFINISHED))


def test_a_gather_fails_once_too_few_can_succeed() -> None:
    app = two_shards()
    with_children(app)

    def work(wf: WorkflowContext) -> Any:
        try:
            wf.gather([child("bad"), child("bad"), child("double", {"n": 3}, delay=3600)], at_least=2)
        except ItemFailed:
            return "failed"

    assert result_of(app, work) == "failed"


def test_a_call_ends_with_its_timeout_and_the_child_goes_on() -> None:
    app = two_shards()
    with_children(app)

    def work(wf: WorkflowContext) -> Any:
        try:
            wf.call("double", {"n": 1}, delay=60, timeout=5)
        except CallTimeout as error:
            return error.timeout_s

    assert result_of(app, work, within=30) == 5
    assert run(app, within=60).completed["double"] == 1


def test_a_gather_that_has_timed_out_does_not_wait_again_in_a_replay() -> None:
    app, starts = two_shards(), []
    with_children(app)

    def work(wf: WorkflowContext) -> Any:
        starts.append(app.clock.now_us())
        try:
            wf.gather([child("double", {"n": n}, delay=3600) for n in range(3)], at_least=1, timeout=5)
        except CallTimeout:
            wf.step(add, "after")
        wf.sleep(1)
        return "timed out"

    begun_us = app.clock.now_us()
    assert result_of(app, work, within=30) == "timed out"
    assert starts[-1] - begun_us < 10_000_000


def test_the_deadline_of_a_gather_stands_though_an_attempt_fails_between_two_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, suspend, fails = two_shards(), RunLog.suspend, [False, True, False]
    with_children(app)

    def failing(run_log: RunLog, *args: Any) -> Any:
        if fails and fails.pop(0):
            raise RuntimeError
        return suspend(run_log, *args)

    monkeypatch.setattr(RunLog, "suspend", failing)

    def work(wf: WorkflowContext) -> Any:
        try:
            wf.gather([child("double", {"n": n}, delay=delay) for n, delay in enumerate([30, 3600])], timeout=60)
        except CallTimeout:
            return (app.clock.now_us() - begun_us) // 1_000_000

    begun_us = app.clock.now_us()
    assert 60 <= result_of(app, work, within=200) < 65


@pytest.mark.parametrize("at_least", [-1, 2])
def test_a_gather_cannot_need_more_children_than_there_are(at_least: int) -> None:
    app = two_shards()
    with_children(app)
    app.workflow("w")(lambda wf: wf.gather([child("double", {"n": 1})], at_least=at_least))
    enqueue(app, "w")
    assert isinstance(run(app).errors[0], BadArgument)


def test_a_child_needs_an_id_that_no_other_item_has() -> None:
    app = two_shards()
    with_children(app)
    app.tenant(HOME).enqueue("double", {"n": 1}, item_id="taken", delay=60)
    app.workflow("w")(lambda wf: wf.call("double", {"n": 1}, item_id="taken"))
    enqueue(app, "w")
    drained = run(app)
    assert drained.dead_lettered["w"] == 1
    assert isinstance(drained.errors[0], CallRefused)


def test_an_undone_parent_leaves_another_item_of_its_childs_name_alone() -> None:
    app = two_shards()
    with_children(app)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done")
        with pytest.raises(CallTimeout):
            wf.call("double", {"n": 1}, item_id="mine", delay=10, timeout=1)
        wf.sleep(60)
        raise PermanentError

    enqueue(app, "w")
    run(app, within=30)
    app.tenant(HOME).enqueue("double", {"n": 2}, item_id="mine", delay=3600)
    assert run(app, within=120).dead_lettered["w"] == 1
    assert app.tenant(HOME).count() == {"double": 1}


@pytest.mark.parametrize("shard", ["a", "b"])
def test_a_local_workflow_waits_for_no_child_that_could_not_report_its_end(shard: str) -> None:
    app = two_shards()
    with_children(app)
    app.workflow("w")(lambda wf: wf.call("double", {"n": 1}, on=HOME))
    app.enqueue_local("w", shard=shard)
    drained = run(app, within=10)
    refused = [error for error in drained.errors if isinstance(error, BadArgument)]
    assert (drained.completed["w"], bool(refused)) in [(1, False), (0, True)]


@pytest.mark.parametrize("shard", ["a", "b"])
def test_an_undone_local_workflow_cancels_its_children_on_any_shard(shard: str) -> None:
    app = two_shards()
    with_children(app)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=wf.tenant)
        wf.call("double", {"n": 1}, delay=3600, timeout=60)

    app.enqueue_local("w", shard=shard)
    drained = run(app, within=7200)
    assert (drained.dead_lettered["w"], drained.completed["double"]) == (1, 0)


def test_an_undone_parent_cancels_its_children() -> None:
    app = two_shards()
    with_children(app)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done")
        wf.call("double", {"n": 1}, delay=3600, on=ELSEWHERE, timeout=60)

    enqueue(app, "w")
    drained = run(app, within=7200)
    assert (drained.dead_lettered["w"], drained.completed["double"]) == (1, 0)
    assert app.tenant(ELSEWHERE).count() == {}
    assert count(app, HOME, "done") == 1
