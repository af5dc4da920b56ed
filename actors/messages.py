"""What actors say to each other: plain tuples, because one call carries hundreds of them."""

from typing import NamedTuple

from fairlead.zones.layout import Tenant
from fairlead.zones.records import Trace
from fairlead.zones.top_level.process_pointers import Deferred

VERSION_AGE_US_MAX = 50_000
CARRIED_BYTES_MAX = 1_024  # Records up to this travel with the call; a hundred stay below what Ray sends inline.


class ItemRef(NamedTuple):
    """A leased item on its way to a worker.

    `stored`: its record as it was written with the lease, if it is short; otherwise empty, and the worker reads it.
    `vested_us`: from when it could be leased, for whoever asks how late it starts; 0: not known.
    """

    shard: str
    tenant: Tenant
    zone: str
    item_id: bytes
    lease_id: bytes
    kind: str
    alone: bool
    stored: bytes = b""
    vested_us: int = 0


class Report(NamedTuple):
    """What a worker tells its manager in every reply.

    The manager may send `in_flight_limit - held` more items, less those it has sent and not had a reply for.
    """

    incarnation: bytes  # the worker's life, see `Host.incarnation`: a new one means that it lost what it held
    in_flight_limit: int  # items it wants to hold: its slots, and as much in reserve as it works off in a moment
    held: int  # items accepted and not yet finished
    progress: int  # counts every change; `await_progress` returns when it has passed the caller's
    kinds: dict[str, int]  # items held, by kind


class ScanInfo(NamedTuple):
    """What a manager is told of the scan that found the pointers of a call.

    Attributes:
      alone: all pointers are one tenant's, and no other competes.
      version: the read version at which it was made, where that spares a visit a round trip; 0: none.
      us: when it was made.
      trace: its trace context, if that is recorded.
    """

    alone: bool = False
    version: int = 0
    us: int = 0
    trace: Trace | None = None

    def version_at(self, now_us: int) -> int:
        """Return the read version that a visit may take over from it now; 0: none.

        The older a version is, the more visits at it conflict. It spares a visit a round trip (QuiCK section 6: cached
        read versions for leases).
        """
        return self.version if 0 <= now_us - self.us < VERSION_AGE_US_MAX else 0


UNKNOWN_SCAN = ScanInfo()  # Nothing is known of the scan.


class ServeReply(NamedTuple):
    """What a manager answers to a batch of pointers."""

    items: int  # items leased and sent to workers
    missed_at_read: int  # pointers that another consumer had leased when the manager read them
    missed_at_commit: int  # visits that lost to another transaction at their commit
    unreadable: int  # records written by a newer version, left alone
    capacity: int  # items the workers could still take
    deferred: tuple[Deferred, ...] = ()  # pointers that other consumers can make more of
    conflicts: int = 0  # commits of visits, of one pointer or many, that another transaction came before
    waited_us: tuple[int, ...] = ()  # of each pointer that was leased: for how long it had been vested
    tenants: int = 0  # how many tenants, in the order of their first pointers, had their turn
    buried: int = 0  # items that the visits buried, since their workers had died or stalled too often
