"""Replays of live runs by changed code: what differs is found, and nothing is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, AsyncWorkflowContext, PermanentError, Retry, WorkflowContext
from fairlead.replayed_runs import ReplayedRun, replay_runs
from fairlead.testing import drain
from fairlead.workflows.execution import Execution
from fairlead.workflows.read_only_replay import ReplayOutcome, StoreInReplay, _RefusingDatabase
from fairlead.workflows.replay import StepsDiffer
from fairlead.zones.engines.memory.engine import MemoryStore
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.fairlead.shell import Answer
from tests.fairlead.shell import run as run_command
from tests.workflows.application import ELSEWHERE, HOME, add, two_shards

NONE = "reserve, elsewhere, pay, look, wait_for approved were not reached"


def refuse(*args: Any) -> Any:
    raise AssertionError("something was done")


class Story:
    """Workflows of one kind that wait, and new code for them. While it replays, no store may commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = two_shards()
        self._monkeypatch = monkeypatch

    def begin(self, function: Callable[..., Any], *, version: int = 1, payload: Any = None, **options: Any) -> None:
        """Start a workflow of the old code, and run it until it waits."""
        self.code(function, version=version, **options)
        self.app.tenant(HOME).enqueue("w", payload)
        drain(self.app, raise_errors=False)

    def code(self, function: Callable[..., Any], *, version: int = 1, **options: Any) -> None:
        self.app.registry.handlers.clear()
        self.app.workflow("w", version=version, **options)(function)

    def replay(self, function: Callable[..., Any], *, version: int = 1, **options: Any) -> list[ReplayedRun]:
        """Replay all runs by new code."""
        self.code(function, version=version, **options)
        with self._monkeypatch.context() as patched:
            patched.setattr(MemoryStore, "submit", refuse)
            return [run for shard in self.app.shards.values() for run in replay_runs(self.app, "w", shard)]


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


def old(wf: WorkflowContext, order: int = 7) -> None:
    wf.step(add, "a", name="reserve")
    wf.step(add, "b", name="elsewhere", on=ELSEWHERE)
    wf.effect(lambda key: "paid", name="pay")
    wf.read(lambda tr: 1, name="look")
    wf.wait_for("approved")
    wf.step(add, "c", name="ship")


def not_done(wf: WorkflowContext, order: int = 7) -> None:
    """The same steps, of which no body may be called."""
    wf.step(refuse, "a", name="reserve")
    wf.step(refuse, "b", name="elsewhere", on=ELSEWHERE)
    wf.effect(refuse, name="pay")
    wf.read(refuse, name="look")
    wf.wait_for("approved")
    wf.step(refuse, "c", name="ship")


def test_code_that_does_the_recorded_steps_fits_and_nothing_of_it_is_done(story: Story) -> None:
    story.begin(old)
    assert [(run.outcome, run.version, run.tenant.user) for run in story.replay(not_done)] == [
        (ReplayOutcome.SAME, 1, "alice")
    ]


def test_a_new_step_is_found_and_both_lists_are_shown(story: Story) -> None:
    def new(wf: WorkflowContext) -> None:
        wf.step(refuse, name="check")
        not_done(wf)

    story.begin(old)
    (run,) = story.replay(new)
    assert run.outcome is ReplayOutcome.DIFFERENT
    assert isinstance(run.error, StepsDiffer)
    assert run.error.fields["first_difference"] == f"check is new, and {NONE}"
    assert run.error.fields["recorded"] == ["reserve", "elsewhere", "pay", "look", "wait_for approved"]
    assert run.error.fields["now"] == ["check"]


@pytest.mark.parametrize(
    ("new", "first_difference"),
    [
        (lambda wf: wf.wait_for("approved"), "the workflow has come to the end of what is recorded, and reserve"),
        (
            lambda wf: None,
            f"the workflow has ended, and {NONE}",
        ),
        (lambda wf: wf.step(refuse, "z", name="reserve"), "reserve has other arguments, or is of another kind"),
        (lambda wf: wf.effect(refuse, name="reserve"), "reserve has other arguments, or is of another kind"),
        (
            lambda wf: {"y": 1}["x"],
            f"the workflow has raised KeyError: 'x', and {NONE}",
        ),
    ],
)
def test_code_that_differs_in_other_ways_is_found(story: Story, new: Callable[..., Any], first_difference: str) -> None:
    story.begin(old)
    (run,) = story.replay(new)
    assert run.outcome is ReplayOutcome.DIFFERENT
    assert run.error is not None
    assert str(run.error.fields["first_difference"]).startswith(first_difference)


def test_a_payload_that_does_not_fit_is_found(story: Story) -> None:
    story.begin(old, payload={"order": 8})
    (run,) = story.replay(lambda wf, number: None)
    assert type(run.error).__name__ == "PayloadMismatch"


def test_code_of_a_higher_version_may_add_steps_and_older_code_gives_the_run_back(story: Story) -> None:
    def new(wf: WorkflowContext) -> None:
        wf.step(refuse, name="check")
        not_done(wf)

    story.begin(old, version=2)
    assert [run.outcome for run in story.replay(new, version=3)] == [ReplayOutcome.SAME]
    assert [run.outcome for run in story.replay(new, version=1)] == [ReplayOutcome.NEWER]


def test_a_run_that_is_undone_is_replayed_up_to_its_failure(story: Story) -> None:
    def stuck(tr: TenantTransaction, *args: Any) -> None:
        raise ConnectionError

    def failing(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve", undo=stuck)
        wf.step(fail, name="ship")

    def fail(tr: TenantTransaction) -> None:
        raise PermanentError("sold out")

    story.begin(failing, retry=Retry(backoff=3600, backoff_max=3600))
    assert [run.outcome for run in story.replay(failing)] == [ReplayOutcome.SAME]
    assert [run.outcome for run in story.replay(lambda wf: wf.step(refuse, name="other"))] == [ReplayOutcome.DIFFERENT]


def test_an_async_workflow_is_replayed_with_all_its_branches(story: Story) -> None:
    async def first(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(*[wf.step(add, "a", name=f"reserve {at}") for at in range(3)])
        await wf.wait_for("go")

    async def same(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(*[wf.step(refuse, "a", name=f"reserve {at}") for at in reversed(range(3))])
        await wf.wait_for("go")

    async def other(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(*[wf.step(refuse, "a", name=f"reserve {at}") for at in range(1, 4)])

    story.begin(first)
    assert [run.outcome for run in story.replay(same)] == [ReplayOutcome.SAME]
    (run,) = story.replay(other)
    assert isinstance(run.error, StepsDiffer)
    assert run.error.fields["first_difference"] == "reserve 3 is new, and reserve 0, wait_for go were not reached"


def test_steps_behind_a_checkpoint_are_compared_with_the_state(story: Story) -> None:
    def loop(wf: WorkflowContext) -> None:
        if wf.state is None:
            wf.step(add, "a", name="first")
            wf.checkpoint(1)
        wf.step(add, "a", name="second")
        wf.wait_for("go")

    story.begin(loop)
    assert [run.outcome for run in story.replay(loop)] == [ReplayOutcome.SAME]


def test_code_that_uses_a_store_outside_of_its_steps_gets_none(story: Story) -> None:
    def outside(wf: WorkflowContext) -> None:
        with suppress(AssertionError):
            story.app.tenant(HOME).enqueue("mail")
        not_done(wf)

    story.begin(old)
    (run,) = story.replay(outside)
    assert run.error is not None
    assert "has raised StoreInReplay" in str(run.error)
    assert story.app.tenant(HOME).count() == {"w": 1}


def test_a_step_that_is_begun_all_the_same_finds_no_store(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard behind the guard: here a replay does not stop at the end of what is recorded."""
    refusals = []

    def create_transaction(db: object) -> None:
        refusals.append(db)
        raise StoreInReplay

    story.begin(old)
    monkeypatch.setattr(Execution, "stop_at_end", lambda self: None)
    monkeypatch.setattr(_RefusingDatabase, "create_transaction", create_transaction)
    story.replay(lambda wf: wf.step(refuse, name="new"), version=2)
    story.replay(lambda wf: wf.step(refuse, name="new", on=ELSEWHERE), version=2)
    story.replay(lambda wf: wf.finish(refuse), version=2)
    story.replay(lambda wf: wf.sleep(10), version=2)
    assert len(refusals) == 4


def test_runs_in_every_queue_of_every_shard_are_found_and_items_without_steps_are_not(story: Story) -> None:
    story.code(old)
    for user in range(20):
        story.app.tenant("shop", f"user{user}").enqueue("w", zone="slow" if user % 2 else "queue")
        story.app.tenant("shop", f"user{user}").enqueue("mail")
    drain(story.app)
    story.app.tenant(HOME).enqueue("w")
    assert {run.tenant.user for run in story.replay(not_done)} == {f"user{user}" for user in range(20)}


# --- The command ---

OLD = """
import fairlead

app = fairlead.App("embedded:./data")


@app.workflow("checkout")
def checkout(wf):
    wf.step(note, name="reserve")
    wf.wait_for("approved")


def note(tr):
    tr.add(("notes",), 1)


@app.handler("mail")
def mail(job):
    pass
"""
APP = ("--app", "fl_new:app")


@pytest.fixture
def shop(empty_directory: Path) -> Path:
    """A directory with a store where three workflows wait, and code that fits them."""
    app = App("embedded:./data")
    app.workflow("checkout")(lambda wf: (wf.step(lambda tr: None, name="reserve"), wf.wait_for("approved")))
    for user in ("alice", "bob", "carol"):
        app.tenant("shop", user).enqueue("checkout")
    drain(app)
    app.close()
    (empty_directory / "fl_new.py").write_text(OLD)
    return empty_directory


def change(shop: Path) -> None:
    (shop / "fl_new.py").write_text(OLD.replace('    wf.step(note, name="reserve")', '    wf.step(note, name="check")'))


def test_the_command_says_that_all_runs_fit(shop: Path) -> None:
    answer = run_command("replay", "checkout", *APP)
    assert (answer.code, answer.out) == (0, "checkout, by version 1 of its code: 3 the same, 0 different\n")


def test_the_command_shows_both_lists_and_ends_with_1(shop: Path) -> None:
    change(shop)
    answer = run_command("replay", "checkout", *APP)
    assert answer.code == 1
    assert (
        answer.out.count(
            "check is new, and reserve, wait_for approved were not reached\n  recorded           this code\n> reserve"
        )
        == 3
    )
    assert answer.out.endswith("checkout, by version 1 of its code: 0 the same, 3 different\n")


def test_the_command_answers_with_json(shop: Path) -> None:
    change(shop)
    answer = run_command("replay", "checkout", *APP, "--json")
    first = answer.json["different"][0]
    assert (answer.code, answer.json["runs"], answer.json["same"], answer.json["whole"]) == (1, 3, 0, True)
    assert (first["recorded"], first["now"], first["steps_before"]) == (["reserve", "wait_for approved"], ["check"], 0)
    assert (first["error_type"], first["version"], first["zone"]) == ("StepsDiffer", 1, "queue")


def test_the_command_stops_at_its_limit_and_says_so(shop: Path) -> None:
    answer = run_command("replay", "checkout", *APP, "--limit", 2)
    assert (answer.code, "2 the same" in answer.out, "there are more runs: raise --limit" in answer.out) == (
        0,
        True,
        True,
    )


def refused(*typed: object) -> Answer:
    return run_command("replay", *typed)


def test_bad_input_is_refused_with_a_sentence(shop: Path) -> None:
    for typed, code, words in (
        (("chekcout", *APP), 2, "checkout"),
        (("mail", *APP), 2, "the kind is no workflow"),
        (("checkout", "--store", "embedded:./data"), 2, "name it by --app"),
        (("checkout", "--app", "fl_nowhere:app"), 2, "fl_nowhere"),
        (("checkout", *APP, "--limit", 0), 2, "limit"),
    ):
        answer = refused(*typed)
        assert (answer.code, words in answer.err, answer.out) == (code, True, ""), (typed, answer)
        assert "Traceback" not in answer.err


def test_a_store_that_is_missing_is_not_made(shop: Path) -> None:
    (shop / "fl_new.py").write_text(OLD.replace("./data", "./nowhere"))
    assert refused("checkout", *APP).code == 3
    assert not (shop / "nowhere").exists()
