"""Handlers: the functions that run items, one per kind, in one registry.

A handler is a function of a `Job`: a plain function, which runs in a thread slot of the worker; an `async def`, which
runs on the worker's event loop; or a Ray remote function, which runs as a Ray task with its own resources. A plain
function may be transactional: it gets a transaction that commits together with the completion, of the tenant's shard or
of an external store. A workflow is an object
that runs whole attempts, and commits their steps by itself (`fairlead.workflows`).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypedDict

from fairlead.actors.execution.retry import Retry
from fairlead.zones.durations import ABOVE_0, DAY_S, Duration, duration_us
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.external.names import check_store_name
from fairlead.zones.layout import check_name

TIMEOUT_S_MAX = 7 * DAY_S
RESULT_S_MAX = 30 * DAY_S


class PermanentError(Exception):
    """Raised by a handler: this item will fail again at every attempt. It becomes a dead letter."""


class UnfitCode(QueueError):
    """The code of a handler does not fit the item. It becomes a dead letter at once, and what it has done stays done.

    Do: see the subclass. Deploy code that fits, and retry the dead letter: it goes on where it stood.
    """

    message = "the handler's code does not fit the item"


class WrongStore(UnfitCode):
    """The handler of the kind commits in another place than the item lies: the tenant's shard, or an external store.

    Do: enqueue items of the kind where the handler commits: `within` a connection to the store that it names, or
    without one if it names none, as a workflow does. Or make it a plain handler, which runs items of any place. To
    begin a workflow in a transaction of the store, enqueue an item of a plain handler there, which enqueues the
    workflow under a name made of the id of its own item.
    """

    message = "the handler of the kind commits in another place"


class DuplicateHandler(QueueError):
    """Two handlers were registered for one kind.

    Do: give one of them another kind; a kind names exactly one handler.
    """

    message = "the kind has a handler already"


class NotTransactional(QueueError):
    """`transactional=True` was asked of a handler whose effects cannot commit with the completion.

    Do: make it a plain function, or call `job.complete_in(tr)` in a transaction of its own at the end.
    """

    message = "only a plain function can be transactional"


class RemoteFunction(Protocol):
    """A Ray remote function, which is called by `f.remote(job)` only; its own types are Ray's, and not loaded here."""

    @property
    def remote(self) -> Callable[..., Any]:
        """How it is called."""


class AttemptFunction(Protocol):
    """The function of a handler of the form `Form.WORKFLOW`; see `fairlead.actors.execution.runner.RunsAttempts`."""

    @property
    def run_attempt(self) -> Callable[..., None]:
        """How an attempt is run."""


FailureHook = Callable[[Any, BaseException], Any]  # takes a Job and the error


class Form(Enum):
    """How a handler is run."""

    PLAIN = "plain function"
    TRANSACTIONAL = "transactional function"
    IN_STORE = "transactional function of an external store"
    ASYNC = "async function"
    REMOTE = "Ray remote function"
    WORKFLOW = "workflow"  # commits at home by itself, see `runner.RunsAttempts`


@dataclass(frozen=True, slots=True)
class Handler:
    """A kind's function and its options. Made by `handler_of`."""

    kind: str
    function: Any
    form: Form
    timeout_ms: int
    retry: Retry
    max_running: int | None
    permanent: tuple[type[BaseException], ...]
    drop: bool
    result_ms: int  # how long what it returns is kept; 0: not at all
    store: str | None = None  # of `Form.IN_STORE`: the external store in which it runs
    on_failure: Sequence[FailureHook] = ()  # called with the job and the error of an attempt that failed

    @property
    def commits_in_shard(self) -> bool:
        """Whether its effects and the end of its item are commits of the tenant's shard: the item must lie there."""
        return self.form in (Form.TRANSACTIONAL, Form.WORKFLOW)


@dataclass(slots=True)
class Registry:
    """The handlers of an application by kind."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    on_failure: list[FailureHook] = field(default_factory=list)

    def add(self, handler: Handler) -> None:
        """Add a handler.

        Raises:
          DuplicateHandler: its kind has a handler.
        """
        if handler.kind in self.handlers:
            other = self.handlers[handler.kind].function
            raise DuplicateHandler(kind=handler.kind, first=describe(other), second=describe(handler.function))
        self.handlers[handler.kind] = self.with_failure_hooks(handler)

    def with_failure_hooks(self, handler: Handler) -> Handler:
        """Return a handler whose failures go to the registry's hooks, also to those that come later."""
        return replace(handler, on_failure=self.on_failure)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.handlers.values())


class WorkflowOptions(TypedDict, total=False):
    """How the workflows of a kind are run: as `HandlerOptions`, but `timeout` bounds one stretch of running."""

    timeout: Duration
    retry: Retry | None
    max_running: int | None
    permanent: tuple[type[BaseException], ...]
    drop: bool
    keep_result: Duration | None


class HandlerOptions(TypedDict, total=False):
    """How the items of a kind are run. `App.handler`, `App.every`, `App.daily` and `App.submit` take these options.

    Attributes:
      timeout: how long one attempt may take, above 0, to 7 days; default an hour. A transactional one ends after 5 s
        at the latest, but for one with a `store`.
      retry: when a failed item runs again; default `Retry()`.
      max_running: how many items of the kind may run at once in one consumer, 1 or more; default None: as many as there
        are slots.
      transactional: only for plain functions: the function gets a `TenantTransaction` as its second argument, which
        commits together with the item's completion. So its effects happen exactly once.
      store: with `transactional`: the external store in which the items of the kind lie. The second argument is a
        connection of psycopg then, whose transaction completes the item when the function returns.
      permanent: classes of exceptions that are not worth a retry, besides `PermanentError`.
      drop: delete an item that failed for good, and keep no dead letter.
      keep_result: how long the value that the function returns is kept for `Handle.result`, above 0, to 30 days: plain
        data of up to 64,000 bytes. Default None: it is not kept.

    Durations are seconds or a `timedelta`.
    """

    timeout: Duration
    retry: Retry | None
    max_running: int | None
    transactional: bool
    store: str | None
    permanent: tuple[type[BaseException], ...]
    drop: bool
    keep_result: Duration | None


def handler_of(
    kind: str,
    function: Callable[..., Any] | RemoteFunction | AttemptFunction,
    *,
    timeout: Duration = 3600,
    retry: Retry | None = None,
    max_running: int | None = None,
    transactional: bool = False,
    store: str | None = None,
    permanent: tuple[type[BaseException], ...] = (),
    drop: bool = False,
    keep_result: Duration | None = None,
) -> Handler:
    """Return a checked handler.

    Args:
      kind: what it handles; text of 1 to 96 bytes.
      function: takes a `Job`; a transactional one a `Job` and a `TenantTransaction`, or a connection of its store.
      timeout, retry, max_running, transactional, store, permanent, drop, keep_result: see `HandlerOptions`.

    Raises:
      BadArgument: an argument is out of range, or the function is nothing that could run, or be stopped, as a handler.
      NotTransactional: see there.
    """
    check_name("kind", kind)
    _check_function(function, transactional=transactional and _form(function) is Form.PLAIN)
    timeout_us = duration_us("timeout", timeout, low_s=ABOVE_0, high_s=TIMEOUT_S_MAX)
    if retry is not None and not isinstance(retry, Retry):
        raise BadArgument(argument="retry", value=retry, allowed="a Retry, such as Retry(attempts=5), or None")
    if max_running is not None and (type(max_running) is not int or max_running < 1):
        raise BadArgument(argument="max_running", value=max_running, allowed="a whole number, 1 or more, or None")
    _check_permanent(permanent)
    result_us = 0
    if keep_result is not None:
        result_us = duration_us("keep_result", keep_result, low_s=ABOVE_0, high_s=RESULT_S_MAX, also=", or None")
    form = _form(function)
    if transactional and form is not Form.PLAIN:
        raise NotTransactional(kind=kind, handler=describe(function), form=form.value)
    if store is not None:
        check_store_name(store)
        if not transactional:
            raise BadArgument(argument="store", value=store, allowed="None, or with transactional=True")
    if transactional:
        form = Form.TRANSACTIONAL if store is None else Form.IN_STORE
    return Handler(
        kind=kind,
        function=function,
        form=form,
        store=store,
        timeout_ms=max(1, timeout_us // 1000),
        retry=retry or Retry(),
        max_running=max_running,
        permanent=(PermanentError, *permanent),
        drop=drop,
        result_ms=-(-result_us // 1000),
    )


def _check_function(function: Any, *, transactional: bool) -> None:
    """Refuse what would fail, or do nothing, at every attempt."""
    takes = "a Job and a TenantTransaction" if transactional else "a Job"
    allowed = f"a function, an async function or a Ray one, of {takes}"
    if is_remote(function):
        _check_remote(function)
        return
    if hasattr(function, "run_attempt"):
        return
    if not callable(function):
        raise BadArgument(argument="handler", value=function, allowed=allowed)
    call = _call_of(function)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        # Calling one runs nothing of it: its items would be completed, and nobody would notice.
        raise BadArgument(argument="handler", value=describe(function), allowed=f"{allowed}; it must not `yield`")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some that are written in C do not tell
        return
    try:
        signature.bind(*(["job", "tr"] if transactional else ["job"]))
    except TypeError:
        raise BadArgument(argument="handler", value=f"{describe(function)}{signature}", allowed=allowed) from None


def _check_remote(function: Any) -> None:
    """Refuse what Ray could not stop past its timeout: it kills the process of one task that returns one object."""
    if any(base.__module__ == "ray.actor" for base in type(function).__mro__):
        allowed = (
            "a Ray remote function; an actor or its method cannot be stopped alone: call it in one, and wait for it"
        )
        raise BadArgument(argument="handler", value=describe(function), allowed=allowed)
    plain, options = plain_and_options(function)
    if options.get("num_returns") not in (None, 1):
        allowed = "a Ray remote function with num_returns=1; what it returns is dropped anyway"
        raise BadArgument(
            argument="handler", value=f"{describe(plain)}, num_returns={options['num_returns']!r}", allowed=allowed
        )
    if inspect.isgeneratorfunction(getattr(plain, "_function", None)):
        raise BadArgument(
            argument="handler", value=describe(plain), allowed="a Ray remote function that does not `yield`"
        )


def plain_and_options(function: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return a Ray remote function as it was decorated, and its options.

    What `.options()` returns shows neither: it keeps both in the closure of its `remote`.
    """
    if hasattr(function, "_default_options") or not inspect.ismethod(function.remote):
        return function, getattr(function, "_default_options", {})
    inside = inspect.getclosurevars(function.remote).nonlocals
    return inside.get("func_cls", function), inside.get("updated_options", {})


def _check_permanent(permanent: Any) -> None:
    allowed = "a tuple of exception classes, such as (KeyError,)"
    if not isinstance(permanent, tuple | list):
        raise BadArgument(argument="permanent", value=permanent, allowed=allowed)
    for kind in permanent:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise BadArgument(argument="permanent", value=kind, allowed=allowed)


def plain_function(remote: Any) -> Callable[[Any], Any]:
    """Return the function that a Ray remote function was made of, with or without options."""
    plain, _ = plain_and_options(remote)
    function: Callable[[Any], Any] = plain._function
    return function


def is_remote(function: Any) -> bool:
    """Say whether this is a Ray remote function, without importing Ray: anything from it has `.remote`."""
    made_by_ray = any(base.__module__.partition(".")[0] == "ray" for base in type(function).__mro__)
    return made_by_ray and hasattr(function, "remote")


def describe(function: Any) -> str:
    """Return where a handler is defined, for errors."""
    if hasattr(function, "_method_name"):  # a method of a Ray actor
        return f"{getattr(function, '_actor', '?')}.{function._method_name}"
    if hasattr(function, "__ray_metadata__"):  # a class of Ray's actors: `ActorClass(Mailer)`
        return type(function).__name__
    inner = getattr(function, "_function", function)  # Ray keeps the plain function here
    return f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', repr(inner))}"


def _form(function: Any) -> Form:
    if is_remote(function):
        return Form.REMOTE
    if hasattr(function, "run_attempt"):
        return Form.WORKFLOW
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_call_of(function)):
        return Form.ASYNC
    return Form.PLAIN


def _call_of(function: Any) -> Any:
    """Return what runs when `function` is called: an object's `__call__`."""
    if inspect.isroutine(function) or isinstance(function, type | partial):
        return function
    return getattr(function, "__call__", function)  # noqa: B004
