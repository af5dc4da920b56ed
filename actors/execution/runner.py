"""Running one handler, whatever its form.

Plain and transactional functions run on the caller's thread, coroutines on the worker's event loop, Ray remote
functions as Ray tasks. All four occupy the slot that calls, so `slots` bounds each of them.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from fairlead.actors.execution.failed_attempt import Failure, failure_of, is_permanent
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Form, Handler, WrongStore, describe
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.actors.telemetry.errors import USERS_ERROR
from fairlead.actors.telemetry.run import Run, RunningJob
from fairlead.actors.telemetry.spans import Spans, passed_on
from fairlead.actors.telemetry.step_counts import StepCounts
from fairlead.actors.telemetry.traces import is_sampled
from fairlead.zones.engines import Clock
from fairlead.zones.errors import LeaseLost, QueueError
from fairlead.zones.external.names import store_of
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore, ItemLease
from fairlead.zones.open_body import ON_A_TENANT, open_body
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.results import pack_result
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.worker")

TRANSACTION_US = 5_000_000  # FoundationDB's window.


class TransactionalTooLong(QueueError):
    """A transactional handler took longer than the five seconds of a transaction.

    Do: split it into a plain handler that works and stores its result, and a transactional one that applies the result.
    Or make it a plain handler that calls `job.complete_in(tr)` in a short transaction at its end.
    """

    message = "a transactional handler ran past 5 s: split it into steps"


class JobTimeout(QueueError):
    """An attempt took longer than its kind's `timeout`.

    Do: raise `timeout`, or find out what it waited for. The item is retried.
    """

    message = "the handler ran past its timeout"


class HandlerNotRun(QueueError):
    """A plain handler returned a coroutine or a generator that has not run.

    Do: register the `async def` itself, not a function that calls it. In a generator, do the work instead of yielding
    it. The item is retried.
    """

    message = "the handler returned work instead of doing it"


# Takes what a handler raised, or None if it returned. Returns the failure of the attempt; None: it has not failed.
Conclude = Callable[[BaseException | None], Failure | None]


class Runners(Protocol):
    """Where coroutines and Ray remote functions run. The host supplies them."""

    def run_coroutine(self, function: Callable[[Job], Any], held: HeldItem) -> Any:
        """Run a coroutine function to its end; return what it returns, raise what it raises."""
        ...

    def run_remote(self, function: Any, held: HeldItem) -> Any:
        """Run a Ray remote function to its end; return what it returns, raise what it raises."""
        ...

    def close(self) -> None:
        """Run nothing more, and let every thread end. Waits for nothing."""
        ...


class AttemptAccess(NamedTuple):
    """What an attempt may use of its worker.

    Attributes:
      runners: see there.
      keep_lease: keeps the lease of an item for minutes; False: it is lost, or the store refuses.
      step_counts: counts the tries at steps of workflows.
      spans: records spans of attempts and of steps; None: nothing records spans.
      replays: let a workflow be replayed after each of its steps. For tests.
      externals: the external stores by name.
    """

    runners: Runners
    keep_lease: Callable[[HeldItem], bool]
    step_counts: StepCounts
    spans: Spans | None = None
    replays: bool = False
    externals: Mapping[str, ExternalStore] = NO_EXTERNALS


class RunsAttempts(Protocol):
    """The function of a handler of the form `Form.WORKFLOW`: it runs whole attempts, and commits by itself."""

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """Run one attempt at an item; note in `held.job` what it has committed. Raise what the attempt failed with."""
        ...


def run_handler(held: HeldItem, shard: Shard, access: AttemptAccess, conclude: Conclude) -> None:
    """Run the handler of an item once, and again up to `in_line` times if it fails.

    Then `conclude` is called with what the handler raised, or None, and the hooks with the failure that it returns.
    The job and its span are current all the time; see `fairlead.actors.telemetry.run`.

    Raises:
      What the handler raised last.
    """
    job, stored = held.job, held.record.trace
    span = passed_on(stored) if access.spans is None else access.spans.run(held.ref, job.attempt, stored)
    recorded = stored is None or is_sampled(stored)
    with Run(RunningJob(job.id, job.tenant, job.kind, job.attempt, recorded), span):
        try:
            _run_tries(held, shard, access)
        except BaseException as error:
            _call_hooks(held, conclude(error))
            raise
        _call_hooks(held, conclude(None))


def _call_hooks(held: HeldItem, failure: Failure | None) -> None:
    """Call the application's hooks for an attempt that counts as failed; log what they raise."""
    if failure is None or not failure.counts or held.job.completed:
        return
    for hook in held.handler.on_failure:
        try:
            hook(held.job, failure.error)
        except BaseException:
            log.exception(
                "the on_failure hook %s raised an error, for kind %s", describe(hook), held.ref.kind,
                extra={USERS_ERROR: True},
            )  # fmt: skip


def timeout_of(held: HeldItem, clock: Clock) -> Failure:
    """Return the failure of an item whose handler ran past its timeout."""
    error = JobTimeout(kind=held.ref.kind, item=held.ref.item_id.hex(), timeout_s=held.handler.timeout_ms / 1000)
    return failure_of(error, held.handler, held.ref.item_id, clock)


def _run_tries(held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
    tries_left = held.handler.retry.in_line
    while True:
        try:
            return _run_once(held, shard, access)
        except Exception as error:
            if is_permanent(held.handler, error) or tries_left == 0 or not held.may_run(shard.clock.now_us()):
                raise
            tries_left -= 1


def _run_once(held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
    handler, job = held.handler, held.job
    store = store_of(held.place)
    if store is not None and handler.commits_in_shard:
        raise WrongStore(kind=job.kind, item=job.id.hex(), wanted=None, found=store)
    if handler.form is Form.WORKFLOW:
        handler.function.run_attempt(held, shard, access)
        return
    if handler.form is Form.TRANSACTIONAL:
        _run_transactional(handler, job, held)
        return
    if handler.form is Form.IN_STORE:
        _run_in_store(handler, job, held, access.externals)
        return
    if handler.form is Form.PLAIN:
        returned = handler.function(job)
        _check_ran(handler, returned)
    elif handler.form is Form.ASYNC:
        returned = access.runners.run_coroutine(handler.function, held)
    else:
        returned = access.runners.run_remote(handler.function, held)
    if (handler.result_ms or held.record.parent is not None) and not job.may_be_completed:
        held.result = pack_result(returned)


def _run_in_store(handler: Handler, job: Job, held: HeldItem, externals: Mapping[str, ExternalStore]) -> None:
    """Run a handler and complete its item in one transaction of an external store: both happen, or neither.

    The transaction locks the item's row first, so it is the claim: no other worker leases the item meanwhile. A handler
    that returns after its timeout is rolled back: what it returns does not count, wherever the item lies.
    """
    store = externals.get(str(handler.store))
    if store is None or store_of(held.place) != handler.store:
        raise WrongStore(kind=job.kind, item=job.id.hex(), wanted=handler.store, found=store_of(held.place))

    def body(connection: Any) -> tuple[bytes | None, int]:
        returned = handler.function(job, connection)
        _check_ran(handler, returned)
        if held.timed_out:
            probe("a handler in an external store returns after its timeout, and is rolled back")
            raise LeaseLost(item=job.id.hex())
        result = pack_result(returned) if handler.result_ms else None
        return result, max(held.record.unique_us, job.keeps_result_us if result is not None else 0)

    outcome = store.run_handler(ItemLease(job.id, job.lease_id), body)
    if outcome is not Outcome.DONE:
        probe("a handler in an external store has lost its item before it begins")
        raise LeaseLost(item=job.id.hex())
    job.completed = True


def _check_ran(handler: Handler, result: Any) -> None:
    if result is None or not (inspect.isawaitable(result) or inspect.isgenerator(result)):
        return
    if inspect.iscoroutine(result):
        result.close()  # Otherwise Python warns later that it was never awaited.
    raise HandlerNotRun(kind=handler.kind, handler=describe(handler.function), returned=type(result).__name__)


def _run_transactional(handler: Handler, job: Job, held: HeldItem) -> None:
    """Run a handler and complete its item in one transaction: both happen, or neither.

    The completion is fenced by the lease: if another worker has leased the item meanwhile, it raises `LeaseLost`. A
    handler that returns after its timeout has lost its item, too: nothing of it is committed.
    """
    enqueueing = Enqueueing(job.tenant)

    def body(attempt: Attempt, shard: Shard) -> None:
        # FoundationDB's window begins with the attempt's first read. A body that reads late would get 1007 each time.
        try:
            if not held.may_run(attempt.now_us):
                probe("a transactional handler has lost its item before its next try")
                raise LeaseLost(item=job.id.hex())
            tr = TenantTransaction(shard, job.tenant, attempt, enqueueing.begin_attempt(shard))
            token = open_body.set(ON_A_TENANT)
            try:
                returned = handler.function(job, tr)
            finally:
                open_body.reset(token)
            _check_ran(handler, returned)
            if held.timed_out:  # The requeue may not be committed yet, or be refused: the lease alone does not fence.
                probe("a transactional handler returns after its timeout, and commits nothing")
                raise LeaseLost(item=job.id.hex())
            kept_s = job.keeps_result_us / 1e6
            tr.complete(job.id, lease_id=job.lease_id, zone=job.zone, result=returned, keep_result=kept_s)
        finally:
            took_us = shard.clock.now_us() - attempt.now_us
            if took_us > TRANSACTION_US:
                probe("a transactional handler takes longer than a transaction may")
                raise TransactionalTooLong(kind=job.kind, item=job.id.hex(), took_ms=took_us // 1000)
        enqueueing.end_attempt()

    with enqueueing:
        job.at_home(lambda shard: shard.transact(partial(body, shard=shard)))
    job.completed = True
