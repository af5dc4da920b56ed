"""Exhuming: buried items revived or discarded in bulk, by what they are and why they failed.

Each shard's list of graves is walked once, from the oldest to those of this moment, a bounded stretch per transaction.
So what fails again meanwhile is not met again, and whoever is broken off and calls again goes on with what is left.
The deed is written down with each transaction: how many it were so far, and whether it came to its end.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from fairlead.operator import Operator
from fairlead.zones.engines import Transaction
from fairlead.zones.queue import dead_letter_search
from fairlead.zones.queue.dead_letter_search import BULK_ITEMS_MAX, DeadLetterFilter
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.records import AuditEntry
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

_Change = Callable[[Attempt, Shard, Sequence[DeadLetter]], list[DeadLetter]]


@dataclass(slots=True)
class BulkResult:
    """What became of a bulk of buried items.

    `scanned`: at how many graves. `by_kind`: how many of each kind. `complete`: whether it went on to the end.
    """

    count: int = 0
    scanned: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    complete: bool = True

    def add(self, items: Sequence[DeadLetter]) -> None:
        """Count some more."""
        self.count += len(items)
        self.by_kind.update(item.record.item.kind for item in items)


GoOn = Callable[[BulkResult], bool]


def retry_all(
    shards: Mapping[str, Shard],
    criteria: DeadLetterFilter,
    operator: Operator,
    *,
    dry_run: bool = False,
    go_on: GoOn | None = None,
) -> BulkResult:
    """Put all buried items that are meant back into their queues, due now.

    Args:
      dry_run: change nothing, and say what would be.
      go_on: called after each transaction with what was done so far; says whether to go on.

    Raises:
      UnknownShard: `criteria` names a shard that there is not.
    """

    def change(attempt: Attempt, shard: Shard, items: Sequence[DeadLetter]) -> list[DeadLetter]:
        return dead_letter_search.retry_dead_letters(attempt.tr, shard.layout, items, now_us=attempt.now_us)

    return _run_bulk(shards, criteria, operator, "revive", None if dry_run else change, go_on)


def discard_all(
    shards: Mapping[str, Shard],
    criteria: DeadLetterFilter,
    operator: Operator,
    *,
    dry_run: bool = False,
    go_on: GoOn | None = None,
) -> BulkResult:
    """Delete all buried items that are meant for good; see `retry_all`."""

    def change(attempt: Attempt, shard: Shard, items: Sequence[DeadLetter]) -> list[DeadLetter]:
        return dead_letter_search.discard_all(attempt.tr, shard.layout, items)

    return _run_bulk(shards, criteria, operator, "discard", None if dry_run else change, go_on)


def filter_as_target(criteria: DeadLetterFilter) -> dict[str, Any]:
    """Return which items are meant, as a deed says it."""
    said = {key: value for key, value in criteria._asdict().items() if value is not None}
    if criteria.tenant is not None:
        said["tenant"] = list(criteria.tenant)
    return said


def _run_bulk(
    shards: Mapping[str, Shard],
    criteria: DeadLetterFilter,
    operator: Operator,
    what: str,
    change: _Change | None,
    go_on: GoOn | None,
) -> BulkResult:
    result = BulkResult()
    audit_entry_id: bytes | None = None
    written: list[tuple[Shard, AuditEntry]] = []
    for name in shards if criteria.shard is None else [criteria.shard]:
        shard = shards[name]
        audit_entry_id = audit_entry_id or shard.random.randbytes(audit_log.ID_BYTES)
        audit_entry = operator.audit_entry(
            audit_entry_id, what, filter_as_target(criteria), done_us=shard.clock.now_us(), count=0, ended=False
        )
        for items in _matching_batches(shard, criteria, result):
            if change is None:
                result.add(items)
            elif items:
                done = _change_batch(shard, items, audit_entry, change)
                result.add(done)
                audit_entry = replace(audit_entry, count=audit_entry.count + len(done))
            if go_on is not None and not go_on(result):
                result.complete = False
                break
        if audit_entry.count:
            written.append((shard, audit_entry))
        if not result.complete:
            return result
    for shard, audit_entry in written:
        last = replace(audit_entry, ended=True)
        shard.transact(lambda attempt, last=last: audit_log.write(attempt.tr, last))  # type: ignore[misc]
    return result


def _matching_batches(shard: Shard, criteria: DeadLetterFilter, result: BulkResult) -> Iterator[list[DeadLetter]]:
    """Yield what is meant, stretch by stretch, and count the graves that were looked at."""
    now_us = shard.clock.now_us()
    end_us = now_us + 1  # What is buried at this very moment too.
    before_us = end_us if criteria.before_us is None else min(criteria.before_us, end_us)
    bounded = criteria._replace(before_us=before_us)
    next_key: bytes | None = None
    while True:

        def body(attempt: Attempt, next_key: bytes | None = next_key) -> dead_letter_search.DeadLetterPage:
            return dead_letter_search.search(
                attempt.tr, shard.layout, bounded, items_max=BULK_ITEMS_MAX, next_key=next_key
            )

        unearthed = shard.transact(body)
        result.scanned += unearthed.scanned
        yield unearthed.items
        next_key = unearthed.next_key
        if next_key is None:
            return


def _change_batch(
    shard: Shard, items: Sequence[DeadLetter], audit_entry: AuditEntry, change: _Change
) -> list[DeadLetter]:
    """Change items in one transaction, with the deed; return those that were."""
    done: list[DeadLetter] = []

    def body(attempt: Attempt) -> list[DeadLetter]:
        nonlocal done
        done = change(attempt, shard, items)
        if done:
            audit_log.write(attempt.tr, replace(audit_entry, count=audit_entry.count + len(done)))
        return done

    def was_applied(tr: Transaction) -> bool:
        written = audit_log.find(tr, audit_entry.id)
        return written is not None and written.count == audit_entry.count + len(done)

    shard.transact(body, applied=was_applied)
    return done
