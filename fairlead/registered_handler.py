"""A registered handler: the function that `App.handler` decorates, which also enqueues its own items.

@app.handler("receipt")
def send_receipt(job):
    print(job.tenant, job.payload)

send_receipt.enqueue("shop/alice", {"order": 7})
"""

import inspect
import sys
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from fairlead.actors.execution.submitted_handlers import travels_by_value
from fairlead.actors.handlers import HandlerOptions, describe
from fairlead.handle import EnqueuedHandle
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import EnqueueOptions, HasKind

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DatabaseOf = Callable[[TenantDatabase | Tenant | str], TenantDatabase]


class RegisteredHandler(HasKind, Generic[P, R]):
    """The handler of a kind. It can be called like the function that it decorates, in tests for example.

    It stands for its kind wherever an item is enqueued: `tenant.enqueue(send_receipt, ...)`, `tr.enqueue(send_receipt,
    ...)`, `new_item(send_receipt, ...)`. Attributes of the function, such as `remote` of a Ray remote function, are its
    attributes too.

    It is pickled by its name, as functions are. A handler of `__main__` is pickled by value, without its application:
    the copy's `enqueue` takes a `TenantDatabase`, and no name of a tenant.

    Attributes:
      kind: the kind of its items.
      options: the options that it was registered with.
    """

    def __init__(
        self, function: Callable[P, R], kind: str, options: HandlerOptions, database_of: DatabaseOf | None = None
    ) -> None:
        super().__init__(kind)
        update_wrapper(self, function, updated=())
        self.options = options
        self._function = function
        self._database_of = database_of or _database_given
        if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(function):
            inspect.markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function. Nothing is enqueued."""
        return self._function(*args, **kwargs)

    @overload
    def enqueue(
        self: "RegisteredHandler[P, Coroutine[Any, Any, T]]",
        tenant: TenantDatabase | Tenant | str,
        payload: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> EnqueuedHandle[T]: ...

    @overload
    def enqueue(
        self, tenant: TenantDatabase | Tenant | str, payload: Any = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueuedHandle[R]: ...

    def enqueue(
        self, tenant: TenantDatabase | Tenant | str, payload: Any = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueuedHandle[Any]:
        """Enqueue one item of this kind in a transaction of its own; see `TenantDatabase.enqueue`.

        In a transaction with other writes write `tr.enqueue(handler, payload)`.

        Args:
          tenant: `app.tenant(...)`, or the tenant as it is printed, "APP/USER", or `job.tenant`.
          payload: plain data, at most 1,000,000 bytes packed.
          options: see `EnqueueOptions`.

        Raises:
          BadArgument, PayloadNotData, PayloadTooLarge: nothing was changed.
        """
        return self._database_of(tenant).enqueue(self, payload, **options)

    @overload
    async def aenqueue(
        self: "RegisteredHandler[P, Coroutine[Any, Any, T]]",
        tenant: TenantDatabase | Tenant | str,
        payload: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> EnqueuedHandle[T]: ...

    @overload
    async def aenqueue(
        self, tenant: TenantDatabase | Tenant | str, payload: Any = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueuedHandle[R]: ...

    async def aenqueue(
        self, tenant: TenantDatabase | Tenant | str, payload: Any = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueuedHandle[Any]:
        """Enqueue one item as `enqueue` does, and let the event loop go on meanwhile; see `TenantDatabase.aenqueue`."""
        return await self._database_of(tenant).aenqueue(self, payload, **options)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the function."""
        if name.startswith("__") or "_function" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._function, name)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = str(getattr(self, "__qualname__", ""))
        if not travels_by_value(self.__module__) and _named(sys.modules.get(self.__module__), name) is self:
            return name  # A global of its module.
        return type(self), (self._function, self.kind, self.options)

    def __repr__(self) -> str:
        return f"<handler of {self.kind}: {describe(self._function)}>"


def function_of(function: Any) -> Any:
    """Return the function of a registered handler; anything else as it is."""
    return function._function if isinstance(function, RegisteredHandler) else function


def _named(module: Any, name: str) -> Any:
    """Return what a module has under a dotted name; None if it has nothing there."""
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _database_given(tenant: TenantDatabase | Tenant | str) -> TenantDatabase:
    """Return `tenant` if it is a database: a copy of a handler from another process has no application."""
    if isinstance(tenant, TenantDatabase):
        return tenant
    raise BadArgument(
        argument="tenant", value=tenant, allowed="app.tenant(...): this copy of the handler has no application"
    )
