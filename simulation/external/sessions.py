"""The sessions of workers in an external store, and its upkeep: statements as in its schema's SQL, and their calls.

A claim locks the row of its session against deletion; heartbeats go on beside it. Whoever ends the session waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fairlead.simulation.external import statements
from fairlead.simulation.external.items import CarryOut, SessionRow, State, StoredItem, Transaction
from fairlead.zones.external.depth import Depth
from fairlead.zones.external.store import ItemLease
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef

BEAT_BYTES = 8


def session_key(session_id: bytes) -> str:
    """Return the key of a session's row."""
    return f"session {session_id.hex()}"


# --- Statements ---


def claim(
    tx: Transaction, session_id: bytes, held: Sequence[LeaseRef], *, worker: bytes, begins: bool, term_us: int
) -> list[Outcome | None] | None:
    """See `SessionStore`.

    Raises:
      Locked: another transaction begins or ends the session.
    """
    key = session_key(session_id)
    if begins and tx.get(key) is None:
        tx.lock(key, inserts=True)
        tx.write(key, SessionRow(session_id, worker))
    tx.lock_against_deletion(key)
    if tx.get(key) is None:
        return None
    return statements.extend(tx, _leases(held), lease_us=term_us, session=session_id)


def beat(tx: Transaction, session_id: bytes) -> dict[bytes, bytes] | None:
    """See `SessionStore`. Raises `Locked`: another transaction changes or ends the session."""
    row = _lock_session(tx, session_id)
    if row is None:
        return None
    tx.write(session_key(session_id), replace(row, beat=row.beat + 1))
    claimed = (each for each in tx.table.rows() if each.session == session_id)
    return {each.item_id: each.lease_id for each in claimed}


def release(tx: Transaction, session_id: bytes, held: Sequence[LeaseRef]) -> None:
    """See `SessionStore`."""
    for each in _leases(held):
        row, _ = statements.hold_or_pass(tx, each)
        if row is not None and row.session == session_id:
            _release(tx, row)
    statements.notify(tx)


def end(tx: Transaction, session_id: bytes, silent_since: bytes | None) -> bool:
    """See `SessionStore`. Raises `Locked`: a claim is being made, or another transaction changes the session."""
    row = _lock_session(tx, session_id)
    if row is None or silent_since not in (None, _packed(row.beat)):
        return False
    tx.delete(session_key(session_id))
    return True


def release_ended(tx: Transaction, items_max: int) -> int:
    """See `SessionStore`. Passes over items that another transaction has locked."""
    claimed = [row for row in tx.table.rows() if row.session and not tx.is_locked(row.item_id)]
    ended = [row for row in claimed if tx.get(session_key(row.session)) is None][:items_max]
    for row in ended:
        tx.lock(row.item_id)
        _release(tx, row)
    if ended:
        statements.notify(tx)
    return len(ended)


def depth(tx: Transaction) -> Depth:
    """See `UpkeepStore`."""
    waiting = [row for row in tx.table.rows() if row.state is State.WAITS]
    here_us = tx.table.now_us()
    due = [here_us - row.vesting_us for row in waiting if max(row.vesting_us, row.leased_until_us) <= here_us]
    return Depth(Counter(row.record.kind for row in waiting), max(due, default=None), True)


def expire(tx: Transaction, items_max: int) -> int:
    """See `UpkeepStore`. Passes over rows that another transaction has locked."""
    here_us = tx.table.now_us()
    ended = [row for row in tx.table.rows() if row.state is State.ENDED and row.kept_until_us <= here_us]
    free = [row for row in ended if not tx.is_locked(row.item_id)][:items_max]
    for row in free:
        tx.lock(row.item_id)
        tx.write(row.item_id, None)
    return len(free)


def sessions_of(tx: Transaction) -> list[SessionRow]:
    """Return all sessions."""
    return [row for row in tx.table.values.values() if isinstance(row, SessionRow)]


def _lock_session(tx: Transaction, session_id: bytes) -> SessionRow | None:
    key = session_key(session_id)
    if tx.get(key) is None:
        return None
    tx.lock(key)
    row = tx.get(key)
    assert isinstance(row, SessionRow)
    return row


def _release(tx: Transaction, row: StoredItem) -> None:
    """Let an item vest now. It keeps its lease id, so its next lease counts an expiry."""
    tx.write(row.item_id, replace(row, leased_until_us=0, session=b"", number=tx.take_number()))


def _leases(held: Sequence[LeaseRef]) -> list[ItemLease]:
    return [ItemLease(*each) for each in held]


def _packed(beat: int) -> bytes:
    return beat.to_bytes(BEAT_BYTES, "big")


# --- Calls ---


class Sessions:
    """See `SessionStore`."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def claim(
        self, session_id: bytes, held: Sequence[LeaseRef], *, worker: bytes, begins: bool, term_us: int
    ) -> list[Outcome | None] | None:
        """See `SessionStore`."""
        return self._carry_out(
            lambda tx: claim(tx, session_id, held, worker=worker, begins=begins, term_us=term_us), writes=True
        )

    def beat(self, session_id: bytes) -> dict[bytes, bytes] | None:
        """See `SessionStore`."""
        return self._carry_out(lambda tx: beat(tx, session_id), writes=True)

    def release(self, session_id: bytes, held: Sequence[LeaseRef]) -> None:
        """See `SessionStore`."""
        self._carry_out(lambda tx: release(tx, session_id, held), writes=True)

    def end(self, session_id: bytes, *, silent_since: bytes | None = None) -> bool:
        """See `SessionStore`."""
        return self._carry_out(lambda tx: end(tx, session_id, silent_since), writes=True)

    def end_of_worker(self, worker: bytes) -> int:
        """See `SessionStore`."""
        return self._carry_out(
            lambda tx: sum(end(tx, row.session_id, None) for row in sessions_of(tx) if row.worker == worker),
            writes=True,
        )

    def beats(self) -> dict[bytes, bytes]:
        """See `SessionStore`."""
        return self._carry_out(lambda tx: {row.session_id: _packed(row.beat) for row in sessions_of(tx)}, writes=False)

    def release_ended(self, items_max: int) -> int:
        """See `SessionStore`."""
        return self._carry_out(lambda tx: release_ended(tx, items_max), writes=True)


class Upkeep:
    """See `UpkeepStore`. The model has no dead rows."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def depth(self) -> Depth:
        """See `UpkeepStore`."""
        return self._carry_out(depth, writes=False)

    def expire(self, items_max: int) -> int:
        """See `UpkeepStore`."""
        return self._carry_out(lambda tx: expire(tx, items_max), writes=True)

    def dead_rows(self) -> int:
        """See `UpkeepStore`."""
        return 0

    def vacuum(self) -> None:
        """See `UpkeepStore`."""
