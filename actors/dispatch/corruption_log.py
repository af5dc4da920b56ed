"""Telling of what cannot be read: once for each queue, however often it is visited.

A damaged record stays where it is until an operator sets it aside, and is passed over with every visit. A line for each
would bury those that help.
"""

import logging

from fairlead.zones.errors import OwnerUnreadable
from fairlead.zones.layout import ShardLayout
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import PointerResult

log = logging.getLogger("fairlead.manager")

QUEUES_MAX = 1_000  # So many are told of; a store with more has been told of often enough.


class CorruptionLog:
    """What a manager has told of. Used by one call at a time, or told twice."""

    def __init__(self) -> None:
        self._logged: dict[bytes, int] = {}  # pointers, and how many records of their queues

    def note(self, shard_name: str, result: PointerResult) -> None:
        """Tell of what a visit could not read, unless as much has been told of that queue."""
        location = result.location
        if result.unreadable and location is not None and self._is_news(result.ref, result.unreadable):
            log.warning(
                "shard %s: %d records of %s/%s, zone %s, cannot be read, and are passed over: they are damaged, or of a"
                " newer version; fairlead check tells",
                shard_name, result.unreadable, location.tenant.app or "-", location.tenant.user, location.name,
            )  # fmt: skip

    def note_owner(self, shard_name: str, layout: ShardLayout, ref: PointerRef, error: OwnerUnreadable) -> None:
        """Tell of a tenant whose ownership record cannot be read, unless it has been told."""
        location = layout.location_of(ref.id)
        if location is not None and self._is_news(ref, 1):
            log.warning("shard %s: nothing of %s/%s can run: %s", shard_name, *location.tenant, error)

    def _is_news(self, ref: PointerRef, count: int) -> bool:
        if count <= self._logged.get(ref.id, 0) or (len(self._logged) >= QUEUES_MAX and ref.id not in self._logged):
            return False
        self._logged[ref.id] = count
        return True
