"""Steps: each happens exactly once, at home, on another tenant of the shard, and on another shard."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fairlead import Retry
from fairlead.actors.handlers import PermanentError
from fairlead.workflows import execution
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.errors import CheckpointLoop, EndedElsewhere
from fairlead.workflows.recorded_errors import StepFailed
from fairlead.zones.errors import TenantMoved
from fairlead.zones.pipelining import run_one
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.participants import clean_up_op
from tests.workflows.application import (
    ELSEWHERE,
    HOME,
    NEIGHBOUR,
    add,
    append,
    count,
    enqueue,
    kept_keys,
    number,
    run,
    two_shards,
    words,
)

PLACES = [HOME, NEIGHBOUR, ELSEWHERE]


@pytest.mark.parametrize("place", PLACES)
def test_a_step_happens_once_though_the_workflow_is_run_again_behind_it(place: str) -> None:
    app, fails = two_shards(), [True, True]

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=place)
        if fails:
            fails.pop()
            raise RuntimeError

    enqueue(app, "w")
    drained = run(app, within=60)
    assert (drained.retried["w"], drained.completed["w"]) == (2, 1)
    assert count(app, place, "done") == 1


@pytest.mark.parametrize("place", PLACES)
def test_a_replay_gets_the_answer_that_was_recorded(place: str) -> None:
    app, seen = two_shards(), []

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> int:
        seen.append(wf.step(add, "done", on=place))
        wf.sleep(1)
        return wf.step(add, "done", on=place)

    item = enqueue(app, "w")
    run(app, within=2)
    assert item.result(0) == 2
    assert set(seen) == {1}


def test_what_a_workflow_keeps_is_gone_after_its_end_but_for_the_tombstone() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for place in PLACES:
            wf.step(add, "done", on=place, name=place)

    enqueue(app, "w")
    run(app)
    assert kept_keys(app, HOME) == kept_keys(app, NEIGHBOUR) == []
    (fence,) = kept_keys(app, ELSEWHERE)
    assert len(fence) < 60


def test_a_name_may_be_enqueued_again_and_begins_a_run_of_its_own() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=ELSEWHERE)

    for _ in range(2):
        enqueue(app, "w", item_id="same")
        run(app)
    assert count(app, ELSEWHERE, "done") == 2


def test_the_last_step_commits_with_the_completion_and_the_result() -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext, order: int) -> str:
        wf.step(add, "done")
        return wf.finish(lambda tr, number: f"order {number}", order)

    item = enqueue(app, "w", {"order": 7})
    assert run(app).completed["w"] == 1
    assert item.result(0) == "order 7"
    assert kept_keys(app) == []


@pytest.mark.parametrize("suspended", [True, False])
def test_an_attempt_raises_the_fences_at_participants_unless_the_one_before_suspended_itself(suspended: bool) -> None:
    app, fences = two_shards(), []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=ELSEWHERE)
        there = app.tenant(ELSEWHERE)
        key = there.shard.layout.location(there.tenant, "queue").keys.tenant.fence(wf.run)
        fences.append(there.shard.transact(lambda attempt: attempt.tr.get(key).value))
        if suspended:
            wf.sleep(1)
        elif len(fences) == 1:
            raise RuntimeError

    enqueue(app, "w")
    run(app, within=60, replays=False)
    assert fences == [None, None if suspended else (2).to_bytes(8, "big")]


def test_the_last_step_needs_no_name() -> None:
    app = two_shards()
    app.workflow("w")(lambda wf: wf.finish(partial(add, name="done")))
    enqueue(app, "w")
    assert run(app).completed["w"] == 1


def test_a_participant_that_has_moved_is_no_failure_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    app, ask, moves = two_shards(), participants.ask_op, [True]

    def ask_op(*args: Any) -> Any:
        if moves:
            moves.pop()
            raise TenantMoved(app="shop", user="u1")
        return (yield from ask(*args))

    monkeypatch.setattr(participants, "ask_op", ask_op)
    app.workflow("w", retry=Retry(attempts=1))(lambda wf: wf.step(add, "done", on=ELSEWHERE))
    enqueue(app, "w")
    assert run(app, within=10).completed["w"] == 1


def test_a_step_that_fails_changes_nothing_and_is_done_by_a_later_attempt() -> None:
    app, fails = two_shards(), [True, True, True]

    def flaky(tr: TenantTransaction) -> None:
        add(tr, "done")
        if fails:
            fails.pop()
            raise RuntimeError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before")
        wf.step(flaky)

    enqueue(app, "w")
    assert run(app, within=60).retried["w"] == 3
    assert (count(app, HOME, "before"), count(app, HOME, "done")) == (1, 1)


def test_failures_count_from_the_last_step_that_was_done() -> None:
    """Ten steps that fail once each use up no more tries than one that fails once."""
    app, failed = two_shards(), set()

    def flaky(tr: TenantTransaction, number: int) -> None:
        if number not in failed:
            failed.add(number)
            raise RuntimeError

    @app.workflow("w", retry=Retry(attempts=2))
    def work(wf: WorkflowContext) -> None:
        for each in range(10):
            wf.step(flaky, each)

    enqueue(app, "w")
    assert run(app, within=3600).completed["w"] == 1


def test_a_step_tries_again_by_its_own_policy_within_an_attempt() -> None:
    app, fails = two_shards(), [True, True]

    def flaky(tr: TenantTransaction) -> None:
        if fails:
            fails.pop()
            raise RuntimeError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(flaky, retry=Retry(attempts=3, backoff=1))

    enqueue(app, "w")
    drained = run(app, within=60)
    assert (drained.retried["w"], drained.suspended["w"], drained.completed["w"]) == (0, 0, 1)


def test_a_long_backoff_of_a_step_holds_no_slot_and_is_not_forgotten() -> None:
    app, tries = two_shards(), []

    def flaky(tr: TenantTransaction) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(flaky, retry=Retry(attempts=3, backoff=60))

    enqueue(app, "w")
    drained = run(app, within=600)
    assert (drained.suspended["w"], drained.completed["w"], len(tries)) == (2, 1, 3)


def test_a_step_gives_up_so_long_after_its_first_try() -> None:
    app, tries = two_shards(), []

    def broken(tr: TenantTransaction) -> None:
        tries.append(app.clock.now_us())
        raise RuntimeError

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        wf.sleep(3600)
        try:
            wf.step(broken, retry=Retry(attempts=None, backoff=1, backoff_max=60, give_up_after=300))
        except StepFailed:
            return "gave up"
        return "?"

    item = enqueue(app, "w")
    run(app, within=7200)
    assert item.result(0) == "gave up"
    assert 200_000_000 < tries[-1] - tries[0] <= 300_000_000


@pytest.mark.parametrize("is_woken", [True, False])
def test_the_time_in_which_a_run_waits_is_no_time_of_its_retries(is_woken: bool) -> None:
    app, tries = two_shards(), []

    def broken(tr: TenantTransaction) -> None:
        tries.append(app.clock.now_us())
        raise RuntimeError

    @app.workflow("w", retry=Retry(attempts=None, backoff=1, backoff_max=60, give_up_after=300))
    def work(wf: WorkflowContext) -> None:
        wf.wait_for("go", 7200, default=None)
        wf.step(broken)

    item = enqueue(app, "w")
    run(app, within=3600)
    if is_woken:
        item.signal("go")
    assert run(app, within=7200).dead_lettered["w"] == 1
    assert 200_000_000 < tries[-1] - tries[0] <= 300_000_000


@pytest.mark.parametrize("place", PLACES)
def test_an_error_that_is_recorded_is_the_same_in_every_replay(place: str) -> None:
    app = two_shards()

    def refuse(tr: TenantTransaction) -> None:
        raise PermanentError("sold out")

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        try:
            wf.step(refuse, on=place)
        except PermanentError as error:
            text = f"{type(error).__name__}: {error}"
        wf.step(add, "after")
        return text

    item = enqueue(app, "w")
    run(app)
    assert item.result(0) == "PermanentError: sold out"
    assert count(app, HOME, "after") == 1


def test_a_step_whose_tries_are_used_up_raises_an_error_that_the_workflow_may_catch() -> None:
    app = two_shards()

    def broken(tr: TenantTransaction) -> None:
        raise RuntimeError("no route")

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        try:
            wf.step(broken, retry=Retry(attempts=2, backoff=0.1))
        except StepFailed as error:
            return str(error)
        return "?"

    item = enqueue(app, "w")
    run(app, within=10)
    assert item.result(0) == "step 'broken' failed: RuntimeError: no route"


def test_any_other_error_cannot_be_caught_by_the_workflow() -> None:
    app, caught, fails = two_shards(), [], [True]

    def flaky(tr: TenantTransaction) -> None:
        if fails:
            fails.pop()
            raise RuntimeError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        try:
            wf.step(flaky)
        except Exception as error:  # noqa: BLE001
            caught.append(error)

    enqueue(app, "w")
    drained = run(app, within=60)
    assert (drained.retried["w"], drained.completed["w"], caught) == (1, 1, [])


def test_a_read_is_recorded_with_the_next_step() -> None:
    app, fails = two_shards(), [True]
    app.tenant(HOME).transact(lambda tr: add(tr, "stock"))

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> int:
        stock = wf.read(lambda tr: number(tr.get(("stock",))), name="stock")
        wf.step(add, "stock")
        if fails:
            fails.pop()
            raise RuntimeError
        return stock

    item = enqueue(app, "w")
    run(app, within=60)
    assert item.result(0) == 1


def test_what_is_pending_may_be_more_than_fits_into_one_transaction() -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> int:
        reads = [wf.read(lambda tr: b"x" * 60_000, name="read") for _ in range(200)]
        wf.step(add, "after")
        return len(reads)

    item = enqueue(app, "w")
    run(app, replays=False)
    assert item.result(0) == 200


def test_a_run_goes_on_from_its_checkpoint_and_forgets_the_steps_before() -> None:
    app, starts = two_shards(), []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        begin = wf.state or 0
        starts.append(begin)
        for each in range(begin, 6):
            wf.step(append, str(each))
            wf.step(append, f"e{each}", on=ELSEWHERE)
            if each % 2:
                wf.sleep(1)
                wf.checkpoint(each + 1)

    enqueue(app, "w")
    assert run(app, within=60).completed["w"] == 1
    assert words(app) == "0 1 2 3 4 5"
    assert words(app, ELSEWHERE) == "e0 e1 e2 e3 e4 e5"
    assert set(starts) == {0, 2, 4, 6}


def test_time_and_chance_are_the_same_in_every_replay() -> None:
    app, seen = two_shards(), []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        first = (wf.now(), wf.random(), wf.uuid())
        wf.step(add, "done")
        seen.append((*first, wf.now(), wf.random()))
        wf.sleep(60)
        wf.step(add, "done")

    enqueue(app, "w")
    run(app, within=120)
    assert len(seen) > 2
    assert len(set(seen)) == 1


def test_a_checkpoint_at_the_start_of_every_replay_is_made_once() -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> Any:
        wf.checkpoint({"begun": True})
        wf.step(append, "a")
        wf.sleep(60)
        wf.step(append, "b")
        return wf.state

    item = enqueue(app, "w")
    drained = run(app, within=61)
    assert (drained.errors, item.result(0), words(app)) == ([], {"begun": True}, "a b")


@pytest.mark.parametrize("has_step", [True, False])
def test_checkpoints_without_end_are_an_error_of_the_drain(has_step: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "CHECKPOINTS_REPLAYED_MAX", 20)
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.checkpoint(0)  # Sets back what the loop has reached.
        for each in range(wf.state, 3):
            if has_step:
                wf.step(append, "a")
            wf.checkpoint(each + 1)

    enqueue(app, "w")
    drained = run(app)
    assert isinstance(drained.errors[0], CheckpointLoop)
    assert (drained.errors[0].fields["checkpoints"], drained.dead_lettered["w"]) == (20, 1)


def test_time_does_not_go_back_at_a_checkpoint_or_when_the_clock_does() -> None:
    app, times, set_back = two_shards(), [], [-1800]

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for each in range(wf.state or 0, 3):
            times.append(wf.now())
            wf.sleep(3600)
            if set_back:
                app.clock.advance(set_back.pop())  # type: ignore[attr-defined]
            wf.step(add, "done")
            times.append(wf.now())
            wf.checkpoint(each + 1)
            times.append(wf.now())

    enqueue(app, "w")
    assert run(app, within=36_000, replays=False).completed["w"] == 1
    assert times == sorted(times)
    assert (times[-1] - times[0]).total_seconds() >= 3600


def test_a_run_whose_home_was_restored_is_a_dead_letter_if_another_shard_knows_that_it_has_ended() -> None:
    app, ended = two_shards(), []

    def end_there(tr: TenantTransaction, run_id: bytes) -> None:
        there = app.tenant(ELSEWHERE)
        keys = there.shard.layout.location(there.tenant, "queue").keys.tenant
        there.shard.transact(
            lambda attempt: run_one(
                clean_up_op(attempt.tr, there.shard.layout, there.tenant, keys, run_id, now_us=attempt.now_us)
            )
        )
        ended.append(run_id)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=ELSEWHERE)
        wf.step(end_there, wf.run)
        wf.step(add, "done", on=ELSEWHERE)

    enqueue(app, "w")
    drained = run(app, replays=False)
    assert (len(ended), drained.dead_lettered["w"]) == (1, 1)
    assert isinstance(drained.errors[0], EndedElsewhere)
    assert count(app, ELSEWHERE, "done") == 1
