"""The transaction runner: runs a body until its commit, and applies it once even if a commit's result is unknown.

After 1021 (and 1031, 1025 or 1039 at a commit) a transaction may have been applied, or may be applied later. An attempt
draws ids from a seed of the call and an ordinal that restarts with every attempt. So a repeated body draws the same ids
and finds its own items.

That is not enough. An item may have been completed in between, and must not be enqueued again; a user's body may add to
a counter. So a transaction that must not be applied twice also writes a receipt. The receipt holds the number of the
applied attempt, and the result of this attempt is returned. From the first attempt with a receipt on, each attempt
reads the receipt with conflict and writes it, so that at most one of them is applied.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar, cast

from fairlead.zones.engines import RETRIES_MAX, Clock, Database, Transaction, transact
from fairlead.zones.engines.api.errors import ResultUnknown
from fairlead.zones.errors import TenantLocked
from fairlead.zones.keyspace import RECEIPT, ROOT, pack_bytes, pack_int
from fairlead.zones.moving.marks import NONCE_BYTES, MarkingTransaction, TenantMoving
from fairlead.zones.probes import probe

T = TypeVar("T")
BeginWait = Callable[[], Callable[[TenantLocked], None]]
MARKING_US = 1_000_000  # So long after one has met a moving tenant, transactions of a shard mark from their start.

SEED_BYTES = 12
SEED_TIME_BYTES = 5  # Time in steps of 2^14 microseconds; enough until the year 2540.
SEED_TIME_SHIFT = 14
RECEIPT_BYTES = 4  # The number of an attempt.
RECEIPT_LIFE_US = 600_000_000  # Ten minutes: far longer than any client retries a commit.

RECEIPT_BUCKETS = 16  # Lists of receipts, chosen by a random byte of the seed.

_RECEIPT = ROOT + pack_int(RECEIPT)
_NO_OWNERS: Mapping[bytes, bytes | None] = {}


class Marking:
    """Whether transactions of a shard mark from their start what they write to moving tenants.

    One that does not begins anew when it meets such a tenant, so for a while afterwards all of the shard do.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._met_us: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether a transaction has met a moving tenant lately."""
        return self._met_us is not None and 0 <= self.clock.now_us() - self._met_us < MARKING_US

    def note_moving(self) -> None:
        """Note that a transaction has met a moving tenant."""
        self._met_us = self.clock.now_us()


class Attempt:
    """One run of a transaction's body: the transaction, the time it uses throughout, and the ids it draws.

    `needs_receipt`: the body sets it to True if it must not be applied twice after a commit of unknown result.
    `finds_itself_applied`: the body sets it to True if it reads, with conflict, a key that it writes, and does nothing
    if that is there. Then it needs no receipt, whatever it writes.
    `has_read`: the body sets it to True once it has waited for a read. Then its transaction has a read version.
    `owners`: ownership records that were read with conflict in this attempt, by their keys, before a tenant's function
    runs. So it need not read them again.
    `before_read`: called once, before a tenant's function reads for the first time, or uses a queue.
    """

    __slots__ = (
        "_ordinal",
        "_seed",
        "before_read",
        "finds_itself_applied",
        "has_read",
        "needs_receipt",
        "now_us",
        "owners",
        "tr",
    )

    def __init__(self, tr: Transaction, seed: bytes, now_us: int) -> None:
        self.tr = tr
        self.now_us = now_us
        self.needs_receipt = self.has_read = self.finds_itself_applied = False
        self.before_read: Callable[[], None] | None = None
        self.owners: Mapping[bytes, bytes | None] = _NO_OWNERS
        self._seed = seed
        self._ordinal = 0

    def new_id(self) -> bytes:
        """Return 16 bytes that no other call draws, the same in every attempt of this call."""
        self._ordinal += 1
        return self._seed + self._ordinal.to_bytes(4, "big")

    def begin_read(self) -> None:
        """Call `before_read`, if it has not been called."""
        before_read, self.before_read = self.before_read, None
        if before_read is not None:
            before_read()


def new_seed(now_us: int, random: Random) -> bytes:
    """Return the first bytes of all ids of a call: the time, to 16 ms, and random bytes.

    Two calls within 16 ms draw equal seeds once in 2^56 calls. Items that are enqueued one after the other are stored
    side by side, so a transaction that leases or completes some of them writes few pages.
    """
    return (now_us >> SEED_TIME_SHIFT).to_bytes(SEED_TIME_BYTES, "big") + random.randbytes(SEED_BYTES - SEED_TIME_BYTES)


def run(
    db: Database,
    body: Callable[[Attempt], T],
    *,
    clock: Clock,
    random: Random,
    applied: Callable[[Transaction], bool] | None = None,
    retries_max: int = RETRIES_MAX,
    begin_wait: BeginWait | None = None,
    marking: Marking | None = None,
) -> T:
    """Run `body` in a transaction until it is committed, and return its result.

    `body` may run several times. An attempt that sets `needs_receipt` is applied once. After an unknown result without
    one, `applied(tr)` returns whether the commit happened. `begin_wait` returns what each lock is waited for by.

    Raises:
      TenantLocked: a transaction across shards has locked the tenant; only without `begin_wait`.
      ResultUnknown: the result of an attempt that needs a receipt is unknown, on an engine that keeps no receipts
        because its results are nearly always known.
      Errors of the database that `transact` does not retry.
    """
    seed, expires_us = new_seed(began_us := clock.now_us(), random), began_us + RECEIPT_LIFE_US
    results: list[T] = []  # of the attempts with a receipt; a receipt holds an index of this list
    last_has_receipt = last_needs_receipt = False
    marks = [_Marks(marking, random)] if marking is not None and marking.is_on else []  # Nearly always none.
    applied_attempt: int | None = None

    def was_applied(tr: Transaction) -> bool:
        """Return whether an attempt with a receipt was applied, even late; set `applied_attempt` to its number."""
        nonlocal applied_attempt
        value = tr.get(receipt_key(seed, expires_us)).value
        applied_attempt = None if value is None else int.from_bytes(value, "big")
        return applied_attempt is not None

    def attempt_once(tr: Transaction) -> T:
        nonlocal last_has_receipt, last_needs_receipt
        if results and was_applied(tr):
            probe("a transaction of unknown result is found applied by its own retry")
            return results[-1]
        attempt = Attempt(marks[0].begin(tr) if marks else tr, seed, clock.now_us())
        result = body(attempt)
        last_needs_receipt = attempt.needs_receipt and not attempt.finds_itself_applied
        last_has_receipt = bool(results) or (last_needs_receipt and db.results_can_be_unknown)
        if last_has_receipt:
            _write_receipt(tr, receipt_key(seed, expires_us), len(results), has_read=attempt.has_read)
            results.append(result)
        return result

    def check_applied(tr: Transaction) -> bool:
        if results:
            probe("a transaction of unknown result looks for its receipt")
            if was_applied(tr):
                return True
        if last_needs_receipt and not last_has_receipt:
            raise ResultUnknown(db.url)
        return not last_has_receipt and applied is not None and applied(tr)

    last = _transact_past_locks(db, attempt_once, check_applied, retries_max, begin_wait, marks, marking, random)
    return last if applied_attempt is None else results[applied_attempt]


def _transact_past_locks(
    db: Database,
    attempt_once: Callable[[Transaction], T],
    check_applied: Callable[[Transaction], bool],
    retries_max: int,
    begin_wait: BeginWait | None,
    marks: "list[_Marks]",
    marking: Marking | None,
    random: Random,
) -> T:
    """Run attempts until one is committed; wait for what one meets outside of any transaction."""
    wait: Callable[[TenantLocked], None] | None = None
    while True:
        try:
            result = transact(db, attempt_once, applied=check_applied, retries_max=retries_max)
            for each in marks:
                each.let_mover_catch_up()
            return result
        except TenantLocked as locked:
            if begin_wait is None:
                raise
            wait = wait or begin_wait()
            wait(locked)
        except TenantMoving:
            probe("a transaction meets a tenant that moves, and begins again to mark what it changes")
            if marking is None:
                raise
            marking.note_moving()
            marks[:] = [_Marks(marking, random)]


class _Marks:
    """The marks that the attempts of one call write, from the first one that marks on."""

    def __init__(self, marking: Marking, random: Random) -> None:
        self._marking = marking
        self._random = random
        self._last: MarkingTransaction | None = None

    def begin(self, tr: Transaction) -> Transaction:
        """Return what an attempt reads and writes through."""
        self._last = MarkingTransaction(tr, self._random.randbytes(NONCE_BYTES))
        return cast(Transaction, self._last)

    def let_mover_catch_up(self) -> None:
        """Wait after the commit, if the mover of a tenant wants its writers to."""
        if self._last is not None and self._last.pause_us:
            probe("a writer waits so that the mover of its tenant catches up")
            self._marking.clock.sleep_us(self._last.pause_us)


def _write_receipt(tr: Transaction, receipt: bytes, number: int, *, has_read: bool) -> None:
    """Write the receipt of an attempt, and read it with conflict at a version of now or earlier.

    A body that only writes has no read version yet. Without one, a late commit of this attempt would not conflict with
    the receipt of the next attempt. The commit needs a read version anyway. A body that has read has one already;
    another request would wait for the client's thread.
    """
    if not has_read:
        tr.get_read_version().wait()
    tr.add_read_conflict_key(receipt)
    tr.set(receipt, number.to_bytes(RECEIPT_BYTES, "big"))


def receipt_key(seed: bytes, expires_us: int) -> bytes:
    """Return the key of the receipt of a call whose ids begin with `seed`."""
    return _RECEIPT + pack_int(seed[SEED_TIME_BYTES] % RECEIPT_BUCKETS) + pack_int(expires_us) + pack_bytes(seed)


def clear_receipts(tr: Transaction, bucket: int, *, now_us: int) -> bool:
    """Clear all expired receipts of a bucket, and return whether there were any.

    Each transaction with a receipt leaves one key. Reads one key by snapshot, clears one range; safe to repeat.
    """
    begin = _RECEIPT + pack_int(bucket)
    end = begin + pack_int(now_us)
    if next(iter(tr.snapshot.get_range(begin, end, limit=1)), None) is None:
        return False
    tr.clear_range(begin, end)
    return True
