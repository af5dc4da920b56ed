"""What the values of a shard look like: msgpack arrays behind one format number.

A record is the byte of its format and then a msgpack array. New fields are only ever appended, and a reader ignores
fields that it does not know. The format number changes when the meaning of a field changes. A reader that meets a newer
format leaves the record as it is (`decode` returns None) and continues with the next one: a fleet is upgraded machine
by machine. An ownership record that restricts transactions (by locks, a move, snapshots) has a format of its own: a
program that does not know of the restriction must not pass it.

A record is damaged if it cannot be decoded, or holds a value that no writer writes: each field states its range. So a
decoded record can be relied on. A flipped bit that turns a text or a number into another possible one is not detected.

Records of which a batch holds hundreds are `gc=False`: they hold plain data, never each other, so the garbage collector
need not track them.
"""

from enum import IntEnum
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Meta

from fairlead.zones.keyspace import NAME_BYTES_MAX, PART_COUNT_MAX, PRIORITY_MAX

FORMAT = 1
FORMATS_AHEAD = 8  # So many newer formats are accepted as newer, and not as damage.
_FORMAT_BYTE = bytes([FORMAT])
RESTRICTED_FORMAT = 2  # of an ownership record, only while it restricts transactions
_RESTRICTED_BYTE = bytes([RESTRICTED_FORMAT])

Trace = dict[str, str]
GivenId = str | bytes

TimeUs = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # or a duration; what a key of the vesting index can hold
COUNT_MAX = 2**53
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Priority = Annotated[int, Meta(ge=0, le=PRIORITY_MAX)]
Kind = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
AdmissionValue = Annotated[int, Meta(ge=0, le=3)]  # the value of a `Admission`

# What a decoder raises: invalid UTF-8 and endless nesting are not errors of msgspec's own.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Progress(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a handler reports about its progress: `done` of `total`, which may be unknown, a note, and when."""

    done: float
    total: float | None
    note: str
    at_us: TimeUs


class Parent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The workflow's call that an item answers: the parent's item, its run, and the call's name and occurrence."""

    app: str
    user: str
    zone: str
    item_id: bytes
    run: bytes
    name: str
    occurrence: Count


class ItemRecord(msgspec.Struct, array_like=True, gc=False):
    """One unit of deferred work (QuiCK section 5: priority, lease identifier, vesting time, error count).

    `lease_id` is empty while the item is not leased. It stays set after the lease has expired, until another consumer
    leases the item. By it the next consumer detects the expiry, and `extend_lease` may still succeed.
    """

    kind: Kind
    payload: bytes  # msgpack; empty if `payload_bytes` says that it lies in pieces of its own
    priority: Priority
    vesting_us: TimeUs
    enqueued_us: TimeUs
    lease_id: bytes = b""
    lease_us: TimeUs = 0
    error_count: Count = 0
    expiry_count: Count = 0
    ran_isolated: bool = False
    payload_bytes: Count = 0  # length of a payload kept in pieces, else 0
    given_id: Any = None  # text or bytes: the caller's name for the item, if it is not the 16 bytes of the id itself
    unique_us: TimeUs = 0  # for how long after completion the id stays taken
    last_error: str = ""
    trace: Trace | None = None  # the enqueuer's trace context
    weight: int | None = None  # Reserved for a later step, so that older readers keep their places.
    session: bytes | None = None  # the consumer that leases it, or leased it last, by its id
    run: bytes | None = None  # this life of the item, 16 bytes; None: its id. A name may be enqueued again
    # The history of its attempts, for people; no decision depends on it.
    leased_us: TimeUs = 0  # when the last attempt began
    expired_count: Count = 0  # how many attempts ended with their lease, or with their worker
    died: Count = 0  # of those: how many ended with their worker, as its manager observed
    return_count: Count = 0  # how often a worker returned it: it drained, or had no slot for it
    progress: Progress | None = None  # as the last attempt that reported any
    # when it may run first, or again after a retried dead letter, or a wait of a workflow; 0: once it was enqueued
    delayed_until_us: TimeUs = 0
    # a worker wrote under the present lease that it starts the item; only if an earlier lease expired
    started: bool = False
    # Of a workflow; see `fairlead.zones.workflow`.
    lease_number: Count = 0  # counts its leases, and only grows
    keeps_run: bool = False  # keys of its run are stored: step log, signals, results of child jobs
    cancelling: bool = False  # its cancellation is requested: what it has done is to be undone
    # what wakes it before its vesting time, see `signals.wait_name`; or that newer code alone can continue it
    waits_for: tuple[str, ...] = ()
    suspended_at: Count = 0  # the lease number of the last attempt that ended by a suspension
    parent: Parent | None = None  # whom its end is reported to
    # the worker session whose claim the lease is, see `worker_sessions`; empty: the lease is none
    claim: bytes = b""
    keys: tuple[bytes, ...] = ()  # by which it is found, packed as `item_keys.pack_keys` returns them
    unique_key: bytes = b""  # which no other item of the application has, packed; empty: none

    @property
    def runnable_us(self) -> int:
        """From when it could run: its enqueue, the end of its delay or its last wait, or its retry as a dead letter."""
        return self.delayed_until_us or self.enqueued_us

    def run_of(self, item_id: bytes) -> bytes:
        """Return the id of this life of the item."""
        return self.run or item_id

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or comes next: failures and expiries before it, plus one.

        An attempt that was returned without a failure (its worker drained, or had no slot; the store refused) keeps its
        number.
        """
        return 1 + self.error_count + self.expired_count


POINTER_PRIORITY = 100  # The priority of all pointers: they are ordered by time only.


class PointerRecord(msgspec.Struct, array_like=True, gc=False):
    """The entry of the top-level queue that says: this queue zone may have work (QuiCK section 6).

    Its key says which zone.
    """

    vesting_us: TimeUs
    last_active_us: TimeUs
    lease_id: bytes = b""
    lease_us: TimeUs = 0
    error_count: Count = 0
    cursor: bytes = b""  # where in the zone's vesting index the last dequeue stopped, see `QueueZone.dequeue`
    best_skipped: AdmissionValue = 0  # the best `Admission` among the entries that `cursor` passes over
    priority: Priority = POINTER_PRIORITY
    weight: int | None = None
    session: bytes | None = None
    deferred: bool = False  # a consumer deferred it to others, see `Deferred`, and does not look at later items
    deficit: Count = 0  # thousandths of an item that remain of its last quantum, see `fair_share`
    outcome: AdmissionValue | None = (
        None  # the best `Admission` among the items that the last dequeue left in the zone, for people
    )
    scheduled_us: TimeUs = 0  # when its vesting time was set, by the clock of the process that set it
    bound_us: Count = 0  # and how much later than that it may vest, see `pointers.oversleeps`


class DeadLetterRecord(msgspec.Struct, array_like=True):
    """An item that will not run again by itself, and why."""

    item: ItemRecord
    # "error": failed for good; "undone": likewise, and what it had done as a workflow was undone; "lapsed": its worker
    # died or its lease expired while it ran isolated
    reason: str
    error: str
    traceback: str
    dead_lettered_us: TimeUs


class Policy(msgspec.Struct, array_like=True, frozen=True):
    """What an operator may decide about anything that has items, on one shard.

    These are the first fields of every policy. Append no field here: it would move the fields of the subclasses. Append
    to the subclass.

    `max_running`: how many may run at once in the whole fleet. `per_s`, `burst`: how many may start in a second, and at
    once. None: no limit.
    """

    paused: bool = False
    max_running: Annotated[int, Meta(ge=1, le=COUNT_MAX)] | None = None
    per_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    burst: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = 1

    @property
    def is_limited(self) -> bool:
        """Whether it limits how many items run or start."""
        return self.max_running is not None or self.per_s is not None


class KindPolicy(Policy, array_like=True, frozen=True):
    """What an operator has decided about a kind.

    `updated_us`: when; later than every earlier policy of the kind, so that the newest copy among several shards or
    processes is the right one. A cleared policy is kept as a tombstone, so that its newer timestamp overrides older
    copies.
    """

    updated_us: TimeUs = 0

    @property
    def restricts_anything(self) -> bool:
        """Whether it holds anything back."""
        return self.paused or self.is_limited


class TenantPolicy(Policy, array_like=True, frozen=True):
    """What an operator has decided about a tenant: about all of its items, of every kind.

    `weight`: the tenant's share of the workers, relative to other tenants.
    """

    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0


ORIGIN_BYTES = 5  # Of the random bytes of a transaction: they say which step of which run it is.


class TransactionId(NamedTuple):
    """One attempt at a transaction across shards. Ids sort by age: that of an older transaction is smaller.

    `started_us`: when its first attempt began, microseconds since the epoch by the clock of its process. `random`: 10
    bytes, the same in all attempts; the first five are the same whichever process does the step of a workflow.
    `attempt`: counts from 1.
    """

    started_us: TimeUs
    random: bytes
    attempt: Count

    @property
    def age(self) -> tuple[int, bytes]:
        """What all attempts of a transaction have in common; smaller: an older transaction."""
        return self.started_us, self.random

    def replaces(self, other: "TransactionId") -> bool:
        """Whether the other one is an earlier attempt at the same transaction, or at the same step of a workflow."""
        return self.random[:ORIGIN_BYTES] == other.random[:ORIGIN_BYTES]

    def __str__(self) -> str:
        return f"{self.started_us:x}-{self.random.hex()}-{self.attempt}"


class Lock(msgspec.Struct, array_like=True, frozen=True):
    """A lock on a tenant: of a transaction across shards that has prepared here, and that its home shard decides.

    `exclusive`: the transaction writes to the tenant; else it has only read, and others may read, too.
    """

    transaction: TransactionId
    home_id: bytes
    exclusive: bool


class MovePhase(IntEnum):
    """How far the move of a tenant has come, on the shard whose ownership record says so; see `fairlead.zones.moving`.

    MOVING, at the source: transactions go on, and mark what they change. FROZEN, at the source: they wait. INCOMING, at
    the destination: they go to the source. ARRIVING, at the destination, which owns the tenant: they go on, and no
    other move may begin.
    """

    MOVING = 1
    FROZEN = 2
    INCOMING = 3
    ARRIVING = 4


class Move(msgspec.Struct, array_like=True, frozen=True):
    """The move of a tenant that is under way.

    `shard_id`: the other shard: at the source the destination, at the destination the source. `move_id`: 16 bytes that
    name the move. At the destination `mover` counts who carries it out, and a mover that takes over counts on; `chunk`
    counts this mover's transactions there. At the source `pause_us` is how long each writer waits after its commit.
    """

    phase: MovePhase
    shard_id: bytes
    move_id: bytes
    mover: Count = 0
    chunk: Count = 0
    pause_us: TimeUs = 0


class MoveState(IntEnum):
    """How a move stands: under way, or how it ended."""

    UNDER_WAY = 1
    MOVED = 2
    CANCELLED = 3
    FAILED = 4


class MoveRecord(msgspec.Struct, array_like=True):
    """A move of a tenant away from a shard, as the shard keeps it until the next one, or a day after its end.

    `epoch`: of the tenant when it began; the destination owns it under the next one. `destination`: the shard's name.
    `mover`: counts who carries it out. `stage`: what it does, for people. `copied_rows`, `copied_bytes`: so far;
    `total_rows`, `total_bytes`: when it began. `cursor`: all keys before it have been copied. `rounds`: how often what
    had changed meanwhile was copied. `frozen_us`: how long transactions waited at its end. `error`: why it failed.
    `slowed_us`: how long each writer waited after its commit, at most, so that the mover catches up.
    """

    move_id: bytes
    epoch: Count
    destination: str
    destination_id: bytes
    began_us: TimeUs
    bytes_per_s: Count
    state: MoveState = MoveState.UNDER_WAY
    mover: Count = 0
    stage: str = ""
    copied_rows: Count = 0
    copied_bytes: Count = 0
    total_rows: Count = 0
    total_bytes: Count = 0
    cursor: bytes = b""
    rounds: Count = 0
    frozen_us: TimeUs = 0
    ended_us: TimeUs = 0
    cancel_requested: bool = False
    error: str = ""
    slowed_us: TimeUs = 0


class SnapshotRecord(msgspec.Struct, array_like=True, frozen=True):
    """A snapshot of a tenant's own keys. `number`: larger than that of every earlier one of the tenant.

    `expires_us`: from when on housekeeping drops it; 0: never. `dropped_us`: when it was dropped; then its copies are
    being merged into the older snapshot. 0: it is kept.
    """

    number: Count
    taken_us: TimeUs
    expires_us: TimeUs = 0
    dropped_us: TimeUs = 0


class RestoreRecord(msgspec.Struct, array_like=True, frozen=True):
    """The restore of a tenant that is under way. `id`: from the sequence of snapshots' numbers. `number`: to which."""

    id: Count
    number: Count
    begun_us: TimeUs


class TenantSnapshots(msgspec.Struct, array_like=True, frozen=True):
    """The snapshots of a tenant, oldest first, and its restore; at least one snapshot."""

    listed: Annotated[tuple[SnapshotRecord, ...], Meta(min_length=1)]
    restore: RestoreRecord | None = None


class OwnerRecord(msgspec.Struct, array_like=True):
    """Which shard owns a logical database, the tenant's policy, its locks, move, snapshots; absent if it says nothing.

    That is, while the tenant has never moved, and has neither a policy, nor a lock, nor a snapshot. Every operation on
    the tenant reads it, so a move, a new policy, a lock, or a snapshot conflicts with all of them.
    """

    epoch: Count
    shard_id: bytes
    policy: TenantPolicy = TenantPolicy()
    locks: tuple[Lock, ...] = ()  # one exclusive lock, or any number of shared ones
    move: Move | None = None
    snapshots: TenantSnapshots | None = None

    @property
    def is_restricted(self) -> bool:
        """Whether it restricts transactions beyond what the policy says."""
        return bool(self.locks) or self.move is not None or self.snapshots is not None

    @property
    def says_nothing(self) -> bool:
        """Whether the tenant is as it would be without a record, on its first home."""
        return not self.epoch and not self.is_restricted and self.policy == TenantPolicy()


class PreparedTenant(msgspec.Struct, array_like=True, frozen=True):
    """A tenant that a transaction across shards has locked."""

    app: str
    user: str


class PreparedRecord(msgspec.Struct, array_like=True, frozen=True):
    """What a transaction across shards has prepared on a shard, until its decision is carried out there.

    `home_id`: the shard that decides. `tenants`: whom it has locked. `pieces`: how many pieces its writes have.
    """

    home_id: bytes
    tenants: tuple[PreparedTenant, ...]
    pieces: Count


class DecisionRecord(msgspec.Struct, array_like=True, frozen=True):
    """Whether a transaction across shards is committed. It is final.

    `shard_ids`: where PREPARED of it may be; empty if whoever wrote an abort knows of one shard only.
    """

    committed: bool
    shard_ids: tuple[bytes, ...]
    decided_us: TimeUs


class ShardRecord(msgspec.Struct, array_like=True):
    """The constants of a shard, written once when it is made."""

    shard_id: bytes
    part_count: Annotated[int, Meta(ge=1, le=PART_COUNT_MAX)]
    created_us: TimeUs
    key_format: Count = 1  # where its keys lie: `keyspace.KEY_FORMAT` of the program that made it


class PlacementRecord(msgspec.Struct, array_like=True, frozen=True):
    """What a shard is called, and with which shards its application began: among these each tenant has a first home.

    Written once when the shard is made, and the same list in all shards of an application.
    """

    name: str
    first_shards: Annotated[tuple[str, ...], Meta(min_length=1)]


class HandlerRecord(msgspec.Struct, array_like=True):
    """A handler submitted to a running fleet."""

    kind: Kind
    version: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    code: bytes  # cloudpickle of the handler and its options
    signature: bytes  # HMAC-SHA256 of the code under the fleet's signing key; empty if there is none
    submitted_us: TimeUs


class PeriodicRecord(msgspec.Struct, array_like=True):
    """When a periodic item is due next."""

    every_us: Annotated[int, Meta(ge=1, le=COUNT_MAX)]
    next_us: TimeUs


class AuditEntry(msgspec.Struct, array_like=True, frozen=True):
    """What an operator did to a shard.

    Attributes:
      id: 16 random bytes; the same on every shard that the action touched.
      by: the operator, as far as known, such as "root@db1".
      through: the tool, such as "command line".
      what: "pause", "resume", "limit", "set weight", "retry", "discard", "cancel", "force cancel", "signal",
        "abort transaction", "take snapshot", "drop snapshot", "restore".
      to: the target, as names and values such as {"kind": "receipt"}; plain data.
      done_us: when it began, microseconds since the epoch by the operator's clock.
      count: how many items it has changed so far; a policy is one.
      ended: whether it finished; an action of many transactions may have been interrupted.
    """

    id: bytes
    by: str
    through: str
    what: str
    to: dict[str, Any]
    done_us: int
    count: int = 1
    ended: bool = True


Record = (
    ItemRecord
    | PointerRecord
    | DeadLetterRecord
    | OwnerRecord
    | MoveRecord
    | PreparedRecord
    | DecisionRecord
    | KindPolicy
    | TenantPolicy
    | ShardRecord
    | PlacementRecord
    | HandlerRecord
    | PeriodicRecord
    | AuditEntry
)
_R = TypeVar("_R", bound=Record)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {
    struct: msgspec.msgpack.Decoder(struct) for struct in get_args(Record)
}


def encode(record: Record) -> bytes:
    """Return the value under which `record` is stored."""
    if type(record) is OwnerRecord and record.is_restricted:
        return _RESTRICTED_BYTE + _encoder.encode(record)
    return pack_value(record)


def decode(struct: type[_R], value: bytes) -> _R | None:
    """Return the record stored as `value`, or None if its format is newer than this program, or it is corrupt.

    None means: leave it as it is, count it, go on with the next.
    """
    is_restricted = struct is OwnerRecord and value[:1] == _RESTRICTED_BYTE
    if value[:1] != _FORMAT_BYTE and not is_restricted:
        return None
    try:
        record: _R = _decoders[struct].decode(memoryview(value)[1:])
    except UNDECODABLE:
        return None
    if isinstance(record, OwnerRecord) and record.is_restricted != is_restricted:
        return None
    return record


def pack_value(value: Any) -> bytes:
    """Return msgpack of a value behind the format byte; `unpacked` reads it."""
    return _FORMAT_BYTE + _encoder.encode(value)


def unpacked(decoder: Any, value: bytes) -> Any:
    """Return what a msgpack decoder makes of a value behind its format byte; None where `decode` would return None."""
    if value[:1] != _FORMAT_BYTE:
        return None
    try:
        return decoder.decode(memoryview(value)[1:])
    except UNDECODABLE:
        return None


def is_newer(value: bytes, *, newest: int = FORMAT) -> bool:
    """Say whether a record that cannot be decoded is of a newer format, and not damaged.

    `newest`: the newest format that this program knows of such a record. Formats are counted one by one, so a number
    far above means damage.
    """
    return bool(value) and newest < value[0] <= FORMAT + FORMATS_AHEAD
