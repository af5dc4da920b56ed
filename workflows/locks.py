"""`wf.lock`: blocks of a workflow that hold locks of tenants. What is stored: `fairlead.zones.workflow.locks`.

Each lock is taken in a step, and released in a step. If the lock is not free, the step of taking it adds a request that
waits, and a wait follows, for the signal by which the lock is handed over. A replay finds both recorded.

A block that ends as usual releases its locks. An error that leaves it does not: the undos run under them. Neither does
what ends the attempt, such as a suspension or a lost lease: the next attempt goes on inside the block.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from types import TracebackType
from typing import Any, TypeVar

from fairlead.workflows.argument_checks import TenantLike, shortened, tenant_named
from fairlead.workflows.asynchronous import AsyncDriver
from fairlead.workflows.awaited_calls import AwaitedCalls, awaited
from fairlead.workflows.driver import Driver
from fairlead.workflows.errors import TooManyLocks
from fairlead.workflows.execution import Execution
from fairlead.workflows.held_locks import LockName, held_already
from fairlead.workflows.helping import help_holders
from fairlead.workflows.interrupts import Failed, WorkflowInterrupt
from fairlead.workflows.requests import Steps, Store
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_commits import do_step, introduce, record_failure
from fairlead.workflows.step_identity import id_of
from fairlead.workflows.waits import WITHOUT_TIMEOUT_US, wait
from fairlead.zones.errors import BadArgument
from fairlead.zones.keyspace import NAME_BYTES_MAX
from fairlead.zones.layout import Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.locks import LOCK_SIGNAL, AskedTwice, LockRequest, pack_lock, shown_lock
from fairlead.zones.workflow.run_records import StepEntry, StepKind
from fairlead.zones.workflow.suspension import AwaitedSignal

T = TypeVar("T")

LOCKS_MAX = 100  # Of one run at once: its end releases them in one transaction.
_TAKE, _WAIT, _RELEASE = "lock", "wait for lock", "release lock"  # Begin the names of the steps.
_SHOWN_BYTES = 60  # Of a lock in the name of a step; what is longer is told apart by a digest.
_DIGEST_BYTES = 4


def named_locks(execution: Execution, keys: Sequence[Any], on: TenantLike | None) -> list[LockName]:
    """Return the locks that keys name, in the order in which they are taken.

    Raises:
      BadArgument: there is none, one is no key, or is given twice; or the run could not be found by other tenants.
    """
    home = execution.held.ref.tenant
    locks = sorted_locks(keys, tenant_named(on) or home, example='wf.lock(("account", 7))')
    if any(lock.tenant != home for lock in locks) and not execution.can_be_found():
        allowed = "locks of its own tenant, in a local workflow on another shard than its kind's own"
        raise BadArgument(argument="keys", value=shortened(keys), allowed=allowed)
    return locks


def sorted_locks(keys: Sequence[Any], default: Tenant, *, example: str) -> list[LockName]:
    """Return the locks that keys name, in the order in which they are taken. `default`: the tenant of a bare key.

    Raises:
      BadArgument: there is none, one is no key, or is given twice.
    """
    if not keys:
        raise BadArgument(argument="keys", value=(), allowed=f"at least one key, such as {example}")
    locks = sorted(_named(each, default) for each in keys)
    for lock, following in pairwise(locks):
        if lock == following:
            raise BadArgument(argument="keys", value=str(lock), allowed="each lock once")
    return locks


def _named(key: Any, default: Tenant) -> LockName:
    """Return the lock that a key names, or a pair of a tenant and a key."""
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], tuple):
        return LockName(tenant_named(key[0]) or default, pack_lock(key[1]))
    return LockName(default, pack_lock(key))


class WorkflowLock:
    """A `with` block of a workflow that is a plain function: it holds locks. See `WorkflowContext.lock`."""

    def __init__(self, execution: Execution, driver: Driver, locks: Sequence[LockName], *, shared: bool) -> None:
        self._execution = execution
        self._driver = driver
        self._locks = locks
        self._shared = shared

    def __enter__(self) -> "WorkflowLock":
        self._driver.run(_take_all(self._execution, self._locks, shared=self._shared))
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error_type is None and self._execution.interrupt is None:
            self.release()

    def release(self) -> None:
        """Release the locks now, as far as they are held: within the block, or after an error has left it."""
        self._driver.run(_release_all(self._execution, self._locks))


class AsyncWorkflowLock:
    """An `async with` block of an async workflow: it holds locks. See `AsyncWorkflowContext.lock`."""

    def __init__(
        self, execution: Execution, driver: AsyncDriver, calls: AwaitedCalls, locks: Sequence[LockName], shared: bool
    ) -> None:
        self._execution = execution
        self._driver = driver
        self._calls = calls
        self._locks = locks
        self._shared = shared

    async def __aenter__(self) -> "AsyncWorkflowLock":
        await self._driver.run(_take_all(self._execution, self._locks, shared=self._shared))
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error_type is None and self._execution.interrupt is None:
            await self.release()

    @awaited
    async def release(self) -> None:
        """See `WorkflowLock.release`."""
        await self._driver.run(_release_all(self._execution, self._locks))


def _take_all(execution: Execution, locks: Sequence[LockName], *, shared: bool) -> Steps[None]:
    """Take locks one after the other; they are sorted."""
    execution.check_call(step_name(_TAKE, locks[0]))
    refused = execution.locks.refusal(locks, execution.held.ref.kind)
    if refused is not None:
        raise WorkflowInterrupt(Failed(refused))
    if len(execution.locks) + len(locks) > LOCKS_MAX:
        raise WorkflowInterrupt(Failed(TooManyLocks(kind=execution.held.ref.kind, locks_max=LOCKS_MAX)))
    for lock in locks:
        yield from _take(execution, lock, shared=shared)
        execution.locks.add(lock)


def _take(execution: Execution, lock: LockName, *, shared: bool) -> Steps[None]:
    arguments = (lock.packed, shared, *lock.tenant)
    with execution.open_call(StepKind.STEP, step_name(_TAKE, lock), arguments) as call:
        signal = f"{LOCK_SIGNAL}{id_of(execution.log.run, execution.log.segment, call.step).hex()}"
        if not call.has_answer:
            yield from execution.before_new(call)
            shard = execution.home_of(lock.tenant)
            do = partial(_request, execution, call, shard, lock, signal, shared)
            fail = partial(record_failure, execution, call, shard, lock.tenant)
            call.entry = yield from execution.try_step(call, do, fail, None, tenant=lock.tenant)
        is_held: bool = execution.answer(call)
    if not is_held:
        yield from wait(execution, step_name(_WAIT, lock), [AwaitedSignal(signal)], WITHOUT_TIMEOUT_US)


def _help_holders(execution: Execution, lock: LockName) -> None:
    """Help those who hold a lock, once the run waits for it. It is no step: a replay does it not again."""

    def at_home(tenant: Tenant, call: Callable[[Shard], T]) -> T:
        return call(execution.home_of(tenant))

    help_holders(at_home, lock.tenant, lock.packed, run=execution.log.run)


def _request(
    execution: Execution, call: StepCall, shard: Shard, lock: LockName, signal: str, shared: bool
) -> Steps[StepEntry]:
    """Add the request of the run, once the tenant is a participant, so that the end of the run removes it."""
    found: StepEntry | None = yield from introduce(execution, call, shard, lock.tenant)
    if found is not None:
        return found
    ref, run = execution.held.ref, execution.log.run
    is_held = True

    def take(tr: TenantTransaction) -> bool:
        nonlocal is_held
        request = LockRequest(*ref.tenant, ref.zone, ref.item_id, run, ref.kind, shared, signal, tr.now_us)
        try:
            is_held = tr.take_lock(lock.packed, request)
        except AskedTwice:  # In another branch, or after an error that has left its block.
            raise held_already(lock, execution.held.ref.kind) from None
        return is_held

    entry: StepEntry = yield from do_step(execution, call, shard, lock.tenant, take, ())
    if not is_held:
        yield Store(partial(_help_holders, execution, lock))
    return entry


def _release_all(execution: Execution, locks: Sequence[LockName]) -> Steps[None]:
    for lock in reversed(locks):
        if lock in execution.locks:
            yield from _release(execution, lock)
            execution.locks.remove(lock)


def _release(execution: Execution, lock: LockName) -> Steps[None]:
    def release(tr: TenantTransaction) -> None:
        tr.release_lock(lock.packed, execution.log.run)

    with execution.open_call(StepKind.STEP, step_name(_RELEASE, lock), (lock.packed, *lock.tenant)) as call:
        if not call.has_answer:
            yield from execution.before_new(call)
            shard = execution.home_of(lock.tenant)
            do = partial(do_step, execution, call, shard, lock.tenant, release, ())
            fail = partial(record_failure, execution, call, shard, lock.tenant)
            call.entry = yield from execution.try_step(call, do, fail, None, tenant=lock.tenant)
        execution.answer(call)


def step_name(what: str, lock: LockName) -> str:
    """Return the name of a step about a lock: `lock ("account", 7) of shop/alice`, cut if that is too long."""
    name = f"{what} {lock}"
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    digest = blake2b(lock.packed + str(lock.tenant).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    shown = shown_lock(lock.packed).encode()[:_SHOWN_BYTES].decode(errors="ignore")
    return f"{what} {shown}.. {digest}"
