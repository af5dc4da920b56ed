"""The values of a step log: the head of a run, its entries, its participants."""

from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgspec

from fairlead.zones.errors import RunUnreadable
from fairlead.zones.keyspace import TenantKeys, pack_int, pack_text
from fairlead.zones.layout import Tenant
from fairlead.zones.records import Count, OwnerRecord, TimeUs, decode, is_newer, pack_value, unpacked

_HEAD, _PARTICIPANT, _ENTRY = (pack_int(number) for number in (1, 2, 3))
STEPS_PACKED_MAX = 4_096  # Some 100 bytes each.
FENCE_BYTES = 8
END = 2**64 - 1  # The fence of a run that has ended: no lease number is as high.


class StepKind(IntEnum):
    """What an entry is of."""

    STEP = 0
    EFFECT = 1
    READ = 2
    WAIT = 3  # for a signal, for the result of a child job, or for a time
    UNDO = 4  # of another step


class StepState(IntEnum):
    """How far a step has come."""

    DONE = 0  # it has a result
    FAILED = 1  # it has an error, which the workflow's code can catch
    BEGUN = 2  # an effect that may be called once has perhaps been called
    WAITING = 3  # until `until_us`: of a wait, its deadline; of a step, its next try


class StoredError(msgspec.Struct, array_like=True, frozen=True):
    """An error as it is stored: never a pickle, never a traceback.

    `arguments`: what it was made with, packed; None: that is no plain data.
    """

    type_name: str
    message: str
    arguments: bytes | None = None


class StepEntry(msgspec.Struct, array_like=True):
    """An entry of a step log.

    Attributes:
      ordinal: counts the steps of a run in the order in which they began; undos run from the highest down.
      digest: of the kind and the arguments of the step, to notice that the workflow's code has changed.
      result: packed plain data, of up to 64,000 bytes.
      error: the answer of a step that has failed; of one that is to be tried again, the error of its last try.
      at_us: when it came into this state; of a step that is done, the end of its body.
      tries: failed tries of a step with a retry policy of its own, as far as they are recorded.
      took_us: from its call to `at_us`, with all tries and waits. For people; no decision depends on it.
    """

    ordinal: Count
    kind: StepKind
    digest: bytes
    state: StepState
    at_us: TimeUs
    result: bytes = b""
    error: StoredError | None = None
    until_us: TimeUs | None = None
    tries: Count = 0
    took_us: TimeUs = 0


class RunHead(msgspec.Struct, array_like=True):
    """What is true of a run as a whole.

    Attributes:
      version: of the workflow's code that began the run.
      segment: counts checkpoints. Entries of lower segments are forgotten.
      checkpoint: the packed state of the last checkpoint; empty: there was none.
      undo_reason: why it is being undone, for people; None: it goes forward.
      undo_error, undo_traceback: of a run that failed for good, what its dead letter will say.
      has_participants: some tenant on another shard keeps entries or a fence of the run.
      checkpoint_us: the latest time that the run had recorded at its last checkpoint; 0: there was none.
    """

    version: Count
    began_us: TimeUs
    segment: Count = 0
    checkpoint: bytes = b""
    undo_reason: str | None = None
    undo_error: str = ""
    undo_traceback: str = ""
    has_participants: bool = False
    checkpoint_us: TimeUs = 0


class ParticipantState(msgspec.Struct, array_like=True, frozen=True):
    """A participant as it was last asked. If one of the two differs when a step runs there, it must be asked again."""

    epoch: Count
    floor: Count


Value = RunHead | StepEntry | ParticipantState
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {
    struct: msgspec.msgpack.Decoder(struct) for struct in (RunHead, StepEntry, ParticipantState)
}


def encode(value: Value) -> bytes:
    """Return the value as it is stored."""
    return pack_value(value)


def decode_head(value: bytes) -> RunHead | None:
    """Return the head of a run; None: it is damaged, or of a newer version."""
    head: RunHead | None = unpacked(_decoders[RunHead], value)
    return head


def decode_entry(value: bytes) -> StepEntry | None:
    """Return an entry; None: it is damaged, or of a newer version."""
    entry: StepEntry | None = unpacked(_decoders[StepEntry], value)
    return entry


def decode_participant(value: bytes) -> ParticipantState | None:
    """Return a participant's place; None: it is damaged, or of a newer version."""
    place: ParticipantState | None = unpacked(_decoders[ParticipantState], value)
    return place


def read_entry(key: bytes, value: bytes | None) -> StepEntry | None:
    """Return the entry that a transaction has read; None: there is none.

    Raises:
      RunUnreadable: there is one, which cannot be read. A step must not be done again because of that.
    """
    entry = None if value is None else decode_entry(value)
    if entry is None and value is not None:
        raise unreadable(key, value)
    return entry


def read_fence(key: bytes, value: bytes | None) -> int:
    """Return the lowest lease number that may act on a participant; 0: there is no fence.

    Raises:
      RunUnreadable: there is one, and it is damaged.
    """
    if value is not None and len(value) != FENCE_BYTES:
        raise RunUnreadable(key=key.hex(), reason=RunUnreadable.DAMAGED)
    return 0 if value is None else int.from_bytes(value, "big")


def unreadable(key: bytes, value: bytes) -> RunUnreadable:
    """Return the error of a value of a run that cannot be read."""
    return RunUnreadable(key=key.hex(), reason=RunUnreadable.NEWER if is_newer(value) else RunUnreadable.DAMAGED)


def head_key(keys: TenantKeys, run: bytes) -> bytes:
    """Return the key of the head of a run."""
    return keys.step_log(run) + _HEAD


def participants_prefix(keys: TenantKeys, run: bytes) -> bytes:
    """Return the prefix of all participants of a run, below its home."""
    return keys.step_log(run) + _PARTICIPANT


def participant_key(keys: TenantKeys, run: bytes, tenant: Tenant) -> bytes:
    """Return the key of a participant of a run, below its home."""
    return participants_prefix(keys, run) + pack_text(tenant.app) + pack_text(tenant.user)


def entries_prefix(keys: TenantKeys, run: bytes, segment: int) -> bytes:
    """Return the prefix of the entries of a segment."""
    return keys.step_log(run) + _ENTRY + pack_int(segment)


def entry_key(keys: TenantKeys, run: bytes, segment: int, name: str, occurrence: int) -> bytes:
    """Return the key of an entry: the step of that name for the `occurrence`-th time, from 0 on."""
    return entries_prefix(keys, run, segment) + packed_step(name, occurrence)


@lru_cache(maxsize=STEPS_PACKED_MAX)
def packed_step(name: str, occurrence: int) -> bytes:
    """Return how the key of an entry ends. Cached, because the runs of a workflow have steps of the same names."""
    return pack_text(name) + pack_int(occurrence)


def epoch_of(owner: bytes | None) -> int:
    """Return the epoch in a tenant's ownership record, which a move raises; absent: the tenant never moved."""
    record = None if owner is None else decode(OwnerRecord, owner)
    return 0 if record is None else record.epoch
