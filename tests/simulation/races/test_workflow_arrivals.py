"""Signals and ends of children, which arrive while a run decides whether it waits, or whether it has ended."""

from __future__ import annotations

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import PermanentError, handler_of
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.errors import ItemFailed, ItemGone
from fairlead.zones.keyspace import CHILD_RESULT, SIGNAL
from tests.simulation.races.missing_guards import Patch, leave_no_receipts, planted
from tests.simulation.races.scene import MAIL
from tests.simulation.races.workflow_scene import HOME, MINE, NAME, WorkflowScene, do
from tests.simulation.stage import ALICE, SECOND


def waits(wf: WorkflowContext) -> None:
    """Wait for a signal. The step before makes the record say that keys of the run are stored."""
    wf.step(do, "before")
    wf.wait_for("go", timeout=3600)
    wf.step(do, "after")


# --- Between the look and the suspension ---


def signal_before_the_suspension(scene: WorkflowScene) -> tuple[int | None, list[int]]:
    scene.enqueued()
    worker = scene.executor(waits)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    scene.signals("go")
    worker.runs_until_idle()
    return commit.refusal, scene.counts(ALICE, "after")


def test_a_signal_between_the_look_and_the_suspension_is_not_missed() -> None:
    assert signal_before_the_suspension(WorkflowScene()) == (NOT_COMMITTED, [1])


def test_without_the_conflict_on_signals_a_run_sleeps_beside_its_own() -> None:
    scene = WorkflowScene()
    with planted("a suspension reads the signals by snapshot"):
        assert signal_before_the_suspension(scene) == (None, [0])
    assert scene.zone.items[MINE].vesting_us > scene.now_us + 1000 * SECOND


def suspension_before_the_signal(scene: WorkflowScene) -> list[int]:
    """The sender has read that the item runs, and need not be woken."""
    scene.enqueued()
    worker = scene.executor(waits)
    worker.runs_until_commit(of="slot").goes_its_way()
    worker.runs_until_commit(of="slot")
    sender = scene.user("sender", lambda alice: alice.transact(lambda tr: tr.signal(NAME, "go")))
    sender.runs_until_commit()
    worker.runs_until_idle()
    sender.runs()
    return sender.refused


def test_a_signal_wakes_a_run_that_was_suspended_before_its_commit() -> None:
    scene = WorkflowScene()
    assert suspension_before_the_signal(scene) == [NOT_COMMITTED]
    assert scene.zone.items[MINE].vesting_us <= scene.now_us


def test_without_the_conflict_on_the_record_a_signal_does_not_wake_its_run() -> None:
    scene = WorkflowScene()
    with planted("a signal reads the record of its item by snapshot"):
        assert suspension_before_the_signal(scene) == []
    assert scene.zone.items[MINE].vesting_us > scene.now_us


def suspended_with_unknown_result(scene: WorkflowScene) -> dict[str, int]:
    scene.enqueued()
    worker = scene.executor(waits)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    return worker.counts


def test_a_suspension_of_unknown_result_is_one() -> None:
    assert suspended_with_unknown_result(WorkflowScene()) == {"suspended": 1}


def test_without_a_look_at_the_record_a_worker_takes_its_own_suspension_for_a_lost_lease() -> None:
    with planted("a suspension does not see that it has happened"):
        assert suspended_with_unknown_result(WorkflowScene()) == {"lost": 1}


# --- Sent and taken once ---


def signal_of_unknown_result(scene: WorkflowScene) -> list[int]:
    """The run takes the signal before its sender tries again. It waits for two."""

    def waits_twice(wf: WorkflowContext) -> None:
        wf.wait_for("go", timeout=3600)
        wf.step(do, "first")
        wf.wait_for("go", timeout=3600)
        wf.step(do, "second")

    scene.enqueued()
    sender = scene.user("sender", lambda alice: alice.transact(lambda tr: tr.signal(NAME, "go")))
    commit = sender.runs_until_commit()
    commit.arrives()
    scene.executor(waits_twice).runs_until_idle()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    sender.runs()
    if scene.zone.items[MINE].vesting_us <= scene.now_us:
        scene.executor(waits_twice).runs_until_idle()
    return scene.counts(ALICE, "first", "second")


def test_a_signal_of_unknown_result_is_sent_once() -> None:
    assert signal_of_unknown_result(WorkflowScene()) == [1, 0]


def test_without_a_receipt_a_signal_of_unknown_result_is_sent_twice(monkeypatch: Patch) -> None:
    leave_no_receipts(monkeypatch)
    assert signal_of_unknown_result(WorkflowScene()) == [1, 1]


def taken_by_an_overtaken_executor(scene: WorkflowScene) -> list[int]:
    """An executor has looked, and its commit that notes the signal as taken comes after that of another one."""

    def takes_two(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        for number in range(2):
            taken = wf.wait_for("go", timeout=0, default=None)
            wf.step(do, f"none {number}" if taken is None else f"taken {number}", name=f"wait {number}")
            wf.sleep(1)  # What an attempt has taken, it does not take again.

    scene.enqueued()
    scene.has(lambda alice: alice.transact(lambda tr: tr.signal(NAME, "go", "one")))
    paused = scene.executor(takes_two)
    paused.runs_until_commit(of="slot").goes_its_way()
    paused.runs_until_commit(of="slot")
    scene.overtaken_by(takes_two).runs_until_idle()
    paused.runs_until_idle()
    assert paused.counts == {"lost": 1}
    while scene.zone.items:
        scene.pass_us(SECOND)
        scene.executor(takes_two).runs_until_idle()
    return scene.counts(ALICE, "taken 0", "taken 1", "none 1")


def test_a_signal_that_two_executors_have_seen_is_taken_once() -> None:
    assert taken_by_an_overtaken_executor(WorkflowScene()) == [1, 0, 1]


def test_without_its_clear_with_the_entry_a_signal_is_taken_twice() -> None:
    with planted("a signal that is taken stays"):
        assert taken_by_an_overtaken_executor(WorkflowScene()) == [1, 1, 0]


# --- To a run that has just ended ---


def signal_as_the_run_ends(scene: WorkflowScene) -> tuple[bool, list[int]]:
    """Return whether the sender was refused, and what is kept of the run."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done")

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="completer")
    sender = scene.user("sender", lambda alice: alice.transact(lambda tr: tr.signal(NAME, "go")))
    sender.runs_until_commit()
    worker.runs_until_idle()
    try:
        sender.runs()
    except ItemGone:
        return True, scene.kept(HOME)
    return False, scene.kept(HOME)


def test_a_signal_to_a_run_that_has_just_ended_is_refused() -> None:
    assert signal_as_the_run_ends(WorkflowScene()) == (True, [])


def test_without_the_conflict_on_the_record_a_signal_to_a_run_that_has_ended_stays_for_ever() -> None:
    with planted("a signal reads the record of its item by snapshot"):
        assert signal_as_the_run_ends(WorkflowScene()) == (False, [SIGNAL])


def signal_just_before_the_end(scene: WorkflowScene) -> list[int]:
    """The completion is on its way. Return what is kept of the run at the end."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done")

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="completer")
    scene.signals("go")
    worker.runs_until_idle()
    assert worker.counts == {"completed": 1}
    return scene.kept(HOME)


def test_a_signal_that_nobody_takes_goes_with_its_run() -> None:
    assert signal_just_before_the_end(WorkflowScene()) == []


def test_without_a_clear_at_the_end_a_signal_that_nobody_takes_stays_for_ever() -> None:
    with planted("signals that nobody has taken stay when their run ends"):
        assert signal_just_before_the_end(WorkflowScene()) == [SIGNAL]


# --- Children ---


def child_that_ends_before_its_parent_waits(scene: WorkflowScene) -> tuple[int | None, list[int]]:
    """The parent has looked, and its suspension is on its way."""

    def calls(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        wf.step(do, f"after {wf.call('mail')}")

    scene.enqueued()
    parent = scene.executor(calls)
    parent.runs_until_commit(of="slot").goes_its_way()
    parent.runs_until_commit(of="slot").goes_its_way()
    commit = parent.runs_until_commit(of="slot")
    scene.worker([MAIL], scene.leased()).runs_until_idle()
    parent.runs_until_idle()
    return commit.refusal, scene.counts(ALICE, "after None")


def test_a_child_that_ends_before_its_parent_waits_is_not_missed() -> None:
    assert child_that_ends_before_its_parent_waits(WorkflowScene()) == (NOT_COMMITTED, [1])


def test_without_the_conflict_on_reports_a_parent_sleeps_beside_its_childs() -> None:
    with planted("a suspension reads the ends of children by snapshot"):
        assert child_that_ends_before_its_parent_waits(WorkflowScene()) == (None, [0])


def child_that_ends_twice(scene: WorkflowScene) -> list[int]:
    """The child fails, and is retried as a dead letter, before its parent looks."""
    fails = [True]

    def mail(job: Job) -> int:
        if fails:
            fails.pop()
            raise PermanentError("no")
        return 7

    def calls(wf: WorkflowContext) -> None:
        try:
            answer = wf.call("mail")
        except ItemFailed:
            answer = "failed"
        wf.step(do, f"after {answer}", name="after")

    handler = handler_of("mail", mail)
    scene.enqueued()
    parent = scene.executor(calls)
    parent.runs_until_commit(of="slot").goes_its_way()
    scene.worker([handler], scene.leased()).runs_until_idle()
    (child_id,) = scene.zone.dead_lettered
    scene.has(lambda alice: alice.retry_dead_letter(child_id))
    scene.worker([handler], scene.leased()).runs_until_idle()
    scene.overtaken_by(calls).runs_until_idle()
    return scene.counts(ALICE, "after failed", "after 7")


def test_the_first_end_of_a_child_counts() -> None:
    assert child_that_ends_twice(WorkflowScene()) == [1, 0]


def test_without_a_look_at_the_first_report_the_last_end_of_a_child_counts() -> None:
    with planted("a report takes the place of an earlier one"):
        assert child_that_ends_twice(WorkflowScene()) == [0, 1]


def child_of_an_earlier_life(scene: WorkflowScene) -> list[int]:
    """The parent's name is enqueued again before the child ends. Return what is kept at the end."""

    def calls(wf: WorkflowContext) -> None:
        wf.call("mail")

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done")

    scene.enqueued()
    scene.executor(calls).runs_until_idle()
    scene.has(lambda alice: alice.cancel(NAME, force=True))
    scene.enqueued()
    scene.worker([MAIL], scene.leased()).runs_until_idle()
    scene.executor(work).runs_until_idle()
    return scene.kept(HOME)


def test_the_end_of_a_child_whose_parent_has_ended_is_not_kept() -> None:
    assert child_of_an_earlier_life(WorkflowScene()) == []


def test_without_a_look_at_the_run_the_end_of_a_child_is_kept_for_ever() -> None:
    with planted("the end of a child is reported to a later life of its parent"):
        assert child_of_an_earlier_life(WorkflowScene()) == [CHILD_RESULT]
