"""What a type checker knows of workflows and handlers: mypy checks this file, and the tests run it."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

from fairlead import App, EnqueuedHandle, Handle, Job, TenantDatabase, TenantTransaction, WorkflowContext
from fairlead.testing import drain


def reserve(tr: TenantTransaction, order: int) -> int:
    tr.set(("reserved", order), b"")
    return 10 * order


def test_a_workflow_keeps_the_types_of_its_function_and_its_result(app: App) -> None:
    @app.workflow("checkout", keep_result=60)
    def checkout(wf: WorkflowContext, order: int) -> int:
        return assert_type(wf.step(reserve, order), int)

    handle = checkout.enqueue("shop/alice", {"order": 7})
    assert_type(handle, EnqueuedHandle[int])
    drain(app)
    assert assert_type(handle.result(), int) == 70


def test_the_result_of_an_async_handler_is_what_it_returns_when_awaited(app: App) -> None:
    @app.handler("square", keep_result=60)
    async def square(job: Job) -> int:
        return int(job.payload) ** 2

    handle = square.enqueue("shop/alice", 7)
    drain(app)
    assert assert_type(handle.result(), int) == 49

    async def enqueued() -> int:
        return assert_type(await square.aenqueue("shop/alice", 7), EnqueuedHandle[int]).item_id[0]

    asyncio.run(enqueued())


def test_the_result_of_an_item_that_is_named_by_its_kind_is_anything(app: App, alice: TenantDatabase) -> None:
    app.handler("mail", keep_result=60)(lambda job: None)
    handle = alice.enqueue("mail")
    drain(app)
    assert_type(handle.result(), Any)
    found: Handle = alice.item(handle.item_id)
    assert found.result() is None
