"""Where every byte of a shard lies (QuiCK sections 5 and 6, "pointer index", "top-level queue").

All keys are FoundationDB tuples below one root, so standard tools can read them. A subspace number is never reused: a
retired number stays here as a comment.

A pointer's record lies beside the zone that it points to. It is read and written together with the zone's items, and
lies on the same page. The top-level queue consists of keys only, which name the zones, so a scan reads no record.
QuiCK's pointer index, which leads from a zone to its pointer, is the record's own key.

    (ROOT, META)                                     -> shard record: format, number of parts, shard id
    (ROOT, PLACEMENT)                                -> the shard's name, and the shards of its application at first
    (ROOT, DB, app, user, DATA, ...)                 -> the tenant's own data
    (ROOT, DB, app, user, OWNER)                     -> ownership record; absent while the tenant never moved, and has
                                                        no policy
    (ROOT, DB, app, user, IN_FLIGHT, zone, id)       -> empty; running items of a tenant with a limit
    (ROOT, DB, app, user, BUCKET)                    -> a tenant's token bucket, if its rate is limited
    (ROOT, DB, app, user, STEP_LOG, run, ...)        -> what a workflow has done, see `workflow.step_log`
    (ROOT, DB, app, user, FENCE, run)                -> the lowest lease number of a run that may act on this tenant
    (ROOT, DB, app, user, SIGNAL, run, name, epoch, stamp) -> a signal that the run has not taken
    (ROOT, DB, app, user, CHILD_RESULT, run, name, n)-> how a child job of the run ended
    (ROOT, DB, app, user, LOCK, ...)                 -> who holds the tenant's locks, see `workflow.locks`
    (ROOT, DB, app, user, SNAP)                      -> the last number that a snapshot, or a restore, has got
    (ROOT, DB, app, user, SNAP, n, ...)              -> what a key of DATA held at snapshot n, see `snapshots`
    (ROOT, DB, app, user, MARK, hash)                -> what was changed while the tenant moves, see `moving.marks`
    (ROOT, DB, app, user, INDEXED, index, member)    -> empty; what is found by it in LOCAL_INDEX, see `local_index`
    (ROOT, DB, app, user, ZONE, zone, ITEM, id)      -> item record
    (ROOT, DB, app, user, ZONE, zone, VEST, p, t, id)-> kind; the vesting index, in (priority, vesting time) order
    (ROOT, DB, app, user, ZONE, zone, COUNT, kind)   -> items present, leased and delayed ones included; atomic add
    (ROOT, DB, app, user, ZONE, zone, DEAD_LETTER, id) -> dead letter record
    (ROOT, DB, app, user, ZONE, zone, PAYLOAD, id, n)-> piece n of a payload too long for its record
    (ROOT, DB, app, user, ZONE, zone, RETAINED_ID, id) -> until when a completed id stays taken (`unique_for`)
    (ROOT, DB, app, user, ZONE, zone, RESULT, id)    -> until when a result is kept, and the result
    (ROOT, DB, app, user, ZONE, zone, POINTER)       -> pointer record
    (ROOT, DB, app, user, ZONE, zone, TRACEBACK, id) -> traceback of the last failure of an item that will be retried
    (ROOT, DB, app, user, ZONE, zone, GUARD)         -> never a value: only conflicts are declared on it, see `pointers`
    (ROOT, RECEIPT, bucket, expires, transaction id) -> which attempt; proof that its commit happened
    (ROOT, TOP, part, VEST, p, t, app, user, zone)   -> empty; the top-level queue, its pointers in vesting order; not
                                                        empty if the last dequeue met an unreadable record
    (ROOT, DEPTH, part, kind)                        -> items present in all zones of the part; atomic add
    (ROOT, DEAD_LETTER_INDEX, t, app, user, zone, id) -> kind; dead letters of the shard, oldest first
    (ROOT, RETENTION, part, t, key)                  -> empty; `key` (RETAINED_ID or RESULT) may be cleared from t on
    (ROOT, TIME)                                     -> the shard's time, advanced by its consumers
    (ROOT, HANDLER, kind, version)                   -> a submitted handler
    (ROOT, PERIODIC, name)                           -> a periodic item's next tick
    (ROOT, SESSION, consumer id)                     -> a consumer's last heartbeat, and the kinds it handles
    (ROOT, POLICY, ...)                              -> what operators have decided, see `policies`
    (ROOT, PAUSED_POINTER, kind, app, user, zone)    -> empty; pointers that sleep because the kind is paused
    (ROOT, LIMIT, kind, ...)                         -> how much of a fleet-wide limit is taken, see `limits`
    (ROOT, COMPLETION_LOG, ...)                      -> what has ended lately, see `completion_log`
    (ROOT, WORKER_STATUS, worker's incarnation)      -> what a worker reports about itself, see `worker_status`
    (ROOT, ROLLUP, ...)                              -> what was done in the last hour, see `rollups`
    (ROOT, QUARANTINE, ...)                          -> damaged pairs that were set aside, see `quarantine`
    (ROOT, AUDIT_LOG, number)                        -> what an operator did, see `audit_log`
    (ROOT, CHANGE_COUNTER, part)                     -> counts pointers made or woken, for scanners that watch it
    (ROOT, TOMBSTONE, floor, app, user, run)         -> empty; fences of runs that have ended, by the floor of then
    (ROOT, FLOOR)                                    -> a number: tombstones written under a lower one are gone
    (ROOT, FLOOR, 1)                                 -> when it was raised last, see `workflow.floor`
    (ROOT, WORKER_SESSION, ...)                      -> which workers live, and what they claim, see `worker_sessions`
    (ROOT, PREPARED, started, random, attempt)       -> what a transaction across shards has locked here, see `spanning`
    (ROOT, PREPARED_WRITES, started, random, attempt, n) -> piece n of what it writes here once it is committed
    (ROOT, DECISION, started, random, attempt)       -> whether it is committed; on its home shard only
    (ROOT, SNAPSHOT_WORK, t, app, user)              -> empty; housekeeping looks at the tenant's snapshots from t on
    (ROOT, MOVE, app, user)                          -> the tenant's last move away from this shard, see `moving`
    (ROOT, LOCAL_INDEX, index, app, user, member)    -> empty; what the shard's tenants hold, see `local_index`
    (ROOT, MOVE_COUNT)                               -> counts moves for readers of all shards' LOCAL_INDEX; atomic add
    (ROOT, RECORD_TYPE, type)                        -> what such records are found by, see `fairlead.records`
    (ROOT, RECORD_TYPE, type, 1, shard)              -> empty; which shards have a copy of that, or are about to get one
    (ROOT, RECORD_TYPE, type, 2, field)              -> the last change of an index, see `records.index_changes`
    (ROOT, EXTERNAL_READER, store)                   -> who reads an external store, and what it saw, see `external`

Keys that many commits append at once, in order of time, begin with a part or a bucket. A cluster keeps neighbouring
keys on one storage server, and commits of busy parts must not all write there.

Packing is by hand because it is on the hot path (`fdb.tuple.pack` takes 9 µs for a tuple of ten elements). A test
compares every function here with `fdb.tuple`.
"""

from functools import lru_cache
from typing import NamedTuple

ROOT = b"\x02fl\x00"  # ("fl",): short, because LMDB keys end at 511 bytes and repeat this prefix.

META, DB, RECEIPT, TOP = range(1, 5)
# 5 was an index of pointers by zone: a pointer's record is found by its own key.
DEPTH, DEAD_LETTER_INDEX, RETENTION, TIME, HANDLER, PERIODIC, SESSION = range(6, 13)
PLACEMENT, POLICY, PAUSED_POINTER, LIMIT, COMPLETION_LOG = range(13, 18)
# Reserved for a later step: intents 18.
LOCAL_INDEX = 19
WORKER_STATUS, QUARANTINE, AUDIT_LOG, ROLLUP, CHANGE_COUNTER, TOMBSTONE, FLOOR, WORKER_SESSION = range(20, 28)
PREPARED, PREPARED_WRITES, DECISION, MOVE = range(28, 32)
SNAPSHOT_WORK, MOVE_COUNT, RECORD_TYPE, EXTERNAL_READER = 34, 35, 36, 37
DATA, OWNER, ZONE, IN_FLIGHT, BUCKET, STEP_LOG, FENCE, SIGNAL, CHILD_RESULT, LOCK, SNAP, MARK = range(1, 13)
INDEXED = 13
ITEM, VEST = 1, 2
# 3 was an index by age: the head of the vesting index already answers who has waited longest.
COUNT, DEAD_LETTER, PAYLOAD, RETAINED_ID, POINTER, GUARD, RESULT, TRACEBACK = range(4, 12)
# Within a part of the top-level queue there is VEST alone: (TOP, part, ITEM, hash of the zone) held pointer records.

# Changes when keys move. 1 had pointers in the top-level queue. 2 had one list each of receipts, ended items, and
# retention times. Neither was ever released.
KEY_FORMAT = 3
PRIORITY_MAX = 255
NAME_BYTES_MAX = 96  # App, user and zone names; three of them and the longest index key stay below 511 bytes.
PART_COUNT_MAX = 1024


_TEXT = 0x02  # How the tuple encoding of a text begins.
_NO_BYTES, _ONE_BYTE = 0x14, 0x15  # How the encoding of an integer begins: 0x14 and the number of its bytes.


def pack_int(number: int) -> bytes:
    """Return the tuple encoding of `number`, 0 to 2**64 - 2."""
    size = (number.bit_length() + 7) >> 3
    return _INT_CODES[size] + number.to_bytes(size, "big")


def pack_bytes(value: bytes) -> bytes:
    """Return the tuple encoding of a byte string."""
    return b"\x01" + value.replace(b"\x00", b"\x00\xff") + b"\x00"


def unpack_bytes(packed: bytes) -> bytes:
    """Return the byte string that `pack_bytes` packed."""
    return packed[1:-1].replace(b"\x00\xff", b"\x00")


def pack_text(value: str) -> bytes:
    """Return the tuple encoding of a text."""
    return b"\x02" + value.encode().replace(b"\x00", b"\x00\xff") + b"\x00"


def unpack_names(key: bytes, at: int, count: int) -> tuple[list[str], int] | None:
    """Parse `count` texts without NUL, as names are, in `key` from `at` on; return them and where they end.

    None: the key does not hold them; it is damaged.
    """
    names = []
    for _ in range(count):
        end = key.find(b"\x00", at)
        if end < 0 or key[at] != _TEXT:
            return None
        try:
            names.append(key[at + 1 : end].decode())
        except UnicodeDecodeError:
            return None
        at = end + 1
    return names, at


def unpack_name(key: bytes, at: int) -> str | None:
    """Return the name that is all of `key` from `at` on; None if there is no such name."""
    found = unpack_names(key, at, 1)
    return found[0][0] if found is not None and found[1] == len(key) else None


def unpack_int(key: bytes, at: int) -> tuple[int, int] | None:
    """Take a number that `pack_int` packed out of `key` at `at`; return it and where it ends. None: there is none."""
    size = key[at] - _NO_BYTES if at < len(key) else -1
    end = at + 1 + size
    return (int.from_bytes(key[at + 1 : end], "big"), end) if 0 <= size <= 8 and end <= len(key) else None


pack_kind = lru_cache(maxsize=1_024)(pack_text)  # Every item is counted, and there are few kinds.


def range_end(prefix: bytes) -> bytes:
    """Return the end of the range of all tuples that begin with `prefix`."""
    return prefix + b"\xff"


def range_begin(prefix: bytes) -> bytes:
    """Return the begin of the range of all tuples that begin with `prefix` and are longer."""
    return prefix + b"\x00"


_INT_CODES = [bytes([_NO_BYTES + size]) for size in range(9)]
_SMALL = [pack_int(number) for number in range(PRIORITY_MAX + 2)]
_ITEM, _VEST, _COUNT = _SMALL[ITEM], _SMALL[VEST], _SMALL[COUNT]
_ITEM_HEAD = _ITEM + b"\x01"
_VEST_HEADS = [_VEST + priority for priority in _SMALL]
_DB = ROOT + _SMALL[DB]
_ZONE, _OWNER = _SMALL[ZONE], _SMALL[OWNER]
_POINTER, _GUARD = _SMALL[POINTER], _SMALL[GUARD]

META_KEY = ROOT + _SMALL[META]
TIME_KEY = ROOT + _SMALL[TIME]
ROOT_RANGE = (range_begin(ROOT), range_end(ROOT))


def tenant_prefix(key: bytes) -> bytes:
    """Return the prefix of all keys of the tenant that `key` belongs to; `key` itself if it belongs to no tenant."""
    if not key.startswith(_DB):
        return key
    app_end = key.find(b"\x00", len(_DB))
    user_end = key.find(b"\x00", app_end + 1)
    return key[: user_end + 1] if app_end >= 0 and user_end >= 0 else key


def is_retained_key(key: bytes) -> bool:
    """Say whether `key` keeps the id of a completed item taken, or is its result."""
    found = unpack_names(key, len(_DB), 2) if key.startswith(_DB) else None
    named = unpack_names(key, found[1] + len(_ZONE), 1) if found is not None and key[found[1] :][:2] == _ZONE else None
    return named is not None and key[named[1] :][:3] in (_SMALL[RETAINED_ID] + b"\x01", _SMALL[RESULT] + b"\x01")


class IndexEntry(NamedTuple):
    """The parts of one key of a vesting index. `id`: an item's id, or a pointer's, which is its zone's packed name."""

    priority: int
    vesting_us: int
    id: bytes

    @property
    def is_possible(self) -> bool:
        """Whether there can be such a key; always true of a key that was read from the index."""
        return 0 <= self.priority <= PRIORITY_MAX and 0 <= self.vesting_us < 2**63


_new = tuple.__new__  # `IndexEntry(...)`, without the call around it: a scan makes thousands.


class QueueKeys:
    """The keys that a queue zone and a part of the top-level queue have in common: a vesting index.

    It stores one prefix and packs each key on demand: a batch dequeues from many zones and needs a few keys of each.
    """

    __slots__ = ("prefix",)

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    @property
    def vest_prefix(self) -> bytes:
        """The prefix of the vesting index."""
        return self.prefix + _VEST

    def vest(self, priority: int, vesting_us: int, item_id: bytes) -> bytes:
        """Return the key of the vesting index entry of an item."""
        # Called five times per item, so it packs in place what `pack_int` and `pack_bytes` would.
        size = (vesting_us.bit_length() + 7) >> 3
        time = _INT_CODES[size] + vesting_us.to_bytes(size, "big")
        packed_id = b"\x01" + item_id.replace(b"\x00", b"\x00\xff") + b"\x00"
        return self.prefix + _VEST_HEADS[priority] + time + packed_id

    def vest_after(self, priority: int, vesting_us: int) -> bytes:
        """Return the first possible key of `priority` that vests later than `vesting_us`."""
        return self.prefix + _VEST_HEADS[priority] + pack_int(vesting_us + 1)

    def vest_priority(self, priority: int) -> bytes:
        """Return the first possible key of `priority` (0 to 256) in the vesting index."""
        return self.prefix + _VEST_HEADS[priority]

    def vest_end(self) -> bytes:
        """Return the end of the vesting index."""
        return self.vest_priority(PRIORITY_MAX + 1)

    def entry(self, key: bytes) -> IndexEntry | None:
        """Parse a key of the vesting index; None if `vest` makes no such key: it is damaged."""
        at = len(self.prefix) + 2
        priority = 0
        try:
            if key[at] == _ONE_BYTE:
                priority = key[at + 1]
                if not priority:
                    return None
                at += 1
            elif key[at] != _NO_BYTES:
                return None
            size = key[at + 1] - _NO_BYTES
            end = at + 2 + size
            # A time of fewer bytes than stated, or later than any, sorts where no scan reads it.
            if not 0 <= size <= 8 or (size and not key[at + 2]) or (size == 8 and key[at + 2] >> 7) or end >= len(key):
                return None
        except IndexError:
            return None
        return _new(IndexEntry, (priority, int.from_bytes(key[at + 2 : end], "big"), self._id_of(key[end:])))

    def _id_of(self, packed_id: bytes) -> bytes:
        return packed_id[1:-1].replace(b"\x00\xff", b"\x00")


class TenantKeys:
    """The keys of one tenant's logical database.

    Attributes:
      owner: the key of the ownership record.
      data: the prefix of the tenant's own data.
    """

    __slots__ = ("data", "owner", "packed")

    def __init__(self, app: str, user: str) -> None:
        self.packed = b"\x02%b\x00\x02%b\x00" % (app.encode(), user.encode())  # Names hold no NUL: `check_name`.
        self.owner = _DB + self.packed + _OWNER  # Every transaction on the tenant reads it.
        self.data = _DB + self.packed + _SMALL[DATA]

    @property
    def names(self) -> list[str]:
        """The names of the tenant's app and of the user."""
        named = unpack_names(self.packed, 0, 2)
        assert named is not None
        return named[0]

    @property
    def prefix(self) -> bytes:
        """The prefix of all keys of the tenant."""
        return _DB + self.packed

    @property
    def bucket(self) -> bytes:
        """The key of the tenant's token bucket."""
        return _DB + self.packed + _SMALL[BUCKET]

    @property
    def in_flight_prefix(self) -> bytes:
        """The prefix of the tenant's in-flight markers."""
        return _DB + self.packed + _SMALL[IN_FLIGHT]

    def in_flight(self, zone: str, item_id: bytes) -> bytes:
        """Return the in-flight marker of a running item."""
        return self.in_flight_prefix + pack_text(zone) + pack_bytes(item_id)

    @property
    def zones(self) -> bytes:
        """The prefix of all queue zones of the tenant."""
        return _DB + self.packed + _ZONE

    def step_log(self, run: bytes) -> bytes:
        """Return the prefix of the step log of a run."""
        return _DB + self.packed + _SMALL[STEP_LOG] + pack_bytes(run)

    def fence(self, run: bytes) -> bytes:
        """Return the key of the fence of a run."""
        return _DB + self.packed + _SMALL[FENCE] + pack_bytes(run)

    def signals(self, run: bytes) -> bytes:
        """Return the prefix of the signals of a run."""
        return _DB + self.packed + _SMALL[SIGNAL] + pack_bytes(run)

    def child_results(self, run: bytes) -> bytes:
        """Return the prefix of the results of a run's child jobs."""
        return _DB + self.packed + _SMALL[CHILD_RESULT] + pack_bytes(run)

    @property
    def marks(self) -> bytes:
        """The prefix of the marks of what was changed while the tenant moves."""
        return _DB + self.packed + _SMALL[MARK]

    @property
    def locks(self) -> bytes:
        """The prefix of the tenant's locks."""
        return _DB + self.packed + _SMALL[LOCK]

    @property
    def indexed(self) -> bytes:
        """The prefix of what the tenant holds and the shard's index finds."""
        return _DB + self.packed + _SMALL[INDEXED]

    @property
    def snapshots(self) -> bytes:
        """The prefix of the copies of all snapshots; as a key, that of the last number."""
        return _DB + self.packed + _SMALL[SNAP]


class ZoneKeys(QueueKeys):
    """The keys of one queue zone."""

    __slots__ = ("packed", "tenant")

    def __init__(self, tenant: TenantKeys, zone: str) -> None:
        name = b"\x02%b\x00" % zone.encode()
        super().__init__(_DB + tenant.packed + _ZONE + name)
        self.tenant = tenant
        self.packed = tenant.packed + name

    @property
    def pointer(self) -> bytes:
        """The key of the pointer's record."""
        return self.prefix + _POINTER

    @property
    def pointer_guard(self) -> bytes:
        """The key on which conflicts about the pointer's place are declared; it never holds a value."""
        return self.prefix + _GUARD

    @property
    def item_prefix(self) -> bytes:
        """The prefix of all items' records."""
        return self.prefix + _ITEM

    def item_range(self) -> tuple[bytes, bytes]:
        """Return begin and end of all items' records."""
        return range_begin(self.item_prefix), range_end(self.item_prefix)

    def item(self, item_id: bytes) -> bytes:
        """Return the key of an item's record."""
        return self.prefix + _ITEM_HEAD + item_id.replace(b"\x00", b"\x00\xff") + b"\x00"

    def count(self, kind: str) -> bytes:
        """Return the key that counts the items of `kind`."""
        return self.prefix + _COUNT + pack_kind(kind)

    def count_prefix(self) -> bytes:
        """Return the prefix of the counts of all kinds."""
        return self.prefix + _COUNT

    def dead_letter(self, item_id: bytes) -> bytes:
        """Return the key of a dead letter."""
        return self.prefix + _SMALL[DEAD_LETTER] + pack_bytes(item_id)

    def dead_letter_prefix(self) -> bytes:
        """Return the prefix of all dead letters."""
        return self.prefix + _SMALL[DEAD_LETTER]

    def payload_prefix(self, item_id: bytes) -> bytes:
        """Return the prefix of the pieces of a long payload."""
        return self.prefix + _SMALL[PAYLOAD] + pack_bytes(item_id)

    def piece(self, item_id: bytes, number: int) -> bytes:
        """Return the key of a piece of a long payload."""
        return self.payload_prefix(item_id) + pack_int(number)

    def retained_id(self, item_id: bytes) -> bytes:
        """Return the key that keeps a completed id taken."""
        return self.prefix + _SMALL[RETAINED_ID] + pack_bytes(item_id)

    def result(self, item_id: bytes) -> bytes:
        """Return the key of an item's result."""
        return self.prefix + _SMALL[RESULT] + pack_bytes(item_id)

    def traceback(self, item_id: bytes) -> bytes:
        """Return the key of the traceback of an item's last failure."""
        return self.prefix + _SMALL[TRACEBACK] + pack_bytes(item_id)


def item_key(pointer_id: bytes, item_id: bytes) -> bytes:
    """Return the key of an item's record in the zone whose pointer has this id, which must consist of three names.

    Equal to `ZoneKeys.item`, and faster for a search through thousands of zones for one item.
    """
    tenant_end = pointer_id.index(b"\x00", pointer_id.index(b"\x00") + 1) + 1
    packed_id = item_id.replace(b"\x00", b"\x00\xff")
    return b"".join((_DB, pointer_id[:tenant_end], _ZONE, pointer_id[tenant_end:], _ITEM_HEAD, packed_id, b"\x00"))


class PartKeys(QueueKeys):
    """The keys of one part of the top-level queue."""

    __slots__ = ("change_counter", "depth_prefix", "part")

    def __init__(self, part: int) -> None:
        super().__init__(ROOT + _SMALL[TOP] + pack_int(part))
        self.part = part
        self.change_counter = ROOT + _SMALL[CHANGE_COUNTER] + pack_int(part)
        self.depth_prefix = ROOT + _SMALL[DEPTH] + pack_int(part)

    def vest(self, priority: int, vesting_us: int, pointer_id: bytes) -> bytes:
        """Return the key of the vesting index entry of a pointer; its id is packed already."""
        return self.prefix + _VEST_HEADS[priority] + pack_int(vesting_us) + pointer_id

    def _id_of(self, packed_id: bytes) -> bytes:
        return packed_id

    def depth(self, kind: str) -> bytes:
        """Return the key that counts the items of `kind` in all zones of the part."""
        return self.depth_prefix + pack_kind(kind)
