"""Logs unreadable records: once for each queue, however often its pointer is processed.

A damaged record stays where it is until an operator moves it to the quarantine, and every dequeue passes over it. A
line for each time would hide the useful ones.
"""

import logging

from fairlead.zones.errors import OwnerUnreadable
from fairlead.zones.layout import ShardLayout
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import PointerResult

log = logging.getLogger("fairlead.manager")

QUEUES_MAX = 1_000  # So many queues are logged; more lines would not help.


class CorruptionLog:
    """What a manager has logged. Not locked: concurrent calls may log a queue twice."""

    def __init__(self) -> None:
        self._logged: dict[bytes, int] = {}  # pointers, and how many records of their queues

    def note(self, shard_name: str, result: PointerResult) -> None:
        """Log the unreadable records of a result, unless as many have been logged for that queue."""
        location = result.location
        if result.unreadable and location is not None and self._is_new(result.ref, result.unreadable):
            log.warning(
                "shard %s: %d records of %s, zone %s, cannot be read, and are skipped: they are damaged, or of a"
                " newer version; run fairlead check",
                shard_name, result.unreadable, location.tenant, location.name,
            )  # fmt: skip

    def note_owner(self, shard_name: str, layout: ShardLayout, ref: PointerRef, error: OwnerUnreadable) -> None:
        """Log a tenant whose ownership record cannot be read, unless it has been logged."""
        location = layout.location_of(ref.id)
        if location is not None and self._is_new(ref, 1):
            log.warning("shard %s: no item of %s can run: %s", shard_name, location.tenant, error)

    def _is_new(self, ref: PointerRef, count: int) -> bool:
        if count <= self._logged.get(ref.id, 0) or (len(self._logged) >= QUEUES_MAX and ref.id not in self._logged):
            return False
        self._logged[ref.id] = count
        return True
