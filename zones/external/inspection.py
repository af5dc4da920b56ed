"""What an external store tells about itself and its items, for explanations, status, checks and metrics.

Durations go in and come out, as in `store`. Nothing here changes an item.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from fairlead.zones.external.depth import Depth
from fairlead.zones.external.names import Queue
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.queue.items import Item
from fairlead.zones.records import DeadLetterRecord, GivenId, ItemRecord
from fairlead.zones.reporting.completion_log import Ended

COUNTED_MAX = 10_000  # Items are counted up to this number; a store may hold millions.
COUNTED_OF_QUEUES = 100_000  # Of many queues together: 0.13 to 0.2 s for a thousand queues, on two slow cores.


class StoredState(IntEnum):
    """What a row is."""

    WAITS = 0  # or is leased
    ENDED = 1  # its id or its result is kept
    DEAD_LETTER = 2


class InspectedItem(NamedTuple):
    """What a store knows of an item.

    Attributes:
      record: as everywhere, with times of the caller's clock; its `leased_us` is 0, because a store keeps no such time.
      dead_letter: None: it is none, or it cannot be read.
      kept_us: for how long an ended one is still kept.
      is_seen: whether the reader has made its pointer; None: no snapshot of a reader was given.
      is_locked: whether another transaction has locked its row: that of its handler, or one that cancels it.
      items_before: vested items of its queue that come before it, counted up to a thousand of each kind and priority.
      traceback: of its last attempt; empty: that has none.
    """

    queue: Queue
    id: bytes
    state: StoredState
    record: ItemRecord
    dead_letter: DeadLetterRecord | None
    kept_us: int
    is_seen: bool | None
    is_locked: bool
    items_before: int
    traceback: str


class ItemOfQueue(NamedTuple):
    """An item, and the queue in which it lies."""

    queue: Queue
    item: Item


class StoreTotals(NamedTuple):
    """How much a store holds. Counts end at `COUNTED_MAX`.

    Attributes:
      kinds: items that wait, are delayed or leased, by kind, of those that were counted.
      items: how many there are: exact below `COUNTED_MAX`, else an estimate from the server's statistics.
      waits_us: how long the oldest vested item has waited; None: none waits. `waits_whole`: whether all that could have
        waited longer were read.
      unseen_items, unseen_queues: what the reader has not seen yet; `unseen_us`: how long ago the oldest of them was
        enqueued; None: there is none, or all ran before.
      kept: ended items whose ids or results are kept.
      dead_rows: what `VACUUM` has not removed yet, as the server estimates.
      rings: whether the doorbell is on.
    """

    kinds: Mapping[str, int]
    items: int
    waits_us: int | None
    waits_whole: bool
    unseen_items: int
    unseen_queues: int
    unseen_us: int | None
    dead_letters: int
    kept: int
    dead_rows: int
    rings: bool

    @property
    def is_exact(self) -> bool:
        """Whether `items` and `kinds` are exact."""
        return self.items < COUNTED_MAX


class StoreHealth(NamedTuple):
    """What may hold a store up, besides its items.

    Attributes:
      lacking: tables and functions of the schema that this role may not use.
      notify_share: how full the server's queue of notifications is, 0 to 1. Once it is full, commits fail.
      snapshot_us: for how long the oldest transaction has been open that has a snapshot, or has written; None: there is
        none. `snapshot_holder`: of which process, as the server names it.
      hidden: sessions whose snapshots this role may not see.
      prepared: transactions that are prepared on the server; `prepared_us`: since when the oldest is.
      publications: those that contain a table of the schema.
      autovacuum: whether the server vacuums by itself.
    """

    lacking: Sequence[str]
    notify_share: float
    snapshot_us: int | None
    snapshot_holder: str
    hidden: int
    prepared: int
    prepared_us: int | None
    publications: Sequence[str]
    autovacuum: bool


class InspectedStore(ExternalStore, Protocol):
    """An external store that tells about itself. Its methods raise `StoreUnavailable`, as those of `ExternalStore`."""

    def id_of(self, queue: Queue, given: GivenId) -> bytes:
        """Return the id of the item of a queue that was given this name."""
        ...

    def inspect(self, ids: Sequence[bytes], *, seen: str | None, now_us: int) -> list[InspectedItem]:
        """Return what is known of items, of whatever state; nothing of those that are not there.

        Args:
          seen: the snapshot up to which the reader has made pointers; None: it is not known.
          now_us: the caller's time.
        """
        ...

    def cancelled(self, ids: Sequence[bytes], *, now_us: int) -> list[Ended]:
        """Return which of some items were cancelled in the last hour, the latest first. `now_us`: see `inspect`."""
        ...

    def find_items(self, ids: Sequence[bytes], *, payload_bytes_max: int, now_us: int) -> list[Item]:
        """Return those items of some ids that wait or are leased, of whatever queues.

        Of a payload that is longer than `payload_bytes_max`, the record says the length alone, in `payload_bytes`.
        """
        ...

    def depth_of(self, queues: Sequence[Queue]) -> list[Depth]:
        """Return how much each queue holds. All together count `COUNTED_OF_QUEUES` items at most."""
        ...

    def delayed(
        self, queues: Sequence[Queue], *, of_queue_max: int, items_max: int, payload_bytes_max: int, now_us: int
    ) -> list[ItemOfQueue]:
        """Return the items of some queues that are delayed: the next `items_max` to vest.

        Args:
          of_queue_max: of each kind and priority of a queue.
          payload_bytes_max: see `find_items`.
          now_us: see `inspect`.
        """
        ...

    def seen_of(self, queues: Sequence[Queue], seen: str) -> list[Queue]:
        """Return those queues that hold an item which a snapshot sees."""
        ...

    def totals(self, seen: str | None) -> StoreTotals:
        """Return how much the store holds. `seen`: as for `inspect`; None: nothing counts as unseen."""
        ...

    def health(self) -> StoreHealth:
        """Return what may hold the store up.

        Raises:
          SchemaMissing, SchemaOutdated, SchemaNewer, PostgresRefused: this program cannot use the database.
        """
        ...
