"""Steps in SQL: each happens exactly once, with its entry, whatever the workflow does besides."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from fairlead import App, BadArgument, Cause, Config, Retry
from fairlead.actors.handlers import PermanentError
from fairlead.external_stores import open_stores
from fairlead.replayed_runs import replay_runs
from fairlead.testing import ManualClock, drain
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.read_only_replay import ReplayOutcome
from fairlead.workflows.recorded_errors import StepFailed
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.external.steps import NoSuchStore
from fairlead.zones.layout import Tenant
from fairlead.zones.workflow.cancellation import CancelOutcome
from tests.workflows.application import ELSEWHERE, HOME, add, count
from tests.workflows.postgresql.shop import Shop, insert, remove


def test_a_step_happens_once_though_the_workflow_is_run_again_behind_it(shop: Shop) -> None:
    fails, seen = [True, True], []

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        seen.append(wf.step(insert, "a", store="pg"))
        wf.step(add, "home")
        seen.append(wf.step(insert, "b", store="pg"))
        if fails:
            fails.pop()
            raise RuntimeError

    shop.enqueue()
    drained = shop.run(within=60)
    assert (drained.retried["w"], drained.completed["w"]) == (2, 1)
    assert shop.effects() == ["a", "b"]
    assert set(seen) == {"a done", "b done"}
    assert count(shop.app, HOME, "home") == 1


def test_what_a_workflow_keeps_in_sql_goes_after_its_end_but_for_the_tombstone(shop: Shop) -> None:
    kept: list[Any] = []

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg")
        wf.step(insert, "b", store="pg")
        kept.append(shop.kept())

    shop.enqueue()
    shop.run(replays=False)
    assert kept == [(2, 1, 0)]
    assert shop.kept() == (0, 0, 1)
    shop.app.externals["pg"].steps.raise_floor()
    assert shop.kept() == (0, 0, 0)


def test_steps_of_an_async_workflow_run_side_by_side(shop: Shop) -> None:
    @shop.app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext) -> list[str]:
        return await asyncio.gather(*(wf.step(insert, name, name=name, store="pg") for name in "abc"))

    item = shop.enqueue()
    shop.run()
    assert item.result(0) == ["a done", "b done", "c done"]
    assert shop.effects() == ["a", "b", "c"]


def test_a_workflow_that_fails_for_good_undoes_its_steps_in_sql(shop: Shop) -> None:
    undone: list[str] = []

    def undo(connection: Any, name: str, result: str) -> None:
        remove(connection, name)
        undone.append(result)

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg", undo=undo)
        wf.step(add, "home", undo=lambda tr, name: tr.add((name,), -1))
        wf.step(insert, "b", store="pg", undo=undo)
        raise PermanentError

    shop.enqueue()
    assert shop.run().dead_lettered["w"] == 1
    assert undone == ["b done", "a done"]
    assert shop.effects() == ["a", "b", "undo a", "undo b"]
    assert count(shop.app, HOME, "home") == 0
    assert shop.kept() == (0, 0, 1)


def test_the_cancellation_of_a_run_that_waits_undoes_its_steps_in_sql(shop: Shop) -> None:
    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg", undo=remove)
        wf.sleep(60)

    item = shop.enqueue()
    shop.run()
    assert item.cancel() is CancelOutcome.UNDOING
    assert shop.run().cancelled["w"] == 1
    assert shop.effects() == ["a", "undo a"]
    assert shop.kept() == (0, 0, 1)


def test_an_error_that_the_workflow_can_catch_is_recorded_in_sql(shop: Shop) -> None:
    tries: list[str] = []

    def refuse(connection: Any) -> None:
        insert(connection, "nothing")
        tries.append("permanent")
        raise PermanentError("no")

    def flaky(connection: Any) -> None:
        insert(connection, "nothing")
        tries.append("flaky")
        raise RuntimeError

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        with pytest.raises(PermanentError, match="no"):
            wf.step(refuse, store="pg")
        with pytest.raises(StepFailed):
            wf.step(flaky, store="pg", retry=Retry(attempts=2, backoff=1))
        wf.step(insert, "a", store="pg")

    shop.enqueue()
    assert shop.run(within=60).completed["w"] == 1
    assert tries == ["permanent", "flaky", "flaky"]
    assert shop.effects() == ["a"]


def test_an_error_of_the_commit_is_one_of_the_step(shop: Shop) -> None:
    with shop.database.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS once")
        connection.execute("CREATE TABLE once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    def twice(connection: Any) -> None:
        connection.execute("INSERT INTO once VALUES (1), (1)")

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        with pytest.raises(StepFailed, match="UniqueViolation"):
            wf.step(twice, store="pg", retry=Retry(attempts=1))

    shop.enqueue()
    assert shop.run().completed["w"] == 1


def test_a_checkpoint_forgets_steps_in_sql(shop: Shop) -> None:
    kept: list[Any] = []

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for each in range(wf.state or 0, 3):
            wf.step(insert, str(each), store="pg")
            kept.append(shop.kept())
            wf.checkpoint(each + 1)

    shop.enqueue()
    shop.run(replays=False)
    assert shop.effects() == ["0", "1", "2"]
    assert kept == [(1, 1, 0)] * 3


def test_a_workflow_acts_on_shards_and_in_sql(shop: Shop) -> None:
    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "there", on=ELSEWHERE)
        wf.step(insert, "a", store="pg")
        wf.sleep(60)
        wf.step(add, "there again", on=ELSEWHERE)
        wf.step(insert, "b", store="pg")

    shop.enqueue()
    assert shop.run(within=120).completed["w"] == 1
    assert (count(shop.app, ELSEWHERE, "there"), count(shop.app, ELSEWHERE, "there again")) == (1, 1)
    assert shop.effects() == ["a", "b"]


def test_the_body_of_a_step_may_enqueue_in_its_own_transaction(shop: Shop) -> None:
    fails = [True]

    def order(connection: Any) -> None:
        shop.app.tenant(HOME).enqueue("receipt", within=connection)
        if fails:
            fails.pop()
            raise RuntimeError

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(order, store="pg")

    shop.enqueue()
    shop.run(within=60)
    with shop.database.connect() as connection:
        assert connection.execute("SELECT kind FROM fairlead.items").fetchall() == [("receipt",)]


def test_a_run_goes_on_with_its_steps_in_sql_after_its_tenant_has_moved(shop: Shop) -> None:
    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg")
        wf.sleep(60)
        wf.step(insert, "b", store="pg")

    shop.enqueue()
    shop.run()
    before = shop.app.tenant(HOME).find().name
    shop.app.move(HOME, to="b" if before == "a" else "a")
    shop.run()
    assert shop.app.tenant(HOME).find().name != before
    assert shop.run(within=120).completed["w"] == 1
    assert shop.effects() == ["a", "b"]
    assert shop.kept() == (0, 0, 1)


def test_steps_in_sql_are_shown_with_the_others(shop: Shop) -> None:
    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "home")
        wf.step(insert, "a", store="pg")
        wf.sleep(60)

    item = shop.enqueue()
    shop.run()
    view = shop.app.tenant(HOME).steps(item.item_id)
    assert [(step.name, str(step.tenant)) for step in view.steps] == [
        ("add", HOME),
        ("insert", "store pg"),
        ("sleep", HOME),
    ]
    assert (view.whole, view.away) == (True, [])


def test_a_read_only_replay_reads_the_steps_in_sql(shop: Shop) -> None:
    done = ["a"]

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for name in done:
            wf.step(insert, name, store="pg")
        wf.sleep(60)

    shop.enqueue()
    shop.run()
    shard = shop.app.tenant(HOME).shard
    (replayed,) = replay_runs(shop.app, "w", shard)
    assert replayed.outcome is ReplayOutcome.SAME
    done.insert(0, "new")
    (replayed,) = replay_runs(shop.app, "w", shard)
    assert replayed.outcome is ReplayOutcome.DIFFERENT
    assert shop.effects() == ["a"]


def test_a_step_that_changes_its_store_is_another_step(shop: Shop) -> None:
    options: dict[str, Any] = {"store": "pg"}

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(lambda where: None, name="s", **options)
        wf.sleep(60)

    shop.enqueue()
    shop.run()
    options.clear()
    drained = shop.run(within=120)
    assert drained.dead_lettered["w"] == 1
    assert "StepsDiffer" in type(drained.errors[0]).__name__


def test_a_store_that_is_away_holds_the_workflow_up_and_counts_no_failure(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    app = App("memory:", external={"pg": f"postgresql://127.0.0.1:{port}/none"}, clock=ManualClock())

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg")

    app.tenant(HOME).enqueue("w")
    drained = drain(app, raise_errors=False)
    assert drained.retried["w"] == 1
    assert [type(error) for error in drained.errors] == [StoreUnavailable, StoreUnavailable], "of drain, of the step"
    (item,) = app.tenant(HOME).peek()
    assert item.error_count == 0
    app.close()


def test_why_a_workflow_does_not_go_on_names_the_store_that_is_away(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it named a shard that is away, and no store."""

    @shop.app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg")
        wf.wait_for("go")
        wf.step(insert, "b", store="pg")

    handle = shop.enqueue()
    shop.run()
    away = open_stores(Config(external={"pg": "postgresql://127.0.0.1:1/none"}), shop.app.clock)
    with monkeypatch.context() as patched:
        patched.setattr(shop.app, "_externals", away)
        handle.signal("go")
        shop.run()
        for said in (handle.explain(), shop.app.explain(handle.item_id)):
            assert said.cause is Cause.PARTICIPANT_AWAY
            assert said.sentence.startswith("external store pg, in which it acts, cannot be read: store unavailable: ")
    assert handle.explain().cause is not Cause.PARTICIPANT_AWAY
    shop.run(within=60)
    assert shop.effects() == ["a", "b"]


def test_a_store_that_is_not_named_is_said_so(shop: Shop) -> None:
    @shop.app.workflow("w", retry=Retry(attempts=1))
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="other")

    shop.enqueue()
    drained = shop.run()
    assert isinstance(drained.errors[0], NoSuchStore)
    assert "'pg'" in str(drained.errors[0])


def test_a_step_acts_on_a_tenant_or_in_a_store(shop: Shop) -> None:
    @shop.app.workflow("w", retry=Retry(attempts=1))
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg", on=Tenant("shop", "alice"))

    shop.enqueue()
    assert isinstance(shop.run().errors[0], BadArgument)
