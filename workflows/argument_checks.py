"""What a call of `wf` is given: refused when it is called, and not when an undo or a retry is needed.

A replay makes these checks for each step, so they look at types and code flags only. `inspect` would take 1 µs or more.
"""

import inspect
from functools import partial
from typing import Any

from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import describe
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import Tenant, named_tenant
from fairlead.zones.tenant_transaction import HasTenant

TenantLike = HasTenant | Tenant | str

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_UNDO_CALL = "undo=free, not undo=free(7)"
ASYNC_REFUSED = "a plain function; or make the workflow an async def, which can await it"
_SHOWN_MAX = 120  # Characters of an argument that is no function.


def check_step(body: Any, *, call: str = "step", undo: Any = None, retry: Any = None) -> None:
    """Check what a step or a read is made of. Its body and its undo run in transactions, and cannot await.

    `call`: the method of `wf` that was called.

    Raises:
      BadArgument: the body or the undo is no plain function, or `retry` is no `Retry`.
    """
    plain = "a plain function, not an async one: what is awaited belongs in wf.effect"
    _check_function("body", body, call=f"wf.{call}(reserve, 7), not wf.{call}(reserve(7))", plain=plain)
    if undo is not None:
        _check_function("undo", undo, call=_UNDO_CALL, plain="a plain function, not an async one: it is a step, too")
    _check_retry(retry)


def check_effect(function: Any, *, undo: Any, retry: Any, may_be_async: bool) -> None:
    """Check what an effect is made of. `may_be_async`: the workflow is async, and awaits the function and its undo.

    Raises:
      BadArgument: the function or the undo is none, or has to be awaited and cannot be; or `retry` is no `Retry`.
    """
    plain = "" if may_be_async else ASYNC_REFUSED
    _check_function("function", function, call="wf.effect(pay, 7), not wf.effect(pay(7))", plain=plain)
    if undo is not None:
        _check_function("undo", undo, call=_UNDO_CALL, plain=plain)
    _check_retry(retry)


def shortened(value: Any) -> str:
    """Return how a refused argument is shown: it may be large, or impossible to pickle."""
    return repr(value)[:_SHOWN_MAX]


def tenant_named(on: TenantLike | None) -> Tenant | None:
    """Return the tenant that `on` names.

    Raises:
      BadArgument: it names none.
    """
    if on is None or isinstance(on, Tenant):
        return on
    if isinstance(on, str):
        return named_tenant(on)
    tenant = getattr(on, "tenant", None)
    if not isinstance(tenant, Tenant):
        raise BadArgument(argument="on", value=shortened(on), allowed='None, a tenant, or its names: "shop/alice"')
    return tenant


def _check_function(argument: str, function: Any, *, call: str, plain: str) -> None:
    """`call`: shows how the function is given. `plain`: what to do if it is async; empty: it may be."""
    if not callable(function):
        raise BadArgument(argument=argument, value=shortened(function), allowed=f"a function: {call}")
    while type(function) is partial:
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        return
    if code.co_flags & _GENERATORS:
        allowed = "a function without yield: a call of a generator function runs nothing"
        raise BadArgument(argument=argument, value=describe(function), allowed=allowed)
    if plain and code.co_flags & inspect.CO_COROUTINE:
        raise BadArgument(argument=argument, value=describe(function), allowed=plain)


def _check_retry(retry: Any) -> None:
    if retry is not None and not isinstance(retry, Retry):
        allowed = "None, or a Retry, such as fairlead.Retry(attempts=5)"
        raise BadArgument(argument="retry", value=shortened(retry), allowed=allowed)
