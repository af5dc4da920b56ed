"""The handle of an enqueued item: its result, its steps, its state; cancel it, send it a signal."""

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol

from fairlead.explanation import Explanation
from fairlead.operator import Operator
from fairlead.recorded_steps import RunView
from fairlead.store_threads import AwaitableCalls
from fairlead.watch_wait import READ_US_MIN, UNWATCHED_POLL_US, Wait, await_change, later_read_us
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Clock
from fairlead.zones.engines.api.lost_watch import watch_error
from fairlead.zones.errors import ItemFailed, QueueError
from fairlead.zones.layout import Tenant, shown_id
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.queue.results import Failed, NotKept, Pending, Returned
from fairlead.zones.workflow.cancellation import CancelOutcome

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")


class ResultPending(QueueError, TimeoutError):
    """The item did not end within the timeout. It goes on.

    Do: call `result` again later on the same handle, or `explain` to see what the item waits for.
    """

    message = "the item has not ended yet"


class NoResult(QueueError):
    """The item ended, or was never enqueued, and no result of it is kept.

    Do: let its kind keep results, `@app.handler(kind, keep_result=3600)`, and ask within that time.
    """

    message = "no result of this item is kept"


StoreErrors = tuple[type[Exception], ...]  # The classes of errors that a store raises.
Ending = Returned | Pending | Failed | NotKept


class ItemDatabase(Protocol):
    """What a handle needs of the database that its item is in; see `fairlead.tenant_database.TenantDatabase`."""

    @property
    def tenant(self) -> Tenant:
        """Return the tenant of the database."""
        ...

    @property
    def clock(self) -> Clock:
        """Return the clock by which a wait is measured."""
        ...

    @property
    def calls(self) -> AwaitableCalls:
        """Return how coroutines wait for the shard."""
        ...

    def read_ending(self, item_id: bytes, *, zone: str) -> tuple[Ending, StoreErrors]:
        """Return how an item ended, or a watch; and what the store raises from which that was read."""
        ...

    def cancel(self, item_id: str | bytes, *, zone: str, force: bool, by: Operator | None = None) -> CancelOutcome:
        """See `TenantDatabase`."""
        ...

    def explain(self, item_id: bytes, *, zone: str) -> Explanation:
        """See `TenantDatabase`."""
        ...

    def signal(self, item_id: str | bytes, name: str, payload: Any, *, zone: str) -> None:
        """See `TenantDatabase`."""
        ...

    def steps(self, item_id: str | bytes, *, zone: str) -> RunView:
        """See `TenantDatabase`."""
        ...


class Handle(Generic[R]):
    """An item that was enqueued. Makes no call to the store until a method is called.

    Its type parameter is what the item's handler returns. It is known if the item was enqueued by `handler.enqueue`;
    otherwise it is `Any`. The result is plain data as the store returns it: a tuple comes back as a list.

    Attributes:
      item_id: 16 bytes.
      zone: which of the tenant's queue zones it is in.
    """

    __slots__ = ("_database", "_named", "item_id", "zone")

    def __init__(self, database: ItemDatabase, item_id: bytes, zone: str, *, name: str | None = None) -> None:
        self._database = database
        self._named = name or item_id  # What errors show: `name` is what the item was given.
        self.item_id = item_id
        self.zone = zone

    def result(self, timeout: Duration | None = None) -> R:
        """Wait until the item has ended, and return what its handler returned.

        Its kind must keep results (`keep_result`). A wait costs one read of the store per change of the item.

        Args:
          timeout: seconds or a `timedelta`, 0 to ten years: 0 does not wait; None: as long as it takes.

        Raises:
          ResultPending: it has not ended in that time.
          ItemFailed: it failed for good.
          NoResult: it ended without a result, was cancelled, or its result has expired.
        """
        timeout_us = _checked_us(timeout)
        wait = Wait(timeout_us, self._database.clock)
        read_us = READ_US_MIN
        while True:
            found, store_errors = self._read_ending()
            if not isinstance(found, Pending):
                return self._answer(found)
            if found.watch is None:
                if not wait.sleep(read_us):
                    raise self._pending(timeout_us)
                read_us = later_read_us(read_us)
                continue
            changed = await_change(found.watch.is_ready, wait)
            if changed and watch_error(found.watch, store_errors) is not None:
                changed = wait.sleep(UNWATCHED_POLL_US)
            if not changed:
                found.watch.cancel()
                raise self._pending(timeout_us)

    async def aresult(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """Wait as `result` does, and let the event loop go on meanwhile. The event loop's clock measures the time.

        A coroutine that is cancelled while it waits changes nothing: the item goes on, and can be awaited again.

        Raises:
          BadArgument, ResultPending, ItemFailed, NoResult: see `result`.
        """
        timeout_us = _checked_us(timeout)
        calls, loop = self._database.calls, asyncio.get_running_loop()
        end_s = None if timeout_us is None else loop.time() + timeout_us / 1e6
        read_us = READ_US_MIN
        while True:
            found, store_errors = await calls.run(self._read_ending)
            if not isinstance(found, Pending):
                return self._answer(found)
            left_s = None if end_s is None else max(0, end_s - loop.time())
            if found.watch is None:
                if left_s == 0:
                    raise self._pending(timeout_us)
                await asyncio.sleep(min(read_us / 1e6, math.inf if left_s is None else left_s))
                read_us = later_read_us(read_us)
                continue
            try:
                if not await calls.wait_for(found.watch, left_s):
                    raise self._pending(timeout_us)
                if watch_error(found.watch, store_errors) is not None:
                    await asyncio.sleep(min(UNWATCHED_POLL_US / 1e6, math.inf if left_s is None else left_s))
            finally:
                found.watch.cancel()

    def _read_ending(self) -> tuple[Ending, StoreErrors]:
        return self._database.read_ending(self.item_id, zone=self.zone)

    def _pending(self, timeout_us: int | None) -> ResultPending:
        return ResultPending(item=shown_id(self._named), waited_s=None if timeout_us is None else timeout_us / 1e6)

    def cancel(self, *, force: bool = False) -> CancelOutcome:
        """Cancel the item: no worker starts it any more. A running handler learns of it within two seconds.

        A coroutine and a Ray task are stopped; a plain function sees `job.cancelled`; a transactional handler cannot
        commit any more. A prefetched item may still start; its handler learns of it within two seconds. The steps of a
        workflow are undone, and then it ends; see `TenantDatabase.cancel`, also for `force`.

        Raises:
          ItemGone: it ended, was cancelled, was never enqueued, or is a dead letter without recorded steps.
        """
        return self._database.cancel(self._named, zone=self.zone, force=force)

    def signal(self, name: str, payload: Any = None) -> None:
        """Send a signal to the workflow that the item is; see `TenantTransaction.signal`.

        Raises:
          BadArgument, PayloadNotData, PayloadTooLarge: nothing was changed.
          ItemGone: it ended, was cancelled, or was never enqueued.
        """
        self._database.signal(self._named, name, payload, zone=self.zone)

    async def asignal(self, name: str, payload: Any = None) -> None:
        """Send a signal as `signal` does, and let the event loop go on meanwhile."""
        await self._database.calls.run(partial(self.signal, name, payload))

    def steps(self) -> RunView:
        """Return what the workflow that the item is has recorded; see `TenantDatabase.steps`.

        Raises:
          ItemGone: it ended, was cancelled, or was never enqueued.
          ItemUnreadable: a newer version wrote it.
        """
        return self._database.steps(self._named, zone=self.zone)

    async def asteps(self) -> RunView:
        """Return what is recorded as `steps` does, and let the event loop go on meanwhile."""
        return await self._database.calls.run(self.steps)

    def explain(self) -> Explanation:
        """Say why the item is not running, or how it ended; see `TenantDatabase.explain`."""
        return self._database.explain(self.item_id, zone=self.zone)

    def _answer(self, found: Returned | Failed | NotKept) -> R:
        if isinstance(found, Returned):
            value: R = found.value
            return value
        if isinstance(found, Failed):
            raise ItemFailed(item=shown_id(self._named), error=found.error, dead_letter=found.dead_letter)
        raise NoResult(
            item=shown_id(self._named), ended=None if found.end_reason is None else found.end_reason.name.lower()
        )

    def __repr__(self) -> str:
        return f"<Handle {self.item_id.hex()} of {self._database.tenant}>"


class EnqueuedHandle(Handle[R]):
    """The handle of an item that was just enqueued. `status`: what the enqueue found."""

    __slots__ = ("status",)

    def __init__(
        self, database: ItemDatabase, item_id: bytes, zone: str, status: EnqueueStatus, *, name: str | None = None
    ) -> None:
        super().__init__(database, item_id, zone, name=name)
        self.status = status


def _checked_us(timeout: Duration | None) -> int | None:
    return None if timeout is None else duration_us("timeout", timeout, also=", or None")
