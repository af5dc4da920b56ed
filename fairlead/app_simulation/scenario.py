"""The requests and checks of an application, for `fairlead simulate`."""

import inspect
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from fairlead.actors.handlers import describe
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.errors import BadArgument

Begin = TypeVar("Begin", bound=Callable[[], object])
Request = TypeVar("Request", bound=Callable[[Random], object])
Check = TypeVar("Check", bound=Callable[[Sequence[TenantDatabase]], object])


class Scenario:
    """The requests and checks of an application; it is `app.simulation`.

        @app.simulation.request
        def somebody_orders(random):
            place_order(random.choice(["alice", "bob"]), order=random.randrange(1_000_000))

        @app.simulation.check
        def every_order_has_a_receipt(tenants):
            for tenant in tenants:
                assert tenant.transact(lambda tr: ...), tenant

    Only `fairlead simulate` calls them; a fleet does not.
    """

    def __init__(self) -> None:
        self.begins: list[Callable[[], object]] = []
        self.requests: list[Callable[[Random], object]] = []
        self.checks: list[Callable[[Sequence[TenantDatabase]], object]] = []

    def begin(self, function: Begin) -> Begin:
        """Call the decorated function, without arguments, when a world begins: to clear state of the world before.

        Many worlds follow each other in one process. State that handlers keep outside the store, such as the list in a
        fake of a payment service, has to be cleared here. The stores are empty, and cannot be used yet.
        """
        self.begins.append(_taking(0, function, "a plain function without arguments"))
        return function

    def request(self, function: Request) -> Request:
        """Call the decorated function again and again, as a web server calls a view.

        The function chooses with the `random.Random` that it gets, and writes and enqueues through the application as
        in production. Two processes call it concurrently; each may fail in the middle of a call, and go on with
        another. If there are several requests, each call chooses one. An error that it raises is a violation: catch the
        expected ones.
        """
        self.requests.append(_taking(1, function, "a plain function of a random.Random"))
        return function

    def check(self, function: Check) -> Check:
        """Call the decorated function at the end: all queues are empty, and no further fault happens.

        It gets the `TenantDatabase` of every tenant that has or had keys or items, in order, and raises an error if
        their content is wrong: `assert charged == 1, f"{tenant} was charged {charged} times"`. The report names the
        seed, the check and the message.
        """
        self.checks.append(_taking(1, function, "a plain function of a list of TenantDatabase"))
        return function


def _taking(count: int, function: Any, allowed: str) -> Any:
    """Return `function`, if it is a plain function of so many arguments."""
    if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise BadArgument(argument="function", value=describe(function), allowed=allowed)
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        value = f"{describe(function)}{inspect.signature(function)}"
        raise BadArgument(argument="function", value=value, allowed=allowed) from None
    return function
