"""`wf` of an asynchronous workflow."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

from fairlead.actors.execution.retry import Retry
from fairlead.workflows import child_jobs, effects, steps, waits
from fairlead.workflows.argument_checks import TenantLike, tenant_named
from fairlead.workflows.asynchronous import AsyncDriver
from fairlead.workflows.awaited_calls import AwaitedCalls, awaited
from fairlead.workflows.child_jobs import Call
from fairlead.workflows.context import RunInformation, child
from fairlead.workflows.errors import CallNotAwaited
from fairlead.workflows.execution import Execution
from fairlead.workflows.interrupts import Failed, WorkflowInterrupt
from fairlead.workflows.locks import AsyncWorkflowLock, named_locks
from fairlead.workflows.requests import Steps
from fairlead.workflows.waits import NoDefault
from fairlead.zones.durations import Duration
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.queue.items import HasKind, ItemOptions, new_item

T = TypeVar("T")


class AsyncWorkflowContext(RunInformation):
    """`wf` of a workflow that is an `async def`: the methods of `WorkflowContext`, to be awaited.

    Branches that run side by side (`asyncio.gather`, `asyncio.TaskGroup`) may do steps at once, but not two of the same
    name. A wait suspends the run once every branch waits, or has ended. The body of a step is a plain function, and
    runs in another thread; the function of an effect may be async.
    """

    def __init__(self, execution: Execution, driver: AsyncDriver, calls: AwaitedCalls) -> None:
        super().__init__(execution)
        self._driver = driver
        self._calls = calls

    @awaited
    async def step(
        self,
        body: Callable[..., T],
        *args: Any,
        name: str | None = None,
        on: TenantLike | None = None,
        store: str | None = None,
        undo: Callable[..., Any] | None = None,
        retry: Retry | None = None,
    ) -> T:
        """See `WorkflowContext.step`."""
        answer: T = await self._driver.run(
            steps.step(self._execution, body, args, name=name, on=tenant_named(on), store=store, undo=undo, retry=retry)
        )
        return answer

    @awaited
    async def transact(
        self,
        body: Callable[..., T],
        *args: Any,
        name: str | None = None,
        undo: Callable[..., Any] | None = None,
        retry: Retry | None = None,
    ) -> T:
        """See `WorkflowContext.transact`."""
        answer: T = await self._driver.run(
            steps.transact(self._execution, body, args, name=name, undo=undo, retry=retry)
        )
        return answer

    @awaited
    async def effect(
        self,
        function: Callable[..., T],
        *args: Any,
        name: str | None = None,
        retry: Retry | None = None,
        once: bool = False,
        undo: Callable[..., Any] | None = None,
    ) -> T:
        """See `WorkflowContext.effect`."""
        answer: T = await self._driver.run(
            effects.effect(
                self._execution, function, args, name=name, retry=retry, once=once, undo=undo, may_be_async=True
            )
        )
        return answer

    @awaited
    async def read(
        self, body: Callable[..., T], *args: Any, name: str | None = None, on: TenantLike | None = None
    ) -> T:
        """See `WorkflowContext.read`."""
        answer: T = await self._driver.run(steps.read(self._execution, body, args, name=name, on=tenant_named(on)))
        return answer

    @awaited
    async def wait_for(
        self,
        signal: str,
        timeout: Duration | None = None,  # noqa: ASYNC109 - recorded
        *,
        default: Any = NoDefault.RAISES,
        name: str | None = None,
    ) -> Any:
        """See `WorkflowContext.wait_for`."""
        return await self._driver.run(waits.wait_for(self._execution, signal, timeout, default=default, name=name))

    @awaited
    async def sleep(self, seconds: Duration, *, name: str | None = None) -> None:
        """See `WorkflowContext.sleep`."""
        await self._driver.run(waits.sleep(self._execution, seconds, name=name))

    @awaited
    async def enqueue(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        on: TenantLike | None = None,
        zone: str = DEFAULT_ZONE,
        name: str | None = None,
        **options: Unpack[ItemOptions],
    ) -> bytes:
        """See `WorkflowContext.enqueue`."""
        item = new_item(kind, payload, **options)
        return await self._driver.run(steps.enqueue(self._execution, item, zone=zone, on=tenant_named(on), name=name))

    @awaited
    async def signal(
        self,
        item_id: str | bytes,
        signal: str,
        payload: Any = None,
        *,
        on: TenantLike | None = None,
        zone: str = DEFAULT_ZONE,
        name: str | None = None,
    ) -> None:
        """See `WorkflowContext.signal`."""
        await self._driver.run(
            steps.signal(self._execution, item_id, signal, payload, zone=zone, on=tenant_named(on), name=name)
        )

    @awaited
    async def call(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        on: TenantLike | None = None,
        zone: str = DEFAULT_ZONE,
        timeout: Duration | None = None,  # noqa: ASYNC109 - recorded
        name: str | None = None,
        **options: Unpack[ItemOptions],
    ) -> Any:
        """See `WorkflowContext.call`."""
        call = child(kind, payload, on=on, zone=zone, name=name, **options)
        (ended,) = await self._driver.run(child_jobs.gather(self._execution, [call], at_least=None, timeout=timeout))
        return child_jobs.result_of(ended)

    @awaited
    async def gather(
        self,
        calls: Sequence[Call],
        *,
        at_least: int | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - recorded
    ) -> list[Any]:
        """See `WorkflowContext.gather`."""
        ended = await self._driver.run(child_jobs.gather(self._execution, calls, at_least=at_least, timeout=timeout))
        return child_jobs.results_of(ended, at_least=at_least)

    def lock(self, *keys: Any, on: TenantLike | None = None, shared: bool = False) -> AsyncWorkflowLock:
        """See `WorkflowContext.lock`; the block is an `async with`.

        The locks are the run's: two of its branches cannot exclude each other by them. `LockOrder` counts what the
        branch holds, and what the branch held that has begun it.
        """
        return AsyncWorkflowLock(
            self._execution, self._driver, self._calls, named_locks(self._execution, keys, on), shared
        )

    @awaited
    async def finish(self, body: Callable[..., T], *args: Any) -> T:
        """See `WorkflowContext.finish`."""
        answer: T = await self._driver.run(self._finish(body, args))
        return answer

    @awaited
    async def checkpoint(self, state: Any) -> None:
        """See `WorkflowContext.checkpoint`."""
        await self._driver.run(steps.checkpoint(self._execution, state))

    def _finish(self, body: Callable[..., T], args: tuple[Any, ...]) -> Steps[T]:
        """Refuse to complete an item whose function has forgotten to await a call."""
        try:
            self._calls.check(self._execution.held.ref.kind)
        except CallNotAwaited as error:
            raise WorkflowInterrupt(Failed(error)) from None
        answer: T = yield from steps.finish(self._execution, body, args)
        return answer
