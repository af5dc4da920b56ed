"""What the values of a shard look like: msgpack arrays behind one format number.

A record is the byte of its format and then a msgpack array. Fields are only ever appended, and a reader ignores
those it does not know; the format number changes when a field's meaning does. A reader that meets a newer format
leaves the record alone (`decode` answers None) and goes on with the next: a fleet is upgraded machine by machine.

A record is damaged if it cannot be decoded, or holds what nobody writes: each field states its range. So whoever has
decoded one can rely on it. A bit that was turned over within a text or a number and leaves it possible is not noticed.

Those of which a batch holds hundreds are `gc=False`: they hold plain data, never each other, and the collector need not
look at them.
"""

from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

from fairlead.zones.keyspace import NAME_BYTES_MAX, PART_COUNT_MAX, PRIORITY_MAX

FORMAT = 1
FORMATS_AHEAD = 8  # So many newer formats are believed.
_FORMAT_BYTE = bytes([FORMAT])

Trace = dict[str, str]
GivenId = str | bytes

TimeUs = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # or a duration; what a key of the vesting index can hold
Count = Annotated[int, Meta(ge=0, le=2**53)]
Priority = Annotated[int, Meta(ge=0, le=PRIORITY_MAX)]
Kind = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
AdmissionValue = Annotated[int, Meta(ge=0, le=3)]  # the value of a `Admission`

# What a decoder raises: a text that is none, and nesting without end, are no errors of msgspec's own.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Progress(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How far a handler says that it is: `done` of `total`, which it may not know, and a few words. Since when."""

    done: float
    total: float | None
    note: str
    at_us: TimeUs


class ItemRecord(msgspec.Struct, array_like=True, gc=False):
    """One unit of deferred work (QuiCK section 5: priority, lease identifier, vesting time, error count).

    `lease_id` is empty when nobody holds the item. It stays set after the lease ran out, until somebody takes the
    item over: that is how a lapse is noticed, and why `extend_lease` may still succeed.
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
    given_id: Any = None  # text or bytes: what the caller named it, if not the 16 bytes of the id itself
    unique_us: TimeUs = 0  # for how long after completion the id stays taken
    last_error: str = ""
    trace: Trace | None = None  # the enqueuer's trace context
    # Reserved for later steps, so that older readers keep their places: weight, intent.
    weight: int | None = None
    session: bytes | None = None  # the consumer that holds it, or held it last, by its id
    intent: bytes | None = None
    # What has become of its attempts, for whoever asks; nothing is decided by it.
    leased_us: TimeUs = 0  # when the last of them began
    expired_count: Count = 0  # how many ended with their lease, or with their worker
    died: Count = 0  # of those: how many with their worker, as somebody saw
    return_count: Count = 0  # by a worker that drained, or had no slot for it
    progress: Progress | None = None  # as the last attempt told that told any
    delayed_until_us: TimeUs = 0  # when it was to run first, or again after its revival; 0: as soon as it was enqueued
    started: bool = False  # a worker wrote, under the present lease, that it begins; only of items that lapsed before

    @property
    def runnable_us(self) -> int:
        """From when it could run: from its enqueue, from the end of its delay, or from its revival."""
        return self.delayed_until_us or self.enqueued_us

    @property
    def attempt(self) -> int:
        """The number of its attempt, the one that runs or the next: how many failed or lapsed before, and one.

        What went back without a failure (its worker drained, or had no slot; the store refused) is the same attempt.
        """
        return 1 + self.error_count + self.expired_count


POINTER_PRIORITY = 100  # Of all of them: they stand in line by time alone.


class PointerRecord(msgspec.Struct, array_like=True, gc=False):
    """The entry of the top-level queue that says: this queue zone may have work (QuiCK section 6).

    Its key says which zone.
    """

    vesting_us: TimeUs
    last_active_us: TimeUs
    lease_id: bytes = b""
    lease_us: TimeUs = 0
    error_count: Count = 0
    cursor: bytes = b""  # where in the zone's vesting index the last visit stopped short, see `QueueZone.dequeue`
    best_skipped: AdmissionValue = 0  # the best `Admission` among the entries that `cursor` passes over
    priority: Priority = POINTER_PRIORITY
    weight: int | None = None
    session: bytes | None = None
    deferred: bool = False  # some consumer has left it to others, see `Deferred`, and does not look at what comes
    deficit: Count = 0  # thousandths of an item that are left of its last turn, see `fair_share`
    outcome: AdmissionValue | None = (
        None  # the best `Admission` among what the last visit left in the zone, for whoever asks
    )
    scheduled_us: TimeUs = 0  # when it was given its vesting time, by the clock of who did
    bound_us: Count = 0  # and how much later than that it may vest, see `pointers.oversleeps`


class DeadLetterRecord(msgspec.Struct, array_like=True):
    """An item that will not run again by itself, and why."""

    item: ItemRecord
    reason: str  # "error": failed for good; "lapsed": its worker died or stalled while it ran alone
    error: str
    traceback: str
    dead_lettered_us: TimeUs


class Policy(msgspec.Struct, array_like=True, frozen=True):
    """What an operator may decide about whatever has items, on one shard.

    The first fields of every rule. Nothing is appended here, since that would move what follows in the others, but to
    the rule that it is for.

    `max_running`: how many may run at once in all of the fleet. `per_s`, `burst`: how many may start in a second, and
    at once. None: no limit.
    """

    paused: bool = False
    max_running: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    per_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    burst: Annotated[int, Meta(ge=1, le=2**53)] = 1

    @property
    def is_limited(self) -> bool:
        """Whether it limits how many run or start."""
        return self.max_running is not None or self.per_s is not None

    def is_tighter_than(self, other: "Policy") -> bool:
        """Say whether it lets fewer run, or fewer start, than another."""
        return _is_less(self.max_running, other.max_running) or _is_less(self.per_s, other.per_s)


def _is_less(limit: float | None, other: float | None) -> bool:
    return limit is not None and (other is None or limit < other)


class KindPolicy(Policy, array_like=True, frozen=True):
    """What an operator has decided about a kind.

    `updated_us`: when; later than whatever was said of the kind before, so that of two shards, or two who have heard of
    different ones, the later is right. A rule that says nothing any more stays, since it says so later than others.
    """

    updated_us: TimeUs = 0

    @property
    def restricts_anything(self) -> bool:
        """Whether it holds anything back."""
        return self.paused or self.is_limited


class TenantPolicy(Policy, array_like=True, frozen=True):
    """What an operator has decided about a tenant: about all of its items, of whatever kind.

    `weight`: how many turns of others one of its own is worth.
    """

    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0


class OwnerRecord(msgspec.Struct, array_like=True):
    """Who owns a logical database, and by which rule; absent while it is at home and without one.

    Every operation on the tenant reads it, so a move, or a new rule, conflicts with all of them.
    """

    epoch: Count
    shard_id: bytes
    policy: TenantPolicy = TenantPolicy()


class ShardRecord(msgspec.Struct, array_like=True):
    """What a shard is made with, once."""

    shard_id: bytes
    part_count: Annotated[int, Meta(ge=1, le=PART_COUNT_MAX)]
    created_us: TimeUs
    key_format: Count = 1  # where its keys lie: `keyspace.KEY_FORMAT` of the program that made it


class HandlerRecord(msgspec.Struct, array_like=True):
    """A handler submitted to a running fleet."""

    kind: Kind
    version: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    code: bytes  # cloudpickle of the handler and its options
    signature: bytes  # HMAC-SHA256 of the code under the fleet's signing key; empty if there is none
    submitted_us: TimeUs


class PeriodicRecord(msgspec.Struct, array_like=True):
    """When a periodic item is due next."""

    every_us: Annotated[int, Meta(ge=1, le=2**53)]
    next_us: TimeUs


class AuditEntry(msgspec.Struct, array_like=True, frozen=True):
    """What an operator did to a shard.

    Attributes:
      id: 16 random bytes; the same on every shard that it was done to.
      by: who did it, as far as is known, such as "root@db1".
      through: what they used, such as "command line".
      what: "pause", "resume", "limit", "weigh", "revive", "discard", "cancel".
      to: to what, as names and values such as {"kind": "receipt"}; plain data.
      done_us: when it began, microseconds since the epoch by the doer's clock.
      count: to how many items so far; a rule is one.
      ended: whether it came to its end; one of many transactions may have been broken off.
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
    | KindPolicy
    | TenantPolicy
    | ShardRecord
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
    return pack_value(record)


def decode(struct: type[_R], value: bytes) -> _R | None:
    """Return the record stored as `value`, or None if its format is newer than this program, or it is corrupt.

    None means: leave it alone, count it, go on with the next.
    """
    if value[:1] != _FORMAT_BYTE:
        return None
    try:
        record: _R = _decoders[struct].decode(memoryview(value)[1:])
    except UNDECODABLE:
        return None
    return record


def pack_value(value: Any) -> bytes:
    """Return msgpack of a value behind the format byte, as every value is stored that `unpacked` reads."""
    return _FORMAT_BYTE + _encoder.encode(value)


def unpacked(decoder: Any, value: bytes) -> Any:
    """Return what a msgpack decoder makes of a value behind its format byte; None where `decode` would answer None."""
    if value[:1] != _FORMAT_BYTE:
        return None
    try:
        return decoder.decode(memoryview(value)[1:])
    except UNDECODABLE:
        return None


def is_newer(value: bytes) -> bool:
    """Say whether a record that cannot be decoded is of a newer format, and not damaged.

    Formats are counted one by one, so a number far ahead is none.
    """
    return bool(value) and FORMAT < value[0] <= FORMAT + FORMATS_AHEAD
