"""One attempt at a transaction, and how an enqueue survives a commit whose result is unknown.

After 1021 (and 1031, 1025 or 1039 at a commit) a transaction may have been applied, or may still be. The ids that an
attempt draws are a seed of the call plus an ordinal that starts anew with every attempt, so a repeated body picks the
same ids and finds its own items. That is not enough for an enqueue: its item may have been run and completed in
between, and must not come again. So a transaction that enqueued also writes a receipt, which outlives the item. It
says which attempt was applied: what that one returned is the result, not what a later one would have done. From the
first attempt that enqueued on, each reads the receipt with conflict and writes it, so that one of them is applied.
"""

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from zones.engines import RETRIES_MAX, Clock, Database, transact
from zones.keyspace import RECEIPT, ROOT, pack_bytes, pack_int
from zones.probes import probe

T = TypeVar("T")

SEED_BYTES = 12
SEED_TIME_BYTES = 5  # Of time in steps of 2^14 microseconds: enough until the year 2540.
SEED_TIME_SHIFT = 14
RECEIPT_BYTES = 4  # Of the number of an attempt.
RECEIPT_LIFE_US = 600_000_000  # Ten minutes: far longer than any client retries a commit.

_RECEIPT = ROOT + pack_int(RECEIPT)


class Attempt:
    """One run of a transaction's body: the transaction, the time it uses throughout, and the ids it draws."""

    __slots__ = ("_ordinal", "_seed", "enqueued", "now_us", "tr")

    def __init__(self, tr: Any, seed: bytes, now_us: int) -> None:
        self.tr = tr
        self.now_us = now_us
        self.enqueued = False
        self._seed = seed
        self._ordinal = 0

    def new_id(self) -> bytes:
        """Return 16 bytes that no other call draws; the same ones in every attempt of this call."""
        self._ordinal += 1
        return self._seed + self._ordinal.to_bytes(4, "big")


def new_seed(now_us: int, random: Random) -> bytes:
    """Return what all ids of a call begin with: the time, to 16 ms, and chance, alike once in 2^56 calls of that time.

    So items that were enqueued one after the other lie side by side, and who leases or completes some of them together
    writes few pages.
    """
    return (now_us >> SEED_TIME_SHIFT).to_bytes(SEED_TIME_BYTES, "big") + random.randbytes(SEED_BYTES - SEED_TIME_BYTES)


def run(
    db: Database,
    body: Callable[[Attempt], T],
    *,
    clock: Clock,
    random: Random,
    applied: Callable[[Any], bool] | None = None,
    retries_max: int = RETRIES_MAX,
) -> T:
    """Run `body` in a transaction until it is committed, and return its result.

    `body` may run several times; whatever it enqueues through its attempt is there once. `applied(tr)` says after an
    unknown result whether the commit happened, for bodies that can tell from what they wrote; a body that set
    `enqueued` is told by its receipt.

    Errors: what the database raises and `transact` does not retry.
    """
    began_us = clock.now_us()
    seed = new_seed(began_us, random)
    receipt = _RECEIPT + pack_int(began_us + RECEIPT_LIFE_US) + pack_bytes(seed)
    results: list[T] = []  # of the attempts that write a receipt; it holds the number of its attempt here
    enqueued = False  # whether the last attempt did
    landed: int | None = None

    def has_landed(tr: Any) -> bool:
        """Look whether an attempt with a receipt was applied after all, perhaps later than anybody asked; and which."""
        nonlocal landed
        value = tr.get(receipt).value
        landed = None if value is None else int.from_bytes(value, "big")
        return landed is not None

    def attempt_once(tr: Any) -> T:
        nonlocal enqueued
        if results and has_landed(tr):
            probe("an enqueue of unknown result is found applied by its own retry")
            return results[-1]
        attempt = Attempt(tr, seed, clock.now_us())
        result = body(attempt)
        enqueued = attempt.enqueued and db.results_can_be_unknown
        if enqueued or results:
            tr.add_read_conflict_key(receipt)
            tr.set(receipt, len(results).to_bytes(RECEIPT_BYTES, "big"))
            results.append(result)
        return result

    def was_applied(tr: Any) -> bool:
        if results:
            probe("an enqueue of unknown result looks for its receipt")
            if has_landed(tr):
                return True
        return not enqueued and applied is not None and applied(tr)

    result = transact(db, attempt_once, applied=was_applied, retries_max=retries_max)
    return result if landed is None else results[landed]


def clear_receipts(tr: Any, *, now_us: int) -> None:
    """Clear all receipts that have expired, however many: every transaction that enqueues leaves one.

    Reads whether there are any, by snapshot; writes one range, which nobody reads. May run twice.
    """
    end = _RECEIPT + pack_int(now_us)
    if next(iter(tr.snapshot.get_range(_RECEIPT, end, limit=1)), None) is not None:
        tr.clear_range(_RECEIPT, end)
