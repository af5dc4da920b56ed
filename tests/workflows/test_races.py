"""Races that must be harmless, each forced: an executor is paused where it hurts, and others go on meanwhile.

An executor stands still inside the body of a step, so between the reads of its transaction and the commit. Its item is
returned, as if its lease had ended, and whatever a fleet does next is done. Then it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context

import pytest

from fairlead import App
from fairlead.actors.handlers import PermanentError
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.errors import ItemGone
from fairlead.zones.layout import item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.records import OwnerRecord, decode, encode
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.participants import raise_floor
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState, entry_key
from fairlead.zones.workflow.run_records import encode as encode_entry
from tests.workflows.application import ELSEWHERE, HOME, add, append, count, enqueue, kept_keys, run, two_shards, words

MINE = item_id_of("mine")


def give_back(app: App) -> None:
    """Return the item to its queue: its lease is another worker's from now on."""
    home = app.tenant(HOME)
    zone = home.shard.zone(home.tenant)
    home.shard.transact(
        lambda attempt: run_one(zone.requeue_op(attempt.tr, MINE, None, delay_us=0, now_us=attempt.now_us))
    )


def raise_floor_of(app: App, tenant: str) -> None:
    app.tenant(tenant).shard.transact(lambda attempt: raise_floor(attempt.tr, tombstones_max=10))


def raise_epoch_of(app: App, tenant: str) -> None:
    """Write what two moves leave in a tenant's ownership record."""
    database = app.tenant(tenant)
    layout = database.shard.layout
    key = layout.location(database.tenant, "queue").keys.tenant.owner

    def body(tr: TenantTransaction) -> None:
        value = tr.raw.get(key).value  # type: ignore[attr-defined]
        owner = decode(OwnerRecord, value) if value is not None else OwnerRecord(0, layout.shard_id)
        assert owner is not None
        owner.epoch += 1
        tr.raw.set(key, encode(owner))  # type: ignore[attr-defined]

    database.transact(body)


class Paused:
    """The body of a step, which stands still once, in its first run, and does `meanwhile` there."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile
        self._pauses = True
        self.__name__ = "paused"

    def __call__(self, tr: TenantTransaction, name: str) -> None:
        add(tr, name)
        if self._pauses:
            self._pauses = False
            Context().run(self._meanwhile)  # The others are no part of this step.


@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
@pytest.mark.parametrize("tombstone_stays", [True, False])
def test_an_executor_that_goes_on_after_the_run_has_ended_does_nothing(place: str, tombstone_stays: bool) -> None:
    app = two_shards()

    def others() -> None:
        give_back(app)
        run(app, replays=False)
        if not tombstone_stays:
            raise_floor_of(app, ELSEWHERE)

    paused = Paused(others)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before", on=ELSEWHERE)
        wf.step(paused, "done", on=place)

    enqueue(app, "w", item_id="mine")
    run(app, replays=False)
    assert (count(app, ELSEWHERE, "before"), count(app, place, "done")) == (1, 1)
    assert kept_keys(app) == []
    assert len(kept_keys(app, ELSEWHERE)) == int(tombstone_stays)


@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
def test_an_executor_that_is_overtaken_does_not_do_the_step_again(place: str) -> None:
    app = two_shards()

    def others() -> None:
        give_back(app)
        run(app, replays=False)

    paused = Paused(others)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before", on=ELSEWHERE)
        wf.step(paused, "done", on=place)
        wf.sleep(60)

    enqueue(app, "w", item_id="mine")
    run(app, replays=False)
    assert count(app, place, "done") == 1
    assert run(app, within=120).completed["w"] == 1


@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
def test_an_executor_that_goes_on_while_the_run_is_undone_does_nothing(place: str) -> None:
    app = two_shards()

    def others() -> None:
        give_back(app)
        app.tenant(HOME).cancel("mine")
        run(app, replays=False)

    paused = Paused(others)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", on=ELSEWHERE, undo=lambda tr, word: append(tr, f"-{word}"))
        wf.step(paused, "done", on=place)

    enqueue(app, "w", item_id="mine")
    run(app, replays=False)
    assert (words(app, ELSEWHERE), count(app, place, "done")) == ("a -a", 0)


class _Killed(BaseException):
    """Stands for the death of a worker."""


@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
def test_a_worker_that_dies_behind_a_commit_leaves_the_step_done(place: str) -> None:
    app, dies = two_shards(), [True]

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=place)
        if dies:
            dies.pop()
            raise _Killed

    enqueue(app, "w", item_id="mine")
    with pytest.raises(_Killed):
        run(app, replays=False)
    give_back(app)
    assert run(app).completed["w"] == 1
    assert count(app, place, "done") == 1


def test_a_cleanup_that_comes_late_leaves_the_next_run_of_the_name_alone() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=ELSEWHERE)
        wf.sleep(60)
        wf.step(add, "done", on=ELSEWHERE)

    enqueue(app, "w", item_id="mine")
    run(app)
    app.tenant(HOME).cancel("mine", force=True)  # Its cleanup is enqueued, and has not run.
    enqueue(app, "w", item_id="mine")
    drained = run(app, within=120)
    assert (drained.completed["w"], drained.completed["fairlead.cleanup"]) == (1, 2)
    assert count(app, ELSEWHERE, "done") == 3


def test_a_participant_that_moves_between_two_steps_is_asked_again() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "done", on=ELSEWHERE)
        raise_epoch_of(app, ELSEWHERE)
        wf.step(add, "done", on=ELSEWHERE)

    enqueue(app, "w", item_id="mine")
    assert run(app, replays=False).completed["w"] == 1
    assert count(app, ELSEWHERE, "done") == 2


def test_a_checkpoint_and_a_late_executor_do_no_step_twice() -> None:
    app = two_shards()

    def others() -> None:
        give_back(app)
        run(app, replays=False)

    paused = Paused(others)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for each in range(wf.state or 0, 3):
            wf.step(append, f"e{each}", on=ELSEWHERE)
            wf.step(paused, "done")
            wf.checkpoint(each + 1)

    enqueue(app, "w", item_id="mine")
    run(app, replays=False)
    assert (count(app, HOME, "done"), words(app, ELSEWHERE)) == (3, "e0 e1 e2")


def test_a_step_that_is_given_back_while_it_runs_is_done_by_the_next_attempt() -> None:
    app = two_shards()
    paused = Paused(lambda: give_back(app))

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(paused, "done")

    enqueue(app, "w", item_id="mine")
    assert run(app, replays=False).completed["w"] == 1
    assert count(app, HOME, "done") == 1


def test_a_child_that_ends_before_its_parent_waits_is_not_missed() -> None:
    app = two_shards()
    app.handler("child")(lambda job: 7)

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> object:
        return wf.call("child", on=ELSEWHERE)

    item = enqueue(app, "w", item_id="mine")
    drained = run(app, within=1, replays=False)
    assert (item.result(0), drained.completed["child"]) == (7, 1)


def test_a_signal_to_a_run_that_has_just_ended_is_refused() -> None:
    app = two_shards()
    refused = []

    def others() -> None:
        give_back(app)
        run(app, replays=False)
        try:
            app.tenant(HOME).signal("mine", "go")
        except ItemGone as error:
            refused.append(error)

    paused = Paused(others)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(paused, "done")

    enqueue(app, "w", item_id="mine")
    run(app, replays=False)
    assert (len(refused), count(app, HOME, "done"), kept_keys(app)) == (1, 1, [])


def test_a_permanent_error_of_an_overtaken_executor_undoes_nothing() -> None:
    app = two_shards()

    def others() -> None:
        give_back(app)
        run(app, replays=False)

    class Rejecting(Paused):
        def __call__(self, tr: TenantTransaction, name: str) -> None:
            first = self._pauses
            super().__call__(tr, name)
            if first:
                raise PermanentError("late")

    rejecting = Rejecting(others)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=lambda tr, word: append(tr, f"-{word}"))
        wf.step(rejecting, "done", name="refused")

    enqueue(app, "w", item_id="mine")
    run(app, replays=False)
    assert (words(app), count(app, HOME, "done")) == ("a", 1)


@pytest.mark.parametrize("body", [append, lambda tr, word: tr.set(("words",), word.encode())])
def test_a_step_that_did_not_look_first_finds_what_an_earlier_try_has_committed_late(body: Callable[..., None]) -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> object:
        wf.step(append, "before")
        log = wf._execution.log
        late = StepEntry(1, StepKind.STEP, b"", StepState.DONE, app.clock.now_us(), pack_payload("of the late commit"))
        key = entry_key(log.home.location.keys.tenant, log.run, log.segment, "late", 0)
        app.tenant(HOME).transact(lambda tr: tr.raw.set(key, encode_entry(late)))
        return wf.step(body, "again", name="late")

    item = enqueue(app, "w")
    run(app, replays=False)
    assert (item.result(0), words(app)) == ("of the late commit", "before")
