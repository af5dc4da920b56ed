"""Dead letters of external stores: find, retry or discard all that match a filter.

For a change in bulk each store is walked once, from the oldest dead letter to the present moment, 200 at a time. The
audit entry of a store is in the shard that is the home of the store's name. It is written after each change: no
transaction spans both.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.bulk_result import BulkResult, GoOn, filter_as_target
from fairlead.external_stores import UnknownStore
from fairlead.operator import Operator
from fairlead.zones.external.arrivals import reader_home
from fairlead.zones.external.names import Queue
from fairlead.zones.external.queue_operations import DeadLetterPlace, DeadRow, QueueOperations
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.placement import home
from fairlead.zones.queue.dead_letter_search import BULK_ITEMS_MAX, DeadLetterFilter
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.records import AuditEntry
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard, first_shards


def change_in_stores(
    stores: Mapping[str, ExternalStore],
    shards: Mapping[str, Shard],
    criteria: DeadLetterFilter,
    operator: Operator,
    what: str,
    result: BulkResult,
    *,
    dry_run: bool,
    go_on: GoOn | None,
) -> BulkResult:
    """Retry or discard all matching dead letters of external stores; return the result, added to one of the shards.

    Args:
      what: "retry" or "discard".
      result: of the shards. If it is not complete, nothing is done.

    Raises:
      UnknownStore: `criteria` names a store that does not exist.
      StoreUnavailable: a store does not answer; what was done before stays.
    """
    if not result.complete or criteria.shard is not None:
        return result
    if criteria.store is not None and criteria.store not in stores:
        raise UnknownStore(store=criteria.store, known=sorted(stores))
    criteria = criteria.checked()
    for name in stores if criteria.store is None else [criteria.store]:
        shard = shards[home(reader_home(name), first_shards(shards))]
        one = _Store(stores[name], shard, operator, what, {**filter_as_target(criteria), "store": name})
        for rows in one.matching(criteria, result):
            done = rows if dry_run else one.change(rows)
            result.add([each.dead_letter for each in done if each.dead_letter is not None])
            if go_on is not None and not go_on(result):
                result.complete = False
                return result
        one.end()
    return result


class _Store:
    """One store, and the audit entry of what is done there."""

    def __init__(
        self, store: ExternalStore, shard: Shard, operator: Operator, what: str, target: Mapping[str, object]
    ) -> None:
        self._queues = store.queues
        self._shard = shard
        self._retries = what == "retry"
        self._began_us = shard.clock.now_us()
        entry_id = shard.random.randbytes(audit_log.ID_BYTES)
        self._entry = operator.audit_entry(entry_id, what, target, done_us=self._began_us, count=0, ended=False)

    def matching(self, criteria: DeadLetterFilter, result: BulkResult) -> Iterator[list[DeadRow]]:
        """Yield the dead letters that match, and count those that were read. Later ones than now are left out."""
        until_us = self._began_us + 1 if criteria.before_us is None else min(criteria.before_us, self._began_us + 1)
        for rows in _batches(self._queues):
            result.scanned += len(rows)
            found = [each for each in rows if _matches(each, criteria, until_us)]
            if found:
                yield found
            if all(_since_us(each) >= until_us for each in rows):
                return

    def change(self, rows: Sequence[DeadRow]) -> list[DeadRow]:
        """Retry or discard some; return those that still were dead letters."""
        now_us = self._shard.clock.now_us()
        if self._retries:
            done = self._queues.retry_dead_letters(rows, now_us=now_us)
        else:
            done = self._queues.discard_dead_letters(rows)
        if done:
            self._write(replace(self._entry, count=self._entry.count + len(done)))
        return done

    def end(self) -> None:
        """Note that all is done."""
        if self._entry.count:
            self._write(replace(self._entry, ended=True))

    def _write(self, entry: AuditEntry) -> None:
        self._entry = entry
        self._shard.transact(lambda attempt: audit_log.write(attempt.tr, entry))


class FoundInStore(NamedTuple):
    """Matching dead letters of an external store, the oldest first, of `scanned` ones that were read.

    `whole`: whether these are all.
    """

    items: list[DeadLetter]
    scanned: int
    whole: bool


class ReadBatch(NamedTuple):
    """Matching dead letters of some that were read, without payloads; `scanned`: how many were read so far.

    `whole`: whether there are no others to be read, or the next batch will say so.
    """

    rows: list[DeadRow]
    scanned: int
    whole: bool


def read_batches(
    store: ExternalStore, criteria: DeadLetterFilter, *, scanned_max: int, now_us: int
) -> Iterator[ReadBatch]:
    """Yield the matching dead letters of a store, the oldest first. Ends after `scanned_max` that were read.

    Raises:
      StoreUnavailable: the store does not answer.
    """
    checked, scanned = criteria.checked(), 0
    for rows in _batches(store.queues):
        scanned += len(rows)
        is_last = scanned >= scanned_max
        yield ReadBatch([each for each in rows if _matches(each, checked, now_us + 1)], scanned, not is_last)
        if is_last:
            return


def find_in_store(
    store: ExternalStore, criteria: DeadLetterFilter, *, items_max: int, scanned_max: int, now_us: int
) -> FoundInStore:
    """Return the oldest matching dead letters of a store.

    Raises:
      StoreUnavailable: the store does not answer.
    """
    found: list[DeadRow] = []
    scanned = 0
    whole = True
    for batch in read_batches(store, criteria, scanned_max=scanned_max, now_us=now_us):
        scanned, whole = batch.scanned, batch.whole
        found += batch.rows
        if len(found) > items_max:
            whole = False
            break
    read = [_with_payload(store, each, now_us) for each in found[:items_max]]
    return FoundInStore([each for each in read if each is not None], scanned, whole)


def _with_payload(store: ExternalStore, row: DeadRow, now_us: int) -> DeadLetter | None:
    """Return a dead letter whole: a payload may be long, so those that do not match are read without."""
    assert row.dead_letter is not None
    queue = Queue(row.dead_letter.tenant, row.dead_letter.zone)
    found = store.queues.find(queue, [row.place.id], now_us=now_us)
    return found.dead_letter if isinstance(found, DeadRow) else None


def _batches(queues: QueueOperations) -> Iterator[list[DeadRow]]:
    """Yield all dead letters of a store, the oldest first, without their payloads."""
    behind: DeadLetterPlace | None = None
    while rows := queues.dead_letters(None, items_max=BULK_ITEMS_MAX, behind=behind, with_payloads=False):
        yield rows
        if len(rows) < BULK_ITEMS_MAX:
            return
        behind = rows[-1].place


def _matches(row: DeadRow, criteria: DeadLetterFilter, until_us: int) -> bool:
    found = row.dead_letter
    return (
        found is not None
        and found.record.dead_lettered_us < until_us
        and criteria.may_match(found.tenant, found.zone, found.record.item.kind)
        and criteria.matches(found.record)
    )


def _since_us(row: DeadRow) -> int:
    """Return since when one is a dead letter, by the clock of its worker; of one that cannot be read, 0."""
    return 0 if row.dead_letter is None else row.dead_letter.record.dead_lettered_us
