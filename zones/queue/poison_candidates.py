"""Suspects: items that were running, several times in a row, when their worker died or stalled.

What kills its worker's process (it exits, crashes in C, eats all memory) cannot be told by its error, since nobody is
left to catch one. What can be told is that it was running at each of these deaths; so were innocent items beside it. So
a suspect runs isolated: if that process dies, too, it is proved. Only attempts that had started count, as the worker
writes before the handler begins (`QueueZone.extend_op`): what waited in the worker cannot have killed it.
"""

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.probes import probe
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.records import ItemRecord
from fairlead.zones.settings import ZoneSettings

EXPIRED_ISOLATED = "its worker died or stalled while it ran this item alone"
# Where a suspect has no process of its own (in threads), its death may be another item's doing. So three more in a row
# are held against it: an innocent one is there by chance each time, and its own end clears it.
SHARED_EXPIRIES = 3


def is_poison_candidate(record: ItemRecord, settings: ZoneSettings) -> bool:
    """Say whether an item that has vested must run isolated when it is leased next: too many deaths in a row."""
    return record.expiry_count + record.started >= settings.expiries_before_isolation


def poison_error(record: ItemRecord, settings: ZoneSettings) -> str | None:
    """Return the error with which an item is buried because its worker has died or stalled again; None: it is not."""
    if record.lease_id and record.ran_isolated:
        return EXPIRED_ISOLATED
    deaths = record.expiry_count + record.started
    if deaths >= settings.expiries_before_isolation + SHARED_EXPIRIES:
        return f"its process died or stalled {deaths} times in a row while it ran"
    return None


def move_poison_to_dead_letters(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, error: str, *, now_us: int
) -> None:
    """Bury an item for what `poison_error` says; its last lapse counts, too."""
    if record.ran_isolated:
        probe("an item that lapsed while it ran alone is buried")
    record.expired_count += 1
    move_to_dead_letters(tr, location, item_id, record, reason="lapsed", error=error, traceback="", now_us=now_us)
