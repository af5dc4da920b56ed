"""An application of workflows whose every step leaves a count in a tenant's keys, and every effect a line in a file."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import fairlead
from tests.acceptance.shop import note

DEPOTS = 7
app = fairlead.App()


def depot(number: int) -> str:
    """Return a tenant that lives on one shard or the other."""
    return f"depot/user {number % DEPOTS}"


def add(tr: fairlead.TenantTransaction, what: str, number: int) -> int:
    tr.add((what, number), 1)
    return number


def pay(key: str, path: str, number: int) -> str:
    note(path, number, key)
    return key


def give_back(key: str, path: str, number: int, result: str | None) -> None:
    note(path, number, "back", result or "?")


@app.handler("double", retry=fairlead.Retry(backoff=0.1))
def double(job: fairlead.Job) -> int:
    return int(job.payload["n"]) * 2


@app.workflow("journey", timeout=60, retry=fairlead.Retry(backoff=0.1))
def journey(wf: fairlead.WorkflowContext, number: int, path: str) -> Any:
    wf.step(add, "home", number)
    wf.step(add, "there", number, on=depot(number), name="there")
    key = wf.effect(pay, path, number)
    wf.wait_for("go")
    doubled = wf.call("double", {"n": number}, on=depot(number + 1))
    wf.step(add, "again", number, on=depot(number + 2), name="again")
    wf.sleep(0.1)
    wf.signal(f"listener-{number}", "done", doubled, on=depot(number + 3))
    return wf.finish(last, number, doubled, key)


def last(tr: fairlead.TenantTransaction, number: int, doubled: int, key: str) -> list[Any]:
    add(tr, "last", number)
    return [doubled, key]


@app.workflow("listener", timeout=60, retry=fairlead.Retry(backoff=0.1))
def listener(wf: fairlead.WorkflowContext, number: int) -> None:
    heard = wf.wait_for("done")
    wf.step(add, f"heard {heard}", number)


@app.workflow("undone", timeout=60, retry=fairlead.Retry(backoff=0.1), drop=True)
def undone(wf: fairlead.WorkflowContext, number: int, path: str) -> None:
    wf.step(add, "done", number, undo=undo)
    wf.step(add, "done", number, name="there", on=depot(number), undo=undo)
    wf.effect(pay, path, number, undo=give_back)
    wf.sleep(0.05)
    raise fairlead.PermanentError("as planned")


def undo(tr: fairlead.TenantTransaction, what: str, number: int) -> None:
    tr.add(("undone", number), 1)


@app.workflow("branches", timeout=60, retry=fairlead.Retry(backoff=0.1))
async def branches(wf: fairlead.AsyncWorkflowContext, number: int) -> None:
    async def branch(each: int) -> None:
        for turn in range(3):
            where = depot(number + each)
            await wf.step(add, f"branch {each}", number, name=f"{each} {turn}", on=where)
        await wf.sleep(0.05, name=f"sleep {each}")

    await asyncio.gather(*map(branch, range(3)))


@app.workflow("poison", timeout=60)
def poison(wf: fairlead.WorkflowContext, where: str) -> None:
    """End the worker's process: in the function, in a step, or in an effect."""
    wf.step(add, "done", 0)
    if where == "step":
        wf.step(lambda tr: os._exit(3), name="deadly")
    elif where == "effect":
        wf.effect(lambda key: os._exit(3), name="deadly")
    os._exit(3)
