"""A job: one attempt at an item, as its handler sees it."""

from collections.abc import Callable
from typing import Any, TypeVar

from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.queue.progress import NOTE_CHARS_MAX
from fairlead.zones.records import ItemRecord, Progress
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

STUCK_US = 5_000_000  # A handler that goes on for so long after it was cancelled does not listen.
AMOUNT_MAX = 2**53  # Of progress. Up to there whole numbers are told exactly.

T = TypeVar("T")

ProgressSink = Callable[[float, float | None, str], None]


class NoStoreHere(QueueError):
    """`job.transact` was called where the worker's store is not open: in a Ray task.

    Do: open the application in the task, `app.tenant(*job.tenant).transact(...)`, and end with `job.complete_in(tr)`.
    """

    message = "a job in a Ray task has no store of its own"


class Job:
    """One attempt at an item.

    Attributes:
      id: the item's id, 16 bytes; the same in every attempt. Good as an idempotency key.
      tenant: whose item it is; for a local item the app is "".
      kind: as enqueued.
      attempt: 1 for the first since the item was enqueued or revived; every later one follows an error or a lapse. One
        that was given back, because its worker drained, has the same number when it comes again.
      enqueued_us: when it was enqueued, microseconds since the epoch.
      last_progress: what an attempt before this one told of its progress, the last; None: none did.
      reported: what this one has.
      completed: its completion is committed. `completing`: the handler completed it in a transaction of its own, of
        which nobody here knows whether it committed.
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
        self.zone = ref.zone
        self.lease_id = ref.lease_id
        self.completed = False
        self.completing = False
        self._shard = shard
        self._cancelled = False
        self._interrupt: Callable[[], object] | None = None
        self.last_progress = record.progress
        self.keeps_result_us = 0  # its kind, for how long after completion
        self.reported: Progress | None = None
        self._progress_sink: ProgressSink | None = None

    @property
    def payload(self) -> Any:
        """What was enqueued. Unpacked when it is asked for: one that is damaged fails its own item, and no other."""
        if self._packed is not None:
            self._payload, self._packed = unpack_payload(self._packed), None
        return self._payload

    @property
    def cancelled(self) -> bool:
        """Whether this attempt has lost its item: past its timeout, its lease, or the worker's drain.

        A long handler asks now and then, and returns: its result is no longer wanted.
        """
        return self._cancelled

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell how far this attempt is: `fairlead why`, `app.explain` and the dashboard show it within two seconds.

        May be called as often as one likes: what was told last is written once a second, into the item's record. There
        the next attempt finds it, as `last_progress`. Of a transactional handler, which takes five seconds at most, it
        is not written.

        Args:
          done, total: numbers of the handler's own unit, 0 to 2**53; `total` None: it does not know.
          note: a few words, up to 200 characters; more is cut off. What cannot be stored (a lone surrogate, as in the
            name of a file) is written as its number.

        Raises:
          BadArgument: an argument is nothing of the kind.
        """
        if not _is_amount(done) or not (total is None or _is_amount(total)) or not isinstance(note, str):
            raise BadArgument(argument="progress", value=(done, total, note), allowed="numbers, 0 to 2**53, and text")
        words = note[:NOTE_CHARS_MAX].encode(errors="backslashreplace").decode()[:NOTE_CHARS_MAX]
        report = self._progress_sink or self.record_progress
        report(_plain(done), None if total is None else _plain(total), words)

    def record_progress(self, done: float, total: float | None, note: str) -> None:
        """Called where the worker is: note what the handler tells."""
        assert self._shard is not None
        self.reported = Progress(done, total, note, self._shard.clock.now_us())

    def report_progress_to(self, progress_sink: ProgressSink | None) -> None:
        """Called by the host of a Ray task: how it tells its progress."""
        self._progress_sink = progress_sink

    def transact(self, body: Callable[[TenantTransaction], T]) -> T:
        """Run `body` in a transaction on the tenant's database; it may run twice, and what it writes is applied once.

        End it with `job.complete_in(tr)`, and the effects and the completion happen together or not at all.

        Raises:
          NoStoreHere: the job runs in a Ray task.
        """
        if self._shard is None:
            raise NoStoreHere(kind=self.kind)
        shard = self._shard
        enqueueing = Enqueueing(self.tenant)

        def run(attempt: Attempt) -> tuple[T, bool]:
            self.completing = False
            result = body(TenantTransaction(shard, self.tenant, attempt, enqueueing.begin_attempt(shard)))
            enqueueing.end_attempt()
            return result, self.completing

        with enqueueing:
            result, completes = shard.transact(run)
        self.completed = self.completed or completes
        return result

    def complete_in(self, tr: TenantTransaction, *, result: Any = None) -> None:
        """Complete the item in a transaction of the handler's own, as its last step.

        `result` is kept, if the kind keeps results, instead of what the handler returns later. If the transaction does
        not commit, or the handler fails without it, the item is settled as if this had not been called.

        Raises:
          LeaseLost, ItemGone: the item is somebody else's by now; the transaction must not commit, and will not if
            this passes through.
          ResultNotKept: `result` is no plain data, or too long.
        """
        kept_us = self.keeps_result_us
        tr.complete(self.id, lease_id=self.lease_id, zone=self.zone, result=result, keep_result_us=kept_us)
        self.completing = True

    @property
    def may_be_completed(self) -> bool:
        """Whether the handler may have completed the item itself, so that its absence is no loss."""
        return self.completing or self.completed

    def cancel(self) -> None:
        """Called by the worker: the item is lost to this attempt."""
        self._cancelled = True
        if self._interrupt is not None:
            self._interrupt()

    def on_cancel(self, interrupt: Callable[[], object]) -> None:
        """Called by the host of a coroutine or a Ray task: how to interrupt it."""
        self._interrupt = interrupt
        if self._cancelled:
            interrupt()

    def __getstate__(self) -> dict[str, Any]:  # A Ray task gets the data, not the worker's store.
        return {**self.__dict__, "_shard": None, "_interrupt": None}

    def __repr__(self) -> str:
        return f"<Job {self.id.hex()} {self.kind!r} of {self.tenant.app}/{self.tenant.user}, attempt {self.attempt}>"


def _is_amount(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= AMOUNT_MAX


def _plain(number: float) -> float:
    """Return a number as one that can be stored: those of other libraries pass for numbers, and cannot."""
    return int(number) if isinstance(number, int) else float(number)
