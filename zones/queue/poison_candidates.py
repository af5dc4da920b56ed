"""Poison candidates: items that were running, several times in a row, when their worker died or stalled.

An item that kills its worker's process (it exits, crashes in C, uses all memory) leaves no error that could be caught.
It was running at each of these deaths, but so were innocent items beside it. So a poison candidate runs isolated: if
that process dies, too, the item is poison. Only attempts that had started count; the worker writes that before the
handler begins (`QueueZone.extend_op`). An item that waited in the worker cannot have killed it.
"""

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.probes import probe
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.records import ItemRecord
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level import worker_sessions

POISON = "lapsed"  # The stored reason of a dead letter that was poison.
EXPIRED_ISOLATED = "its worker died or stalled while it ran this item alone"
# Where a poison candidate has no process of its own (in threads), another item may have caused the death. So it takes
# three more expiries in a row. An innocent item is there by chance each time, and its next end resets the count.
SHARED_EXPIRIES = 3


def is_poison_candidate(record: ItemRecord, settings: ZoneSettings) -> bool:
    """Say whether an item that has vested must run isolated when it is leased next: too many deaths in a row."""
    return record.expiry_count + record.started >= settings.expiries_before_isolation


def poison_error(record: ItemRecord, settings: ZoneSettings) -> str | None:
    """Return why an item is moved to the dead letters: its worker died or stalled again. None: it is not moved."""
    if record.lease_id and record.ran_isolated:
        return EXPIRED_ISOLATED
    deaths = record.expiry_count + record.started
    if deaths >= settings.expiries_before_isolation + SHARED_EXPIRIES:
        return f"its process died or stalled {deaths} times in a row while it ran"
    return None


def move_poison_to_dead_letters(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, error: str, *, now_us: int
) -> None:
    """Move an item to the dead letters for what `poison_error` says; its last lease expiry counts, too."""
    if record.ran_isolated:
        probe("an item whose lease expired while it ran isolated becomes a dead letter")
    if record.claim:
        worker_sessions.take_away(tr, location, item_id, record, notify=True)
    record.expired_count += 1
    move_to_dead_letters(tr, location, item_id, record, reason=POISON, error=error, traceback="", now_us=now_us)
