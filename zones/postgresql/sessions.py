"""Sessions of workers in PostgreSQL: see `SessionStore`."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from fairlead.zones.postgresql.arguments import OUTCOMES, ids_of
from fairlead.zones.postgresql.connections import Connections
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef

_CLAIM = "SELECT outcome FROM fairlead.claim(%b::uuid, %b::bytea, %b, %b::uuid[], %b::uuid[], %b::bigint) ORDER BY ord"
_BEAT = "SELECT is_alive, ids, lease_ids FROM fairlead.beat(%b::uuid)"
_RELEASE = "SELECT fairlead.release(%b::uuid, %b::uuid[], %b::uuid[])"
_END = "SELECT fairlead.end_session(%b::uuid, %b::bigint)"
_END_OF_WORKER = "DELETE FROM fairlead.sessions WHERE worker = %b"
_BEATS = "SELECT id, beat FROM fairlead.sessions"
_RELEASE_ENDED = "SELECT fairlead.release_ended(%b::int)"

BEAT_BYTES = 8


class Sessions:
    """The sessions in one database."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def claim(
        self, session_id: bytes, held: Sequence[LeaseRef], *, worker: bytes, begins: bool, term_us: int
    ) -> list[Outcome | None] | None:
        """See `SessionStore`."""
        rows = self._change(_CLAIM, UUID(bytes=session_id), worker, begins, *ids_of(held), term_us)
        return [OUTCOMES[outcome] for (outcome,) in rows] or None

    def beat(self, session_id: bytes) -> dict[bytes, bytes] | None:
        """See `SessionStore`."""
        ((is_alive, ids, lease_ids),) = self._change(_BEAT, UUID(bytes=session_id))
        if not is_alive:
            return None
        claims = zip(ids or (), lease_ids or (), strict=True)
        return {item_id.bytes: lease_id.bytes for item_id, lease_id in claims if lease_id is not None}

    def release(self, session_id: bytes, held: Sequence[LeaseRef]) -> None:
        """See `SessionStore`."""
        self._change(_RELEASE, UUID(bytes=session_id), *ids_of(held))

    def end(self, session_id: bytes, *, silent_since: bytes | None = None) -> bool:
        """See `SessionStore`."""
        beat = None if silent_since is None else int.from_bytes(silent_since, "big")
        ((has_ended,),) = self._change(_END, UUID(bytes=session_id), beat)
        return bool(has_ended)

    def end_of_worker(self, worker: bytes) -> int:
        """See `SessionStore`."""
        with self._connections.call(is_committing=True) as call:
            return int(call.execute(_END_OF_WORKER, worker).rowcount)

    def beats(self) -> dict[bytes, bytes]:
        """See `SessionStore`."""
        with self._connections.call() as call:
            return {each.bytes: beat.to_bytes(BEAT_BYTES, "big") for each, beat in call.execute(_BEATS)}

    def release_ended(self, items_max: int) -> int:
        """See `SessionStore`."""
        ((released,),) = self._change(_RELEASE_ENDED, items_max)
        return int(released)

    def _change(self, statement: str, *arguments: Any) -> list[Any]:
        with self._connections.call(is_committing=True) as call:
            return list(call.execute(statement, *arguments).fetchall())
