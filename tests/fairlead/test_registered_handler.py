"""The object that `@app.handler` makes of a function: callable, and able to enqueue its own items."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import click
import cloudpickle
import pytest

from fairlead import (
    App,
    BadArgument,
    EnqueueOptions,
    EnqueueStatus,
    HandlerOptions,
    ItemOptions,
    Job,
    RegisteredHandler,
    Retry,
    Tenant,
    TenantTransaction,
    new_item,
)
from fairlead.actors.handlers import handler_of
from fairlead.cli import fleet, items
from fairlead.testing import ManualClock, drain


@pytest.fixture
def app() -> App:
    return App("memory:", clock=ManualClock())


def test_a_handler_is_called_like_its_function(app: App) -> None:
    @app.handler("mail", timeout=3)
    def send_mail(job: Job) -> int:
        """Send it."""
        return len(job)  # type: ignore[arg-type]

    assert send_mail([1, 2, 3]) == 3  # type: ignore[arg-type]
    assert (send_mail.kind, send_mail.options) == ("mail", {"timeout": 3})
    assert (send_mail.__name__, send_mail.__doc__) == ("send_mail", "Send it.")
    assert list(inspect.signature(send_mail).parameters) == ["job"]


def test_an_async_handler_is_awaited_like_its_function(app: App) -> None:
    @app.handler("mail")
    async def send_mail(job: Job) -> int:
        return 7

    assert asyncio.run(send_mail(None)) == 7  # type: ignore[arg-type]
    if sys.version_info >= (3, 12):
        assert inspect.iscoroutinefunction(send_mail)


def test_a_handler_enqueues_its_own_kind_wherever_an_item_is_enqueued(app: App) -> None:
    done: list[tuple[str, Any]] = []

    @app.handler("mail")
    def send_mail(job: Job) -> None:
        done.append((str(job.tenant), job.payload))

    alice = app.tenant("shop", "alice")
    send_mail.enqueue("shop/alice", 1)
    send_mail.enqueue(alice, 2)
    send_mail.enqueue(Tenant("shop", "alice"), 3)
    alice.enqueue(send_mail, 4)
    alice.transact(lambda tr: tr.enqueue(send_mail, 5))
    app.enqueue_many([(alice, new_item(send_mail, 6))])
    app.enqueue_local(send_mail, 7)
    app.enqueue_everywhere(send_mail, 8)
    drain(app)
    assert sorted(done, key=lambda each: each[1]) == [
        *(("shop/alice", number) for number in range(1, 7)),
        ("local mail", 7),
        ("local mail", 8),
    ]


def test_a_handler_enqueues_with_the_options_of_every_enqueue(app: App) -> None:
    send_mail = app.handler("mail")(lambda job: None)
    made = send_mail.enqueue("shop/alice", item_id="mail-7", delay=timedelta(hours=1), priority=3, zone="other")
    assert made.status is EnqueueStatus.ENQUEUED
    (seen,) = app.tenant("shop/alice").peek(zone="other")
    assert (seen.given_id, seen.priority, seen.vesting_us - seen.enqueued_us) == ("mail-7", 3, 3_600_000_000)
    with pytest.raises(TypeError, match="delay_ms"):
        send_mail.enqueue("shop/alice", delay_ms=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("tenant", ["shop", "", 7, None])
def test_a_tenant_that_is_no_name_is_refused(app: App, tenant: Any) -> None:
    send_mail = app.handler("mail")(lambda job: None)
    with pytest.raises(BadArgument, match="APP/USER"):
        send_mail.enqueue(tenant)


def test_periodic_and_daily_functions_are_handlers_too(app: App) -> None:
    @app.every(timedelta(minutes=1), phase=timedelta(seconds=5))
    def sweep(job: Job) -> None: ...

    @app.daily("03:30", kind="nightly")
    def report(job: Job) -> None: ...

    assert (sweep.kind, report.kind) == ("sweep", "nightly")
    assert (app.periods[0].every_us, app.periods[0].phase_us) == (60_000_000, 5_000_000)


def test_one_function_may_handle_two_kinds(app: App) -> None:
    first = app.handler("first")(lambda job: None)
    second = app.handler("second", transactional=False)(first)
    assert (first.kind, second.kind) == ("first", "second")
    assert app.registry.handlers["first"].function is app.registry.handlers["second"].function


def test_a_transactional_handler_keeps_its_two_arguments(app: App) -> None:
    @app.handler("count", transactional=True)
    def count(job: Job, tr: TenantTransaction) -> None:
        tr.add(("count",), 1)

    count.enqueue("shop/alice")
    assert drain(app).completed == {"count": 1}


def test_attributes_of_the_function_are_the_handlers(app: App) -> None:
    def send_mail(job: Job) -> None: ...

    send_mail.colour = "red"  # type: ignore[attr-defined]
    handler = app.handler("mail")(send_mail)
    assert handler.colour == "red"
    with pytest.raises(AttributeError):
        _ = handler.size


# --- Pickling ---


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An importable module with a handler."""
    (tmp_path / "pickled_shop.py").write_text(
        "import fairlead\napp = fairlead.App('memory:')\n"
        "@app.handler('mail')\ndef send_mail(job):\n    return ('sent', job)\n"
        "def task():\n    return send_mail(7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import pickled_shop  # type: ignore[import-not-found]

    yield pickled_shop
    del sys.modules["pickled_shop"]


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_a_handler_is_pickled_by_its_name(shop: ModuleType, pickler: Any) -> None:
    assert pickle.loads(pickler.dumps(shop.send_mail)) is shop.send_mail
    assert copy.deepcopy(shop.send_mail) is shop.send_mail


def test_a_handler_that_has_no_name_is_pickled_by_value_without_its_application(app: App) -> None:
    handler = app.handler("mail", retry=Retry(attempts=3))(lambda job: ("sent", job))
    copied: RegisteredHandler[..., Any] = pickle.loads(cloudpickle.dumps(handler))
    assert (copied(7), copied.kind, copied.options) == (("sent", 7), "mail", handler.options)
    app.tenant("shop/alice").transact(lambda tr: tr.enqueue(copied))
    copied.enqueue(app.tenant("shop/alice"))
    assert app.tenant("shop/alice").count() == {"mail": 2}
    with pytest.raises(BadArgument, match="has no application"):
        copied.enqueue("shop/alice")


# --- Options are spelled once ---


def test_the_options_are_those_of_the_functions_that_check_them() -> None:
    for options, function in ((HandlerOptions, handler_of), (ItemOptions, new_item)):
        hints = get_type_hints(function)
        keywords = [
            name for name, each in inspect.signature(function).parameters.items() if each.kind is each.KEYWORD_ONLY
        ]
        assert get_type_hints(options) == {name: hints[name] for name in keywords}


def options_of(command: click.Command) -> set[str]:
    return {each.name for each in command.params if isinstance(each, click.Option) and each.name}


def test_the_command_line_takes_the_same_options() -> None:
    """Except those that only Python can express."""
    assert set(get_type_hints(EnqueueOptions)) - {"within"} <= options_of(items.enqueue)
    assert set(get_type_hints(HandlerOptions)) - {"retry", "permanent"} <= options_of(fleet.submit)
