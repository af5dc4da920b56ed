"""Handlers and workflows go on when their tenant moves to another shard in the middle, and every effect happens once.

The move is done by hand, in one moment: see `test_tenants_elsewhere`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, Config, Job, PermanentError, Retry, TenantTransaction, fleet
from fairlead.testing import DrainResult, drain
from fairlead.workflows import system_kinds
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.run_log import RunLog
from fairlead.zones import tuples
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.marks import read_marks
from fairlead.zones.placement import home
from fairlead.zones.records import Move, MovePhase, OwnerRecord, encode
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.workflow.run_end import forget_participant
from tests.fairlead.test_tenants_elsewhere import ALICE, move
from tests.workflows.application import kept_keys

NAMES = ("eu", "us")
BOB = next(each for n in range(99) if home(each := Tenant("shop", f"bob{n}"), NAMES) != home(ALICE, NAMES))
NEIGHBOUR = next(
    each for n in range(99) if home(each := Tenant("shop", f"n{n}"), NAMES) == home(ALICE, NAMES) and each != ALICE
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(config=Config(shards={name: f"embedded:{tmp_path / name}" for name in NAMES}))
    yield made
    made.close()


def add(tr: TenantTransaction, name: str = "count") -> None:
    tr.add((name,), 1)


def count(app: App, tenant: Tenant = ALICE, name: str = "count") -> int:
    return int.from_bytes(app.tenant(tenant).transact(lambda tr: tr.get((name,))) or b"", "little")


def run(app: App) -> DrainResult:
    return drain(app, raise_errors=False)


def test_a_handler_s_transaction_follows_its_tenant(app: App) -> None:
    @app.handler("k", keep_result=60)
    def handle(job: Job) -> None:
        job.transact(add)
        move(app)
        job.transact(lambda tr: (add(tr), job.complete_in(tr, result="done")))

    item = app.tenant(ALICE).enqueue("k")
    assert run(app).errors == []
    assert (item.result(timeout=0), count(app)) == ("done", 2)


def test_a_handler_s_transaction_follows_its_tenant_there_and_back(app: App) -> None:
    @app.handler("k")
    def handle(job: Job) -> None:
        for _ in range(3):
            job.transact(add)
            move(app)

    app.tenant(ALICE).enqueue("k")
    assert run(app).completed["k"] == 1
    assert count(app) == 3


def test_a_transactional_handler_follows_its_tenant(app: App) -> None:
    runs: list[bool] = []

    @app.handler("k", transactional=True)
    def handle(job: Job, tr: TenantTransaction) -> None:
        if not runs:
            move(app)
        runs.append(True)
        add(tr)

    app.tenant(ALICE).enqueue("k")
    assert run(app).completed["k"] == 1
    assert (count(app), len(runs)) == (1, 2)


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_an_item_follows_its_tenant(app: App, fails: bool) -> None:
    @app.handler("k", keep_result=60)
    def handle(job: Job) -> str:
        move(app)
        if fails:
            raise PermanentError("no")
        return "done"

    item = app.tenant(ALICE).enqueue("k")
    drained = run(app)
    if fails:
        assert drained.dead_lettered["k"] == 1
        assert [letter.kind for letter in app.tenant(ALICE).dead_letters()] == ["k"]
    else:
        assert item.result(timeout=0) == "done"


def test_a_pointer_of_a_tenant_that_has_moved_is_deleted_by_a_visit(app: App) -> None:
    app.handler("k")(lambda job: None)
    app.tenant(ALICE).enqueue("k", delay=1)
    move(app)
    assert run(app).errors == []


# --- Workflows ---


def test_the_steps_of_a_workflow_follow_its_tenant(app: App) -> None:
    moves = [1, 3]

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        for number in range(5):
            wf.step(add, name=f"step {number}")
            if number in moves:
                moves.remove(number)
                move(app)
        return wf.finish(lambda tr: "done")

    item = app.tenant(ALICE).enqueue("w")
    assert run(app).errors == []
    assert (item.result(timeout=0), count(app)) == ("done", 5)


@pytest.mark.parametrize("where", ["in the body of its first step", "in the body of a later step", "in the last body"])
def test_a_step_whose_tenant_moves_in_its_body_happens_once_at_the_new_home(app: App, where: str) -> None:
    moved: list[bool] = []

    def step(tr: TenantTransaction, name: str) -> str:
        add(tr)
        if name == where and not moved:
            moved.append(True)
            move(app)
        return "done"

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        wf.step(step, "in the body of its first step", name="first")
        wf.step(step, "in the body of a later step", name="later")
        return wf.finish(step, "in the last body")

    item = app.tenant(ALICE).enqueue("w")
    assert run(app).errors == []
    assert (item.result(timeout=0), count(app), moved) == ("done", 3, [True])


def test_a_transaction_across_shards_of_a_workflow_follows_its_tenants(app: App) -> None:
    moved: list[Tenant] = []

    def pay(tx: SpanningTransaction, mover: Tenant) -> None:
        for tenant in (ALICE, BOB):
            tx.on(tenant).add(("count",), 1)
        if mover not in moved:
            moved.append(mover)
            move(app, mover)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.transact(pay, ALICE, name="alice")
        wf.transact(pay, BOB, name="bob")

    app.tenant(ALICE).enqueue("w")
    assert run(app).errors == []
    assert (count(app), count(app, BOB)) == (2, 2)


def test_steps_on_other_tenants_go_on_though_the_workflow_s_own_moves(app: App) -> None:
    moved: list[bool] = []

    @app.workflow("w", retry=Retry(backoff=0.001))
    def work(wf: WorkflowContext) -> None:
        for tenant in (BOB, NEIGHBOUR):
            wf.step(add, on=tenant, name=f"before {tenant.user}")
        if not moved:
            moved.append(True)
            move(app)
        for tenant in (BOB, NEIGHBOUR):
            wf.step(add, on=tenant, name=f"after {tenant.user}")

    app.tenant(ALICE).enqueue("w")
    run(app)
    while app.tenant(ALICE).peek():
        run(app)
    assert (count(app, BOB), count(app, NEIGHBOUR)) == (2, 2)


def test_a_run_that_waits_is_woken_where_its_tenant_has_moved_to(app: App) -> None:
    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> Any:
        wf.step(add, name="before")
        answer = wf.wait_for("go")
        wf.step(add, name="after")
        return answer

    item = app.tenant(ALICE).enqueue("w", item_id="w")
    run(app)
    move(app)
    app.tenant(ALICE).signal("w", "go", 7)
    run(app)
    assert (item.result(timeout=0), count(app)) == (7, 2)


def test_an_attempt_that_reads_its_log_after_a_move_reads_it_where_the_log_is(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the tenant lived, the log may be cleared. Without it, steps would be done again."""
    load = RunLog.load

    def load_after_a_move(self: RunLog) -> None:
        if self.record.keeps_run and not moved:
            moved.append(True)
            move(app)
        load(self)

    moved: list[bool] = []
    monkeypatch.setattr(RunLog, "load", load_after_a_move)

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> Any:
        wf.checkpoint("begun") if wf.state is None else None
        wf.step(add, name="before")
        wf.wait_for("go", timeout=60, default=None)
        wf.step(add, name="after")
        return wf.state

    item = app.tenant(ALICE).enqueue("w", item_id="w")
    run(app)
    app.tenant(ALICE).signal("w", "go")
    assert run(app).errors == []
    assert (item.result(timeout=0), count(app), moved) == ("begun", 2, [True])


def test_a_run_is_undone_where_its_tenant_has_moved_to(app: App) -> None:
    moved: list[bool] = []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, name="step", undo=lambda tr: tr.add(("count",), -1))
        if not moved:
            moved.append(True)
            move(app)
        raise PermanentError("as planned")

    app.tenant(ALICE).enqueue("w")
    run(app)
    assert count(app) == 0
    assert [letter.kind for letter in app.tenant(ALICE).dead_letters()] == ["w"]


def test_a_workflow_that_has_moved_calls_another_tenant_though_its_worker_remembers_its_first_home(app: App) -> None:
    @app.handler("child")
    def child(job: Job) -> None:
        job.transact(add)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.call("child", on=BOB)

    app.tenant(ALICE).enqueue("w")
    move(app)
    assert run(app).errors == []
    assert count(app, BOB) == 1


# --- Live moves ---


def test_steps_that_read_nothing_mark_what_they_write_while_their_tenant_moves(app: App) -> None:
    """Such a step does not read the ownership record. Without marks the mover would leave behind what it wrote."""
    source, keys = app.tenant(ALICE).shard, TenantKeys(*ALICE)
    (other,) = set(app.shards.values()) - {source}
    move_of = Move(MovePhase.MOVING, other.layout.shard_id, b"m" * 16)
    moving = encode(OwnerRecord(1, source.layout.shard_id, move=move_of))
    transact(source.db, lambda tr: tr.set(keys.owner, moving))
    names = [f"step {number}" for number in range(6)]

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for name in names:
            wf.step(add, name, name=name)

    app.tenant(ALICE).enqueue("w")
    assert drain(app, replays=False).completed["w"] == 1
    marks = transact(source.db, lambda tr: read_marks(tr, keys, limit=1_000))
    written = {keys.data + tuples.pack((name,)) for name in names}
    assert written <= {mark.begin for mark in marks}


def test_a_move_begins_where_its_tenant_lives_now(app: App) -> None:
    """Where the tenant has lived, nothing is left of it: the move was refused, because there was no such tenant."""
    app.tenant(ALICE).transact(add)
    source = app.tenant(ALICE).shard.name
    move(app)
    assert app.move(ALICE, to=source).progress().state == "under way"


@pytest.mark.timeout(180)
def test_a_fleet_loses_and_repeats_nothing_while_a_tenant_moves_there_and_back(app: App) -> None:
    @app.workflow("w", keep_result=3_600)
    def work(wf: WorkflowContext) -> str:
        for number in range(10):
            wf.step(add, "steps", name=f"step {number}")
        wf.transact(lambda tx: [tx.on(each).add(("paid",), 1) for each in (ALICE, BOB)] and None, name="pay")
        return "done"

    @app.handler("k", keep_result=3_600)
    def handle(job: Job) -> None:
        job.transact(lambda tr: (add(tr, "jobs"), job.complete_in(tr, result="done")))

    @app.handler("plain", keep_result=3_600)
    def plain(job: Job) -> str:
        job.transact(lambda tr: None)
        return "done"

    running = fleet.start(app, "tests:app", runtime="threads")
    try:
        items = [app.tenant(ALICE).enqueue(kind) for _ in range(20) for kind in ("w", "k", "plain")]
        here = app.tenant(ALICE).find().name
        there = next(name for name in NAMES if name != here)
        for destination in (there, here):
            app.move(ALICE, to=destination).result(timeout=60)
        assert {item.result(timeout=60) for item in items} == {"done"}
        lost = running.counts().get("lost", 0)
    finally:
        running.stop(drain=5)
    counted = [count(app, ALICE, name) for name in ("steps", "paid", "jobs")]
    assert (counted, count(app, BOB, "paid"), lost) == ([200, 20, 20], 20, 0)


def test_the_cleanup_of_a_run_follows_the_run_s_tenant(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tenant has lived, there is nothing to forget."""
    runs: list[bool] = []

    def forget_after_a_move(*args: Any) -> None:
        if not runs:
            move(app)
        runs.append(True)
        forget_participant(*args)

    monkeypatch.setattr(system_kinds, "forget_participant", forget_after_a_move)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, on=BOB)

    app.tenant(ALICE).enqueue("w")
    assert run(app).errors == []
    assert kept_keys(app, str(ALICE)) == []
