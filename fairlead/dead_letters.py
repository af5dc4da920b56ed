"""Dead letters in bulk: retry or discard all that match a filter.

Each shard's index of dead letters is walked once, from the oldest to the present moment, a bounded stretch per
transaction. So an item that fails again meanwhile is not retried twice, and a call after an interruption continues with
the remaining items. Each transaction writes the audit entry: how many items so far, and whether the operation ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from fairlead.bulk_result import BulkResult, GoOn, filter_as_target
from fairlead.external_dead_letters import change_in_stores
from fairlead.operator import Operator
from fairlead.zones.engines import Transaction
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.queue import dead_letter_search
from fairlead.zones.queue.dead_letter_search import BULK_ITEMS_MAX, DeadLetterFilter
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.records import AuditEntry
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

_Change = Callable[[Attempt, Shard, Sequence[DeadLetter]], list[DeadLetter]]


def retry_all(
    shards: Mapping[str, Shard],
    criteria: DeadLetterFilter,
    operator: Operator,
    *,
    stores: Mapping[str, ExternalStore] = NO_EXTERNALS,
    dry_run: bool = False,
    go_on: GoOn | None = None,
) -> BulkResult:
    """Put all matching dead letters back into their queues, due now.

    Args:
      stores: the external stores, which come after the shards.
      dry_run: count, and change nothing.
      go_on: called after each transaction with the result so far; returns whether to continue.

    Raises:
      BadArgument: the kind or the tenant of `criteria` cannot be one.
      UnknownShard, UnknownStore: `criteria` names a shard or an external store that does not exist.
      StoreUnavailable: an external store does not answer; what was done before stays.
    """

    def change(attempt: Attempt, shard: Shard, items: Sequence[DeadLetter]) -> list[DeadLetter]:
        return dead_letter_search.retry_dead_letters(attempt.tr, shard.layout, items, now_us=attempt.now_us)

    result = _run_bulk(shards, criteria, operator, "retry", None if dry_run else change, go_on)
    return change_in_stores(stores, shards, criteria, operator, "retry", result, dry_run=dry_run, go_on=go_on)


def discard_all(
    shards: Mapping[str, Shard],
    criteria: DeadLetterFilter,
    operator: Operator,
    *,
    stores: Mapping[str, ExternalStore] = NO_EXTERNALS,
    dry_run: bool = False,
    go_on: GoOn | None = None,
) -> BulkResult:
    """Delete all matching dead letters for good; see `retry_all`."""

    def change(attempt: Attempt, shard: Shard, items: Sequence[DeadLetter]) -> list[DeadLetter]:
        return dead_letter_search.discard_all(attempt.tr, shard.layout, items, now_us=attempt.now_us)

    result = _run_bulk(shards, criteria, operator, "discard", None if dry_run else change, go_on)
    return change_in_stores(stores, shards, criteria, operator, "discard", result, dry_run=dry_run, go_on=go_on)


def _run_bulk(
    shards: Mapping[str, Shard],
    criteria: DeadLetterFilter,
    operator: Operator,
    what: str,
    change: _Change | None,
    go_on: GoOn | None,
) -> BulkResult:
    criteria = criteria.checked()
    result = BulkResult()
    audit_entry_id: bytes | None = None
    written: list[tuple[Shard, AuditEntry]] = []
    for name in _names(shards, criteria):
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


def _names(shards: Mapping[str, Shard], criteria: DeadLetterFilter) -> list[str]:
    if criteria.store is not None:
        return []
    return list(shards) if criteria.shard is None else [criteria.shard]


def _matching_batches(shard: Shard, criteria: DeadLetterFilter, result: BulkResult) -> Iterator[list[DeadLetter]]:
    """Yield the matching dead letters, one stretch of the index after the other, and count those that were read."""
    now_us = shard.clock.now_us()
    end_us = now_us + 1  # Includes the dead letters of this very microsecond.
    before_us = end_us if criteria.before_us is None else min(criteria.before_us, end_us)
    bounded = criteria._replace(before_us=before_us)
    next_key: bytes | None = None
    while True:

        def body(attempt: Attempt, next_key: bytes | None = next_key) -> dead_letter_search.DeadLetterPage:
            return dead_letter_search.search(
                attempt.tr, shard.layout, bounded, items_max=BULK_ITEMS_MAX, next_key=next_key
            )

        page = shard.transact(body)
        result.scanned += page.scanned
        yield page.items
        next_key = page.next_key
        if next_key is None:
            return


def _change_batch(
    shard: Shard, items: Sequence[DeadLetter], audit_entry: AuditEntry, change: _Change
) -> list[DeadLetter]:
    """Change items in one transaction, together with the audit entry; return those that were changed."""
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
