"""Many items at once: one transaction per shard and batch, whatever the number of tenants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.shards import MOVES_MAX
from fairlead.zones.errors import BadArgument, TenantMoved
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, check_zone, item_id_of
from fairlead.zones.pipelining import run_together
from fairlead.zones.queue.items import Enqueued, NewItem
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.part_writes import PartWrites
from fairlead.zones.transaction_runner import Attempt

BATCH_ITEMS = 500  # Of one transaction; with more, the cost of the commit per item hardly shrinks.
BATCH_BYTES = 1_000_000  # Of payloads in one transaction: FoundationDB recommends less, and refuses ten times as much.


class Database(Protocol):
    """A tenant's database; see `fairlead.tenant_database.TenantDatabase`."""

    @property
    def tenant(self) -> Tenant:
        """Return the tenant."""
        ...

    @property
    def shard(self) -> Shard:
        """Return where the tenant was last found, or its first home."""
        ...

    def find(self) -> Shard:
        """Return where the tenant lives now, as its shard says."""
        ...


class _Entry(NamedTuple):
    number: int
    database: Database
    item: NewItem


class _Batch:
    """The items of the next transaction on one shard."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.entries: list[_Entry] = []
        self.payload_bytes = 0

    def add(self, entry: _Entry) -> None:
        self.entries.append(entry)
        self.payload_bytes += len(entry.item.payload)

    def has_capacity(self, item: NewItem) -> bool:
        return len(self.entries) < BATCH_ITEMS and self.payload_bytes + len(item.payload) <= BATCH_BYTES


def enqueue_many(items: Iterable[tuple[Database, NewItem]], *, zone: str = DEFAULT_ZONE) -> list[Enqueued]:
    """Enqueue items of many tenants, each where its tenant lives; return the result of each, in order.

    A batch (up to 500 items or 1 MB of payloads of one shard) is one transaction: all of it or nothing. If a later
    batch fails, earlier ones stay; with ids of your own, calling again is harmless. If an id occurs twice, the second
    result is that of a later enqueue.

    Raises:
      UnknownKind: the application has `known_kinds_only`, and no handler of an item's kind: earlier batches stay.
      BadArgument: `zone` cannot be the name of a zone; or `new_item` did not make an item: earlier batches stay.
      StoreError (on FoundationDB: FDBError): an error that a retry does not cure.
    """
    check_zone(zone)
    with Enqueueing(tenant=None) as enqueueing:
        return _enqueue_all(items, zone, enqueueing)


def _enqueue_all(items: Iterable[tuple[Database, NewItem]], zone: str, enqueueing: Enqueueing) -> list[Enqueued]:
    results: dict[int, Enqueued] = {}
    batches: dict[str, _Batch] = {}
    for number, (database, item) in enumerate(items):
        shard = database.shard
        if not isinstance(item, NewItem):
            raise BadArgument(argument="items", value=item, allowed="what fairlead.new_item(kind, payload) returned")
        shard.check_kind(item.kind)
        batch = batches.setdefault(shard.name, _Batch(shard))
        if not batch.has_capacity(item) and batch.entries:
            results |= _enqueue(batch, zone, enqueueing)
            batch = batches[shard.name] = _Batch(shard)
        batch.add(_Entry(number, database, item))
    for batch in batches.values():
        results |= _enqueue(batch, zone, enqueueing)
    return [results[number] for number in range(len(results))]


def _enqueue(batch: _Batch, zone: str, enqueueing: Enqueueing) -> dict[int, Enqueued]:
    """Enqueue a batch; if tenants of it have moved, one by one where each lives.

    Raises:
      TenantMoved: a tenant moves on and on, or to a shard that is not configured.
    """
    to_do = [batch]
    results: dict[int, Enqueued] = {}
    for _ in range(MOVES_MAX):
        elsewhere: dict[str, _Batch] = {}
        for each in to_do:
            try:
                results |= _enqueue_there(each, zone, enqueueing)
            except TenantMoved:  # Nothing of the batch was enqueued.
                for entry in each.entries:
                    shard = entry.database.find()
                    elsewhere.setdefault(shard.name, _Batch(shard)).add(entry)
        to_do = list(elsewhere.values())
        if not to_do:
            return results
    for each in to_do:
        results |= _enqueue_there(each, zone, enqueueing)
    return results


def _enqueue_there(batch: _Batch, zone: str, enqueueing: Enqueueing) -> dict[int, Enqueued]:
    """Enqueue a batch in one transaction. There is one operation per queue zone; all send their reads together."""

    def body(attempt: Attempt) -> dict[int, Enqueued]:
        attempt.needs_receipt = True
        enqueueing.begin_attempt(batch.shard)
        by_tenant: dict[Tenant, list[tuple[int, bytes, NewItem]]] = {}
        for entry in batch.entries:
            item, given_id = entry.item, entry.item.given_id
            if given_id is None:
                item_id = attempt.new_id()
            else:
                item_id, item = item_id_of(given_id), item._replace(run=attempt.new_id())
            by_tenant.setdefault(entry.database.tenant, []).append((entry.number, item_id, item))
        parts = PartWrites()
        with batch.shard.db.burst(attempt.tr) as tr:
            answers = run_together(
                batch.shard.zone(tenant, zone).enqueue_op(
                    tr,
                    [(item_id, enqueueing.with_trace(item)) for _, item_id, item in some],
                    now_us=attempt.now_us,
                    parts=parts,
                )
                for tenant, some in by_tenant.items()
            )
            parts.write(tr)
        attempt.has_read = True
        results = {
            number: answer
            for some, enqueued in zip(by_tenant.values(), answers, strict=True)
            for (number, _, _), answer in zip(some, enqueued, strict=True)
        }
        for entry in batch.entries:
            enqueueing.on_enqueued(entry.item, results[entry.number])
        enqueueing.end_attempt()
        return results

    results = batch.shard.transact(body)
    enqueueing.commit()
    return results
