"""Handlers of every form that threads can run, what their jobs know, and what they return."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fairlead import App, ItemFailed, Job, Retry
from tests.fairlead.both_kinds.queues import Effects, Queues
from tests.fairlead.live_consumers import consumer, eventually

KEY = "0" * 64


class CallsBack:
    """A handler that is an object."""

    def __call__(self, job: Job) -> str:
        return f"called with {job.payload}"


class Coroutine:
    """One whose call is a coroutine."""

    async def __call__(self, job: Job) -> str:
        await asyncio.sleep(0)
        return f"awaited with {job.payload}"


def plain(job: Job) -> str:
    return f"ran in {threading.current_thread().name != 'MainThread'} with {job.payload}"


async def on_the_loop(job: Job) -> str:
    await asyncio.sleep(0)
    return f"ran on {asyncio.get_running_loop().is_running()} with {job.payload}"


@pytest.mark.parametrize(
    ("function", "returned"),
    [
        (plain, "ran in True with 7"),
        (on_the_loop, "ran on True with 7"),
        (CallsBack(), "called with 7"),
        (Coroutine(), "awaited with 7"),
    ],
    ids=["plain", "async", "object", "async object"],
)
def test_a_function_of_each_form_runs_an_item(app: App, alice: Queues, function: Any, returned: str) -> None:
    app.handler("mail", keep_result=60)(function)
    handle = alice.enqueue("mail", 7)
    with consumer(app):
        assert handle.result(30) == returned


def test_a_transactional_handlers_effects_and_result_are_one_commit(
    app: App, alice: Queues, transactional: dict[str, Any], effects: Effects
) -> None:
    @app.handler("mail", keep_result=60, retry=Retry(backoff=0.01), **transactional)
    def mail(job: Job, transaction: Any) -> str:
        effects.add(transaction, f"attempt {job.attempt}")
        if job.attempt == 1:
            raise ValueError("no postman")
        return "sent"

    handle = alice.enqueue("mail")
    with consumer(app):
        assert handle.result(30) == "sent"
    assert (effects.found("attempt 1"), effects.found("attempt 2")) == (0, 1)


def test_a_handler_is_submitted_to_a_running_fleet(app: App, alice: Queues) -> None:
    """Its kind is unknown when the fleet starts, and when the item comes."""
    app.configure(app.load_config({"signing_key": KEY}))

    def mail(job: Job) -> str:
        return f"sent to {job.payload}"

    app.handler("other")(lambda job: None)
    handle = alice.enqueue("mail", "bob")
    with consumer(app):
        assert app.submit(mail, kind="mail", keep_result=60) == 1
        assert handle.result(30) == "sent to bob"


def test_a_transactional_handler_is_submitted(
    app: App, alice: Queues, transactional: dict[str, Any], effects: Effects, store: str | None
) -> None:
    app.configure(app.load_config({"signing_key": KEY}))
    in_sql = store is not None

    def mail(job: Any, transaction: Any) -> None:
        if in_sql:
            transaction.execute("INSERT INTO words VALUES ('sent')")
        else:
            transaction.add(("word", "sent"), 1)

    app.handler("other")(lambda job: None)
    app.submit(mail, kind="mail", **transactional)
    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: alice.count() == {})
    assert effects.found("sent") == 1


def test_handlers_run_side_by_side_in_the_slots_of_a_worker(app: App, alice: Queues) -> None:
    together = threading.Barrier(2, timeout=30)

    @app.handler("mail", keep_result=60)
    def mail(job: Job) -> str:
        together.wait()
        return "both ran"

    handles = [alice.enqueue("mail") for _ in range(2)]
    with consumer(app):
        assert [each.result(30) for each in handles] == ["both ran", "both ran"]


# --- What a job knows and does ---


def test_a_job_knows_its_item(app: App, alice: Queues, store: str | None) -> None:
    seen: list[Any] = []

    @app.handler("mail")
    def mail(job: Job) -> None:
        seen.append((job.id, job.tenant, job.kind, job.zone, job.store, job.attempt, job.payload, job.cancelled))
        seen.append(job.enqueued_us)

    before_us = app.clock.now_us()
    handle = alice.enqueue("mail", {"to": b"\x00"}, zone="slow")
    after_us = app.clock.now_us()
    with consumer(app):
        eventually(lambda: len(seen) == 2)
    assert seen[0] == (handle.item_id, ("shop", "alice"), "mail", "slow", store, 1, {"to": b"\x00"}, False)
    assert before_us - 100_000 <= seen[1] <= after_us + 100_000  # The clocks of two machines are compared.


def test_a_job_writes_to_the_keys_of_its_tenant(app: App, alice: Queues) -> None:
    """They lie in the shard, wherever the item does."""

    @app.handler("mail")
    def mail(job: Job) -> None:
        job.transact(lambda tr: tr.set(("sent", job.payload), b"yes"))

    @app.handler("fax")
    async def fax(job: Job) -> None:
        await job.atransact(lambda tr: tr.set(("faxed", job.payload), b"yes"))

    alice.enqueue("mail", 7)
    alice.enqueue("fax", 8)
    with consumer(app):
        eventually(lambda: alice.count() == {})
    keys = app.tenant("shop", "alice")
    assert keys.transact(lambda tr: (tr.get(("sent", 7)), tr.get(("faxed", 8)))) == (b"yes", b"yes")


# --- What they return ---


@pytest.mark.parametrize("returned", [None, 0, "text", b"\x00", [1, [2]], {"a": None}])
def test_a_result_comes_back_as_it_was_returned(app: App, alice: Queues, returned: Any) -> None:
    app.handler("mail", keep_result=60)(lambda job: returned)
    handle = alice.enqueue("mail")
    with consumer(app):
        assert handle.result(30) == returned


def test_an_item_whose_result_cannot_be_kept_is_a_dead_letter_at_once(app: App, alice: Queues) -> None:
    runs: list[int] = []

    @app.handler("mail", keep_result=60)
    def mail(job: Job) -> Any:
        runs.append(job.attempt)
        return {1, 2}

    handle = alice.enqueue("mail")
    with consumer(app), pytest.raises(ItemFailed, match="cannot be kept"):
        handle.result(30)
    assert runs == [1]


def test_a_handler_that_returns_work_instead_of_doing_it_has_failed(app: App, alice: Queues) -> None:
    @app.handler("mail", retry=Retry(attempts=1))
    def mail(job: Job) -> Any:
        return on_the_loop(job)

    handle = alice.enqueue("mail")
    with consumer(app), pytest.raises(ItemFailed, match="HandlerNotRun"):
        handle.result(30)


# --- Cancelled while they run ---


def test_a_coroutine_is_stopped_when_its_item_is_cancelled(app: App, alice: Queues) -> None:
    ended: list[str] = []
    began = threading.Event()

    @app.handler("mail")
    async def mail(job: Job) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("stopped")
            raise

    handle = alice.enqueue("mail")
    with consumer(app):
        assert began.wait(30)
        handle.cancel()
        eventually(lambda: ended == ["stopped"])
    assert (alice.count(), alice.dead_letters()) == ({}, [])
