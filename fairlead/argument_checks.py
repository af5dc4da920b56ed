"""Checks of the arguments of an application's methods."""

from difflib import get_close_matches
from typing import Any

from fairlead.actors.handlers import Form, Registry, WrongStore, describe
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import NewItem

_COMMITS_IN_ONE_PLACE = (Form.WORKFLOW, Form.TRANSACTIONAL, Form.IN_STORE)


class UnknownKind(QueueError):
    """An item was enqueued of a kind without a handler, in an application with `known_kinds_only=True`.

    Do: correct the kind; `nearest` is the known kind that is spelled most alike. Or register a handler of the kind, and
    import the module that does.
    """

    message = "the application has no handler of this kind"


def nearest_kind(registry: Registry, kind: str) -> str | None:
    """Return the kind with a handler that is spelled most alike, if there is one."""
    return next(iter(get_close_matches(kind, registry.handlers, 1)), None)


def check_known(registry: Registry, kind: str) -> None:
    """Raise UnknownKind if a kind has no handler."""
    if kind not in registry.handlers:
        raise UnknownKind(kind=kind, nearest=nearest_kind(registry, kind))


def check_runs_in(registry: Registry, kind: str, store: str) -> None:
    """Refuse to enqueue an item in an external store if the handler of its kind could not run it there.

    Raises:
      WrongStore: the handler commits in the tenant's shard, or in another external store.
    """
    handler = registry.handlers.get(kind)
    if handler is not None and handler.form in _COMMITS_IN_ONE_PLACE and handler.store != store:
        raise WrongStore(kind=kind, wanted=handler.store, found=store)


def refuse_missing_parentheses(argument: str, value: Any, written: str) -> None:
    """Refuse a decorator without its parentheses: it gets the function as `value`, and would register nothing."""
    if callable(value):
        raise BadArgument(argument=argument, value=describe(value), allowed=f"a decorator with parentheses: {written}")


def checked_pair(pair: Any) -> tuple[TenantDatabase | Tenant | str, NewItem]:
    """Return a tenant and an item, if `pair` is a pair of them."""
    if isinstance(pair, tuple | list) and len(pair) == 2:
        tenant, item = pair
        if isinstance(tenant, TenantDatabase | Tenant | str) and isinstance(item, NewItem):
            return tenant, item
    raise BadArgument(argument="items", value=pair, allowed='pairs of "APP/USER" and fairlead.new_item(...)')
