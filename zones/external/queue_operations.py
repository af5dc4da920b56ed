"""What applications and operators do with queues of an external store, and with single items there.

Each operation is one transaction of its own, or a part of a user's transaction. Times are of the caller's clock.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fairlead.zones.external.names import Queue
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.items import EnqueueStatus, Item, NewItem

COUNTED_MAX = 10_000  # Items of a kind and priority: to count them, the store reads them.


class ItemToPut(NamedTuple):
    """An item to enqueue: where, and under which id."""

    queue: Queue
    id: bytes
    item: NewItem


class EndedRow(NamedTuple):
    """What an item has left that has ended. `result`: packed; None: it left none, and its id stays taken."""

    id: bytes
    result: bytes | None


class DeadLetterPlace(NamedTuple):
    """Where a dead letter stands among all of them, oldest first. `since_us`: by the clock of the store.

    It tells a dead letter from a later one of its name.
    """

    since_us: int
    id: bytes


class DeadRow(NamedTuple):
    """A dead letter, and where it stands. `dead_letter`: None: a newer version wrote it, or it is damaged."""

    place: DeadLetterPlace
    dead_letter: DeadLetter | None


FoundRow = Item | DeadRow | EndedRow


class QueueOperations(Protocol):
    """The operations on queues of one external store, each in a transaction of its own, or all in a user's.

    Every method raises `StoreUnavailable` if the store does not answer, or another transaction has locked an item for
    more than a second; `PostgresRefused` if the store is not prepared. After `AnswerLost`, which is a
    `StoreUnavailable`, the operation may have been done.
    """

    def put(self, items: Sequence[ItemToPut]) -> list[EnqueueStatus]:
        """Enqueue items; return what became of each. If an id occurs twice, the second is present.

        An id that another transaction is enqueuing waits for its end. In transactions of their own, 500 are one.
        """
        ...

    def find(self, queue: Queue, ids: Sequence[bytes], *, now_us: int, with_payload: bool = True) -> FoundRow | None:
        """Return the first item of a queue that has one of some ids; None: there is none."""
        ...

    def peek(self, queue: Queue, *, items_max: int, vested_only: bool, now_us: int) -> list[Item]:
        """Return the first items of a queue by priority and vesting time. A leased one vests when its lease ends."""
        ...

    def count(self, queue: Queue) -> dict[str, int]:
        """Return how many items of each kind a queue holds; at most 10,000 of a kind and priority are counted."""
        ...

    def cancel(self, queue: Queue, ids: Sequence[bytes], *, force: bool) -> bool:
        """Delete an item, leased or not, with `force` a dead letter too; False: there is none of these ids."""
        ...

    def dead_letters(
        self, queue: Queue | None, *, items_max: int, behind: DeadLetterPlace | None = None, with_payloads: bool = True
    ) -> list[DeadRow]:
        """Return the next dead letters of a queue, or of all (None), oldest first.

        `behind`: the place of the last one before; None: from the oldest on.
        """
        ...

    def retry_dead_letters(self, rows: Sequence[DeadRow], *, now_us: int) -> list[DeadRow]:
        """Put dead letters back into their queues, due now, with all attempts; return those that still were ones.

        Those that cannot be read are left out.
        """
        ...

    def discard_dead_letters(self, rows: Sequence[DeadRow]) -> list[DeadRow]:
        """Delete dead letters; return those that still were ones."""
        ...
