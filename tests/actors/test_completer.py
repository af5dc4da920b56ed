"""The completer: each item of a batch gets its own end, whatever happens to the others or to the commit."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest

from fairlead.actors.execution.failed_attempt import render_error
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError
from fairlead.actors.messages import ItemRef
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT, TRANSACTION_TOO_LARGE
from fairlead.zones.records import Move, MovePhase, OwnerRecord, encode
from tests.actors.stage import ALICE, Stage
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


class Nameless(type):
    """Classes whose module cannot be read."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no module")


class NamelessError(Exception, metaclass=Nameless):
    pass


UNRENDERABLE = [SyntaxError("bad template", ("page.html", 1, 1, b"<html>")), NamelessError("x")]  # type: ignore[arg-type]


def raises(error: BaseException) -> Any:
    def handler(job: Job) -> None:
        raise error

    return handler


@pytest.mark.parametrize("error", UNRENDERABLE, ids=["syntax", "nameless"])
def test_an_error_that_cannot_be_rendered_is_named_by_its_class(stage: Stage, error: Exception) -> None:
    rendered = render_error(error, stage.clock)
    assert type.__getattribute__(type(error), "__qualname__") in rendered.text
    assert rendered.lines


@pytest.mark.parametrize("error", UNRENDERABLE, ids=["syntax", "nameless"])
def test_an_error_that_cannot_be_rendered_fails_its_own_item_only(stage: Stage, error: Exception) -> None:
    worker = stage.worker(
        [stage.handler("mail", lambda job: None), stage.handler("poison", raises(error), permanent=(type(error),))]
    )
    for kind in ("poison", "mail", "poison", "mail"):
        stage.enqueue(kind)
    stage.place(worker, stage.lease(["mail", "poison"]))
    assert stage.settled(worker) == {"completed": 2, "dead_lettered": 2}
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker)["completed"] == 3


def test_a_batch_that_is_too_large_for_one_transaction_is_committed_in_several(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", raises(PermanentError("no")))], slots=16)
    for _ in range(16):
        stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.faults.append(Fault(applied=False, code=TRANSACTION_TOO_LARGE))
    before = stage.store.commits
    stage.place(worker, refs)
    assert stage.settled(worker) == {"dead_lettered": 16}
    assert stage.store.commits - before == 3, "one that was too large, and its halves"


def test_timed_out_items_too_many_for_one_transaction_are_committed_in_several(stage: Stage) -> None:
    def handle(job: Job) -> None:
        while not job.cancelled:
            stage.sleep_ms(10)

    handler = stage.handler("mail", handle, timeout=0.5, retry=Retry(attempts=1))
    worker = stage.worker([handler], slots=16)
    for _ in range(16):
        stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.store.faults.append(Fault(applied=False, code=TRANSACTION_TOO_LARGE))
    assert stage.settled(worker) == {"timed_out": 16, "dead_lettered": 16}


def test_an_item_that_times_out_while_its_tenant_is_frozen_is_retried_once_it_is_not(stage: Stage) -> None:
    def handle(job: Job) -> None:
        while not job.cancelled:
            stage.sleep_ms(10)

    worker = stage.worker([stage.handler("mail", handle, timeout=0.5, retry=Retry(attempts=None, backoff=60))])
    stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.place(worker, refs)
    stage.pass_ms(100)
    keys = stage.shard.zone(ALICE).location.keys.tenant
    frozen = OwnerRecord(0, stage.shard.layout.shard_id, move=Move(MovePhase.FROZEN, b"o" * 16, b"m" * 16))
    stage.shard.transact(lambda attempt: attempt.tr.set(keys.owner, encode(frozen)))
    stage.pass_ms(700)
    assert worker.counts()["timed_out"] == 1
    assert "retried" not in worker.counts()
    stage.shard.transact(lambda attempt: attempt.tr.clear(keys.owner))
    stage.wait_for(lambda: worker.counts().get("retried") == 1, within_ms=1_000)
    assert stage.settled(worker) == {"timed_out": 1, "retried": 1}


@pytest.mark.parametrize("drop", [False, True])
def test_a_failed_item_whose_tenant_has_moved_is_lost_and_later_ones_are_completed(stage: Stage, drop: bool) -> None:
    worker = stage.worker(
        [stage.handler("mail", lambda job: None), stage.handler("fails", raises(PermanentError("no")), drop=drop)]
    )
    stage.enqueue("fails")
    refs = stage.lease(["fails"])
    owner = stage.shard.zone(ALICE).location.keys.tenant.owner
    stage.shard.transact(lambda attempt: attempt.tr.set(owner, encode(OwnerRecord(1, b"another shard..."))))
    stage.place(worker, refs)
    assert stage.settled(worker) == {"lost": 1}
    stage.shard.transact(lambda attempt: attempt.tr.clear(owner))
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker)["completed"] == 1


def test_a_failed_item_leaves_nothing_behind_that_only_the_collector_could_free(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error's traceback refers to the item: payloads of failed items once filled gigabytes of memory."""
    monkeypatch.setattr(logging.getLogger("fairlead.worker"), "propagate", False)  # Pytest keeps logged records.
    jobs: list[weakref.ref[Job]] = []

    def fails(job: Job) -> None:
        jobs.append(weakref.ref(job))
        raise PermanentError("no")

    worker = stage.worker([stage.handler("mail", fails)])
    gc.collect()
    gc.disable()
    try:
        for number in range(2):  # Twice, because a loop may still refer to its last item.
            stage.enqueue("mail", number)
            stage.place(worker, stage.lease(["mail"]))
            stage.settled(worker)
        assert jobs[0]() is None
    finally:
        gc.enable()


def test_a_store_that_fails_between_two_halves_commits_the_second_half_later(stage: Stage) -> None:
    """And the items of the first half do not count as lost."""
    worker = stage.worker([stage.handler("mail", lambda job: None)], slots=16)
    for _ in range(16):
        stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.faults.append(Fault(applied=False, code=TRANSACTION_TOO_LARGE))

    def leave() -> None:
        stage.store.away = True

    stage.store.on_commit(3, leave)
    stage.place(worker, refs)
    stage.pass_ms(1_000)
    stage.store.away = False
    assert stage.settled(worker) == {"completed": 16}


def test_items_whose_completion_was_committed_although_it_timed_out_are_not_lost(stage: Stage) -> None:
    """At the second try the items are gone, and the first try has deleted them."""
    worker = stage.worker([stage.handler("mail", lambda job: None)])
    stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.faults.append(Fault(applied=True, code=TRANSACTION_TIMED_OUT))
    stage.place(worker, refs)
    assert stage.settled(worker) == {"completed": 1}


def cancel(stage: Stage, ref: ItemRef) -> None:
    """Cancel an item, although a worker runs it."""
    zone = stage.shard.zone(ref.tenant, ref.zone)
    stage.shard.transact(lambda attempt: zone.complete(attempt.tr, ref.item_id, now_us=attempt.now_us))


def test_an_item_that_is_cancelled_while_its_completion_commits_is_not_counted_as_completed(stage: Stage) -> None:
    """Before, the completion conflicted with the cancellation, and then took the missing item for completed."""
    worker = stage.worker([stage.handler("mail", lambda job: None)])
    stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.on_commit(1, lambda: cancel(stage, refs[0]))
    stage.place(worker, refs)
    assert stage.settled(worker) == {"lost": 1}


def test_an_item_whose_completion_had_an_unknown_result_and_was_applied_is_counted_as_completed(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: None)])
    stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.faults.append(Fault(applied=True))
    stage.place(worker, refs)
    assert stage.settled(worker) == {"completed": 1}
