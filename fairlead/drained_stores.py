"""What a drain of `fairlead.testing` does with queues in external stores: it finds, leases and ends their items."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fairlead.actors.execution.acknowledgement import Settled
from fairlead.actors.execution.external_end_log import Ends, add_ends, write_ends
from fairlead.actors.execution.external_items import ExternalEnds
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.actors.external_pointers import Waker
from fairlead.actors.messages import ItemRef
from fairlead.zones.engines.api.errors import NOT_COMMITTED, StoreUnavailable, error_code
from fairlead.zones.errors import TenantLocked
from fairlead.zones.external.names import external_zone
from fairlead.zones.external.store import Arrival, ExternalStore, ItemLease
from fairlead.zones.external.visits import visit_queues
from fairlead.zones.policy.policies import read_policies
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.records import ItemRecord
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import DequeueParams, PointerResult
from fairlead.zones.transaction_runner import Attempt

if TYPE_CHECKING:
    from fairlead.app import App

QUEUES_MAX = 1_000  # In one statement.


class DrainedStores:
    """The external stores of an application under test."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._stores: dict[str, ExternalStore] = dict(app.externals) if app.config.external else {}
        self._away: list[ExternalStore] = []

    def note_arrivals(self) -> list[StoreUnavailable]:
        """Make or wake the pointers of all queues that hold items, as a reader does that looks at all of a store.

        Returns the errors of stores that do not answer. Those are not asked again, and their queues stay as they are.
        """
        errors = []
        for name, store in self._stores.items():
            if store in self._away:
                continue
            try:
                self._wake_queues(name, store)
            except StoreUnavailable as error:
                self._away.append(store)
                errors.append(error)
        return errors

    def _wake_queues(self, name: str, store: ExternalStore) -> None:
        waker = Waker(name, self._app.shards, self._app.clock, lambda: True)
        behind = None
        while queues := store.queues_behind(behind, QUEUES_MAX):
            behind = queues[-1]
            waker.wake([Arrival(queue, 0) for queue in queues], set())

    def answers(self, store: ExternalStore) -> bool:
        """Say whether the store of a pointer has answered so far."""
        return store not in self._away

    def of_pointer(self, shard: Shard, ref: PointerRef) -> ExternalStore | None:
        """Return the store of a pointer's queue; None: the queue lies in the shard."""
        location = pointers.location_of(ref, shard.layout)
        return None if location is None else self.of_zone(location.name)

    def of_zone(self, zone: str) -> ExternalStore | None:
        """Return the store of a queue, by the name of its zone; None: the queue lies in its tenant's shard."""
        found = external_zone(zone)
        return None if found is None else self._stores.get(found.store)


def lease_in(
    store: ExternalStore,
    shard: Shard,
    ref: PointerRef,
    kinds: Mapping[str, int],
    params: Callable[[Attempt], DequeueParams],
) -> list[PointerResult]:
    """Visit a queue of a store, lease at most one item, and return what came of it.

    `kinds`: how many items of each kind may be taken. An item stays leased if the shard does not commit.

    Raises:
      TenantMoved: the tenant refuses; nothing was leased.
      ExternalAway: the store does not answer.
    """
    results: list[PointerResult] = []

    def body(attempt: Attempt) -> None:
        nonlocal results
        policies = read_policies(attempt.tr)
        capacity = Capacity(1, kinds, observed=policies.kinds)
        results, _ = visit_queues(attempt.tr, shard.layout, [ref], capacity, params(attempt), store, policies)

    try:
        shard.transact(body, retries_max=0, waits_for_locks=False)
    except TenantLocked:
        return []
    except shard.db.errors as error:
        if error_code(error) != NOT_COMMITTED:
            raise
    return results


def read_record(store: ExternalStore, ref: ItemRef, now_us: int) -> ItemRecord | None:
    """Return the record of a leased item with its payload; None: the item is gone."""
    rows = store.read([ItemLease(ref.item_id, ref.lease_id)], now_us=now_us)
    return rows[0].record if rows else None


def settle_in(store: ExternalStore, shard: Shard, held: HeldItem, failed: Sequence[RetryDecision]) -> list[str]:
    """Commit the end of an item in its store; return what became of the item."""
    settled = ExternalEnds(store, shard.clock).settle([] if failed else [held], failed).settled
    note_ends(shard, settled)
    return [outcome for _, outcome in settled]


def note_ends(shard: Shard, settled: Settled) -> None:
    """Write into the completion log of their tenant's shard how items of a store ended."""
    ends: Ends = {}
    if add_ends(ends, settled, now_us=shard.clock.now_us()):
        write_ends(shard, ends)
