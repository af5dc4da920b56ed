"""Waits: for signals and for time. A run that waits holds no slot, and misses nothing."""

from __future__ import annotations

from typing import Any

from fairlead import App
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.errors import SignalTimeout
from fairlead.zones.workflow.cancellation import CancelOutcome
from tests.workflows.application import ELSEWHERE, HOME, NEIGHBOUR, add, count, enqueue, run, subtract, two_shards


def waiting(app: App, timeout: float | None = None) -> None:
    @app.workflow("w", keep_result=86_400)
    def work(wf: WorkflowContext) -> Any:
        wf.step(add, "before")
        return wf.wait_for("approved", timeout, default="late")


def test_a_run_waits_for_its_signal_and_gets_the_payload() -> None:
    app = two_shards()
    waiting(app)
    item = enqueue(app, "w")
    assert run(app, within=3600).suspended["w"] == 1
    app.tenant(HOME).signal(item.item_id, "approved", {"by": "bob"})
    assert run(app).completed["w"] == 1
    assert item.result(0) == {"by": "bob"}


def test_a_signal_that_comes_before_the_wait_is_kept() -> None:
    app = two_shards()
    waiting(app)
    item = enqueue(app, "w", item_id="mine")
    app.tenant(HOME).signal("mine", "approved", 1)
    drained = run(app)
    assert (drained.suspended["w"], drained.completed["w"]) == (0, 1)
    assert item.result(0) == 1


def test_a_wait_ends_with_its_timeout() -> None:
    app = two_shards()
    waiting(app, 60)
    item = enqueue(app, "w")
    run(app, within=30)
    assert item.explain() is not None
    assert run(app, within=31).completed["w"] == 1
    assert item.result(0) == "late"


def test_a_signal_without_a_payload_is_no_timeout() -> None:
    app = two_shards()
    waiting(app, 60)
    item = enqueue(app, "w")
    item.signal("approved")
    run(app)
    assert item.result(0) is None


def test_a_timeout_is_an_error_that_undoes_the_run_and_says_what_has_not_come() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "x", undo=subtract)
        wf.wait_for("approved", 60)

    enqueue(app, "w")
    drained = run(app, within=61)
    assert str(drained.errors[0]) == "the signal 'approved' has not come within 60 s"
    assert (drained.dead_lettered["w"], count(app, HOME, "x")) == (1, 0)


def test_a_timeout_that_the_workflow_catches_is_the_same_in_every_replay() -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> str:
        try:
            wf.wait_for("approved", 60)
        except SignalTimeout as error:
            wf.step(add, "x")
            return f"{error.signal} {error.timeout_s}"
        return "approved"

    item = enqueue(app, "w")
    assert run(app, within=61).errors == []
    assert (item.result(0), count(app, HOME, "x")) == ("approved 60.0", 1)


def test_the_deadline_of_a_wait_does_not_move_when_the_run_is_woken_for_something_else() -> None:
    app = two_shards()
    waiting(app, 60)
    item = enqueue(app, "w")
    run(app, within=59)
    app.tenant(HOME).signal(item.item_id, "other", 1)
    assert run(app, within=2).completed["w"] == 1


def test_signals_of_a_name_are_taken_in_the_order_in_which_they_were_sent() -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> list[Any]:
        return [wf.wait_for("n", 60, default="late") for _ in range(4)]

    item = enqueue(app, "w", item_id="mine")
    app.tenant(HOME).transact(lambda tr: [tr.signal("mine", "n", number) for number in range(2)])
    app.tenant(HOME).signal("mine", "n", 2)
    run(app, within=100)
    assert item.result(0) == [0, 1, 2, "late"]


def test_signals_of_other_tenants_arrive_once_wherever_these_live() -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    def work(wf: WorkflowContext) -> list[Any]:
        return sorted(wf.wait_for("n", 600) for _ in range(3))

    @app.workflow("sender")
    def send(wf: WorkflowContext) -> None:
        wf.signal("mine", "n", 3, on=HOME)

    item = enqueue(app, "w", item_id="mine")
    for number, tenant in enumerate([NEIGHBOUR, ELSEWHERE], start=1):
        app.tenant(tenant).transact(lambda tr, number=number: tr.signal("mine", "n", number, to=HOME))  # type: ignore[misc]
    app.tenant(ELSEWHERE).enqueue("sender")
    run(app, within=60)
    assert item.result(0) == [1, 2, 3]


def test_a_signal_of_another_tenant_to_nobody_is_dropped() -> None:
    app = two_shards()
    waiting(app)
    app.tenant(ELSEWHERE).transact(lambda tr: tr.signal("nobody", "approved", to=HOME))
    drained = run(app, within=60)
    assert (drained.completed["fairlead.signal"], drained.errors) == (1, [])


def test_a_sleep_holds_no_slot_and_lasts_as_long_as_it_should() -> None:
    app, times = two_shards(), []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.sleep(3600)
        times.append(wf.now().timestamp())
        wf.step(add, "after")

    begun = app.clock.now_us() / 1e6
    enqueue(app, "w")
    assert run(app, within=3599).suspended["w"] == 1
    assert run(app, within=2).completed["w"] == 1
    assert 3600 <= times[0] - begun < 3602
    assert count(app, HOME, "after") == 1


def test_a_run_that_waits_first_is_known_to_have_begun_though_a_signal_came_before() -> None:
    """So newer code knows the version that began it, and a cancellation undoes it."""
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.wait_for("approved")

    item = enqueue(app, "w", item_id="mine")
    app.tenant(HOME).signal("mine", "other")
    assert run(app).suspended["w"] == 1
    assert item.cancel() is CancelOutcome.UNDOING
