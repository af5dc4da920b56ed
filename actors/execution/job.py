"""A job: one attempt at an item, as its handler sees it."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fairlead.actors.handlers import WrongStore
from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.zones.errors import BadArgument, QueueError, TenantMoved
from fairlead.zones.external.names import external_zone
from fairlead.zones.open_body import ON_A_TENANT, open_body, refuse_across_shards
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.queue.progress import NOTE_CHARS_MAX
from fairlead.zones.records import ItemRecord, Progress
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction, check_plain, refuse_coroutine
from fairlead.zones.transaction_runner import Attempt

STUCK_US = 5_000_000  # A handler that runs on for so long after it was cancelled ignores the cancellation.
MOVES_MAX = 8  # So often a transaction follows a tenant that moves meanwhile.
AMOUNT_MAX = 2**53  # Of progress. Up to this limit a float holds every whole number exactly.

T = TypeVar("T")

ProgressSink = Callable[[float, float | None, str], None]


class NoStoreHere(QueueError):
    """`job.transact` was called in a Ray task, where the worker's store is not open.

    Do: open the application in the task, `app.tenant(job.tenant).transact(...)`, and end with `job.complete_in(tr)`.
    """

    message = "a job in a Ray task has no store of its own"


class Job:
    """One attempt at an item.

    Attributes:
      id: the item's id, 16 bytes; the same in every attempt. Good as an idempotency key.
      tenant: the tenant of the item; for a local item the app is "".
      kind: as enqueued.
      zone: the queue zone. `store`: the external store in which the item lies; None: it lies in the tenant's shard.
      attempt: 1 for the first one since the item was enqueued, or retried by an operator. Each later one follows an
        error or a lease expiry. An item that is returned, because its worker drained, keeps the number.
      enqueued_us: when it was enqueued, microseconds since the epoch.
      last_progress: the last progress that an earlier attempt reported; None: none did.
      reported: the last progress that this attempt reported.
      completed: its completion is committed. `completing`: the handler completed it in a transaction of its own, which
        may not have committed.
      cancel_requested: the item is a workflow that is to be cancelled; its attempt ends with its next call.
      committed_end: what became of the item, if the handler has committed that: `suspended`, for example. Empty: not.
    """

    def __init__(self, shard: Shard | None, ref: ItemRef, record: ItemRecord, payload: bytes) -> None:
        self.id = ref.item_id
        self.tenant = ref.tenant
        self.kind = record.kind
        self._packed: bytes | None = payload
        self._payload: Any = None
        self.attempt = record.attempt
        self.enqueued_us = record.enqueued_us
        self.shard_name = ref.shard
        external = external_zone(ref.zone)
        self.zone = ref.zone if external is None else external.zone
        self.store = None if external is None else external.store
        self.lease_id = ref.lease_id
        self.completed = False
        self.completing = False
        self.committed_end = ""
        self.cancel_requested = False
        self._shard = shard
        self._cancelled = False
        self._interrupt: Callable[[], object] | None = None
        self.last_progress = record.progress
        self.keeps_result_us = 0  # its kind, for how long after completion
        self.reported: Progress | None = None
        self._progress_sink: ProgressSink | None = None

    @property
    def payload(self) -> Any:
        """What was enqueued. Unpacked at the first use, so a damaged payload fails its own item only."""
        if self._packed is not None:
            self._payload, self._packed = unpack_payload(self._packed), None
        return self._payload

    @property
    def cancelled(self) -> bool:
        """Whether this attempt has lost its item: its timeout has passed, its lease expired, or the worker drained.

        A long handler checks this now and then, and returns if it is true: its result no longer counts.
        """
        return self._cancelled

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far this attempt is: `fairlead why`, `app.explain` and the dashboard show it within two seconds.

        May be called often: the last report is written once a second, into the item's record. The next attempt finds it
        there, as `last_progress`. The progress of transactional handlers, which take 5 s at most, is not written. Of an
        item in an external store it is written once the attempt fails, or is returned by a worker that drains.

        Args:
          done, total: numbers of the handler's own unit, 0 to 2**53; `total` None: it is not known.
          note: a few words, up to 200 characters; the rest is cut off. A character that cannot be stored (a lone
            surrogate, as in the name of a file) is written as its number.

        Raises:
          BadArgument: a number is out of range, or an argument has another type.
        """
        if not _is_amount(done) or not (total is None or _is_amount(total)) or not isinstance(note, str):
            raise BadArgument(argument="progress", value=(done, total, note), allowed="numbers, 0 to 2**53, and text")
        words = note[:NOTE_CHARS_MAX].encode(errors="backslashreplace").decode()[:NOTE_CHARS_MAX]
        report = self._progress_sink or self.record_progress
        report(_plain(done), None if total is None else _plain(total), words)

    def record_progress(self, done: float, total: float | None, note: str) -> None:
        """Called in the worker's process: note what the handler reports."""
        assert self._shard is not None
        self.reported = Progress(done, total, note, self._shard.clock.now_us())

    def report_progress_to(self, progress_sink: ProgressSink | None) -> None:
        """Called by the host of a Ray task: report progress to `progress_sink`."""
        self._progress_sink = progress_sink

    def transact(self, body: Callable[[TenantTransaction], T]) -> T:
        """Run `body` in a transaction on the tenant's database. It may run twice; what it writes is applied once.

        If it ends with `job.complete_in(tr)`, the effects and the completion happen together, or not at all.

        Raises:
          BadArgument: `body` is an async function, which would change nothing.
          NoStoreHere: the job runs in a Ray task.
          NestedTransaction: this is called by the body of a transaction across shards.
        """
        refuse_across_shards(ON_A_TENANT)
        if self._shard is None:
            raise NoStoreHere(kind=self.kind)
        enqueueing = Enqueueing(self.tenant)

        def run(attempt: Attempt, shard: Shard) -> tuple[T, bool]:
            self.completing = False
            token = open_body.set(ON_A_TENANT)
            try:
                result = body(TenantTransaction(shard, self.tenant, attempt, enqueueing.begin_attempt(shard)))
            finally:
                open_body.reset(token)
            refuse_coroutine(result)
            enqueueing.end_attempt()
            return result, self.completing

        with enqueueing:
            result, completes = self.at_home(lambda shard: shard.transact(partial(run, shard=shard)))
        self.completed = self.completed or completes
        return result

    def at_home(self, call: Callable[[Shard], T]) -> T:
        """Called in the worker's process: return what `call` returns for the shard of the tenant, which may move.

        Raises:
          TenantMoved: the tenant moves on and on, or lives on a shard that is not configured.
        """
        assert self._shard is not None
        for _ in range(MOVES_MAX):
            try:
                return call(self._shard)
            except TenantMoved as moved:
                home = self._shard.follow(moved) if moved.tenant == tuple(self.tenant) else None
                if home is None:
                    raise
                probe("a handler follows its tenant to another shard")
                self._shard, self.shard_name = home, home.name
        return call(self._shard)

    async def atransact(self, body: Callable[[TenantTransaction], T]) -> T:
        """Run `body` as `transact` does, for an `async def` handler: the event loop goes on meanwhile.

        `body` is a plain function, and runs in another thread. A coroutine that is cancelled while it waits does not
        undo the transaction: one that has begun may still commit, and then completes the item if it says so.

        Raises:
          BadArgument: `body` is an async function.
          NoStoreHere: see `transact`.
        """
        check_plain(body)
        if self._shard is None:
            raise NoStoreHere(kind=self.kind)
        return await self._shard.run_blocking(partial(self.transact, body))

    def complete_in(self, tr: TenantTransaction, *, result: Any = None) -> None:
        """Complete the item in a transaction of the handler's own, as the last operation in it.

        If the kind keeps results, `result` is kept, and not what the handler returns later. If the transaction does not
        commit, the item ends as if this had not been called.

        Raises:
          BadArgument: `tr` is no transaction of the item's tenant.
          WrongStore: the item lies in an external store.
          LeaseLost, ItemGone: another worker has leased the item, or it is gone. The transaction must not commit: let
            the error pass.
          ResultNotKept: `result` is not plain data, or too long.
        """
        if self.store is not None:
            raise WrongStore(kind=self.kind, item=self.id.hex(), wanted=None, found=self.store)
        if not isinstance(tr, TenantTransaction) or tr.tenant != self.tenant:
            given = str(tr.tenant) if isinstance(tr, TenantTransaction) else type(tr).__name__
            allowed = f"the transaction of {self.tenant}: in app.transact, tx.on(job.tenant)"
            raise BadArgument(argument="tr", value=given, allowed=allowed)
        kept_s = self.keeps_result_us / 1e6
        tr.complete(self.id, lease_id=self.lease_id, zone=self.zone, result=result, keep_result=kept_s)
        self.completing = True

    @property
    def may_be_completed(self) -> bool:
        """Whether the handler may have completed the item itself: then an item that is gone is not lost."""
        return self.completing or self.completed

    def cancel(self) -> None:
        """Called by the worker: this attempt has lost the item."""
        self._cancelled = True
        if self._interrupt is not None:
            self._interrupt()

    def on_cancel(self, interrupt: Callable[[], object]) -> None:
        """Called by the host of a coroutine or a Ray task: call `interrupt` when the attempt is cancelled."""
        self._interrupt = interrupt
        if self._cancelled:
            interrupt()

    def __getstate__(self) -> dict[str, Any]:  # A Ray task gets the data, not the worker's store.
        return {**self.__dict__, "_shard": None, "_interrupt": None}

    def __repr__(self) -> str:
        return f"<Job {self.id.hex()} {self.kind!r} of {self.tenant}, attempt {self.attempt}>"


def _is_amount(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= AMOUNT_MAX


def _plain(number: float) -> float:
    """Return a number in a type that can be stored. Numbers of other libraries are subclasses of these types."""
    return int(number) if isinstance(number, int) else float(number)
