"""A handler completes its item in a transaction across shards: effects and completion happen together, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead import App, BadArgument, Job, LeaseLost
from fairlead.testing import drain
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.leftovers import list_prepared
from tests.workflows.application import ELSEWHERE, HOME, count, two_shards
from tests.zones.faults import Fault, FaultyDatabase

FIRST = {"the item's tenant": HOME, "another shard's tenant": ELSEWHERE}


class Killed(BaseException):
    """The process dies here."""


def die() -> None:
    raise Killed


@pytest.fixture
def app() -> App:
    made = two_shards()
    for shard in made.shards.values():
        shard.db = FaultyDatabase(shard.db)
    made.shards.calls.start = lambda call: call()  # type: ignore[method-assign]
    return made


def faults_on(app: App, tenant: str) -> list[Fault | None]:
    db = app.tenant(tenant).shard.db
    assert isinstance(db, FaultyDatabase)
    return db.faults  # type: ignore[return-value]


def run_to_the_end(app: App) -> None:
    for _ in range(2):
        try:
            drain(app, within=3_600, raise_errors=False)
        except Killed:
            continue
        break


def pay(tx: SpanningTransaction, job: Job, first: str) -> None:
    """Count on both shards, and complete the item of the job; the shard of `first` decides."""
    tx.on(first)
    tx.on(HOME).add(("paid",), 1)
    tx.on(ELSEWHERE).add(("paid",), 1)
    job.complete_in(tx.on(job.tenant), result={"paid": True})


def prepared(app: App) -> int:
    return sum(
        len(shard.transact(lambda attempt: list_prepared(attempt.tr, transactions_max=100)))
        for shard in app.shards.values()
    )


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_an_item_is_completed_together_with_what_its_handler_does_on_all_shards(app: App, first: str) -> None:
    runs: list[int] = []

    @app.handler("pay", keep_result=60)
    def handle(job: Job) -> str:
        runs.append(job.attempt)
        app.transact(lambda tx: pay(tx, job, first))
        return "not kept"

    item = app.tenant(HOME).enqueue("pay")
    run_to_the_end(app)
    assert item.result(timeout=0) == {"paid": True}
    assert (runs, count(app, HOME, "paid"), count(app, ELSEWHERE, "paid")) == ([1], 1, 1)


STAGES: dict[str, tuple[str, list[Fault | None], int]] = {
    "it dies before it prepares": ("participant", [Fault(applied=False, then=die)], 2),
    "it dies once it has prepared": ("participant", [Fault(applied=True, then=die)], 2),
    "it dies before it decides": ("home", [Fault(applied=False, then=die)], 2),
    "it dies once it has decided": ("home", [Fault(applied=True, then=die)], 1),
    "it dies before it applies": ("participant", [None, Fault(applied=False, then=die)], 1),
    "the result of its prepare is unknown": ("participant", [Fault(applied=True)], 1),
    "the result of its decision is unknown": ("home", [Fault(applied=True)], 1),
    "the result of its apply is unknown": ("participant", [None, Fault(applied=True)], 1),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_whatever_dies_effects_and_completion_happen_once(app: App, first: str, stage: str) -> None:
    other = next(each for each in (HOME, ELSEWHERE) if each != first)
    where, faults, attempts = STAGES[stage]
    runs: list[int] = []

    @app.handler("pay", keep_result=86_400)
    def handle(job: Job) -> None:
        def body(tx: SpanningTransaction) -> None:
            pay(tx, job, first)
            if len(runs) == 1:
                faults_on(app, first if where == "home" else other).extend(faults)
                runs.append(job.attempt)

        runs.append(job.attempt)
        app.transact(body)

    item = app.tenant(HOME).enqueue("pay")
    run_to_the_end(app)
    assert item.result(timeout=0) == {"paid": True}
    assert (count(app, HOME, "paid"), count(app, ELSEWHERE, "paid"), prepared(app)) == (1, 1, 0)
    assert len(runs) - 1 == attempts


def test_an_item_that_another_worker_has_leased_is_not_completed_and_nothing_happens(app: App) -> None:
    errors: list[Exception] = []

    @app.handler("pay")
    def handle(job: Job) -> None:
        if job.attempt == 1 and not errors:
            database = app.tenant(HOME)
            zone = database.shard.zone(database.tenant)
            database.shard.transact(
                lambda attempt: zone.requeue(attempt.tr, job.id, None, delay_us=0, now_us=attempt.now_us)
            )
            with pytest.raises(LeaseLost) as lost:
                app.transact(lambda tx: pay(tx, job, ELSEWHERE))
            errors.append(lost.value)
            return
        app.transact(lambda tx: pay(tx, job, ELSEWHERE))

    app.tenant(HOME).enqueue("pay")
    run_to_the_end(app)
    assert (len(errors), count(app, HOME, "paid"), count(app, ELSEWHERE, "paid")) == (1, 1, 1)


def test_an_item_is_completed_once_in_a_transaction(app: App) -> None:
    @app.handler("pay", keep_result=60)
    def handle(job: Job) -> None:
        def body(tx: SpanningTransaction) -> None:
            job.complete_in(tx.on(HOME))
            job.complete_in(tx.on(HOME))

        app.transact(body)

    app.tenant(HOME).enqueue("pay")
    assert "ItemGone" in repr(drain(app, raise_errors=False).errors)


@pytest.mark.parametrize(
    ("wrong", "given"),
    [
        (lambda tx: tx, "SpanningTransaction"),
        (lambda tx: tx.on(ELSEWHERE), ELSEWHERE),
    ],
    ids=["the whole transaction", "another tenant"],
)
def test_an_item_is_completed_by_its_tenant_s_part_of_the_transaction_only(
    app: App, wrong: Callable[[SpanningTransaction], Any], given: str
) -> None:
    refused: list[BadArgument] = []

    @app.handler("pay")
    def handle(job: Job) -> None:
        with pytest.raises(BadArgument) as refusal:
            app.transact(lambda tx: job.complete_in(wrong(tx)))
        refused.append(refusal.value)

    app.tenant(HOME).enqueue("pay")
    drain(app)
    (error,) = refused
    assert (error.fields["argument"], error.fields["value"]) == ("tr", given)
    assert error.fields["allowed"] == f"the transaction of {HOME}: in app.transact, tx.on(job.tenant)"


def test_a_child_that_is_completed_across_shards_reports_its_result(app: App) -> None:
    results: list[object] = []

    @app.handler("pay")
    def handle(job: Job) -> None:
        app.transact(lambda tx: pay(tx, job, ELSEWHERE))

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        results.append(wf.call("pay"))

    app.tenant(HOME).enqueue("w")
    drain(app)
    assert results[-1] == {"paid": True}
