"""Types of handlers and hooks for type checkers: a handler takes a `Job`, and a transactional one a transaction too."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import RemoteFunction
from fairlead.registered_handler import RegisteredHandler
from fairlead.zones.tenant_transaction import TenantTransaction

HandlerFunction = Callable[[Job], Any] | Callable[[Job, TenantTransaction], Any] | RemoteFunction

R = TypeVar("R")
Hook = TypeVar("Hook", bound=Callable[[Job, BaseException], Any])


class HandlerDecorator(Protocol):
    """What `App.handler` returns: it registers a function, and returns its handler."""

    @overload
    def __call__(self, function: Callable[[Job], R], /) -> RegisteredHandler[[Job], R]: ...

    @overload
    def __call__(
        self, function: Callable[[Job, TenantTransaction], R], /
    ) -> RegisteredHandler[[Job, TenantTransaction], R]: ...

    @overload
    def __call__(self, function: RemoteFunction, /) -> RegisteredHandler[..., Any]: ...
