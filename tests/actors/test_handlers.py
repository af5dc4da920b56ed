"""What can be a handler, and what is refused when it is registered."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import DuplicateHandler, Form, NotTransactional, PermanentError, Registry, handler_of
from fairlead.zones.errors import BadArgument
from fairlead.zones.tenant_transaction import TenantTransaction


def plain(job: Job) -> None:
    """A plain handler."""


async def coroutine(job: Job) -> None:
    """An async handler."""


class Callable_:
    def __call__(self, job: Job) -> None:
        """Called like a function."""


class AsyncCallable:
    async def __call__(self, job: Job) -> None:
        """Called like a coroutine function."""


def remote(module: str = "ray.remote_function", **fields: Any) -> Any:
    """Return something as Ray makes them: `.remote`, from a module of Ray's. The real ones are in tests/acceptance."""
    made = type("RemoteFunction", (), {"remote": lambda self, job: None, "_function": plain, **fields})
    made.__module__ = module
    return made()


@pytest.mark.parametrize(
    "function, form",
    [
        (plain, Form.PLAIN),
        (lambda job: None, Form.PLAIN),
        (functools.partial(plain), Form.PLAIN),
        (Callable_(), Form.PLAIN),
        (Callable_().__call__, Form.PLAIN),
        (coroutine, Form.ASYNC),
        (functools.partial(coroutine), Form.ASYNC),
        (AsyncCallable(), Form.ASYNC),
        (remote(), Form.REMOTE),
    ],
)
def test_the_form_of_a_handler_is_seen(function: Callable[..., Any], form: Form) -> None:
    assert handler_of("mail", function).form is form


def in_transaction(job: Job, tr: TenantTransaction) -> None:
    """A transactional handler."""


def test_a_plain_function_can_be_transactional() -> None:
    assert handler_of("mail", in_transaction, transactional=True).form is Form.TRANSACTIONAL


@pytest.mark.parametrize("function", [coroutine, AsyncCallable(), remote()])
def test_an_async_or_remote_function_cannot_be_transactional(function: Callable[..., Any]) -> None:
    with pytest.raises(NotTransactional) as refused:
        handler_of("mail", function, transactional=True)
    assert refused.value.fields["kind"] == "mail"


def generator(job: Job) -> Iterator[int]:
    yield 1


async def async_generator(job: Job) -> AsyncIterator[int]:
    yield 1


class GeneratorCallable:
    def __call__(self, job: Job) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("function", [generator, async_generator, functools.partial(generator), GeneratorCallable()])
def test_a_generator_is_refused_because_calling_it_runs_nothing(function: Callable[..., Any]) -> None:
    """Its items would be completed without a line of it having run."""
    with pytest.raises(BadArgument) as refused:
        handler_of("mail", function)
    assert refused.value.fields["argument"] == "handler"


def test_a_ray_function_that_returns_several_objects_is_refused() -> None:
    """Ray cannot stop it past its timeout: before, that killed the loop that keeps the worker's leases."""
    with pytest.raises(BadArgument) as refused:
        handler_of("mail", remote(_default_options={"num_returns": 2}))
    assert "test_handlers.plain" in str(refused.value)
    assert "num_returns=1" in str(refused.value)
    assert handler_of("mail", remote(_default_options={"num_returns": 1})).form is Form.REMOTE


def test_a_method_of_a_ray_actor_is_refused() -> None:
    with pytest.raises(BadArgument) as refused:
        handler_of("mail", remote("ray.actor", _actor="Actor(Mailer)", _method_name="send"))
    assert "Actor(Mailer).send" in str(refused.value)


@pytest.mark.parametrize(
    "function, transactional", [(lambda: None, False), (lambda job, more: None, False), (plain, True)]
)
def test_a_function_that_cannot_be_called_with_a_job_is_refused(
    function: Callable[..., Any], transactional: bool
) -> None:
    with pytest.raises(BadArgument) as refused:
        handler_of("mail", function, transactional=transactional)
    assert refused.value.fields["argument"] == "handler"


def test_a_function_may_take_more_than_it_is_given() -> None:
    handler_of("mail", lambda job, again=3, **options: None)
    handler_of("mail", lambda *anything: None, transactional=True)
    handler_of("mail", print)


@pytest.mark.parametrize(
    "argument, value",
    [
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", float("nan")),
        ("timeout", 8 * 24 * 3600),
        ("timeout", "30"),
        ("timeout", None),
        ("timeout", True),
        ("max_running", 0),
        ("max_running", 1.5),
        ("max_running", True),
        ("retry", 3),
        ("permanent", ValueError),
        ("permanent", ("ValueError",)),
        ("permanent", (ValueError(),)),
        ("permanent", (int,)),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(argument: str, value: Any) -> None:
    """What passed here would fail much later, in the middle of a worker."""
    with pytest.raises(BadArgument) as refused:
        handler_of("mail", plain, **{argument: value})
    assert refused.value.fields["argument"] == argument


@pytest.mark.parametrize("kind", ["", "k" * 97, "a\0b", 7, "\ud800"])
def test_a_kind_needs_a_name(kind: Any) -> None:
    with pytest.raises(BadArgument) as refused:
        handler_of(kind, plain)
    assert refused.value.fields["argument"] == "kind"


@pytest.mark.parametrize("function", [None, 7, "plain"])
def test_what_cannot_be_called_is_no_handler(function: Any) -> None:
    with pytest.raises(BadArgument) as refused:
        handler_of("mail", function)
    assert refused.value.fields["argument"] == "handler"


def test_permanent_errors_of_a_kind_are_added_to_the_one_of_all() -> None:
    assert handler_of("mail", plain, permanent=(KeyError,)).permanent == (PermanentError, KeyError)
    assert handler_of("mail", plain, permanent=[KeyError]).permanent == (PermanentError, KeyError)  # type: ignore[arg-type]


def test_a_very_short_timeout_is_at_least_a_millisecond() -> None:
    assert handler_of("mail", plain, timeout=0.0001).timeout_ms == 1


def test_the_default_is_to_retry() -> None:
    assert handler_of("mail", plain).retry == Retry()


def test_a_kind_has_one_handler_and_the_error_names_both() -> None:
    registry = Registry()
    registry.add(handler_of("mail", plain))
    with pytest.raises(DuplicateHandler) as refused:
        registry.add(handler_of("mail", coroutine))
    assert refused.value.fields["kind"] == "mail"
    assert str(refused.value.fields["first"]).endswith("test_handlers.plain")
    assert str(refused.value.fields["second"]).endswith("test_handlers.coroutine")
    assert [handler.function for handler in registry] == [plain]
