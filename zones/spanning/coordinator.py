"""The coordinator: runs the body of a transaction across shards until it is committed, and carries it out.

All that it has decided is stored. If its process dies, `recovery` goes on, from whatever process meets its locks.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any, Protocol, TypeVar

from fairlead.zones.engines import RETRIES_MAX, Clock, StoreError, Transaction, transact
from fairlead.zones.engines.api.errors import (
    MAYBE_COMMITTED,
    RETRYABLE,
    USED_DURING_COMMIT,
    ResultUnknown,
    TransactionTooLong,
    error_code,
)
from fairlead.zones.engines.api.retry import TOO_LONG_MAX
from fairlead.zones.errors import BadArgument, TenantBusy, TenantLocked, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.open_body import ACROSS_SHARDS, open_body, refuse_any
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.probes import probe
from fairlead.zones.records import TransactionId
from fairlead.zones.shard import Shard
from fairlead.zones.spanning import decision, participant
from fairlead.zones.spanning.decision import Aborted
from fairlead.zones.spanning.lock_wait import LockWait
from fairlead.zones.spanning.participant import PreparedUnreadable
from fairlead.zones.spanning.recovery import settle
from fairlead.zones.spanning.tenant_view import Branch, TenantView
from fairlead.zones.spanning.transaction_keys import RANDOM_BYTES
from fairlead.zones.spanning.write_buffer import ENDED
from fairlead.zones.spanning.write_set import carry_out
from fairlead.zones.tenant_transaction import (
    HasTenant,
    SpanningEnqueueObserver,
    check_plain,
    refuse_coroutine,
    tenant_of,
)
from fairlead.zones.transaction_runner import Attempt, new_seed

T = TypeVar("T")

log = logging.getLogger("fairlead.locks")

SHARDS_MAX = 16  # Of one transaction. Each costs a commit before the answer, one after the other.
TENANTS_MAX = 200  # On one shard: their names are one value of at most 40 kB.
MOVES_MAX = 8  # So often a transaction follows tenants that move meanwhile.
BACKOFF_US_MIN, BACKOFF_US_MAX = 1_000, 100_000  # After a conflict: a random time up to this, which doubles.


class ShardFinder(Protocol):
    """The shards of an application."""

    def home(self, tenant: Tenant) -> Shard:
        """Return the shard where a tenant was last found."""
        ...

    def note_moved(self, moved: TenantMoved) -> bool:
        """Note where a tenant lives now; False: there is no other shard to ask."""
        ...

    def with_id(self, shard_id: bytes) -> OpenShard | None:
        """Return the shard that has an id, opened."""
        ...


class HomeRecord(Protocol[T]):
    """What a transaction records on its home shard beside its decision: that a step of a workflow is done, and how.

    It is the receipt of the transaction: if it is there, the transaction has happened, and is not done again.
    """

    @property
    def shard(self) -> Shard:
        """The home shard, whichever tenant the body names first."""
        ...

    def begin(self, attempt: Attempt) -> T | None:
        """Read the record with conflict, in the home transaction, before the body; return the result if it is there.

        What this raises ends the attempt. Nothing is prepared yet.
        """
        ...

    def write(self, attempt: Attempt, result: T) -> None:
        """Write the record, in the home transaction, with the decision."""
        ...


class SpanningTransaction:
    """What a body gets: `tx.on(tenant)` for each tenant. One attempt; the body may run several times.

    Attributes:
      now_us: the time of this attempt, microseconds since the epoch; the same throughout.
    """

    def __init__(
        self,
        shards: ShardFinder,
        transaction: TransactionId,
        seed: bytes,
        now_us: int,
        record: HomeRecord[Any] | None = None,
        enqueuer: SpanningEnqueueObserver | None = None,
    ) -> None:
        self.now_us = now_us
        self._enqueuer = enqueuer
        self._record = record
        self._shards = shards
        self._transaction = transaction
        self._seed = seed
        self._ids_drawn = 0
        self._is_over = False
        self._branches: dict[str, Branch] = {}  # by the name of the shard; the first one is at home
        self._refusal: TenantMoved | TenantLocked | None = None
        self._read: list[Branch] = []  # in the order in which their shards gave read versions
        self._prepared: list[Branch] = []

    def on(self, tenant: Tenant | HasTenant | str) -> TenantView:
        """Return a tenant's keys and queue, as a `Tenant`, "APP/USER", or a tenant's database. Reads nothing.

        The result has `get`, `get_range`, `set`, `clear`, `clear_prefix`, `add` and `enqueue`, and a handler completes
        its item with `job.complete_in`. The first tenant's shard decides about the transaction, and in `wf.transact`
        the workflow's: name first whom you write most.

        Raises:
          BadArgument: there are more tenants of one shard, or more shards, than a transaction may have.
          StoreError (2017): the body has ended.
        """
        if self._is_over:
            raise StoreError(USED_DURING_COMMIT, remedy=ENDED)
        named = tenant_of(tenant)
        shard = self._shards.home(named)
        if len(self._branches) == SHARDS_MAX and shard.name not in self._branches:
            raise BadArgument(argument="tenant", value=str(named), allowed=f"tenants of {SHARDS_MAX} shards")
        branch = self._branch_on(shard)
        if len(branch.views) >= TENANTS_MAX and named not in branch.views:
            raise BadArgument(argument="tenant", value=str(named), allowed=f"{TENANTS_MAX} tenants of one shard")
        return branch.view(named, self._note_refusal)

    def _branch_on(self, shard: Shard) -> Branch:
        """Return the part of the attempt that is on a shard."""
        branch = self._branches.get(shard.name)
        if branch is None:
            branch = Branch(shard, self.now_us, self._new_id, self._note_read, self._enqueuer)
            self._branches[shard.name] = branch
        return branch

    def _note_refusal(self, refusal: TenantMoved | TenantLocked) -> None:
        """Keep what refused the body: the attempt must not commit, even if the body catches the error."""
        self._refusal = self._refusal or refusal

    def _note_read(self, branch: Branch) -> None:
        if branch not in self._read:
            self._read.append(branch)

    def _new_id(self) -> bytes:
        self._ids_drawn += 1
        return self._seed + self._ids_drawn.to_bytes(4, "big")

    @property
    def store_errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors that the stores of this attempt raise."""
        return tuple({kind for branch in self._branches.values() for kind in branch.shard.db.errors})

    # --- Called by `run_across_shards` ---

    def run(self, body: Callable[["SpanningTransaction"], T]) -> T:
        """Run the body and commit, and return its result; what is prepared elsewhere is still to be applied.

        If the record of an earlier attempt is there, nothing is run, and its result is returned.

        Raises:
          TenantMoved, TenantLocked, Aborted, what a store raises: nothing was changed; a new attempt may succeed.
          What the body raises: its reads are valid, and nothing was changed.
        """
        if self._record is not None:
            self._home_attempt = Attempt(self._branch_on(self._record.shard).tr, self._seed, self.now_us)
            recorded: T | None = self._record.begin(self._home_attempt)
            if recorded is not None:
                probe("a transaction across shards finds itself recorded")
                return recorded
        if self._enqueuer is not None:
            self._enqueuer.begin_attempt_across_shards()
        token = open_body.set(ACROSS_SHARDS)
        try:
            result = body(self)
            refuse_coroutine(result)
        except self.store_errors:
            raise
        except Exception:
            self._check_refusal()
            self._validate()
            raise
        finally:
            open_body.reset(token)
            self._end_body()
        self._check_refusal()
        if self._enqueuer is not None:
            self._enqueuer.end_attempt()
        self._commit(result)
        return result

    def _end_body(self) -> None:
        """Refuse what somebody does with this transaction after its body: nobody would commit that."""
        self._is_over = True
        for branch in self._branches.values():
            branch.buffer.close()

    def _check_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    @property
    def _used(self) -> list[Branch]:
        return [branch for branch in self._branches.values() if branch.used]

    def _commit(self, result: object) -> None:
        used = self._used
        if self._record is None:
            if not any(branch.buffer for branch in used):
                self._validate()
                return
            home, *others = used
        else:
            home = self._branch_on(self._record.shard)
            others = [branch for branch in used if branch is not home]
        home.tr.get_read_version().wait()  # Before anything is prepared: see `decide`.
        for branch in sorted(others, key=lambda each: each.shard.layout.shard_id):
            self._prepare(branch, home.shard.layout.shard_id)
        self._decide(home, others, result)

    def _validate(self) -> None:
        """See that all was as the body has read it at one instant: when the shard that was read last gave its version.

        That one has been read as it was then. On the others, nothing has changed since they gave theirs.
        """
        for branch in self._read[:-1]:
            participant.validate(branch.tr, self._transaction)
            branch.tr.commit().wait()

    def _prepare(self, branch: Branch, home_id: bytes) -> None:
        db, transaction = branch.shard.db, self._transaction
        participant.prepare(
            branch.tr, branch.shard.layout, transaction, branch.used, branch.buffer.write_set, home_id=home_id
        )
        try:
            branch.tr.commit().wait()
        except db.errors as error:
            if error_code(error) not in MAYBE_COMMITTED:
                raise
            if not transact(db, lambda tr: participant.has_prepared(tr, transaction)):
                raise Aborted from error  # Should it arrive later, nobody commits it: a new attempt has another id.
            probe("a prepare of unknown result is found prepared")
        self._prepared.append(branch)

    def _decide(self, home: Branch, others: list[Branch], result: object) -> None:
        """Write at home, and the decision with it, unless a plain commit will do. The point of no return."""
        db, shard_ids = home.shard.db, [branch.shard.layout.shard_id for branch in others]
        is_decided = bool(others) or (self._record is None and db.results_can_be_unknown)
        carry_out(home.tr, home.shard.layout, home.buffer.write_set)
        if self._record is not None:
            self._record.write(self._home_attempt, result)
        if is_decided:
            decision.decide(home.tr, self._transaction, shard_ids, now_us=self.now_us)
        try:
            home.tr.commit().wait()
        except db.errors as error:
            if error_code(error) not in MAYBE_COMMITTED:
                raise
            if not is_decided and self._record is None:
                raise ResultUnknown(db.url) from error
            if not is_decided:
                raise Aborted from error  # The next attempt finds the record; or this one conflicts with the next one.
            if not self._is_committed(home, shard_ids):
                raise Aborted from error
            probe("a decision of unknown result is found")

    def _is_committed(self, home: Branch, shard_ids: list[bytes]) -> bool:
        """Return whether a decision of unknown result was written; write that it is aborted if it was not."""

        def ask_or_abort(tr: Transaction) -> bool:
            return decision.abort(tr, self._transaction, shard_ids, now_us=self.now_us)

        try:
            return transact(home.shard.db, ask_or_abort)
        except home.shard.db.errors as error:
            self._prepared.clear()  # Only the home shard knows, so nothing may be released.
            raise ResultUnknown(home.shard.db.url) from error

    @property
    def is_prepared(self) -> bool:
        """Whether it has prepared on a shard, and that is not settled."""
        return bool(self._prepared)

    def begin_apply(self) -> Callable[[], None]:
        """Return what carries out on the other shards what was committed. What fails is left to whoever meets it."""
        shards = [branch.shard for branch in self._prepared]
        for shard in shards:
            shard.committed.add(self._transaction)

        def apply() -> None:
            for shard in shards:
                shard.committed.carry_out(shard)

        return apply

    def give_up(self) -> None:
        """Release what was prepared, after an attempt that has not been and will not be committed."""
        for branch in self._prepared:
            try:
                settle(branch.shard, self._transaction, committed=False)
            except PreparedUnreadable as error:
                self._log_left(branch, error)
            except branch.shard.db.errors as error:
                self._log_left(branch, error)
        self._prepared.clear()

    def _log_left(self, branch: Branch, error: Exception) -> None:
        log.info("transaction %s is left on shard %s: %s", self._transaction, branch.shard.name, error)

    def close(self) -> None:
        """End the transactions that were read in."""
        for branch in self._branches.values():
            branch.tr.cancel()


def apply_at_once(apply: Callable[[], None]) -> None:
    """Apply a committed transaction before its caller gets the answer."""
    apply()


def run_across_shards(
    shards: ShardFinder,
    body: Callable[[SpanningTransaction], T],
    *,
    wait_us: int,
    clock: Clock,
    random: Random,
    apply_later: Callable[[Callable[[], None]], None] = apply_at_once,
    record: HomeRecord[T] | None = None,
    ids: Iterator[TransactionId] | None = None,
    enqueuer: SpanningEnqueueObserver | None = None,
) -> T:
    """Run `body(tx)` until it is committed on all its shards, and return its result.

    `body` may run several times. Its writes are applied once, all or none. One shard costs one commit. Two shards cost
    two commits before the answer and one after it.

    Args:
      wait_us: how long to wait in all for locks of other transactions.
      apply_later: runs a call that carries out what is committed on the other shards. Readers there wait, or do it.
      record: what is recorded with the decision, and says of a repeated call that it is done; None: nothing is.
      ids: an id for each attempt, all of one age, and none used before; default: of a transaction that begins now.
      enqueuer: observes what `body` enqueues; None: nobody does.

    Raises:
      BadArgument, NestedTransaction: `body` is an async function; the caller is the body of a transaction.
      TenantBusy: `wait_us` is over.
      TenantMoved: a tenant moves on and on, or lives on a shard that is not configured.
      TransactionTooLong: from the first read to the decision it takes longer than five seconds, twice.
      ResultUnknown: the home shard failed in the middle of the commit, and does not say how that ended.
      StoreError (on FoundationDB: FDBError): an error that a retry does not cure; 2101 if the writes to one shard are
        larger than half of what its transactions may be.
      What `body` raises: nothing was changed, and all that it had read was so at one instant.
    """
    refuse_any(ACROSS_SHARDS)
    check_plain(body)
    seed, ids = new_seed(clock.now_us(), random), ids or _new_ids(clock, random)
    mine = next(ids)
    waiting = LockWait(shards.with_id, clock, wait_us=wait_us, mine=mine)
    backoffs = _backoffs(clock, random)
    moves = too_long = 0
    while True:
        attempt = SpanningTransaction(shards, mine, seed, clock.now_us(), record, enqueuer)
        try:
            return _run_once(attempt, body, apply_later)
        except TenantMoved as moved:
            moves += 1
            if moves > MOVES_MAX or not shards.note_moved(moved):
                raise
        except TenantLocked as locked:
            waiting.meet(locked)
        except Aborted:
            probe("a transaction across shards is aborted, and begins anew")
            if not next(backoffs):
                raise TenantBusy(transaction=str(mine), reason="other transactions abort it again and again") from None
        except attempt.store_errors as error:
            too_long += isinstance(error, TransactionTooLong)
            if error_code(error) not in RETRYABLE or too_long == TOO_LONG_MAX or not next(backoffs):
                raise
        mine = next(ids)


def _run_once(
    attempt: SpanningTransaction,
    body: Callable[[SpanningTransaction], T],
    apply_later: Callable[[Callable[[], None]], None],
) -> T:
    with _giving_up(attempt):
        result = attempt.run(body)
    if attempt.is_prepared:
        apply_later(attempt.begin_apply())
    return result


def _new_ids(clock: Clock, random: Random) -> Iterator[TransactionId]:
    """Return the ids of the attempts at a transaction that begins now."""
    began_us, drawn = clock.now_us(), random.randbytes(RANDOM_BYTES)
    return (TransactionId(began_us, drawn, number) for number in count(1))


@contextmanager
def _giving_up(attempt: SpanningTransaction) -> Iterator[None]:
    """Release what an attempt has prepared if it fails, and end its reads in any case."""
    try:
        yield
    except Exception:
        attempt.give_up()
        raise
    finally:
        attempt.close()


def _backoffs(clock: Clock, random: Random) -> Iterator[bool]:
    """Sleep for a random time and yield True, for each retry that is allowed; then yield False."""
    for number in range(RETRIES_MAX):
        clock.sleep_us(random.randrange(min(BACKOFF_US_MIN << number, BACKOFF_US_MAX)))
        yield True
    while True:
        yield False
