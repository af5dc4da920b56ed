"""A model of the sessions of workers in an external store, and of its upkeep; see `SessionStore` and `UpkeepStore`.

Each operation is one instant. That real ones come to the same is shown where their statements are interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fairlead.simulation.external_queues import StoredItem
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef


class Extend(Protocol):
    """See `ExternalItems.extend`."""

    def __call__(self, held: Sequence[LeaseRef], *, lease_us: int, session: bytes) -> list[Outcome | None]:
        """Extend leases for a session."""
        ...


class ModelSessions:
    """See `SessionStore`. `release`: lets an item vest now."""

    def __init__(self, rows: dict[bytes, StoredItem], extend: Extend, release: Callable[[StoredItem], None]) -> None:
        self._rows = rows
        self._extend = extend
        self._release = release
        self._sessions: dict[bytes, tuple[bytes, int]] = {}  # of each its worker, and how many heartbeats

    def claim(
        self, session_id: bytes, held: Sequence[LeaseRef], *, worker: bytes, begins: bool, term_us: int
    ) -> list[Outcome | None] | None:
        """See `SessionStore`."""
        if begins:
            self._sessions.setdefault(session_id, (worker, 0))
        if session_id not in self._sessions:
            return None
        return self._extend(held, lease_us=term_us, session=session_id)

    def beat(self, session_id: bytes) -> dict[bytes, bytes] | None:
        """See `SessionStore`."""
        if session_id not in self._sessions:
            return None
        worker, beats = self._sessions[session_id]
        self._sessions[session_id] = worker, beats + 1
        return {row.item_id: row.record.lease_id for row in self._claimed_by(session_id)}

    def release(self, session_id: bytes, held: Sequence[LeaseRef]) -> None:
        """See `SessionStore`."""
        for row in self._claimed_by(session_id):
            if (row.item_id, row.record.lease_id) in held:
                self._release(row)

    def end(self, session_id: bytes, *, silent_since: bytes | None = None) -> bool:
        """See `SessionStore`."""
        if session_id not in self._sessions or silent_since not in (None, self.beats()[session_id]):
            return False
        del self._sessions[session_id]
        return True

    def end_of_worker(self, worker: bytes) -> int:
        """See `SessionStore`."""
        return sum(self.end(each) for each, (whose, _) in list(self._sessions.items()) if whose == worker)

    def beats(self) -> dict[bytes, bytes]:
        """See `SessionStore`."""
        return {each: beats.to_bytes(8, "big") for each, (_, beats) in self._sessions.items()}

    def release_ended(self, items_max: int) -> int:
        """See `SessionStore`."""
        rows = [row for row in self._rows.values() if row.session and row.session not in self._sessions][:items_max]
        for row in rows:
            self._release(row)
        return len(rows)

    def _claimed_by(self, session_id: bytes) -> list[StoredItem]:
        return [row for row in self._rows.values() if row.session == session_id]


class ModelUpkeep:
    """See `UpkeepStore`. Nothing is kept, and nothing is to be freed."""

    def expire(self, items_max: int) -> int:
        """See `UpkeepStore`."""
        return 0

    def dead_rows(self) -> int:
        """See `UpkeepStore`."""
        return 0

    def vacuum(self) -> None:
        """See `UpkeepStore`."""
