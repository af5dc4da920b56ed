"""How the pointer of an external queue is called: as a zone of its tenant, by a name that no user's zone has.

So all that knows pointers and tenants serves it, too: scans, turns, moves of tenants, backups and checks. Likewise a
store on which steps of a workflow have acted is a participant of its run by a name that no tenant has.
"""

from typing import NamedTuple

from fairlead.zones.errors import BadArgument
from fairlead.zones.keyspace import NAME_BYTES_MAX
from fairlead.zones.layout import EXTERNAL_MARK, Tenant, check_name

STORE_BYTES_MAX = 16
ZONE_BYTES_MAX = NAME_BYTES_MAX - STORE_BYTES_MAX - 2 * len(EXTERNAL_MARK)


class Queue(NamedTuple):
    """A queue zone in an external store."""

    tenant: Tenant
    zone: str


class ExternalZone(NamedTuple):
    """A queue zone in an external store: the store's name in the configuration, and the zone's."""

    store: str
    zone: str


def pointer_zone(store: str, zone: str) -> str:
    """Return the name under which a shard holds the pointer of a zone in an external store.

    Raises:
      BadArgument: a name is empty or too long.
    """
    return f"{EXTERNAL_MARK}{check_store_name(store)}{EXTERNAL_MARK}{check_zone_name(zone)}"


def external_zone(name: str) -> ExternalZone | None:
    """Return what `pointer_zone` named; None: it is a zone whose items lie in the shard."""
    if not name.startswith(EXTERNAL_MARK):
        return None
    store, _, zone = name[len(EXTERNAL_MARK) :].partition(EXTERNAL_MARK)
    return ExternalZone(store, zone)


def place_for(shard: str, zone: str) -> str:
    """Return where the items of a zone are: the name of the shard, or that of an external store behind its mark."""
    found = external_zone(zone)
    return shard if found is None else EXTERNAL_MARK + found.store


def store_of(place: str) -> str | None:
    """Return the name of the external store that a place is; None: it is a shard."""
    return place[len(EXTERNAL_MARK) :] if place.startswith(EXTERNAL_MARK) else None


def participant_of(store: str) -> Tenant:
    """Return how the home of a run records a store among its participants: as no user of an app, which no tenant is.

    Raises:
      BadArgument: it is no name of a store.
    """
    return Tenant(check_store_name(store), "")


def store_of_participant(participant: Tenant) -> str | None:
    """Return the name of the store that a participant is; None: it is a tenant."""
    return participant.app if not participant.user else None


def check_store_name(name: str) -> str:
    """Return the name of an external store if it can be one: text of 1 to 16 bytes."""
    return _checked("store", name, STORE_BYTES_MAX)


def check_zone_name(name: str) -> str:
    """Return the name of a zone if an external store can have it: text of 1 to 78 bytes."""
    return _checked("zone", name, ZONE_BYTES_MAX)


def _checked(argument: str, name: str, bytes_max: int) -> str:
    if len(check_name(argument, name).encode()) > bytes_max or EXTERNAL_MARK in name:
        allowed = f"text of 1 to {bytes_max} bytes in UTF-8, without control characters"
        raise BadArgument(argument=argument, value=name, allowed=allowed)
    return name
