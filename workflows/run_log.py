"""A run as one attempt sees it: its step log in memory, and every commit at home that adds to the log.

Each commit reads the item's record with conflict and compares the lease id. So a worker that has lost its lease commits
nothing. *Pending* are answers that are known and not recorded yet: of reads, and of waits. The next commit at home
records them. What is in memory changes only once the commit has succeeded.

A step that reads nothing costs no read. Its transaction commits at the version before the run's latest commit, where
the item's record is known, and conflicts if the record has changed since. See `RunLog.do_step`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import NamedTuple, TypeVar

import msgspec

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.workflows.interrupts import BodyFailed, Cause, WorkflowInterrupt
from fairlead.workflows.step_identity import id_of
from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import ItemGone, LeaseLost, TenantMoved
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.moving.marks import is_marking
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ORIGIN_BYTES, ItemRecord, TransactionId, decode
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.snapshot_list import usable_snapshots
from fairlead.zones.spanning.coordinator import HomeRecord
from fairlead.zones.spanning.transaction_keys import RANDOM_BYTES
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import step_log
from fairlead.zones.workflow.run_records import (
    ParticipantState,
    RunHead,
    StepEntry,
    StepKind,
    StepState,
    decode_head,
    entry_key,
    head_key,
    read_entry,
)
from fairlead.zones.workflow.step_log import Append, HeldRun, StepName, StoredRun
from fairlead.zones.workflow.suspension import Arrived, Awaited, Wait, find_op, suspend_op
from fairlead.zones.workflow.undone_end import end_undone_op

T = TypeVar("T")

PENDING_BYTES_MAX = 1_000_000  # What is pending is recorded in one transaction; FoundationDB's ends at 10 MB.
ENTRY_BYTES = 250  # Of a pending entry, besides its result.
MOVES_MAX = 8  # So often a commit follows the run's tenant, which moves meanwhile.
VERSION_AGE_US_MAX = 2_000_000  # A transaction with a read version of more than five seconds ago is refused.

StepBody = Callable[[Attempt], StepEntry]  # The body of a step in its transaction. It may run twice.


class RunLog:
    """The step log of one run, for the attempt that holds its item. Not thread-safe: one commit at a time.

    Attributes:
      shard: the home. It changes if the run's tenant moves: see `follow`.
      head: of the run; None: nothing is recorded.
      entries: of all steps that are done, recorded or pending, also those at participants.
      participants: as the home has recorded them.
    """

    def __init__(self, held: HeldItem, shard: Shard, *, version: int) -> None:
        self.held = held
        self.shard = shard
        self.record = held.record
        self.run = held.record.run_of(held.ref.item_id)
        self.home = self._run_at(shard)
        self._version = version
        self._pending: dict[StepName, StepEntry] = {}
        self._pending_bytes = 0
        self._taken: list[bytes] = []
        self._latest: Attempt | None = None  # The latest attempt at a commit that has checked the lease.
        self._known: _KnownVersion | None = None
        self._tried: set[StepName] = set()  # Steps of this segment: the commit of an earlier try may have arrived.
        self._transaction_numbers = count(1)  # Of transactions across shards; none comes twice under this lease.
        self._ever_taken: set[bytes] = set()  # A branch that looked before may still find what another one has taken.
        self.head: RunHead | None = None
        self.entries: dict[StepName, StepEntry] = {}
        self.participants: dict[Tenant, ParticipantState] = {}

    @property
    def segment(self) -> int:
        """The present segment: how many checkpoints there were."""
        return 0 if self.head is None else self.head.segment

    @property
    def version(self) -> int:
        """The version of the code that began the run."""
        return self._version if self.head is None else self.head.version

    @property
    def is_undone(self) -> bool:
        """Whether the run is being undone: it never goes forward again."""
        return self.head is not None and self.head.undo_reason is not None

    @property
    def has_pending(self) -> bool:
        """Whether an answer is not recorded yet."""
        return bool(self._pending)

    @property
    def has_many_pending(self) -> bool:
        """Whether pending answers are to be recorded before there are more of them."""
        return self._pending_bytes > PENDING_BYTES_MAX

    @property
    def has_taken(self) -> bool:
        """Whether something was taken that is not cleared yet, so that it would be found again."""
        return bool(self._taken)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the run is recorded or pending, so that there is nothing to undo."""
        return self.head is None and not self._pending

    # --- Reads ---

    def load(self) -> None:
        """Read what is recorded at home. Costs no read if the item's record says that nothing is.

        Raises:
          RunUnreadable: some of it cannot be read. Without it, steps would be done again.
          LeaseLost: the tenant has moved, and nobody knows where to.
        """
        if not self.record.keeps_run:
            return
        stored = self._load_once()
        while stored is None:
            stored = self._load_once()
        _raise_unreadable(stored)
        self.head, self.entries, self.participants = stored.head, stored.entries, stored.participants

    def _load_once(self) -> StoredRun | None:
        """Return what is recorded; None: the tenant has moved meanwhile, so that part of it may be cleared here."""
        stored, location = StoredRun(), self.home.location
        try:
            _read_pages(
                self.shard,
                location.keys.tenant,
                lambda tr, begin: step_log.read_run(tr, location, self.run, stored, begin=begin),
            )
        except TenantMoved as moved:
            if not self.follow(moved):
                raise LeaseLost(item=self.home.item_id.hex()) from moved
            return None
        return stored

    def load_participant(self, shard: Shard, keys: TenantKeys) -> None:
        """Add the entries that a participant keeps.

        Raises:
          RunUnreadable: some of them cannot be read.
          TenantMoved: the participant lives on another shard.
        """
        stored = StoredRun(self.head, self.entries)
        _read_pages(shard, keys, lambda tr, begin: step_log.read_participant(tr, keys, self.run, stored, begin=begin))
        _raise_unreadable(stored)

    def find(self, awaited: Iterable[Awaited]) -> dict[Awaited, Arrived]:
        """Read what has arrived of what the run waits for. Only the holder of the lease takes it."""
        wanted = list(awaited)
        return self._transact(lambda attempt: run_one(find_op(attempt.tr, self.home.location, self.run, wanted)))

    def is_held(self) -> bool:
        """Say whether the lease of this attempt stands."""
        record = self._transact(lambda attempt: self._stored_record(attempt.tr))
        return record is not None and record.lease_id == self.home.lease_id

    # --- Pending answers ---

    def add_pending(self, step: StepName, entry: StepEntry, taken: Iterable[bytes] = ()) -> None:
        """Note an answer that the next commit records. `taken`: keys that it clears."""
        self.entries[step] = self._pending[step] = entry
        self._pending_bytes += len(entry.result) + ENTRY_BYTES
        self._taken += taken
        self._ever_taken.update(taken)

    def was_taken(self, key: bytes) -> bool:
        """Say whether a signal, or the result of a child, was taken in this attempt, since the last checkpoint."""
        return key in self._ever_taken

    # --- Commits at home. Each raises WorkflowInterrupt if the lease is lost, or a cancellation is requested ---

    def do_step(self, step: StepName, other: TenantKeys | None, work: StepBody) -> StepEntry:
        """Do a step, and record it, in one transaction. Return its entry, or the one that is there already.

        The lease is checked before `work` reads, or uses a queue. If it does neither, nothing is read at all, unless
        the step is repeated: it conflicts with what was written since the version before the latest commit, at which
        the record is known.

        `other`: of another tenant on the home's shard, on which the step acts: from before a move there may be an entry
        below that tenant.

        Raises:
          TenantMoved: another shard owns the tenant `other` by now.
          What `work` raises, and what the store raises.
        """
        written: _Written | None = None  # By the attempt before, whose result is unknown.

        is_new, has_assumed = step not in self._tried, False
        self._tried.add(step)

        def body(attempt: Attempt) -> tuple[StepEntry, _Written | None]:
            nonlocal written, has_assumed
            if is_new and not has_assumed and other is None and self._knows_record(attempt):
                has_assumed = True
                entry, record = self._work_then_check(attempt, step, work)
                written = self._append(attempt, record, [(step, entry)])
                return entry, written
            if has_assumed:
                probe("a step that did not check its lease first is repeated")
            record, found = self._begin(attempt, step, other)
            if found is not None:
                probe("a step at home finds itself done")
                return found, written
            if not record.keeps_run or record.attempt > 1:
                # The record is written before the body: the body may cancel its own run, and that must stand.
                head = self._head_now(attempt)
                step_log.append(attempt.tr, self.home, record, head, Append(), head_changed=self.head is None)
            entry = work(attempt)
            written = self._append(attempt, record, [(step, entry)])
            return entry, written

        entry, noted = self._commit(body)
        self._note(noted)
        self.entries[step] = entry
        return entry

    def do_across_shards(self, step: StepName, run: Callable[[HomeRecord[StepEntry]], StepEntry]) -> StepEntry:
        """Do a step in a transaction across shards, whose home is this one; return its entry, or the one that is there.

        `run`: runs the transaction with the record that says at home that it has happened.

        Raises:
          What `run` raises.
        """
        self._tried.add(step)
        record = _EntryAtHome(self, step)
        self.held.open_steps += 1
        try:
            entry = run(record)
        finally:
            self.held.open_steps -= 1
            self._known = self._latest = None
        self._note(record.written)
        self.entries[step] = entry
        return entry

    def new_transaction_ids(self, step: StepName, began_us: int) -> Iterator[TransactionId]:
        """Return ids of attempts at a transaction across shards that does a step. No other attempt has them.

        The lease id tells the executors of the step apart, and the numbers tell the attempts of one executor apart.
        """
        origin = id_of(self.run, self.segment, step)[:ORIGIN_BYTES]
        random = origin + blake2b(self.home.lease_id, digest_size=RANDOM_BYTES - ORIGIN_BYTES).digest()
        return (TransactionId(began_us, random, number) for number in self._transaction_numbers)

    def record_step(self, step: StepName, entry: StepEntry) -> StepEntry:
        """Record a step that has no effects in the database, or an error. See `do_step`."""
        return self.do_step(step, None, lambda attempt: entry)

    def record_pending(self, step: StepName, participant: tuple[Tenant, ParticipantState] | None) -> StepEntry | None:
        """Record what is pending, and a participant; return the entry of `step` if home has one by now."""

        def body(attempt: Attempt) -> tuple[StepEntry | None, _Written]:
            record, found = self._begin(attempt, step, None)
            return found, self._append(attempt, record, (), participant=participant)

        found, written = self._commit(body)
        self._note(written)
        if participant is not None:
            self.participants[participant[0]] = participant[1]
        if found is not None:
            self.entries[step] = found
        return found

    def record_participant(self, tenant: Tenant, place: ParticipantState) -> None:
        """Record a participant that was asked again, also of a run that is cancelled, or is undone."""

        def body(attempt: Attempt) -> _Written:
            record, _ = self._begin(attempt, None, None, may_be_cancelled=True)
            return self._append(attempt, record, (), participant=(tenant, place))

        self._note(self._commit(body))
        self.participants[tenant] = place

    def suspend(self, wait: Wait, waiting: Iterable[tuple[StepName, StepEntry]]) -> dict[Awaited, Arrived]:
        """Return the item to its queue; return what has arrived meanwhile: then nothing was written.

        A step that is to be tried again may have been done: by a try whose commit had an unknown result. Then the run
        goes on at once, in its next attempt.

        `waiting`: the entries of the waits, and of steps that are to be tried again.
        """
        added = list(waiting)

        def body(attempt: Attempt) -> dict[Awaited, Arrived]:
            record, _ = self._begin(attempt, None, None)
            not_done = [each for each in added if not self._is_done(attempt.tr, *each)]
            is_done = len(not_done) < len(added)  # Then the next attempt reads what was done.
            until = wait._replace(until_us=attempt.now_us) if is_done else wait
            pending = Append([*self._pending.items(), *not_done], (), list(self._taken))
            head = self._head_now(attempt)
            is_first = self.head is None  # Though keys of the run may be stored: a signal that came before.
            return run_one(
                suspend_op(
                    attempt.tr, self.home, record, head, until, pending, head_changed=is_first, now_us=attempt.now_us
                )
            )

        def applied(tr: Transaction) -> bool:
            record = self._stored_record(tr)
            return record is not None and record.suspended_at == self.record.lease_number

        found = self._end(body, applied=applied)
        self.held.ending = not found
        return found

    def begin_undo(self, reason: str, error: str, traceback: str) -> None:
        """Record that the run is undone, and why, together with what is pending."""

        def body(attempt: Attempt) -> _Written:
            record, _ = self._begin(attempt, None, None, may_be_cancelled=True)
            # The stored head: a commit of unknown result may have changed it before the cancellation was found.
            before = self._stored_head(attempt.tr) or self._head_now(attempt)
            head = msgspec.structs.replace(before, undo_reason=reason, undo_error=error, undo_traceback=traceback)
            return self._append(attempt, record, (), head=head)

        self._note(self._commit(body))

    def checkpoint(self, packed: bytes, at_us: int) -> None:
        """Begin the next segment with a state; forget the entries of this one. `at_us`: the time of the run."""
        written: _Written | None = None  # By the attempt before, whose result is unknown.

        def body(attempt: Attempt) -> _Written:
            nonlocal written
            if written is not None and self._stored_head(attempt.tr) == written.head:
                probe("a checkpoint finds itself made")
                return written
            record, _ = self._begin(attempt, None, None)
            before = self._head_now(attempt)
            head = msgspec.structs.replace(before, segment=before.segment + 1, checkpoint=packed, checkpoint_us=at_us)
            step_log.clear_segment(attempt.tr, self.home, before.segment)
            written = self._append(attempt, record, (), head=head, forget=True)
            return written

        self._note(self._commit(body))
        self.entries.clear()
        self._ever_taken.clear()
        self._tried.clear()

    def finish(self, work: Callable[[Attempt], object]) -> None:
        """Do the last step, and complete the item, in one transaction. An item that is gone is done."""

        def body(attempt: Attempt) -> None:
            self.held.ending = False
            self._begin(attempt, None, None)
            work(attempt)  # Code of the user's: its timeout counts until here.
            self.held.ending = self.held.job.completing = True

        def applied(tr: Transaction) -> bool:
            record = self._stored_record(tr)
            return record is None or record.run_of(self.home.item_id) != self.run

        try:
            self._commit(body, applied=applied)
        except (BodyFailed, WorkflowInterrupt):
            self.held.ending = self.held.job.completing = False
            raise
        except self.shard.db.errors:  # The item may be completed.
            self.held.ending = False
            raise
        self.held.job.completed = True

    def give_back(self, delay_us: int, *, waits_for: str = "") -> str:
        """Return the item to its queue, neither as a failure nor as an expiry; return what became of it.

        `waits_for`: what its record names as awaited, for people; empty: nothing.
        """
        names = (waits_for,) if waits_for else ()

        def body(attempt: Attempt) -> Outcome:
            return run_one(
                self._zone().requeue_op(
                    attempt.tr,
                    self.home.item_id,
                    self.home.lease_id,
                    delay_us=delay_us,
                    now_us=attempt.now_us,
                    waits_for=names,
                )
            )

        return "returned" if self._end(body) is Outcome.DONE else "lost"

    def end_undone(self, *, drop: bool) -> str:
        """End a run that is undone; return what became of its item: `cancelled`, `dropped` or `dead_lettered`."""
        head = self.head
        assert head is not None

        def body(attempt: Attempt) -> str:
            record, _ = self._begin(attempt, None, None, may_be_cancelled=True)
            return run_one(
                end_undone_op(
                    attempt.tr,
                    self._zone(),
                    self.home.item_id,
                    record,
                    head,
                    drop=drop,
                    new_run=attempt.new_id(),
                    now_us=attempt.now_us,
                )
            )

        def applied(tr: Transaction) -> bool:
            record = self._stored_record(tr)
            return record is None or record.run_of(self.home.item_id) != self.run

        return self._end(body, applied=applied)

    # --- Parts of the commits ---

    def _commit(self, body: Callable[[Attempt], T], *, applied: Callable[[Transaction], bool] | None = None) -> T:
        """Run a transaction. Meanwhile nobody else writes the record: that would conflict again and again."""
        self.held.open_steps += 1
        try:
            result = self._transact(body, applied=applied)
        finally:
            self.held.open_steps -= 1
            self._known, latest, self._latest = None, self._latest, None
        if latest is not None and not is_marking(latest.tr):  # The next commit must mark, and so read the owner.
            version = latest.tr.get_committed_version()
            if version > 0:  # Otherwise it only read, or another transaction has found that it was committed.
                # Not the commit's own version: FoundationDB gives all commits of a batch one version, and the next one
                # of the batch may have written the record. A step also meets what this commit itself wrote there.
                self._known = _KnownVersion(version - 1, latest.now_us)
        return result

    def _transact(self, body: Callable[[Attempt], T], *, applied: Callable[[Transaction], bool] | None = None) -> T:
        """Run a transaction at home, wherever that is by now.

        After a commit of unknown result the shard where it was tried is asked first; if the tenant has moved since, its
        new home is.
        """
        last: list[T] = []  # The result of the last attempt.
        was_asked = False

        def run(attempt: Attempt) -> T:
            last[:] = [body(attempt)]
            return last[0]

        def is_applied(tr: Transaction) -> bool:
            nonlocal was_asked
            was_asked = True
            return applied is not None and applied(tr)

        for _ in range(MOVES_MAX):
            try:
                if was_asked and last and self.shard.transact(lambda attempt: is_applied(attempt.tr)):
                    return last[0]
                return self.shard.transact(run, applied=is_applied)
            except TenantMoved as moved:
                if moved.tenant != tuple(self.held.ref.tenant):
                    raise
                if not self.follow(moved):
                    break
        raise WorkflowInterrupt(Cause.LOST)

    def follow(self, moved: TenantMoved) -> bool:
        """Go on where the tenant of the run lives now; False: it is another tenant, or its home is not known.

        The lease stays valid, and so does what is known of the run: all of it has moved along.
        """
        home = self.shard.follow(moved) if moved.tenant == tuple(self.held.ref.tenant) else None
        if home is None:
            return False
        probe("a run follows its tenant to another shard")
        self.shard, self.held.shard_name = home, home.name
        self.home = self._run_at(home)
        self._known = self._latest = None
        return True

    def _run_at(self, shard: Shard) -> HeldRun:
        ref = self.held.ref
        return HeldRun(shard.layout.location(ref.tenant, ref.zone), ref.item_id, ref.lease_id, self.run)

    def _zone(self) -> QueueZone:
        return self.shard.zone(self.held.ref.tenant, self.held.ref.zone)

    def _end(self, body: Callable[[Attempt], T], *, applied: Callable[[Transaction], bool] | None = None) -> T:
        """Run a transaction that ends the attempt. If it fails, the attempt goes on, and its lease is kept."""
        self.held.ending, has_ended = True, False
        try:
            result = self._commit(body, applied=applied)
            has_ended = True
        finally:
            self.held.ending = has_ended
        return result

    def _begin(
        self, attempt: Attempt, step: StepName | None, other: TenantKeys | None, *, may_be_cancelled: bool = False
    ) -> tuple[ItemRecord, StepEntry | None]:
        """Check the lease, and read the entry of a step, in one round of reads.

        Returns the item's record, and an entry that this attempt does not know yet: of a commit whose result was
        unknown. A cancellation that was requested since counts from the next commit on: the step is done.

        Raises:
          RunUnreadable: there is an entry, which cannot be read.
          TenantMoved: another shard owns the tenant `other`, or that of the run.
        """
        attempt.finds_itself_applied = True
        tr, keys = attempt.tr, []
        owner = None if other is None else tr.get(other.owner)
        if step is not None:
            keys.append(self.home.entry_key(self.segment, step))
            if other is not None:
                keys.append(entry_key(other, self.run, self.segment, *step))
        entries = [(key, tr.get(key)) for key in keys]
        try:
            record = run_one(step_log.check_held_op(tr, self.home))
        except (LeaseLost, ItemGone):
            raise WorkflowInterrupt(Cause.LOST) from None
        attempt.owners = {self.home.owner_key: self.home.owner}
        if other is not None and owner is not None:
            attempt.owners = {other.owner: owner.value}
            check_owner(tr, self.shard.layout, other, owner.value)
            usable_snapshots(other, owner.value)
        # While a cancellation is requested, each commit looks for it.
        self._latest = None if record.cancelling or step_log.is_rewritten(record) else attempt
        known, found = None if step is None else self.entries.get(step), None
        for key, stored in entries:
            entry = read_entry(key, stored.value)
            if found is None and entry is not None and entry != known:
                found = entry
        if record.cancelling and not may_be_cancelled and not self.is_undone and found is None:
            probe("a commit of a workflow finds that its cancellation was requested")
            raise WorkflowInterrupt(Cause.CANCELLED)
        return record, found

    def _knows_record(self, attempt: Attempt) -> bool:
        """Whether the item's record is known at a version that is not too old, and need not be written.

        Not of a tenant that had snapshots then: a write reads what it copies for them.
        """
        return (
            self._known is not None
            and not self.home.has_snapshots
            and attempt.now_us < self._known.at_us + VERSION_AGE_US_MAX
            and self.head is not None
            and self.record.keeps_run
        )

    def _work_then_check(self, attempt: Attempt, step: StepName, work: StepBody) -> tuple[StepEntry, ItemRecord]:
        """Do a step's work, and check the lease only when the work reads; return the entry, and the item's record.

        If the work reads nothing, the transaction reads at the version where the record is known. It conflicts if the
        record, the owner or the step's entry has been written since. Not for a repeated transaction: an earlier one may
        have been committed, and then the work must not see its own effects.
        """
        checked: ItemRecord | None = None

        def check() -> None:
            nonlocal checked
            record, found = self._begin(attempt, step, None)
            # The transaction is repeated, and finds the entry before the work, or copies for the snapshots.
            if found is not None or self.home.has_snapshots:
                raise self.shard.db.errors[0](NOT_COMMITTED)
            checked = record

        attempt.before_read = check
        entry = work(attempt)
        if checked is not None:
            return entry, checked
        if attempt.before_read is None:  # The work has swallowed what the check raised.
            raise self.shard.db.errors[0](NOT_COMMITTED)
        assert self._known is not None
        probe("a step at home reads nothing")
        attempt.before_read = None
        attempt.finds_itself_applied = True
        tr = attempt.tr
        tr.set_read_version(self._known.version)
        tr.add_read_conflict_key(self.home.owner_key)
        tr.add_read_conflict_key(self.home.item_key)
        tr.add_read_conflict_key(self.home.entry_key(self.segment, step))
        self._latest = attempt
        return entry, self.record

    def _append(
        self,
        attempt: Attempt,
        record: ItemRecord,
        entries: Sequence[tuple[StepName, StepEntry]],
        *,
        participant: tuple[Tenant, ParticipantState] | None = None,
        head: RunHead | None = None,
        forget: bool = False,
    ) -> "_Written":
        """Append entries, and what is pending. `head`: if it changes. `forget`: the segment of what is pending ends."""
        pending, taken = self._pending.copy(), self._taken.copy()
        changed = head is not None
        head = head or self._head_now(attempt)
        if participant is not None and not head.has_participants:
            head, changed = msgspec.structs.replace(head, has_participants=True), True
        new = entries if forget or not pending else [*pending.items(), *entries]
        added = Append(new, () if participant is None else [participant], taken)
        step_log.append(attempt.tr, self.home, record, head, added, head_changed=changed or self.head is None)
        return _Written(head, pending, taken)

    def _note(self, written: "_Written | None") -> None:
        """Note that a transaction with pending answers was committed. Others may have come meanwhile."""
        if written is None:
            return
        self.head = written.head
        for step, entry in written.pending.items():
            if self._pending.get(step) is entry:
                del self._pending[step]
        if written.pending:
            self._pending_bytes = sum(len(entry.result) + ENTRY_BYTES for entry in self._pending.values())
        if written.taken:
            self._taken = [key for key in self._taken if key not in written.taken]
        self.record.keeps_run = True
        self.record.error_count = self.record.expiry_count = self.record.expired_count = 0

    def _head_now(self, attempt: Attempt) -> RunHead:
        return self.head or RunHead(self._version, attempt.now_us)

    def _is_done(self, tr: Transaction, step: StepName, waiting: StepEntry) -> bool:
        """Whether a step that is to be tried again is done. Reads its entry with conflict; of a wait, nothing."""
        if waiting.kind is StepKind.WAIT:
            return False
        key = self.home.entry_key(self.segment, step)
        entry = read_entry(key, tr.get(key).value)
        return entry is not None and entry.state in (StepState.DONE, StepState.FAILED)

    def _stored_head(self, tr: Transaction) -> RunHead | None:
        """Read the stored head, with conflict; None: there is none."""
        value = tr.get(head_key(self.home.location.keys.tenant, self.run)).value
        return None if value is None else decode_head(value)

    def _stored_record(self, tr: Transaction) -> ItemRecord | None:
        """Read the item's record with conflict; None: there is none.

        Raises:
          TenantMoved: the tenant lives on another shard.
        """
        owner, stored = tr.get(self.home.owner_key), tr.get(self.home.item_key)
        check_owner(tr, self.shard.layout, self.home.location.keys.tenant, owner.value, writes=False)
        value = stored.value
        return None if value is None else decode(ItemRecord, value)


class _EntryAtHome:
    """The entry of a step that is a transaction across shards; see `HomeRecord`.

    Attributes:
      written: by the last attempt that has come to its decision.
    """

    def __init__(self, log: RunLog, step: StepName) -> None:
        self._log = log
        self._step = step
        self.written: _Written | None = None

    @property
    def shard(self) -> Shard:
        """See `HomeRecord`."""
        return self._log.shard

    def begin(self, attempt: Attempt) -> StepEntry | None:
        """Check the lease, and read the entry; see `RunLog._begin`."""
        self._record, found = self._log._begin(attempt, self._step, None)
        return found

    def write(self, attempt: Attempt, result: StepEntry) -> None:
        """Append the entry to the log."""
        self.written = self._log._append(attempt, self._record, [(self._step, result)])


class _KnownVersion(NamedTuple):
    """The version before a commit that has checked the item's record; when the commit began."""

    version: int
    at_us: int


class _Written(NamedTuple):
    """What a transaction wrote of what was pending, and the head as it is from then on."""

    head: RunHead
    pending: Mapping[StepName, StepEntry]
    taken: Sequence[bytes]


def _raise_unreadable(stored: StoredRun) -> None:
    if stored.unreadable is not None:
        raise stored.unreadable


def _read_pages(shard: Shard, keys: TenantKeys, read: Callable[[Reader, bytes], bytes]) -> None:
    """Read page after page of a tenant's, each in a transaction of its own.

    Raises:
      TenantMoved: the tenant lives on another shard. Then what was read may be a part only.
    """
    begin = b""
    while True:
        begin = shard.transact(partial(_read_page, layout=shard.layout, keys=keys, read=read, begin=begin))
        if not begin:
            return


def _read_page(
    attempt: Attempt, *, layout: ShardLayout, keys: TenantKeys, read: Callable[[Reader, bytes], bytes], begin: bytes
) -> bytes:
    owner = attempt.tr.snapshot.get(keys.owner)
    next_begin = read(attempt.tr, begin)
    check_owner(attempt.tr, layout, keys, owner.value, writes=False)
    return next_begin
