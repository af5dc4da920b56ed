"""What the reader of an external store saves, and how it makes or wakes the pointers of queues that got items.

One consumer reads each store, under a lease in the shard that is the home of the store's name. It reads what was
committed since the snapshot that it last saw, makes or wakes the pointers, each on its tenant's shard, and then saves
the new snapshot: never before. A reader that stands still meanwhile finds that another one has saved since.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.zones.engines import Transaction
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Arrival
from fairlead.zones.keyspace import EXTERNAL_READER, ROOT, pack_int, pack_text
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.ownership import check_owner
from fairlead.zones.probes import probe
from fairlead.zones.queue.insertion import ensure_pointer
from fairlead.zones.records import TimeUs, pack_value, unpacked
from fairlead.zones.top_level import pointers

CLOCKS_APART_US = 5_000_000  # A consumer whose clock is off by more takes no leases.
NOTHING_SEEN = "1:1:"  # The snapshot of a store before its first transaction: all that is there is new.

_PREFIX = ROOT + pack_int(EXTERNAL_READER)


class ReaderRecord(msgspec.Struct, array_like=True, frozen=True):
    """Who reads a store, and what it has seen.

    Attributes:
      reader: 16 random bytes of the process; empty: none has read it.
      until_us: when its lease ends.
      seen: the snapshot up to which all pointers are made.
      history: which history of the store the snapshot is of: its numbers begin anew after a promotion or a restore.
      looked_us: when all queues were looked at last.
    """

    reader: bytes = b""
    until_us: TimeUs = 0
    seen: str = NOTHING_SEEN
    history: Annotated[str, Meta(max_length=200)] = ""
    looked_us: TimeUs = 0


_decoder = msgspec.msgpack.Decoder(ReaderRecord)


def reader_home(store: str) -> Tenant:
    """Return the name by which the shard is found that holds what the reader of a store saves."""
    return Tenant("", store)


def take_reader(tr: Transaction, store: str, reader: bytes, *, lease_us: int, now_us: int) -> ReaderRecord | None:
    """Take or keep the lease of a store's reader; return what was saved. None: another process reads the store.

    A lease that ends later than one by good clocks was taken by a clock that was ahead, and does not count: two that
    read at once are harmless. Reads with conflict, and writes: the reader's record. May run twice.
    """
    found = read_reader(tr, store)
    if found.reader != reader and now_us < found.until_us <= now_us + lease_us + CLOCKS_APART_US:
        return None
    if found.reader != reader:
        probe("a process takes over the reading of an external store")
    taken = msgspec.structs.replace(found, reader=reader, until_us=now_us + lease_us)
    tr.set(reader_key(store), pack_value(taken))
    return taken


def release_reader(tr: Transaction, store: str, reader: bytes) -> None:
    """End the lease of a store's reader, if it is this one's: another process reads at once.

    Reads with conflict, and writes: the reader's record. May run twice.
    """
    found = read_reader(tr, store)
    if found.reader == reader:
        tr.set(reader_key(store), pack_value(msgspec.structs.replace(found, until_us=0)))


def save_seen(tr: Transaction, store: str, reader: bytes, seen: ReaderRecord) -> bool:
    """Save what a reader has seen; False: another process reads the store by now, and nothing is saved.

    Call it once the pointers of all arrivals are committed. Reads with conflict, and writes: the reader's record. The
    lease stays as it is.
    """
    found = read_reader(tr, store)
    if found.reader != reader:
        return False
    saved = msgspec.structs.replace(found, seen=seen.seen, history=seen.history, looked_us=seen.looked_us)
    tr.set(reader_key(store), pack_value(saved))
    return True


def read_reader(tr: Transaction, store: str) -> ReaderRecord:
    """Return what is saved of a store's reader. One that cannot be read counts as none: all queues are looked at."""
    value = tr.get(reader_key(store)).value
    return (None if value is None else decode_reader(value)) or ReaderRecord()


def decode_reader(value: bytes) -> ReaderRecord | None:
    """Return what is stored of a reader; None: it cannot be read."""
    found: ReaderRecord | None = unpacked(_decoder, value)
    return found


def is_readable(value: bytes) -> bool:
    """Say whether a record of a reader can be read."""
    return decode_reader(value) is not None


def note_arrival(tr: Transaction, layout: ShardLayout, store: str, arrival: Arrival, *, now_us: int) -> None:
    """Make or wake the pointer of a queue that got an item. See the package's table.

    Reads with conflict: the tenant's ownership, the pointer's guard; the record, if the pointer is made or moved.
    Writes: the pointer; if it is awake, a declared write conflict on its guard. May run twice.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen: nothing was changed.
    """
    location = layout.location(arrival.queue.tenant, pointer_zone(store, arrival.queue.zone))
    keys = location.keys.tenant
    owner = tr.get(keys.owner)
    stored = pointers.read_for_insert(tr, location)
    policy = check_owner(tr, layout, keys, owner.value)
    tr.add_write_conflict_key(location.keys.pointer_guard)
    ensure_pointer(tr, location, stored.value, now_us + max(0, arrival.in_us), now_us, asleep=policy.paused)


def reader_key(store: str) -> bytes:
    """Return the key of what is saved of a store's reader."""
    return _PREFIX + pack_text(store)
