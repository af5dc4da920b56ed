"""Telling of what cannot be read: once for each queue, however often it is visited.

A damaged record stays where it is until an operator sets it aside, and is passed over with every visit. A line for each
would bury those that help.
"""

import logging

from fairlead.zones.errors import OwnerUnreadable
from fairlead.zones.layout import Layout
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import Visit

log = logging.getLogger("fairlead.manager")

QUEUES_MAX = 1_000  # So many are told of; a store with more has been told of often enough.


class Unreadable:
    """What a manager has told of. Used by one call at a time, or told twice."""

    def __init__(self) -> None:
        self._told: dict[bytes, int] = {}  # pointers, and how many records of their queues

    def note(self, shard_name: str, visit: Visit) -> None:
        """Tell of what a visit could not read, unless as much has been told of that queue."""
        place = visit.place
        if place is not None and self._is_news(visit.ref, visit.unreadable):
            log.warning(
                "shard %s: %d records of %s/%s, zone %s, cannot be read, and are passed over: they are damaged, or of a"
                " newer version; fairlead check tells",
                shard_name, visit.unreadable, place.tenant.app or "-", place.tenant.user, place.name,
            )  # fmt: skip

    def note_owner(self, shard_name: str, layout: Layout, ref: PointerRef, error: OwnerUnreadable) -> None:
        """Tell of a tenant whose ownership record cannot be read, unless it has been told."""
        place = layout.place_of(ref.id)
        if place is not None and self._is_news(ref, 1):
            log.warning("shard %s: nothing of %s/%s can run: %s", shard_name, *place.tenant, error)

    def _is_news(self, ref: PointerRef, count: int) -> bool:
        if count <= self._told.get(ref.id, 0) or (len(self._told) >= QUEUES_MAX and ref.id not in self._told):
            return False
        self._told[ref.id] = count
        return True
