"""Common mistakes of new users are refused at once, by errors that say what to write."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead import (
    App,
    BadArgument,
    Enqueued,
    EnqueueStatus,
    Job,
    Retry,
    TenantDatabase,
    TenantTransaction,
    new_item,
)
from fairlead.testing import drain

# --- Decorators ---


@pytest.mark.parametrize(
    "decorator, written",
    [("handler", '@app.handler("kind")'), ("every", "@app.every(60)"), ("daily", '@app.daily("03:30")')],
)
def test_a_decorator_without_its_parentheses_is_refused_with_them(app: App, decorator: str, written: str) -> None:
    """It would get the function as its first argument and register nothing, and its items would never run."""

    def sweep() -> None: ...

    bare: Callable[[Any], object] = getattr(app, decorator)
    with pytest.raises(BadArgument) as caught:
        bare(sweep)
    assert written in str(caught.value.fields["allowed"])
    assert "sweep" in str(caught.value.fields["value"])
    assert (list(app.registry), app.periods) == ([], [])


@pytest.mark.parametrize("seconds", ["60", None, True, float("inf"), float("nan")])
def test_a_time_between_ticks_that_is_no_number_is_refused(app: App, seconds: Any) -> None:
    with pytest.raises(BadArgument, match="interval"):
        app.every(seconds)
    with pytest.raises(BadArgument, match="phase"):
        app.every(60, phase=seconds)


def test_a_time_of_day_that_is_no_text_is_refused(app: App) -> None:
    at: Any = 330
    with pytest.raises(BadArgument, match="HH:MM"):
        app.daily(at)


# --- Arguments of the wrong type ---


@pytest.mark.parametrize("shards", [Path("data"), 5, ["embedded:./x"], b"memory:"])
def test_shards_that_are_neither_a_url_nor_urls_by_name_are_refused(shards: Any) -> None:
    with pytest.raises(BadArgument, match="embedded:PATH") as caught:
        App(shards)
    assert caught.value.fields["argument"] == "shards"


@pytest.mark.parametrize("item_id", [5, None, Enqueued(b"\0" * 16, EnqueueStatus.ENQUEUED), "\ud800"])
def test_an_id_that_is_neither_text_nor_bytes_is_refused(alice: TenantDatabase, item_id: Any) -> None:
    for operation in (alice.cancel, alice.retry_dead_letter, alice.discard_dead_letter):
        with pytest.raises(BadArgument, match="the item_id that `enqueue` returned") as caught:
            operation(item_id)
        assert caught.value.fields["argument"] == "item_id"


@pytest.mark.parametrize("item", [{"kind": "k"}, "mail", 5, ("mail", {})])
def test_of_many_items_one_that_is_none_is_refused(app: App, alice: TenantDatabase, item: Any) -> None:
    with pytest.raises(BadArgument, match="new_item") as caught:
        alice.enqueue_many([new_item("mail"), item])
    assert (caught.value.fields["argument"], caught.value.fields["value"]) == ("items", item)
    pairs: list[Any] = [item, new_item("mail"), (alice, item), (7, new_item("mail")), (alice,)]
    for pair in pairs:
        with pytest.raises(BadArgument, match="new_item"):
            app.enqueue_many([(alice, new_item("mail")), pair])
    with pytest.raises(BadArgument, match="APP/USER"):
        app.enqueue_many([(alice, new_item("mail")), ("alice", new_item("mail"))])
    assert alice.count() == {}


async def _async_body(tr: TenantTransaction) -> None:
    tr.set(("order", 7), b"paid")


def test_an_async_function_as_the_body_of_a_transaction_is_refused(app: App, alice: TenantDatabase) -> None:
    """It would run nothing, and the transaction would commit nothing: the item would be completed without effect."""
    app.handler("order", retry=Retry(attempts=1))(lambda job: job.transact(_async_body))
    with pytest.raises(BadArgument, match="not an async one"):
        alice.transact(_async_body)  # type: ignore[unused-coroutine]
    with pytest.raises(BadArgument, match="not an async one"):
        alice.transact(functools.partial(_async_body))  # type: ignore[unused-coroutine]
    with pytest.raises(BadArgument, match="not an async one"):
        asyncio.run(alice.atransact(functools.partial(_async_body)))  # type: ignore[unused-coroutine]
    alice.enqueue("order")
    assert drain(app, raise_errors=False).dead_lettered == {"order": 1}


def test_a_function_that_is_no_handler_is_refused_as_a_kind(alice: TenantDatabase) -> None:
    def send_mail(job: Job) -> None: ...

    with pytest.raises(BadArgument, match=r"@app\.handler") as caught:
        alice.enqueue(send_mail)  # type: ignore[arg-type]
    assert (caught.value.fields["argument"], caught.value.fields["value"]) == ("kind", send_mail)


def test_a_local_item_has_no_tenant_to_enqueue_for(app: App) -> None:
    send_mail = app.handler("mail")(lambda job: None)
    sweep = app.handler("sweep")(lambda job: send_mail.enqueue(job.tenant))
    app.enqueue_local(sweep)
    with pytest.raises(BadArgument, match="local") as caught:
        drain(app)
    assert caught.value.fields["value"] == "local sweep"


# --- Arguments that mean nothing together ---


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda app: app.tenant("shop", "alice").enqueue("mail", unique_for=60),
        lambda app: app.tenant("shop", "alice").enqueue_many([new_item("mail", unique_for=60)]),
        lambda app: app.enqueue_many([(app.tenant("shop", "alice"), new_item("mail", unique_for=60))]),
        lambda app: app.enqueue_local("mail", unique_for=60),
        lambda app: app.enqueue_everywhere("mail", unique_for=60),
    ],
)
def test_an_id_that_stays_taken_must_be_given(app: App, enqueue: Callable[[App], object]) -> None:
    """`unique_for` without an `item_id` did nothing: the next enqueue gets another id, and both run."""
    with pytest.raises(BadArgument, match="without an item_id, or a unique_key") as caught:
        enqueue(app)
    assert (caught.value.fields["argument"], caught.value.fields["value"]) == ("unique_for", 60)
    assert app.tenant("shop", "alice").count() == app.local("mail").count() == {}
