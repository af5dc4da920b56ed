"""What type checkers hold handlers and hooks to: that they take a `Job`, and what comes with it."""

from collections.abc import Callable
from typing import Any, TypeVar

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import RemoteFunction
from fairlead.zones.tenant_transaction import TenantTransaction

HandlerFunction = Callable[[Job], Any] | Callable[[Job, TenantTransaction], Any] | RemoteFunction

F = TypeVar("F", bound=HandlerFunction)
Hook = TypeVar("Hook", bound=Callable[[Job, BaseException], Any])
