"""Tracebacks of failed workflows begin in the user's code, and name the line that called `wf`."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from fairlead import App, AsyncWorkflowContext, PermanentError, Retry, WorkflowContext
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.workflows.application import HOME, append, enqueue, run, two_shards


def frames(traceback: str) -> list[str]:
    """Return the functions that a traceback names, outermost first, those of Fairlead in brackets."""
    found = re.findall(r'File "(.*)", line \d+, in (\S+)', traceback)
    return [name if file.endswith("test_tracebacks.py") else f"({name})" for file, name in found]


def traceback_of(app: App, work: Any) -> str:
    """Run a workflow that fails for good; return the traceback of its dead letter."""
    app.workflow("w", retry=Retry(attempts=1))(work)
    enqueue(app, "w")
    run(app)
    (dead_letter,) = app.tenant(HOME).dead_letters()
    return dead_letter.traceback


def release(tr: TenantTransaction, word: str) -> None:
    refuse()


def give_back(key: str) -> None:
    refuse()


def refuse() -> None:
    try:
        raise KeyError("account")
    except KeyError:
        raise PermanentError("the bank is closed")  # noqa: B904 - an error with a context


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("undone", ["step", "effect"])
def test_the_traceback_of_a_failed_undo_is_that_of_the_undo(undone: str, is_async: bool) -> None:
    def work(wf: WorkflowContext) -> None:
        if undone == "step":
            wf.step(append, "a", undo=release)
        else:
            wf.effect(lambda key: None, name="pay", undo=give_back)
        raise PermanentError("sold out")

    async def work_async(wf: AsyncWorkflowContext) -> None:
        if undone == "step":
            await wf.step(append, "a", undo=release)
        else:
            await wf.effect(lambda key: None, name="pay", undo=give_back)
        raise PermanentError("sold out")

    text = traceback_of(two_shards(), work_async if is_async else work)
    assert frames(text) == ["refuse", "release" if undone == "step" else "give_back", "refuse"]
    assert "Interrupt" not in text
    assert text.startswith("Traceback")
    assert "KeyError: 'account'\n\nDuring handling of the above exception" in text


@pytest.mark.parametrize("call", [lambda wf: wf.step(lambda tr: object(), name="bad"), lambda wf: wf.read(append, "x")])
def test_the_traceback_of_an_error_that_fairlead_found_ends_at_the_line_that_called_wf(call: Any) -> None:
    def work(wf: WorkflowContext) -> None:
        book(wf)

    def book(wf: WorkflowContext) -> None:
        call(wf)

    assert frames(traceback_of(two_shards(), work)) == ["work", "book", "<lambda>"]


def test_the_traceback_of_a_step_in_a_step_names_both_lines() -> None:
    def work(wf: WorkflowContext) -> None:
        def outer(tr: TenantTransaction) -> None:
            wf.step(append, "inner")

        wf.step(outer)

    named = [name for name in frames(traceback_of(two_shards(), work)) if not name.startswith("(")]
    assert named == ["work", "outer"]


def test_the_traceback_of_other_steps_names_the_line_that_did_them() -> None:
    names = iter(["reserve", "pay"])

    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", name=next(names))

    assert frames(traceback_of(two_shards(), work)) == ["work", "(check_new)", "(check_new)"]


def test_the_traceback_of_two_steps_at_once_begins_in_the_workflow() -> None:
    async def work(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(wf.step(append, "a"), wf.step(append, "b"))

    assert frames(traceback_of(two_shards(), work))[0] == "work"
