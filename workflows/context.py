"""`wf`: what a workflow's function gets, in its synchronous form."""

import datetime
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

from fairlead.actors.execution.retry import Retry
from fairlead.workflows import child_jobs, effects, steps, waits
from fairlead.workflows.argument_checks import TenantLike, tenant_named
from fairlead.workflows.child_jobs import Call
from fairlead.workflows.driver import Driver
from fairlead.workflows.execution import Execution
from fairlead.workflows.locks import WorkflowLock, named_locks
from fairlead.workflows.waits import NoDefault
from fairlead.zones.durations import Duration
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.queue.items import HasKind, ItemOptions, new_item

T = TypeVar("T")


class RunInformation:
    """What both forms of `wf` know without a step."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    @property
    def tenant(self) -> Tenant:
        """The tenant in whose queue the workflow's item lies: the default of `on`."""
        return self._execution.held.ref.tenant

    @property
    def item_id(self) -> bytes:
        """The id of the item, 16 bytes."""
        return self._execution.held.ref.item_id

    @property
    def run(self) -> bytes:
        """The id of this life of the item, 16 bytes. An item of the same name that is enqueued later has another."""
        return self._execution.log.run

    @property
    def version(self) -> int:
        """The version of the code that began the run. Code of a higher version branches on it."""
        return self._execution.log.version

    @property
    def state(self) -> Any:
        """What was passed to the last `checkpoint`; None: there was none."""
        return self._execution.state

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is to end: the run is cancelled, or another worker has the item, or this one drains.

        An effect that takes long looks at it now and then, and raises an error if it need not go on.
        """
        return self._execution.held.job.cancelled or self._execution.held.job.cancel_requested

    def now(self) -> datetime.datetime:
        """Return the time, in UTC: when the latest step was recorded. The same in every replay.

        In an async workflow: the latest step of this branch, or before it began.
        """
        return datetime.datetime.fromtimestamp(self._execution.now_us / 1e6, datetime.UTC)

    def random(self) -> float:
        """Return a random number, 0 to below 1. The same in every replay."""
        return self._execution.random.random()

    def uuid(self) -> uuid.UUID:
        """Return a random UUID. The same in every replay."""
        return uuid.UUID(int=self._execution.random.getrandbits(128), version=4)


class WorkflowContext(RunInformation):
    """`wf` of a workflow that is a plain function.

    Each method that is a *step* happens exactly once, whatever dies. Its answer is recorded, and a replay returns the
    recorded answer: plain data, of up to 64,000 bytes. An error that a method raises is a recorded one, too: a
    `PermanentError`, one of the kind's `permanent` classes, or `StepFailed`. Any other error ends the attempt inside
    the method, and the item is retried.
    """

    def __init__(self, execution: Execution, driver: Driver) -> None:
        super().__init__(execution)
        self._driver = driver

    def step(
        self,
        body: Callable[..., T],
        *args: Any,
        name: str | None = None,
        on: TenantLike | None = None,
        store: str | None = None,
        undo: Callable[..., Any] | None = None,
        retry: Retry | None = None,
    ) -> T:
        """Run `body(tr, *args)` in a transaction, exactly once, and return what it returns.

        Args:
          body: takes a `TenantTransaction` and `args`. It may run several times until its transaction commits.
          name: of the step; default: that of the function. A name may come again: the second time is another step.
          on: the tenant of the transaction, on any shard; default: the workflow's own.
          store: the external store in which the step acts, such as "pg". `body` gets a connection of psycopg in place
            of the transaction: what it does there, and the entry of the step, are one SQL transaction. It must neither
            commit nor roll back.
          undo: takes a transaction and `args`, and `result` if it has such a parameter. It is run as a step, once, if
            the workflow fails for good or is cancelled later.
          retry: how often, and when, the step is tried again after an error; default: the attempt ends, and the item is
            retried as its kind says.

        Raises:
          PermanentError, StepFailed, the kind's `permanent` classes: see the class.
        """
        answer: T = self._driver.run(
            steps.step(self._execution, body, args, name=name, on=tenant_named(on), store=store, undo=undo, retry=retry)
        )
        return answer

    def transact(
        self,
        body: Callable[..., T],
        *args: Any,
        name: str | None = None,
        undo: Callable[..., Any] | None = None,
        retry: Retry | None = None,
    ) -> T:
        """Run `body(tx, *args)` in one transaction on tenants of any shards, exactly once, and return what it returns.

            def pay(tx, amount):
                tx.on("bank/alice").add(("balance",), -amount)
                tx.on("bank/bob").add(("balance",), amount)
            wf.transact(pay, 10)

        The workflow's own shard decides: the decision, and the entry of the step, are one commit there. A step that
        uses this shard only costs one commit, as `step` does.

        Args:
          body: takes a `SpanningTransaction`, as `App.transact` does, and `args`.
          undo: takes such a transaction and `args`, and `result` if it has such a parameter; see `step`.
          name, retry: see `step`.

        Raises:
          PermanentError, StepFailed, the kind's `permanent` classes: see the class.
        """
        answer: T = self._driver.run(steps.transact(self._execution, body, args, name=name, undo=undo, retry=retry))
        return answer

    def effect(
        self,
        function: Callable[..., T],
        *args: Any,
        name: str | None = None,
        retry: Retry | None = None,
        once: bool = False,
        undo: Callable[..., Any] | None = None,
    ) -> T:
        """Call `function(key, *args)`, which acts outside the database, and record what it returns.

        It is called at least once, and each time with the same idempotency key, 32 hexadecimal digits.

        Args:
          once: call it at most once. If its answer is lost, `EffectUnknown` is raised.
          undo: takes a key of its own and `args`, and `result` if it has such a parameter: None if it is not known
            whether the effect happened.
          name, retry: see `step`.

        Raises:
          EffectUnknown: see `once`.
          PermanentError, StepFailed, the kind's `permanent` classes: see the class.
        """
        answer: T = self._driver.run(
            effects.effect(
                self._execution, function, args, name=name, retry=retry, once=once, undo=undo, may_be_async=False
            )
        )
        return answer

    def read(self, body: Callable[..., T], *args: Any, name: str | None = None, on: TenantLike | None = None) -> T:
        """Run `body(tr, *args)` in a transaction that only reads, and return what it returns.

        The answer is recorded with the next step: until then a replay reads anew.
        """
        answer: T = self._driver.run(steps.read(self._execution, body, args, name=name, on=tenant_named(on)))
        return answer

    def wait_for(
        self,
        signal: str,
        timeout: Duration | None = None,
        *,
        default: Any = NoDefault.RAISES,
        name: str | None = None,
    ) -> Any:
        """Wait for a signal, and return its payload: None if it was sent without one.

        The item waits in its queue meanwhile, and occupies no slot. Signals of a name are taken in the order in which
        they were sent.

        Args:
          signal: its name.
          timeout: how long to wait, seconds or a `timedelta`; None: for as long as it takes.
          default: what is returned after the timeout, instead of an error.
          name: of the step; default: "wait_for SIGNAL".

        Raises:
          SignalTimeout: the signal has not come in time, and there is no `default`.
        """
        return self._driver.run(waits.wait_for(self._execution, signal, timeout, default=default, name=name))

    def sleep(self, seconds: Duration, *, name: str | None = None) -> None:
        """Wait for a time to pass, seconds or a `timedelta`. The item waits in its queue, and occupies no slot.

        `name`: of the step; default: "sleep".
        """
        self._driver.run(waits.sleep(self._execution, seconds, name=name))

    def enqueue(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        on: TenantLike | None = None,
        zone: str = DEFAULT_ZONE,
        name: str | None = None,
        **options: Unpack[ItemOptions],
    ) -> bytes:
        """Enqueue an item as a step, in the queue of a tenant on any shard; return its id, 16 bytes.

        Args:
          kind, payload, options: see `TenantTransaction.enqueue`.
          on: the tenant; default: the workflow's own.
          name: of the step; default: "enqueue KIND".
        """
        item = new_item(kind, payload, **options)
        return self._driver.run(steps.enqueue(self._execution, item, zone=zone, on=tenant_named(on), name=name))

    def signal(
        self,
        item_id: str | bytes,
        signal: str,
        payload: Any = None,
        *,
        on: TenantLike | None = None,
        zone: str = DEFAULT_ZONE,
        name: str | None = None,
    ) -> None:
        """Send a signal to the workflow of an item as a step: it is delivered exactly once.

        Args:
          item_id: the name that the item was given, or the id that `enqueue` returned.
          signal: its name.
          payload: plain data, of up to 64,000 bytes.
          on: the tenant of the item; default: the workflow's own.
          zone: of the item.
          name: of the step; default: "signal NAME".

        Raises:
          ItemGone: there is no such item. That is recorded: a replay raises it again.
        """
        self._driver.run(
            steps.signal(self._execution, item_id, signal, payload, zone=zone, on=tenant_named(on), name=name)
        )

    def call(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        on: TenantLike | None = None,
        zone: str = DEFAULT_ZONE,
        timeout: Duration | None = None,
        name: str | None = None,
        **options: Unpack[ItemOptions],
    ) -> Any:
        """Enqueue a job or a workflow as a child, wait for its end, and return its result.

        Raises:
          ItemFailed: it has failed for good, or was cancelled.
          CallTimeout: it has not ended within `timeout`, seconds or a `timedelta`.
        """
        call = child(kind, payload, on=on, zone=zone, name=name, **options)
        (ended,) = self._driver.run(child_jobs.gather(self._execution, [call], at_least=None, timeout=timeout))
        return child_jobs.result_of(ended)

    def gather(
        self, calls: Sequence[Call], *, at_least: int | None = None, timeout: Duration | None = None
    ) -> list[Any]:
        """Enqueue several children, and wait for their ends; return their results in the order of `calls`.

            thumbnails = wf.gather([fairlead.child("resize", {"width": width}) for width in (100, 200)])

        Args:
          calls: made by `fairlead.child`.
          at_least: return once so many have succeeded. In place of a result stands `fairlead.UNFINISHED` for a child
            that has not ended, and the error of one that failed.
          timeout: for all of them, seconds or a `timedelta`.

        Raises:
          ItemFailed: one has failed for good; with `at_least`, so many have failed that too few can succeed.
          CallTimeout: see `call`.
        """
        ended = self._driver.run(child_jobs.gather(self._execution, calls, at_least=at_least, timeout=timeout))
        return child_jobs.results_of(ended, at_least=at_least)

    def lock(self, *keys: Any, on: TenantLike | None = None, shared: bool = False) -> WorkflowLock:
        """Return a `with` block that holds locks, which no other workflow holds meanwhile.

            with wf.lock(("account", 7), on="shop/alice"):
                wf.step(lambda tr: tr.add(("balance", 7), -10), name="withdraw", on="shop/alice")
            with wf.lock(("shop/alice", ("account", 7)), ("shop/bob", ("account", 9))):
                ...

        Taking a lock is a step, and so is its release. If another run holds it, this one waits in its queue, and
        occupies no slot; the lock is given to those who wait in the order in which they asked. Several locks are taken
        one after the other, in the order of their tenants and keys, whatever the order of the arguments. So no two
        workflows wait for each other.

        If an error leaves the block, the locks stay with the run until it ends, so that its undos run under them; or
        until `release` of what this returns is called. A dead letter keeps its locks until it is retried, cancelled or
        discarded. Locks are advisory: they exclude those who take them, and transactions that say
        `tr.require_unlocked(key)`.

        Args:
          keys: tuples, as keys of a tenant are; or pairs of a tenant, on any shard, and such a tuple.
          on: the tenant of keys without one; default: the workflow's own.
          shared: others may hold the locks at the same time, if theirs are shared, too.

        Raises:
          BadArgument: a key is none, is too long, or is given twice.
          LockOrder: by the block: it asks for a lock that sorts before one that the workflow holds. The item becomes a
            dead letter.
        """
        return WorkflowLock(self._execution, self._driver, named_locks(self._execution, keys, on), shared=shared)

    def finish(self, body: Callable[..., T], *args: Any) -> T:
        """Run the last step, and complete the item with what it returns, in one transaction.

        End the workflow with `return wf.finish(...)`. It is one commit less than a step, and then the completion.
        """
        answer: T = self._driver.run(steps.finish(self._execution, body, args))
        return answer

    def checkpoint(self, state: Any) -> None:
        """Forget all steps so far, and their undos; `wf.state` is `state` from the next attempt on.

        For loops of many steps: a replay begins with `state` and no step. So what the function does after the call must
        be what it does first with that state. A call before the first step, with the state of the last checkpoint, does
        nothing. Neither does one of changed code that has not reached all recorded steps: those would be done again.
        """
        self._driver.run(steps.checkpoint(self._execution, state))


def child(
    kind: str | HasKind,
    payload: Any = None,
    *,
    on: TenantLike | None = None,
    zone: str = DEFAULT_ZONE,
    name: str | None = None,
    **options: Unpack[ItemOptions],
) -> Call:
    """Return a child for `wf.gather`: what `wf.call` takes.

    Raises:
      BadArgument, PayloadNotData, PayloadTooLarge: see `new_item`.
    """
    return Call(new_item(kind, payload, **options), zone, tenant_named(on), name)
