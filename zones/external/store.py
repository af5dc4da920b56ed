"""What is asked of an external store, and what it answers. Durations go in and come out, never times of its clock."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from fairlead.zones.external.names import Queue as Queue
from fairlead.zones.external.queue_operations import QueueOperations
from fairlead.zones.external.sessions import SessionStore
from fairlead.zones.external.steps import StepsInStore
from fairlead.zones.external.upkeep import UpkeepStore
from fairlead.zones.queue.items import Outcome
from fairlead.zones.records import DeadLetterRecord, ItemRecord

HEARD_S = 1.0  # Within which the doorbell is heard, or is not: a notification takes a millisecond or two.


class Stop(NamedTuple):
    """Where visits of a queue stopped, by the store's clock, in one kind and priority. The next look begins there."""

    kind: str
    priority: int
    from_us: int


class Want(NamedTuple):
    """How many items a queue may give. `stops`: where to go on, see `cursors`; other kinds and priorities are found."""

    queue: Queue
    items_max: int
    stops: Sequence[Stop] = ()


class LeasedRow(NamedTuple):
    """An item that was leased now.

    Attributes:
      queue: where it is.
      id: 16 bytes.
      record: as everywhere, with times of the caller's clock.
      waited_us: for how long it had been vested.
      had_expired: its last lease had expired.
      at_us: its vesting time by the store's clock, for a `Stop`.
    """

    queue: Queue
    id: bytes
    record: ItemRecord
    waited_us: int
    had_expired: bool
    at_us: int = 0


class Dequeued(NamedTuple):
    """Items that were leased now. `passed`: over how many index entries it stepped, of ended and of leased items."""

    rows: list[LeasedRow]
    passed: int


class Outlook(NamedTuple):
    """What is left of a kind and priority: whether something could be leased now, and in how long something can be.

    `next_us`: None: nothing vests later, and no lease ends.
    """

    kind: str
    priority: int
    waits: bool
    next_us: int | None


class RunningState(IntEnum):
    """Whether an item may be running."""

    RUNS = 0  # it is leased, or the transaction of its handler has locked it
    EXPIRED = 1  # its lease has expired; a transaction that ends it may be open
    ENDED = 2  # it is gone, or its holder has ended the lease


class Start(IntEnum):
    """How a handler starts. If its lease expires then, it may have killed its worker."""

    BESIDE_OTHERS = 1
    ISOLATED = 2


class ItemLease(NamedTuple):
    """An item that an operation is to change. `lease_id`: under which it is held; None: whoever holds it."""

    id: bytes
    lease_id: bytes | None


class Arrival(NamedTuple):
    """A queue with new items. `in_us`: in how long the earliest of them vests."""

    queue: Queue
    in_us: int


class Look(NamedTuple):
    """A look for what was committed, at one moment.

    Attributes:
      history: see `ExternalStore.history`.
      seen: a snapshot, up to which the look has seen.
      arrivals: the queues with items that were committed before it.
      rings: whether the doorbell is on.
    """

    history: str
    seen: str
    arrivals: list[Arrival]
    rings: bool


class ExternalStore(Protocol):
    """The items of one external store.

    Every method raises `StoreUnavailable` if the store does not answer or refuses.

    Attributes:
      notifies: whether its doorbell may be used; False: its reader looks often instead.
      sessions: those of workers that claim items.
      upkeep: what one consumer does for the store.
    """

    @property
    def queues(self) -> QueueOperations:
        """What applications and operators do there."""
        ...

    @property
    def steps(self) -> StepsInStore:
        """The steps that workflows do there."""
        ...

    @property
    def sessions(self) -> SessionStore:
        """The sessions of workers that claim items there."""
        ...

    @property
    def upkeep(self) -> UpkeepStore:
        """What one consumer does for the store."""
        ...

    def dequeue(
        self, wants: Sequence[Want], rooms: Mapping[str, int], *, lease_id: bytes, lease_us: int, now_us: int
    ) -> Dequeued:
        """Lease items of many queues: of each at most what it may give, of each kind at most its room.

        Of kinds that `rooms` does not name nothing is taken. Returns them by priority, then by vesting time. What has
        vested within the last second is found before the stops of a queue, too.

        Args:
          lease_id: 16 random bytes.
          now_us: the caller's time, from which the leases count for the caller.
        """
        ...

    def read(self, held: Sequence[ItemLease], *, now_us: int) -> list[LeasedRow]:
        """Return those items that are still held under these leases. `now_us`: see `dequeue`."""
        ...

    def outlook(self, queues: Sequence[Queue], stops: Sequence[Sequence[Stop]] = ()) -> list[list[Outlook]]:
        """Return what is left in each queue, by kind and priority; nothing for an empty one.

        `stops`: of each queue, see `Want`; without them all of the queue is looked at.
        """
        ...

    def running(self, item_ids: Sequence[bytes]) -> list[RunningState]:
        """Return of each item whether it may be running. An expired lease cannot be extended."""
        ...

    def complete(
        self, held: Sequence[ItemLease], *, keeps_us: Sequence[int] = (), results: Sequence[bytes | None] = ()
    ) -> list[Outcome | None]:
        """End items; return how each went, None: another transaction has locked it.

        Args:
          keeps_us: for how long each leaves its id and its result; 0: it is deleted.
          results: what each leaves.
        """
        ...

    def extend(self, held: Sequence[ItemLease], *, lease_us: int, begins: Start | None = None) -> list[Outcome | None]:
        """Let leases end `lease_us` from now; return how each went, as `complete`. One that has expired is lost.

        `begins`: how their handlers start now; None: they do not.
        """
        ...

    def requeue(
        self,
        held: Sequence[ItemLease],
        delays_us: Sequence[int | None],
        records: Sequence[ItemRecord | None],
        *,
        tracebacks: Sequence[str] = (),
    ) -> list[Outcome | None]:
        """End leases; return how each went, as `complete`.

        Args:
          delays_us: in how long each vests; None: when it vested before.
          records: the history of each; None: it stays.
          tracebacks: those of the attempts, empty: it has none; without them, each item keeps what it has.
        """
        ...

    def dead_letter(self, held: Sequence[ItemLease], records: Sequence[DeadLetterRecord]) -> list[Outcome | None]:
        """Make items dead letters; `records` say why. Return how each went, as `complete`."""
        ...

    def run_handler(self, held: ItemLease, body: Callable[[Any], tuple[bytes | None, int]]) -> Outcome:
        """Run a handler and end its item in one transaction of the store: both happen, or neither.

        The transaction locks the item first, if it is held under this lease. `body` gets the store's connection, and
        returns the result to keep, and for how long the item leaves that and its id, in microseconds. If transactions
        conflict, this one is begun again, and `body` runs again.

        Returns:
          DONE; or LEASE_LOST: another holder has the item, or it is gone, and nothing has happened.

        Raises:
          StoreUnavailable: the connection broke, or the transaction conflicts again and again; nothing has happened.
          What `body` raises: nothing has happened.
        """
        ...

    def arrivals(self, seen: str, history: str) -> Look:
        """Return what was committed since the snapshot `seen`. If the store has another `history`, nothing is found."""
        ...

    def snapshot(self) -> str:
        """Return a snapshot that sees all that is committed now."""
        ...

    def history(self) -> str:
        """Return which history the store has; another one after a promotion or a restore."""
        ...

    def set_doorbell(self, rings: bool) -> None:
        """Let enqueues ring the doorbell from now on, or not."""
        ...

    @property
    def notifies(self) -> bool:
        """Whether its doorbell may be used."""
        ...

    def hears_doorbell(self) -> bool:
        """Ring the doorbell from another connection; return whether it is heard within `HEARD_S`.

        What is committed afterwards is heard, too, by `await_doorbell`.
        """
        ...

    def await_doorbell(self, timeout_s: float) -> int:
        """Wait until the doorbell rings, or `timeout_s`; return how often it rang: once for each commit."""
        ...

    @property
    def known_id(self) -> bytes | None:
        """The id of the store; None: it was not asked yet."""
        ...

    def store_id(self) -> bytes:
        """Return the id of the store. Asks it once."""
        ...

    def close(self) -> None:
        """Close all connections. The next call opens one."""
        ...

    def queues_behind(self, queue: Queue | None, limit: int) -> list[Queue]:
        """Return queues that hold items, in order of their names, behind `queue`; None: from the first on."""
        ...


NO_EXTERNALS: Mapping[str, ExternalStore] = MappingProxyType({})  # By name.
