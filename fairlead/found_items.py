"""Items that are found by their keys, on whatever shard their tenants live.

Each shard has an index of the items of its tenants, so an enqueue with keys writes to no other shard. A search asks all
shards (`fairlead.zones.local_index_search`), and then looks at each item where its tenant lives: an entry may be left
over at a shard that the tenant has left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fairlead.handle import Handle, ItemDatabase
from fairlead.operator import Operator
from fairlead.shards import MOVES_MAX, Shards
from fairlead.views import DeadLetterView, ItemView, dead_letter_view, item_view
from fairlead.zones.errors import BadArgument, QueueError, TenantMoved
from fairlead.zones.index_values import IndexValue
from fairlead.zones.layout import Tenant
from fairlead.zones.local_index_search import search
from fairlead.zones.ownership import check_home
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.item_keys import index_of, indexed_item, pack_keys
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.leftovers import carry_out_decided
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.cancellation import CancelOutcome

LIMIT_MAX = 10_000
READ_AT_ONCE = 50  # Items that one transaction reads, with their payloads.
DEAD_LETTER = "dead letter"

DatabaseOf = Callable[[Tenant, str | None], ItemDatabase]


class SearchUnfinished(QueueError):
    """Tenants moved while all shards were asked, five times in a row, so an item may have been missed.

    Do: search again. If this is frequent, move fewer tenants at the same time.
    """

    message = "tenants kept moving while all shards were asked"


class FoundItem(Handle[Any]):
    """An item that was found by a key: its handle, and what it was when it was read.

    Attributes:
      view: the item, or the dead letter.
    """

    __slots__ = ("view",)

    def __init__(self, database: ItemDatabase, view: ItemView | DeadLetterView) -> None:
        given = view.given_id if isinstance(view.given_id, str) else None
        super().__init__(database, view.id, view.zone, name=given)
        self.view = view

    @property
    def tenant(self) -> Tenant:
        """The item's tenant."""
        return self.view.tenant

    @property
    def state(self) -> str:
        """The state: "vested", "delayed", "leased", or "dead letter"."""
        return self.view.state.value if isinstance(self.view, ItemView) else DEAD_LETTER

    def cancel(self, *, force: bool = False, by: Operator | None = None) -> CancelOutcome:
        """Cancel the item as `Handle.cancel` does. A dead letter without recorded steps is deleted by `force` alone.

        Args:
          by: the operator, for the audit log; None: the application itself, which writes no entry.

        Raises:
          ItemGone: see there.
        """
        return self._database.cancel(self._named, zone=self.zone, force=force, by=by)

    def __repr__(self) -> str:
        return f"<FoundItem {self.item_id.hex()} of {self.tenant}, {self.state}>"


class _Place(NamedTuple):
    """Where an item is looked for. `shard`: that of a local item, which moves nowhere; None: where its tenant lives."""

    tenant: Tenant
    shard: str | None
    zone: str
    item_id: bytes


def find_items(
    shards: Shards, database_of: DatabaseOf, keys: Mapping[str, IndexValue], *, limit: int
) -> list[FoundItem]:
    """Return items and dead letters that have all of some keys; see `App.find_items`.

    Three transactions for each shard, and one for each 50 items of a shard.
    """
    if not keys:
        raise BadArgument(argument="keys", value=keys, allowed="at least one key, such as order=7")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise BadArgument(argument="limit", value=limit, allowed=f"1 to {LIMIT_MAX:,}")
    packed = pack_keys(keys)
    names = list(shards)
    for shard in shards.values():  # What was committed across shards may not be carried out yet on all of them.
        carry_out_decided(shard, shards.with_id)
    stores = [shards[name].db for name in names]
    entries_max = limit
    while True:
        result = search(stores, index_of(packed[0]), entries_max=entries_max)
        places = {
            _Place(entry.tenant, None if entry.tenant.app else names[store], item.zone, item.item_id)
            for store, entry in result.listed
            if (item := indexed_item(entry.index_key, entry.member)) is not None
        }
        views = _look_at(shards, sorted(places, key=lambda place: place.item_id), packed)
        if len(views) >= limit or not result.is_cut:
            break
        entries_max *= 4
    if result.keeps_moving and len(views) < limit:
        raise SearchUnfinished(found=len(views))
    views.sort(key=lambda view: view.enqueued_us)
    return [
        FoundItem(database_of(view.tenant, None if view.tenant.app else view.shard), view) for view in views[:limit]
    ]


def _look_at(shards: Shards, places: Iterable[_Place], packed: Sequence[bytes]) -> list[ItemView | DeadLetterView]:
    """Return the items that are still there and have all keys, each read where its tenant lives now."""
    views: list[ItemView | DeadLetterView] = []
    pending = list(places)
    for round_number in range(MOVES_MAX + 1):
        moved: dict[_Place, TenantMoved] = {}
        by_shard: dict[str, list[_Place]] = {}
        for place in pending:
            by_shard.setdefault(place.shard or shards.home_name(place.tenant), []).append(place)
        for name, here in by_shard.items():
            for begin in range(0, len(here), READ_AT_ONCE):
                batch = here[begin : begin + READ_AT_ONCE]
                read = shards[name].transact(partial(_read, shard=shards[name], places=batch, packed=packed))
                views += read.views
                moved |= read.moved
        for error in moved.values():
            if not shards.note_moved(error) or round_number == MOVES_MAX:
                raise error
        pending = list(moved)
        if not pending:
            break
    return views


class _Read(NamedTuple):
    """What one transaction has read, and the items of tenants that live elsewhere."""

    views: list[ItemView | DeadLetterView]
    moved: dict[_Place, TenantMoved]


def _read(attempt: Attempt, *, shard: Shard, places: Sequence[_Place], packed: Sequence[bytes]) -> _Read:
    """Read items of one shard. Snapshot reads, of one version: ownership, item, dead letter of each."""
    found = _Read([], {})
    tr = attempt.tr
    locations = [shard.layout.location(place.tenant, place.zone) for place in places]
    reads = [
        (tr.snapshot.get(location.keys.item(place.item_id)), tr.snapshot.get(location.keys.dead_letter(place.item_id)))
        for location, place in zip(locations, places, strict=True)
    ]
    for location, place, (stored, stored_dead) in zip(locations, places, reads, strict=True):
        try:
            check_home(tr, location)
        except TenantMoved as error:
            found.moved[place] = error
            continue
        record = None if stored.value is None else decode(ItemRecord, stored.value)
        dead = None if stored_dead.value is None else decode(DeadLetterRecord, stored_dead.value)
        if record is not None and set(packed) <= set(record.keys):
            found.views.append(item_view(shard, tr, location, place.item_id, record, now_us=attempt.now_us))
        elif dead is not None and set(packed) <= set(dead.item.keys):
            found.views.append(dead_letter_view(shard, tr, DeadLetter(place.tenant, place.zone, place.item_id, dead)))
    return found
