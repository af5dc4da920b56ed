"""Messages between actors: plain tuples, because one call carries hundreds of them."""

from typing import NamedTuple

from fairlead.zones.layout import Tenant
from fairlead.zones.records import Trace
from fairlead.zones.top_level.process_pointers import Deferred

VERSION_AGE_US_MAX = 50_000
CARRIED_BYTES_MAX = 1_024  # Records up to this travel with the call; a hundred stay below what Ray sends inline.


class ItemRef(NamedTuple):
    """A leased item on its way to a worker.

    `stored`: its record as it was written with the lease, if it is short; otherwise empty, and the worker reads it.
    `vested_us`: from when it could be leased, to measure how late it starts; 0: not known.
    """

    shard: str
    tenant: Tenant
    zone: str
    item_id: bytes
    lease_id: bytes
    kind: str
    isolated: bool
    stored: bytes = b""
    vested_us: int = 0


class Report(NamedTuple):
    """A worker's state, in every reply to its manager.

    The manager may send `in_flight_limit - held` more items, less those that it has sent without a reply so far.
    """

    incarnation: bytes  # see `Host.incarnation`: a new one means that the worker lost the items that it held
    in_flight_limit: int  # items that it wants to hold: its slots, and its prefetch
    held: int  # items accepted and not yet finished
    progress: int  # counts every change; `await_progress` returns when it has passed the caller's
    kinds: dict[str, int]  # items held, by kind


class ScanInfo(NamedTuple):
    """What the scanner tells a manager about the scan that found the pointers of a call.

    Attributes:
      single_tenant: all pointers are of one tenant, and no other competes.
      version: the scan's read version, where reusing it spares a dequeue a round trip; 0: none.
      us: when the version was taken.
      trace: the scan's trace context, if it is recorded.
    """

    single_tenant: bool = False
    version: int = 0
    us: int = 0
    trace: Trace | None = None

    def version_at(self, now_us: int) -> int:
        """Return the read version that a dequeue may reuse now; 0: none.

        The older a version is, the more dequeues at it conflict. It spares a dequeue a round trip (QuiCK section 6:
        cached read versions for leases).
        """
        return self.version if 0 <= now_us - self.us < VERSION_AGE_US_MAX else 0


UNKNOWN_SCAN = ScanInfo()  # Nothing is known of the scan.


class ServeReply(NamedTuple):
    """What a manager returns for a batch of pointers."""

    items: int  # items leased and sent to workers
    missed_at_read: int  # pointers that another consumer had leased when the manager read them
    missed_at_commit: int  # pointers whose dequeue conflicted with another transaction at its commit
    unreadable: int  # records written by a newer version, not changed
    capacity: int  # items the workers could still take
    deferred: tuple[Deferred, ...] = ()  # pointers that other consumers can serve better
    conflicts: int = 0  # dequeue commits, of one pointer or many, that conflicted
    waited_us: tuple[int, ...] = ()  # of each leased pointer: for how long it had been vested
    tenants: int = 0  # how many tenants, in the order of their first pointers, were served
    dead_lettered: int = 0  # items that became dead letters, since their workers had died or stalled too often
