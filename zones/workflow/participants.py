"""Participants: tenants on other shards on which a step of a run has acted (Olive section 3.2).

The lease of the run's item cannot fence a transaction on another shard. So a fence there does. It holds the lowest
lease number that may act, and `END` once the run has ended: then it is a *tombstone*. Tombstones are cleared some day,
and a late step must not take the place of a tombstone for that of a run that never was there. So each shard has a
number, FLOOR. A step states the number that was asked for before the run's home recorded the participant. If FLOOR
differs, tombstones may have been cleared, and the step asks again.

No function here compares times: FLOOR is a number, and whoever raises it clears in the same transaction.
"""

from typing import NamedTuple

from fairlead.zones.engines import Reader, StoreUnavailable, Transaction
from fairlead.zones.errors import LeaseLost
from fairlead.zones.keyspace import (
    FLOOR,
    ROOT,
    TOMBSTONE,
    TenantKeys,
    pack_bytes,
    pack_int,
    pack_text,
    range_begin,
    range_end,
    unpack_bytes,
    unpack_int,
    unpack_names,
)
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, Tenant
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.snapshots.snapshot_list import usable_snapshots
from fairlead.zones.workflow import locks
from fairlead.zones.workflow.run_records import (
    END,
    FENCE_BYTES,
    ParticipantState,
    StepEntry,
    encode,
    entries_prefix,
    entry_key,
    epoch_of,
    read_entry,
    read_fence,
)
from fairlead.zones.workflow.step_log import StepName

_FLOOR_KEY = ROOT + pack_int(FLOOR)
_TOMBSTONES = ROOT + pack_int(TOMBSTONE)
_TOMBSTONE_VALUE = END.to_bytes(FENCE_BYTES, "big")
FLOOR_BYTES = 8
FLOOR_MAX = 2**53  # What a record of a participant can hold.


class AskAgain(Exception):
    """A participant's epoch or its shard's FLOOR is not the one that the run's home has recorded."""


class RunEnded(LeaseLost):
    """A participant keeps the tombstone of a run. Usually the run has ended, and the caller's lease is lost.

    Do: if the lease still stands, the home's shard was restored from a backup, and the others were not. Look what the
    run has done there, and enqueue anew what is to be done; `fairlead steps ITEM` shows what its home knows.
    """

    message = "the run has ended, as another shard knows"


class ForeignStep(NamedTuple):
    """A step that acts on a participant. `place`: as the home of the run has recorded it."""

    keys: TenantKeys
    run: bytes
    lease_number: int
    segment: int
    step: StepName
    place: ParticipantState


def ask_op(tr: Transaction, layout: ShardLayout, keys: TenantKeys) -> Operation[ParticipantState]:
    """Read a tenant's epoch and its shard's FLOOR, with conflict: both are of one moment.

    Raises:
      StoreUnavailable: FLOOR is damaged.
      TenantMoved: another shard owns the tenant.
    """
    owner, floor = tr.get(keys.owner), tr.get(_FLOOR_KEY)
    yield
    check_owner(tr, layout, keys, owner.value)
    return ParticipantState(epoch_of(owner.value), floor_of(floor.value))


def begin_step_op(
    tr: Transaction, layout: ShardLayout, foreign: ForeignStep, owners: dict[bytes, bytes | None] | None = None
) -> Operation[StepEntry | None]:
    """Read what a step on a participant must know before its body runs; return its entry if it has been done.

    `owners` gets the ownership record; see `Attempt`.

    Reads with conflict: ownership, the fence, the entry. By snapshot: FLOOR, which many steps read and which is raised
    together with the clearing of tombstones, whose fences are read with conflict.

    Raises:
      AskAgain: the tenant has moved, or FLOOR was raised, since the home has recorded the participant.
      LeaseLost: a later attempt has raised the fence.
      RunEnded: the run has ended.
      RunUnreadable: the fence, or the entry, is damaged, or a newer version wrote it.
      TenantMoved: another shard owns the tenant.
      Restoring: the tenant is being restored to a snapshot.
    """
    fence_key = foreign.keys.fence(foreign.run)
    key = entry_key(foreign.keys, foreign.run, foreign.segment, *foreign.step)
    owner, fence = tr.get(foreign.keys.owner), tr.get(fence_key)
    entry = tr.get(key)
    floor = tr.snapshot.get(_FLOOR_KEY)
    yield
    check_owner(tr, layout, foreign.keys, owner.value)
    usable_snapshots(foreign.keys, owner.value)
    if owners is not None:
        owners[foreign.keys.owner] = owner.value
    if ParticipantState(epoch_of(owner.value), floor_of(floor.value)) != foreign.place:
        probe("a step on another shard must ask again")
        raise AskAgain
    _check_fence(read_fence(fence_key, fence.value), foreign.lease_number, foreign.run)
    return read_entry(key, entry.value)


def end_step(tr: Transaction, foreign: ForeignStep, entry: StepEntry) -> None:
    """Write the entry of a step, in the transaction of its body. `begin_step_op` has been run in it.

    Clears the entries from before the last checkpoint.
    """
    if foreign.segment:
        before = entries_prefix(foreign.keys, foreign.run, foreign.segment)
        tr.clear_range(range_begin(foreign.keys.step_log(foreign.run)), before)
    tr.set(entry_key(foreign.keys, foreign.run, foreign.segment, *foreign.step), encode(entry))


def raise_fence_op(
    tr: Transaction, layout: ShardLayout, keys: TenantKeys, run: bytes, lease_number: int, place: ParticipantState
) -> Operation[bool]:
    """Let no attempt with a lower lease number act on a participant any more. May run twice.

    Returns False, and writes nothing, if there is no fence, and the tenant has moved or FLOOR was raised since `place`
    was recorded. A tombstone may have been there, and nobody would clear the new fence: the caller asks, and records
    the answer at home under its lease.

    Reads with conflict: ownership, the fence; by snapshot: FLOOR, as a step does. Writes: the fence.

    Raises:
      LeaseLost: a later attempt has raised it.
      RunEnded: the run has ended.
      RunUnreadable: the fence is damaged.
      TenantMoved: another shard owns the tenant.
    """
    fence_key = keys.fence(run)
    owner, fence, floor = tr.get(keys.owner), tr.get(fence_key), tr.snapshot.get(_FLOOR_KEY)
    yield
    check_owner(tr, layout, keys, owner.value)
    _check_fence(read_fence(fence_key, fence.value), lease_number, run)
    if fence.value is None and ParticipantState(epoch_of(owner.value), floor_of(floor.value)) != place:
        probe("a new attempt must ask again before it raises its fence")
        return False
    tr.set(fence_key, lease_number.to_bytes(FENCE_BYTES, "big"))
    return True


def _check_fence(number: int, lease_number: int, run: bytes) -> None:
    if number == END:
        probe("a step on another shard finds a tombstone")
        raise RunEnded(run=run.hex())
    if number > lease_number:
        probe("a step on another shard finds its fence raised")
        raise LeaseLost(run=run.hex())


def clean_up_op(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, keys: TenantKeys, run: bytes, *, now_us: int
) -> Operation[None]:
    """Clear what a run that has ended keeps on a participant, and leave a tombstone. May run twice.

    Reads with conflict: ownership, the fence, FLOOR, the run's locks. Writes: entries (cleared), the fence, its entry
    among the tombstones; see `locks.release_all`.

    Raises:
      StoreUnavailable: FLOOR is damaged.
      TenantMoved: another shard owns the tenant.
    """
    owner, fence, floor = tr.get(keys.owner), tr.get(keys.fence(run)), tr.get(_FLOOR_KEY)
    requests = locks.has_requests(tr, keys, run)
    yield
    check_owner(tr, layout, keys, owner.value)
    if next(iter(requests), None) is not None:
        probe("a cleanup finds that its run has locks")
        locks.release_all(tr, layout.location(tenant, DEFAULT_ZONE), run, now_us=now_us)
    prefix = keys.step_log(run)
    tr.clear_range(range_begin(prefix), range_end(prefix))
    if fence.value != _TOMBSTONE_VALUE:
        tr.set(keys.fence(run), END.to_bytes(FENCE_BYTES, "big"))
        tr.set(_tombstone_key(floor_of(floor.value), tenant, run), b"")


def has_tombstone(tr: Reader, tenant: Tenant, run: bytes) -> bool:
    """Say whether a run is listed among the tombstones of a tenant, so that its fence will be cleared.

    Snapshot reads: one key for each FLOOR under which there are tombstones, which are two at most.
    """
    begin = range_begin(_TOMBSTONES)
    while True:
        rows = tr.snapshot.get_range(begin, range_end(_TOMBSTONES), limit=1)
        row = next(iter(rows), None)
        if row is None:
            return False
        floor = unpack_int(row.key, len(_TOMBSTONES))
        if floor is None:  # It is damaged.
            begin = row.key + b"\x00"
            continue
        if tr.snapshot.get(_tombstone_key(floor[0], tenant, run)).value is not None:
            return True
        begin = range_end(_TOMBSTONES + pack_int(floor[0]))


def list_tombstone(tr: Transaction, tenant: Tenant, run: bytes) -> None:
    """List a fence that is `END` among the tombstones. Reads FLOOR with conflict."""
    tr.set(_tombstone_key(floor_of(tr.get(_FLOOR_KEY).value), tenant, run), b"")


def clear_tombstones(tr: Transaction, tenant: Tenant) -> None:
    """Clear what lists a tenant's tombstones; the tombstones themselves are cleared with the tenant's other rows.

    Snapshot reads: one key for each FLOOR under which there are tombstones, which are two at most.
    """
    begin = range_begin(_TOMBSTONES)
    while True:
        row = next(iter(tr.snapshot.get_range(begin, range_end(_TOMBSTONES), limit=1)), None)
        if row is None:
            return
        floor = unpack_int(row.key, len(_TOMBSTONES))
        if floor is None:  # It is damaged.
            begin = row.key + b"\x00"
            continue
        listed = _TOMBSTONES + pack_int(floor[0])
        named = listed + pack_text(tenant.app) + pack_text(tenant.user)
        tr.clear_range(range_begin(named), range_end(named))
        begin = range_end(listed)


def is_tombstone(fence: bytes) -> bool:
    """Say whether the value of a fence says that its run has ended."""
    return fence == _TOMBSTONE_VALUE


def raise_floor(tr: Transaction, *, tombstones_max: int) -> bool:
    """Raise FLOOR by one if there are tombstones, and clear those written before; return whether some are left.

    A second transaction clears what is left: it was written under a lower FLOOR, too. A damaged FLOOR stays as it is.
    Reads with conflict: FLOOR, the tombstones that it clears. Writes: FLOOR, unless only the rest is cleared; the
    tombstones, and their fences.
    """
    stored = tr.get(_FLOOR_KEY).value
    if not is_floor(stored):
        return False
    floor = floor_of(stored)
    end = _TOMBSTONES + pack_int(floor + 1)
    rows = list(tr.get_range(_TOMBSTONES, end, limit=tombstones_max + 1, streaming_mode=WANT_ALL))
    if not rows:
        return False
    clearing = rows[:tombstones_max]
    if clearing[-1].key >= _TOMBSTONES + pack_int(floor):
        tr.set(_FLOOR_KEY, (floor + 1).to_bytes(FLOOR_BYTES, "big"))
    for row in clearing:
        named = parse_tombstone(row.key)
        if named is not None:
            tenant, run = named
            tr.clear(TenantKeys(tenant.app, tenant.user).fence(run))
        tr.clear(row.key)
    return len(rows) > tombstones_max


def _tombstone_key(floor: int, tenant: Tenant, run: bytes) -> bytes:
    return _TOMBSTONES + pack_int(floor) + pack_text(tenant.app) + pack_text(tenant.user) + pack_bytes(run)


def parse_tombstone(key: bytes) -> tuple[Tenant, bytes] | None:
    """Return whose tombstone a key lists, and of which run; None: the key is damaged."""
    floor = unpack_int(key, len(_TOMBSTONES))
    named = None if floor is None else unpack_names(key, floor[1], 2)
    return None if named is None else (Tenant(*named[0]), unpack_bytes(key[named[1] :]))


def is_floor(value: bytes | None) -> bool:
    """Say whether a value can be that of FLOOR."""
    return value is None or (len(value) == FLOOR_BYTES and int.from_bytes(value, "big") <= FLOOR_MAX)


def floor_of(value: bytes | None) -> int:
    """Return FLOOR as it is stored; absent: 0.

    Raises:
      StoreUnavailable: it is damaged. Workflows that act on the shard wait until it is repaired, and none fails.
    """
    if not is_floor(value):
        raise StoreUnavailable(
            "the floor of its tombstones is damaged",
            remedy="Repair it with fairlead check --repair.",
            key=_FLOOR_KEY.hex(),
        )
    return 0 if value is None else int.from_bytes(value, "big")


def mend_floor(tr: Transaction, *, now_us: int) -> None:
    """Write FLOOR anew: the time in microseconds, which is above all that a count of days has been.

    Each run asks its participants on this shard again.
    """
    tr.set(_FLOOR_KEY, min(now_us, FLOOR_MAX).to_bytes(FLOOR_BYTES, "big"))
