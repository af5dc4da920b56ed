"""Code that changes while runs are under way: what is allowed, and what a person is shown where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead import App
from fairlead.testing import DrainResult, ManualClock
from fairlead.workflows import execution
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.errors import TooManySteps
from fairlead.workflows.replay import StepsDiffer
from tests.workflows.application import HOME, append, enqueue, run, two_shards, words

Code = Callable[[WorkflowContext], Any]


def deployed(app: App, work: Code, *, version: int = 1) -> App:
    """Return an application with other code on the same stores."""
    newer = App({"a": "memory:", "b": "memory:"}, clock=app.clock)
    newer._shards = app.shards
    newer.workflow("w", version=version)(work)
    return newer


def step(wf: WorkflowContext, word: str) -> None:
    wf.step(append, word, name=word)


def begun(*words_done: str) -> App:
    """Return an application with a run that has done these steps, and waits for a minute."""
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for word in words_done:
            step(wf, word)
        wf.sleep(60)

    enqueue(app, "w", item_id="mine")
    run(app)
    return app


def go_on(app: App) -> DrainResult:
    return run(app, within=120)


def test_a_step_that_is_missing_in_the_new_code_makes_a_dead_letter_with_both_lists() -> None:
    app = begun("a", "b", "c")

    def work(wf: WorkflowContext) -> None:
        for word in "ac":
            step(wf, word)
        step(wf, "d")

    drained = go_on(deployed(app, work))
    (error,) = drained.errors
    assert isinstance(error, StepsDiffer)
    assert error.fields["recorded"] == ["a", "b", "c", "sleep"]
    assert error.fields["now"] == ["a", "c", "d"]
    assert error.fields["first_difference"] == "d is new, and b, sleep were not reached"
    assert drained.dead_lettered["w"] == 1
    assert words(app) == "a b c", "nothing is undone"


def test_a_dead_letter_of_code_that_did_not_fit_goes_on_with_code_that_fits() -> None:
    app = begun("a", "b")
    go_on(deployed(app, lambda wf: step(wf, "x")))

    def work(wf: WorkflowContext) -> None:
        for word in "ab":
            step(wf, word)
        wf.sleep(60)
        step(wf, "c")

    fixed = deployed(app, work)
    fixed.tenant(HOME).retry_dead_letter("mine")
    assert go_on(fixed).completed["w"] == 1
    assert words(app) == "a b c"


def test_other_arguments_of_a_recorded_step_are_a_difference() -> None:
    app = begun("a")

    def work(wf: WorkflowContext) -> None:
        wf.step(append, "other", name="a")

    (error,) = go_on(deployed(app, work)).errors
    assert "other arguments" in error.fields["first_difference"]  # type: ignore[attr-defined]


def test_newer_code_may_add_a_step_and_branches_on_the_version_that_began_the_run() -> None:
    app = begun("a", "c")

    def work(wf: WorkflowContext) -> None:
        step(wf, "a")
        if wf.version >= 2:
            step(wf, "b")
        step(wf, "c")
        wf.sleep(60)
        step(wf, "d")

    newer = deployed(app, work, version=2)
    assert go_on(newer).completed["w"] == 1
    assert words(app) == "a c d"
    enqueue(newer, "w")
    go_on(newer)
    assert words(app) == "a c d a b c d"


def test_older_code_gives_the_item_back_and_newer_code_goes_on() -> None:
    app = two_shards()

    def work(wf: WorkflowContext) -> None:
        step(wf, "a")
        wf.sleep(60)
        step(wf, "b")

    newer, older = deployed(app, work, version=2), deployed(app, work)
    enqueue(newer, "w")
    run(newer)
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(61)
    drained = run(older)
    assert (drained.returned["w"], words(app)) == (1, "a")
    assert go_on(newer).completed["w"] == 1
    assert words(app) == "a b"


def test_a_step_that_is_recorded_and_never_reached_is_no_error_at_the_end() -> None:
    app = begun("a", "b")

    def work(wf: WorkflowContext) -> None:
        step(wf, "a")
        wf.sleep(60)

    assert go_on(deployed(app, work, version=2)).completed["w"] == 1


@pytest.mark.parametrize("replays", [True, False])
def test_an_end_before_recorded_steps_is_reported_with_both_lists(
    replays: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = begun("a", "b", "c")
    changed = deployed(app, lambda wf: step(wf, "a"))
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(61)
    drained = run(changed, replays=replays)
    assert (drained.dead_lettered["w"], drained.completed["w"]) == ((1, 0) if replays else (0, 1))
    said = str(drained.errors[0]) if replays else caplog.text
    assert "the workflow has ended, and b, c" in said
    assert "recorded" in said
    assert "this code" in said


def test_a_checkpoint_before_recorded_steps_are_reached_does_not_forget_them() -> None:
    """Before, newer code that had got checkpoints forgot steps that it was about to reach, and did them again."""

    def old(wf: WorkflowContext) -> None:
        for word in "abcde":
            step(wf, word)
        wf.wait_for("go")

    def new(wf: WorkflowContext) -> None:
        row = wf.state or 0
        while row < 7:
            step(wf, "abcdefg"[row])
            row += 1
            if row % 2 == 0:
                wf.checkpoint(row)
        wf.wait_for("go")

    for version in (1, 2):
        app = two_shards()
        app.workflow("w")(old)
        item = enqueue(app, "w")
        run(app)
        item.signal("go")
        drained = run(deployed(app, new, version=version))
        assert words(app) == ("a b c d e" if version == 1 else "a b c d e f g")
        assert [type(error) for error in drained.errors] == ([StepsDiffer] if version == 1 else [])


@pytest.mark.parametrize("checkpoint_at", [10, 20])
def test_a_loop_that_had_too_many_steps_goes_on_once_its_code_makes_checkpoints(
    checkpoint_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "STEPS_MAX", 20)
    app = two_shards()

    def loop(wf: WorkflowContext) -> None:
        for row in range(50):
            step(wf, f"{row}")

    def with_checkpoints(wf: WorkflowContext) -> None:
        row = wf.state or 0
        while row < 50:
            step(wf, f"{row}")
            row += 1
            if row % checkpoint_at == 0:
                wf.checkpoint(row)

    app.workflow("w")(loop)
    item = enqueue(app, "w")
    (error,) = run(app).errors
    assert isinstance(error, TooManySteps)
    app.tenant(HOME).retry_dead_letter(item.item_id)
    assert run(deployed(app, with_checkpoints)).completed["w"] == 1
    assert words(app) == " ".join(map(str, range(50)))
