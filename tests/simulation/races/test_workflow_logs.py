"""What an executor knows of its run, or not: after a crash, in a long log, behind a checkpoint."""

from __future__ import annotations

from typing import Any

from fairlead.workflows import run_log
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.keyspace import STEP_LOG
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow import step_log
from tests.simulation.races.missing_guards import Patch, planted
from tests.simulation.races.workflow_scene import BOB, FAR, WorkflowScene, do, undo
from tests.simulation.stage import ALICE, SECOND


def dies_behind_its_commit_elsewhere(scene: WorkflowScene) -> tuple[dict[str, int], list[int]]:
    """What Alice reads is an argument of the step elsewhere. It changes before the next attempt."""

    def look(tr: TenantTransaction) -> int:
        return int.from_bytes(tr.get(("changes",)) or b"", "little")

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=BOB)
        changes = wf.read(look)
        wf.step(do, f"done {changes}", on=BOB, name="done")

    scene.enqueued()
    killed = scene.executor(work)
    killed.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    killed.runs_until_commit(of="slot", at=scene.far).arrives()
    killed.host.kill()
    scene.has(lambda alice: alice.transact(lambda tr: tr.add(("changes",), 1)))
    other = scene.overtaken_by(work)
    other.runs_until_idle()
    return other.counts, scene.counts(BOB, "done 0", "done 1")


def test_a_step_elsewhere_is_known_to_an_executor_that_home_has_not_told() -> None:
    assert dies_behind_its_commit_elsewhere(WorkflowScene()) == ({"completed": 1}, [1, 0])


def test_without_a_record_of_what_was_read_the_next_attempt_does_not_fit() -> None:
    with planted("what was read is not recorded before a step on another shard"):
        assert dies_behind_its_commit_elsewhere(WorkflowScene()) == ({"dead_lettered": 1}, [1, 0])


def dies_in_its_first_effect(scene: WorkflowScene) -> int:
    """The next attempt runs a later version of the code. Return with how many keys the effect was called."""
    keys = set()

    def pay(key: str) -> None:
        keys.add(key)

    def work(wf: WorkflowContext) -> None:
        if wf.version > 1:
            wf.checkpoint("new in version 2")
        wf.effect(pay)
        wf.step(do, "done")

    scene.enqueued()
    killed = scene.executor(work)
    killed.runs_until(lambda: keys)
    killed.host.kill()
    scene.overtaken_by(work, version=2).runs_until_idle()
    assert scene.counts(ALICE, "done") == [1]
    return len(keys)


def test_the_version_that_has_called_an_effect_stays_the_version_of_its_run() -> None:
    assert dies_in_its_first_effect(WorkflowScene()) == 1


def test_without_a_record_of_the_version_later_code_calls_the_effect_with_another_key() -> None:
    with planted("an effect may be the first commit of its run"):
        assert dies_in_its_first_effect(WorkflowScene()) == 2


def dies_in_an_effect_that_may_be_called_once(scene: WorkflowScene) -> tuple[int, dict[str, int]]:
    """Return how often the effect was called, and how the run has ended."""
    keys = []

    def pay(key: str) -> None:
        keys.append(key)

    def work(wf: WorkflowContext) -> None:
        wf.effect(pay, once=True)

    scene.enqueued()
    killed = scene.executor(work)
    killed.runs_until(lambda: keys)
    killed.host.kill()
    other = scene.overtaken_by(work)
    other.runs_until_idle()
    return len(keys), other.counts


def test_an_effect_that_may_be_called_once_is_not_called_again_after_a_crash() -> None:
    assert dies_in_an_effect_that_may_be_called_once(WorkflowScene()) == (1, {"dead_lettered": 1})


def test_without_a_note_before_its_call_the_effect_is_called_again() -> None:
    with planted("an effect that may be called once leaves no note before its call"):
        assert dies_in_an_effect_that_may_be_called_once(WorkflowScene()) == (2, {"completed": 1})


def dies_behind_its_only_commit_elsewhere(scene: WorkflowScene) -> list[int]:
    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", on=BOB)

    scene.enqueued()
    killed = scene.executor(work)
    killed.runs_until_commit(of="slot", at=scene.far).arrives()
    killed.host.kill()
    scene.overtaken_by(work).runs_until_idle()
    return scene.counts(BOB, "done")


def test_a_step_elsewhere_whose_executor_dies_behind_its_commit_is_done_once() -> None:
    assert dies_behind_its_only_commit_elsewhere(WorkflowScene()) == [1]


def test_without_an_entry_elsewhere_a_step_is_done_again_after_a_crash() -> None:
    with planted("a step on another shard writes no entry"):
        assert dies_behind_its_only_commit_elsewhere(WorkflowScene()) == [2]


def pages_of_a_long_log(scene: WorkflowScene, patch: Patch) -> tuple[int | None, dict[str, int], list[int]]:
    """The log is read in several transactions; a commit of the executor before comes between two of them."""
    patch.setattr(step_log, "PAGE_ROWS", 2)
    pages: list[bytes] = []
    read_page = run_log._read_page

    def reads(*args: Any, **how: Any) -> bytes:
        end = read_page(*args, **how)
        pages.append(end)
        if len(pages) == 2:
            commit.arrives()
        return end

    def look(tr: TenantTransaction) -> int:
        return int.from_bytes(tr.get(("changes",)) or b"", "little")

    def work(wf: WorkflowContext) -> None:
        for number in range(5):
            wf.step(do, f"a{number}", undo=undo)
        changes = wf.read(look)
        wf.step(do, "recorded")
        wf.step(do, f"last {changes}", name="last")

    scene.enqueued()
    paused = scene.executor(work)
    for _ in range(6):
        paused.runs_until_commit(of="slot").goes_its_way()
    commit = paused.runs_until_commit(of="slot")
    scene.has(lambda alice: alice.transact(lambda tr: tr.add(("changes",), 1)))
    other = scene.overtaken_by(work)
    patch.setattr(run_log, "_read_page", reads)
    other.runs_until_idle()
    if not commit.has_arrived:
        commit.arrives()
    return commit.refusal, other.counts, scene.counts(ALICE, "a4", "recorded", "last 0", "last 1")


def test_a_log_that_is_read_in_several_transactions_is_that_of_one_moment(monkeypatch: Patch) -> None:
    """The lease sees to it: only its holder appends."""
    expected = (NOT_COMMITTED, {"completed": 1}, [1, 1, 1, 0])
    assert pages_of_a_long_log(WorkflowScene(), monkeypatch) == expected


def test_without_the_pages_behind_the_first_what_was_read_is_read_again(monkeypatch: Patch) -> None:
    with planted("a log ends with its first page"):
        assert pages_of_a_long_log(WorkflowScene(), monkeypatch)[2] == [1, 1, 0, 1]


def checkpoint_before_a_late_step(scene: WorkflowScene) -> tuple[list[int], int]:
    """Another executor makes a checkpoint behind the step, which forgets it. Return counts, and entries elsewhere."""

    def work(wf: WorkflowContext) -> None:
        for number in range(wf.state or 0, 3):
            wf.step(do, f"a{number}", on=BOB)
            wf.step(do, f"b{number}", on=BOB)
            wf.checkpoint(number + 1)
        wf.step(do, "last", on=BOB)
        wf.sleep(60)

    scene.enqueued()
    paused = scene.executor(work)
    paused.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    paused.runs_until_commit(of="slot", at=scene.far)
    scene.overtaken_by(work).runs_until_idle()
    paused.runs_until_idle()
    return scene.counts(BOB, "a0", "b0", "a1", "b1", "last"), scene.kept(FAR).count(STEP_LOG)


def test_a_late_executor_does_no_step_that_a_checkpoint_has_forgotten() -> None:
    assert checkpoint_before_a_late_step(WorkflowScene()) == ([1, 1, 1, 1, 1], 1)


def test_without_raised_fences_a_late_executor_does_a_forgotten_step_again() -> None:
    with planted("a new attempt does not raise the fences at participants"):
        counts, _ = checkpoint_before_a_late_step(WorkflowScene())
    assert counts == [1, 2, 1, 1, 1]


def test_without_a_clear_elsewhere_the_entries_before_checkpoints_stay_until_the_end() -> None:
    with planted("entries on another shard outlast a checkpoint"):
        assert checkpoint_before_a_late_step(WorkflowScene()) == ([1, 1, 1, 1, 1], 7)


# --- Code of other versions ---


def old_code(wf: WorkflowContext) -> None:
    for name in ("first", "last", "end"):
        wf.step(do, name, name=name)


def new_code(wf: WorkflowContext) -> None:
    for name in ("first", "new", "last", "end"):
        wf.step(do, name, name=name)


def other_code_in_the_middle(scene: WorkflowScene, *, began: int, overtakes: int) -> tuple[dict[str, int], list[int]]:
    """An executor with other code overtakes one that has done two steps."""
    code = {1: old_code, 2: new_code}
    scene.enqueued()
    paused = scene.executor(code[began], version=began)
    for _ in range(2):
        paused.runs_until_commit(of="slot").goes_its_way()
    paused.runs_until_commit(of="slot")
    other = scene.overtaken_by(code[overtakes], version=overtakes)
    other.runs_until_idle()
    paused.runs_until_idle()
    return other.counts, scene.counts(ALICE, "first", "new", "last")


def test_older_code_leaves_a_run_to_newer_code() -> None:
    scene = WorkflowScene()
    assert other_code_in_the_middle(scene, began=2, overtakes=1) == ({"returned": 1}, [1, 1, 0])
    scene.pass_us(10 * SECOND)
    scene.executor(new_code, version=2).runs_until_idle()
    assert scene.counts(ALICE, "first", "new", "last") == [1, 1, 1]


def test_without_a_look_at_the_version_older_code_makes_a_dead_letter() -> None:
    with planted("older code continues a run"):
        counts, _ = other_code_in_the_middle(WorkflowScene(), began=2, overtakes=1)
    assert counts == {"dead_lettered": 1}


def test_newer_code_may_do_a_new_step_before_a_recorded_one() -> None:
    scene = WorkflowScene()
    assert other_code_in_the_middle(scene, began=1, overtakes=2) == ({"completed": 1}, [1, 1, 1])


def test_without_a_look_at_the_version_newer_code_makes_a_dead_letter() -> None:
    with planted("newer code may do no new step"):
        counts, _ = other_code_in_the_middle(WorkflowScene(), began=1, overtakes=2)
    assert counts == {"dead_lettered": 1}
