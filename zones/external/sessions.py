"""Sessions of workers in an external store: what is asked of the store, and what it answers.

A claim is a lease of minutes that ends early if the session of its worker does, as in a shard
(`zones.top_level.worker_sessions`). The store holds a row for each session. Whoever finds that a session is silent
deletes the row, and then releases its claims. A transaction that claims locks the row, so it claims nothing afterwards.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef


class SessionStore(Protocol):
    """The sessions in one external store. Every method raises `StoreUnavailable` if the store does not answer."""

    def claim(
        self, session_id: bytes, held: Sequence[LeaseRef], *, worker: bytes, begins: bool, term_us: int
    ) -> list[Outcome | None] | None:
        """Claim items for a session, or renew claims; return how each went, as `ExternalStore.extend`.

          None: the session has ended, and nothing is claimed.

        Args:
          session_id: 16 bytes.
          held: one item at least.
          worker: which life of a worker it is.
          begins: it is the first claim of the session.
          term_us: for how long they are claimed at most.
        """
        ...

    def beat(self, session_id: bytes) -> Mapping[bytes, bytes] | None:
        """Keep a session alive; return what it claims: by item the lease id. None: it has ended."""
        ...

    def release(self, session_id: bytes, held: Sequence[LeaseRef]) -> None:
        """Let items vest now that a session claims, and whose worker goes on without them."""
        ...

    def end(self, session_id: bytes, *, silent_since: bytes | None = None) -> bool:
        """End a session for good; return False if it had ended, or a heartbeat came after `silent_since`."""
        ...

    def end_of_worker(self, worker: bytes) -> int:
        """End the sessions of a worker that has died; return how many there were."""
        ...

    def beats(self) -> Mapping[bytes, bytes]:
        """Return the last beat of each session."""
        ...

    def release_ended(self, items_max: int) -> int:
        """Let items vest now that sessions claim which have ended; return how many: `items_max` at most."""
        ...
