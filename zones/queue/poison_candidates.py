"""Suspects: items that were running, several times in a row, when their worker died or stalled.

What kills its worker's process (it exits, crashes in C, eats all memory) cannot be told by its error, since nobody is
left to catch one. What can be told is that it was running at each of these deaths; so were innocent items beside it. So
a suspect runs isolated: if that process dies, too, it is proved. Only attempts that had started count, as the worker
writes before the handler begins (`QueueZone.extend_steps`): what waited in the worker cannot have killed it.
"""

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import Place
from fairlead.zones.probes import probe
from fairlead.zones.queue.dead_letters import bury
from fairlead.zones.records import ItemRecord

LAPSED_ALONE = "its worker died or stalled while it ran this item alone"
# Where a suspect has no process of its own (in threads), its death may be another item's doing. So three more in a row
# are held against it: an innocent one is there by chance each time, and its own end clears it.
SHARED_LAPSES = 3


def is_suspect(place: Place, record: ItemRecord) -> bool:
    """Say whether an item that has vested must run isolated when it is leased next: too many deaths in a row."""
    return record.lapse_count + record.started >= place.layout.settings.lapses_before_alone


def proof_against(place: Place, record: ItemRecord) -> str | None:
    """Return the error with which an item is buried because its worker has died or stalled again; None: it is not."""
    if record.lease_id and record.ran_alone:
        return LAPSED_ALONE
    deaths = record.lapse_count + record.started
    if deaths >= place.layout.settings.lapses_before_alone + SHARED_LAPSES:
        return f"its process died or stalled {deaths} times in a row while it ran"
    return None


def bury_lapsed(tr: Transaction, place: Place, item_id: bytes, record: ItemRecord, error: str, *, now_us: int) -> None:
    """Bury an item for what `proof_against` says; its last lapse counts, too."""
    if record.ran_alone:
        probe("an item that lapsed while it ran alone is buried")
    record.lapsed += 1
    bury(tr, place, item_id, record, reason="lapsed", error=error, traceback="", now_us=now_us)
