"""A transaction across shards as a step of a workflow happens once on every shard, whatever dies, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

import fairlead
from fairlead import App, PermanentError, Retry, StepFailed
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.run_log import _EntryAtHome
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT
from fairlead.zones.errors import LeaseLost
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.leftovers import list_prepared
from tests.simulation.mutations.mutation import Edit, Mutation
from tests.workflows.application import ELSEWHERE, HOME, NEIGHBOUR, count, enqueue, kept_keys, number, run, two_shards
from tests.zones.faults import Fault, FaultyDatabase

pytestmark = pytest.mark.usefixtures("engine")

PLACES = [HOME, NEIGHBOUR, ELSEWHERE]


class Killed(BaseException):
    """The process dies here."""


def die() -> None:
    raise Killed


def add_on_all(tx: SpanningTransaction, name: str = "across") -> int:
    """Count at all three tenants, two of them on another shard or beside the workflow's own; return the count."""
    for tenant in PLACES:
        tx.on(tenant).add((name,), 1)
    return number(tx.on(ELSEWHERE).get((name,)))


def subtract_on_all(tx: SpanningTransaction, name: str = "across") -> None:
    for tenant in PLACES:
        tx.on(tenant).add((name,), -1)


def counts(app: App, name: str = "across") -> list[int]:
    return [count(app, tenant, name) for tenant in PLACES]


def prepared(app: App) -> int:
    """Return what is prepared on all shards."""
    return sum(
        len(shard.transact(lambda attempt: list_prepared(attempt.tr, transactions_max=100)))
        for shard in app.shards.values()
    )


def with_faults(app: App) -> tuple[FaultyDatabase, FaultyDatabase]:
    """Return the stores of the workflow's shard and of the other one, whose commits may meet faults."""
    shards = [app.tenant(tenant).shard for tenant in (HOME, ELSEWHERE)]
    for shard in shards:
        shard.db = FaultyDatabase(shard.db)
    app.shards.calls.start = lambda call: call()  # type: ignore[method-assign]
    home, elsewhere = (shard.db for shard in shards)
    assert isinstance(home, FaultyDatabase)
    assert isinstance(elsewhere, FaultyDatabase)
    return home, elsewhere


def drain_to_its_end(app: App) -> None:
    """Run everything, also after the process has died."""
    try:
        run(app, within=3_600)
    except Killed:
        run(app, within=3_600)


@pytest.fixture
def app(engine: str) -> App:
    return two_shards()


def test_it_happens_once_on_all_shards_and_a_replay_returns_what_it_returned(app: App) -> None:
    results: list[tuple[Any, Any]] = []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        results.append((wf.transact(add_on_all), wf.transact(add_on_all)))
        wf.step(lambda tr: tr.set(("ended",), b""), name="end")

    enqueue(app, "w")
    assert run(app).errors == []
    assert counts(app) == [2, 2, 2]
    assert set(results) == {(1, 2)}
    assert (kept_keys(app), prepared(app)) == ([], 0)


def test_an_async_workflow_does_it_in_branches(app: App) -> None:
    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        first = wf.transact(add_on_all, "one", name="first")
        second = wf.transact(add_on_all, "two", name="second")
        assert list(await asyncio.gather(first, second)) == [1, 1]

    enqueue(app, "w")
    assert run(app).errors == []
    assert (counts(app, "one"), counts(app, "two")) == ([1, 1, 1], [1, 1, 1])


STAGES: dict[str, tuple[str, list[Fault | None]]] = {
    "before it prepares": ("elsewhere", [Fault(applied=False, then=die)]),
    "once it has prepared": ("elsewhere", [Fault(applied=True, then=die)]),
    "before it decides": ("home", [Fault(applied=False, then=die)]),
    "once it has decided": ("home", [Fault(applied=True, then=die)]),
    "before it applies": ("elsewhere", [None, Fault(applied=False, then=die)]),
    "once it has applied": ("elsewhere", [None, Fault(applied=True, then=die)]),
    "the result of its prepare is unknown, and it prepared": ("elsewhere", [Fault(applied=True)]),
    "the result of its prepare is unknown, and it did not": ("elsewhere", [Fault(applied=False)]),
    "the result of its decision is unknown, and it decided": ("home", [Fault(applied=True)]),
    "the result of its decision is unknown, and it did not": ("home", [Fault(applied=False)]),
    "the result of its apply is unknown, and it applied": ("elsewhere", [None, Fault(applied=True)]),
    "the result of its apply is unknown, and it did not": ("elsewhere", [None, Fault(applied=False)]),
}


@pytest.mark.parametrize("stage", STAGES)
def test_what_ends_the_attempt_between_two_commits_repeats_no_effect(app: App, stage: str) -> None:
    home, elsewhere = with_faults(app)
    where, faults = STAGES[stage]
    planted: list[bool] = []
    results: list[int] = []

    def body(tx: SpanningTransaction) -> int:
        result = add_on_all(tx)
        if not planted:
            planted.append(True)
            (home if where == "home" else elsewhere).faults.extend(faults)
        return result

    @app.workflow("w", keep_result=86_400)
    def work(wf: WorkflowContext) -> int:
        results.append(wf.transact(body, name="pay"))
        return wf.finish(lambda tr: 1)

    enqueue(app, "w", item_id="w")
    drain_to_its_end(app)
    assert app.tenant(HOME).item("w").result() == 1
    assert (counts(app), set(results)) == ([1, 1, 1], {1})
    assert (kept_keys(app), prepared(app)) == ([], 0)


def test_a_dead_executor_s_locks_are_aborted_at_once_by_the_next_one(app: App) -> None:
    _, elsewhere = with_faults(app)
    began_us: list[int] = []
    ended_us: list[int] = []

    def body(tx: SpanningTransaction) -> None:
        add_on_all(tx)
        if not began_us:
            elsewhere.faults.append(Fault(applied=True, then=die))
        began_us.append(app.clock.now_us())

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.transact(body)
        ended_us.append(app.clock.now_us())

    enqueue(app, "w")
    drain_to_its_end(app)
    assert counts(app) == [1, 1, 1]
    assert ended_us[0] - began_us[1] < 100_000


@pytest.mark.parametrize("applied", [True, False])
def test_at_home_only_it_is_one_commit_whose_unknown_result_the_entry_tells(app: App, applied: bool) -> None:
    home, _ = with_faults(app)
    runs: list[bool] = []

    def body(tx: SpanningTransaction) -> None:
        tx.on(HOME).add(("across",), 1)
        if not runs:
            home.faults.append(Fault(applied=applied, code=COMMIT_UNKNOWN_RESULT))
        runs.append(True)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.transact(body)

    enqueue(app, "w")
    assert run(app).errors == []
    assert count(app, HOME, "across") == 1
    assert len(runs) == (1 if applied else 2)


def test_a_run_that_fails_for_good_undoes_it_once_on_all_shards(app: App) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.transact(add_on_all, undo=subtract_on_all)
        wf.transact(add_on_all, "kept")
        raise PermanentError("as planned")

    enqueue(app, "w")
    run(app)
    assert (counts(app), counts(app, "kept")) == ([0, 0, 0], [1, 1, 1])


def test_its_own_retry_tries_it_again_and_its_last_error_is_recorded(app: App) -> None:
    tries: list[bool] = []

    def body(tx: SpanningTransaction) -> None:
        add_on_all(tx)
        tries.append(True)
        raise LookupError("as planned")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> str:
        with pytest.raises(StepFailed, match="as planned"):
            wf.transact(body, retry=Retry(attempts=3, backoff=0.001))
        wf.step(lambda tr: None, name="end")
        return "ended"

    enqueue(app, "w")
    assert run(app, within=60).completed["w"] == 1
    assert (len(tries), counts(app)) == (3, [0, 0, 0])


def test_a_permanent_error_of_its_body_is_recorded_and_changes_nothing(app: App) -> None:
    def body(tx: SpanningTransaction) -> None:
        add_on_all(tx)
        raise PermanentError("no money")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        with pytest.raises(PermanentError, match="no money"):
            wf.transact(body)
        wf.step(lambda tr: None, name="end")

    enqueue(app, "w")
    assert run(app).completed["w"] == 1
    assert counts(app) == [0, 0, 0]


def test_what_it_enqueues_on_other_shards_is_enqueued_once(app: App) -> None:
    @app.handler("mail")
    def mail(job: fairlead.Job) -> None:
        app.tenant(job.tenant).transact(lambda tr: tr.add(("mails",), 1))

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.transact(lambda tx: [tx.on(each).enqueue("mail") for each in PLACES] and None, name="mails")

    enqueue(app, "w")
    run(app)
    assert counts(app, "mails") == [1, 1, 1]


def test_a_lost_lease_changes_nothing_on_any_shard(app: App) -> None:
    def body(tx: SpanningTransaction) -> None:
        add_on_all(tx)
        runs.append(True)
        if len(runs) == 1:
            handle = app.tenant(HOME).item("w")
            database = app.tenant(HOME)
            zone = database.shard.zone(database.tenant)
            database.shard.transact(
                lambda attempt: zone.requeue(attempt.tr, handle.item_id, None, delay_us=0, now_us=attempt.now_us)
            )

    runs: list[bool] = []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.transact(body)

    enqueue(app, "w", item_id="w")
    assert [type(error) for error in run(app, within=60).errors] == [LeaseLost]
    assert (counts(app), len(runs)) == ([1, 1, 1], 2)


def test_a_replay_that_finds_a_step_on_one_tenant_in_its_place_is_refused(app: App) -> None:
    spans = [False]

    def body(tr: Any) -> None:
        """Do nothing."""

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        if spans[0]:
            wf.transact(body)
        else:
            wf.step(body)
        wf.wait_for("go")

    enqueue(app, "w", item_id="w")
    run(app)
    spans[0] = True
    app.tenant(HOME).signal("w", "go")
    (error,) = run(app).errors
    assert "StepsDiffer" in repr(error)


# --- Guards: each story ends well, and badly without the guard ---


def a_commit_of_unknown_result_at_home_only(app: App) -> bool:
    home, _ = with_faults(app)

    def body(tx: SpanningTransaction) -> None:
        tx.on(HOME).add(("across",), 1)
        if not runs:
            home.faults.append(Fault(applied=True))
        runs.append(True)

    runs: list[bool] = []
    app.workflow("w")(lambda wf: wf.transact(body, name="pay"))
    enqueue(app, "w")
    run(app)
    return count(app, HOME, "across") == 1


def a_death_once_it_has_decided(app: App) -> bool:
    home, _ = with_faults(app)

    def body(tx: SpanningTransaction) -> None:
        add_on_all(tx)
        if not runs:
            home.faults.append(Fault(applied=True, then=die))
        runs.append(True)

    runs: list[bool] = []
    app.workflow("w")(lambda wf: wf.transact(body, name="pay"))
    enqueue(app, "w")
    drain_to_its_end(app)
    return counts(app) == [1, 1, 1]


def an_end_of_the_run_between_prepare_and_decision(app: App) -> bool:
    _, elsewhere = with_faults(app)

    def cancel() -> None:
        Context().run(lambda: app.tenant(HOME).cancel("w", force=True))

    def body(tx: SpanningTransaction) -> None:
        add_on_all(tx)
        elsewhere.faults.append(Fault(applied=True, then=cancel))

    app.workflow("w")(lambda wf: wf.transact(body, name="pay"))
    enqueue(app, "w", item_id="w")
    run(app)
    return counts(app) == [0, 0, 0]


STORIES: dict[str, tuple[Callable[[App], bool], Edit]] = {
    "its entry is read before the body": (
        a_commit_of_unknown_result_at_home_only,
        Edit(_EntryAtHome.begin, "return found", "return None"),
    ),
    "its entry is written with the decision": (
        a_death_once_it_has_decided,
        Edit(SpanningTransaction._decide, "if self._record is not None:", "if self._record == 0:"),
    ),
    "its lease and its entry are read in the home transaction": (
        an_end_of_the_run_between_prepare_and_decision,
        Edit(
            SpanningTransaction.run,
            "self._record.begin(self._home_attempt)",
            "self._record.begin(Attempt(self._record.shard.db.create_transaction(), self._seed, self.now_us))",
        ),
    ),
}


@pytest.mark.parametrize("guard", STORIES)
def test_with_the_guard_the_story_ends_well(app: App, guard: str) -> None:
    story, _ = STORIES[guard]
    assert story(app)


@pytest.mark.parametrize("guard", STORIES)
def test_without_the_guard_the_story_ends_badly(app: App, guard: str) -> None:
    story, edit = STORIES[guard]
    with Mutation(guard, (edit,), ()).planted():
        assert not story(app)
