"""Policies: what operators have decided about a shard, its kinds and its tenants, in force with the commit.

    (ROOT, POLICY)                      -> version: counts changes of the policies of the shard and its kinds
    (ROOT, POLICY, SHARD)               -> empty; present while the shard is paused
    (ROOT, POLICY, KIND, kind)          -> policy of a kind
    (ROOT, POLICY, TENANT, app, user)   -> a copy of a tenant's policy, for listings
    (ROOT, PAUSED_POINTER, kind, zone)  -> empty; pointers that sleep because the kind is paused

**How a policy comes into force.** A manager that processes pointers reads the version with them, one key for a whole
batch. If the version differs from the known one, it reads the policies again. A tenant's policy lies in its ownership
record, which every operation on the tenant reads anyway. So a shard without policies pays almost nothing, no process
has to be notified, and running items are not affected.

**How all shards agree on a kind.** The kind's own shard (`placement.home`) is changed first, with a timestamp later
than every earlier one. Then the change is propagated to the other shards, which keep their copy if it is newer. So
after two concurrent changes of a kind all shards end with the later one, in whatever order the changes arrive. The next
change of the kind completes one that was interrupted.

**How paused work resumes.** A pointer with nothing but paused work sleeps; polling it would cost as much as running its
items. If it sleeps because of a kind, it is entered in the paused-pointer index under the kind, and woken when the kind
is resumed. The transaction that enters it reads the version with conflict, and the one that resumes writes the version,
so one of them sees the other. A tenant's own pointers are found by its name, and woken by the transaction that resumes
the tenant. A tenant with thousands of queue zones is woken in several transactions after that, because one could not
read all of them.

All changes read what they change with conflict, even if it is absent, and may run twice: a change whose result is
unknown may be applied late, and must not undo a later one.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.engines.api.database import ValueFuture
from fairlead.zones.errors import PolicyUnreadable
from fairlead.zones.keyspace import (
    PAUSED_POINTER,
    POLICY,
    ROOT,
    TenantKeys,
    pack_int,
    pack_text,
    range_begin,
    range_end,
    unpack_name,
    unpack_names,
)
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation, check_name
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation, run_one, run_together
from fairlead.zones.policy.limits import clear_limit_state
from fairlead.zones.policy.tenant_limits import clear_tenant_limit_state
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.insertion import wake_if_there_op
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import KindPolicy, OwnerRecord, TenantPolicy, decode, encode, is_newer

_SHARD, _KIND, _TENANT = (pack_int(number) for number in range(1, 4))
_VERSION = ROOT + pack_int(POLICY)
_PAUSED = _VERSION + _SHARD
_KINDS = _VERSION + _KIND
_TENANTS = _VERSION + _TENANT
_PAUSED_POINTERS = ROOT + pack_int(PAUSED_POINTER)
_ONE = (1).to_bytes(8, "little")
WAKE_MAX = 500  # Pointers woken in one transaction.


class Policies(NamedTuple):
    """The policies of a shard and of its kinds, as they were read.

    `version`: differs if they have changed; empty: there never were any. `kinds`: includes cleared policies
    (tombstones); excludes policies that are damaged, or of a newer version.
    """

    version: bytes
    shard_paused: bool
    kinds: Mapping[str, KindPolicy]
    paused_kinds: frozenset[str]
    limited_kinds: frozenset[str]

    def later_than(self, observed: Mapping[str, KindPolicy]) -> dict[str, KindPolicy]:
        """Return the policies of kinds that are newer than the `observed` ones."""
        return {
            kind: policy
            for kind, policy in self.kinds.items()
            if policy.updated_us > observed.get(kind, NO_KIND_POLICY).updated_us
        }

    def limited_later_than(self, observed: Mapping[str, KindPolicy]) -> list[str]:
        """Return the kinds that they limit by newer policies than the `observed` ones."""
        later = self.later_than(observed) if self.limited_kinds else {}
        return [kind for kind, policy in later.items() if policy.is_limited]


# Older versions wrote policies without a time, which are 0: later than this one, too.
NO_KIND_POLICY = KindPolicy(updated_us=-1)
NO_POLICIES = Policies(b"", False, {}, frozenset(), frozenset())


def read_policies_op(tr: Reader, known: Policies) -> Operation[Policies]:
    """Read the policies of the shard and its kinds; `known` if they are unchanged, or newer. Snapshot reads.

    A transaction at a relaxed read version may find older policies than the known ones. A policy that a newer version
    of the program wrote is skipped.
    """
    version = tr.snapshot.get(_VERSION)
    yield
    found = version.value or b""
    if int.from_bytes(found, "little") <= int.from_bytes(known.version, "little"):
        return known
    return _read(tr, found)


def read_policies(tr: Reader) -> Policies:
    """Return the policies of the shard and its kinds. Snapshot reads."""
    return run_one(read_policies_op(tr, NO_POLICIES))


def record_type(key: bytes) -> type[KindPolicy | TenantPolicy] | None:
    """Return the type of the record under a key of the policies; None: the key holds no record."""
    return KindPolicy if key.startswith(_KINDS) else TenantPolicy if key.startswith(_TENANTS) else None


def _read(tr: Reader, version: bytes) -> Policies:
    paused = tr.snapshot.get(_PAUSED)
    kinds = {}
    for row in tr.snapshot.get_range(range_begin(_KINDS), range_end(_KINDS), streaming_mode=WANT_ALL):
        policy, kind = decode(KindPolicy, row.value), unpack_name(row.key, len(_KINDS))
        if policy is not None and kind is not None:
            kinds[kind] = policy
    return Policies(
        version,
        paused.present(),
        kinds,
        frozenset(kind for kind, policy in kinds.items() if policy.paused),
        frozenset(kind for kind, policy in kinds.items() if policy.is_limited),
    )


def is_shard_paused(tr: Reader) -> ValueFuture:
    """Ask by snapshot whether the shard is paused; return the future, whose `present()` answers."""
    return tr.snapshot.get(_PAUSED)


# --- Changing policies ---


def pause_shard(tr: Transaction) -> None:
    """Stop dequeues from this shard."""
    tr.get(_PAUSED).wait()
    tr.set(_PAUSED, b"")
    _bump_version(tr)


def resume_shard(tr: Transaction) -> None:
    """Allow dequeues from this shard again; its pointers have stayed as they were."""
    tr.get(_PAUSED).wait()
    tr.clear(_PAUSED)
    _bump_version(tr)


def kind_policy(tr: Transaction, kind: str) -> KindPolicy | None:
    """Return a kind's policy on this shard, `NO_KIND_POLICY` if there is none, None if it cannot be read.

    Reads it with conflict.
    """
    value = tr.get(_KINDS + pack_text(kind)).value
    return NO_KIND_POLICY if value is None else decode(KindPolicy, value)


def change_kind_policy(tr: Transaction, kind: str, *, now_us: int, after_us: int = 0, **changes: Any) -> KindPolicy:
    """Change fields of a kind's policy, on the kind's own shard; return it, to be propagated to the other shards.

    If this resumes the kind, call `wake_paused_pointers` afterwards. Reads and writes the policy, with conflict. A
    damaged policy is replaced.

    Args:
      after_us: the new timestamp is later than this.

    Raises:
      PolicyUnreadable: a newer version wrote it.
    """
    before = _policy_to_change(tr, kind)
    policy = msgspec.structs.replace(before, **changes, updated_us=max(now_us, before.updated_us + 1, after_us + 1))
    _set_kind_policy(tr, kind, policy)
    return policy


def propagate_kind_policy(tr: Transaction, kind: str, policy: KindPolicy) -> KindPolicy:
    """Write a kind's policy to this shard unless its copy is newer; return the policy in force here.

    Reads and writes the policy, with conflict. A damaged policy is replaced.

    Raises:
      PolicyUnreadable: a newer version wrote it.
    """
    found = _policy_to_change(tr, kind)
    if found.updated_us > policy.updated_us:
        probe("a shard has a newer policy of a kind than the propagated one")
        return found
    _set_kind_policy(tr, kind, policy)
    return policy


def _policy_to_change(tr: Transaction, kind: str) -> KindPolicy:
    policy = kind_policy(tr, check_name("kind", kind))
    stored = tr.get(_KINDS + pack_text(kind)).value
    if policy is None and stored is not None and is_newer(stored):
        raise PolicyUnreadable(kind=kind)
    return policy or NO_KIND_POLICY


def _set_kind_policy(tr: Transaction, kind: str, policy: KindPolicy) -> None:
    tr.set(_KINDS + pack_text(kind), encode(policy))
    if not policy.is_limited:
        clear_limit_state(tr, kind)
    _bump_version(tr)


def change_tenant_policy(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, *, now_us: int, **changes: Any
) -> TenantPolicy:
    """Change fields of a tenant's policy, and return it; see `set_tenant_policy`."""
    policy = msgspec.structs.replace(tenant_policy(tr, layout, tenant), **changes)
    set_tenant_policy(tr, layout, tenant, policy, now_us=now_us)
    return policy


def set_tenant_policy(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, policy: TenantPolicy, *, now_us: int
) -> None:
    """Set a tenant's policy; the default policy clears it.

    Reads and writes the ownership record, with which every operation on the tenant conflicts. If this resumes the
    tenant, it wakes the pointers of the first `WAKE_MAX` queue zones; call `wake_tenant` for the others.

    Raises:
      TenantMoved: another shard owns the tenant.
    """
    keys = TenantKeys(*tenant)
    value = tr.get(keys.owner).value
    before = check_owner(tr, layout, keys, value)
    owner = (None if value is None else decode(OwnerRecord, value)) or OwnerRecord(0, layout.shard_id)
    owner.policy = policy
    list_tenant_policy(tr, keys, policy)
    if not policy.is_limited:
        clear_tenant_limit_state(tr, tenant)
    if owner.says_nothing:
        tr.clear(keys.owner)
    else:
        tr.set(keys.owner, encode(owner))
    if before.paused and not policy.paused:
        wake_tenant(tr, layout, tenant, now_us=now_us)


def list_tenant_policy(tr: Transaction, keys: TenantKeys, policy: TenantPolicy) -> None:
    """Write a tenant's policy into the shard's list of policies, or clear it there if it is the default policy."""
    listed = _TENANTS + keys.packed
    if policy == TenantPolicy():
        tr.clear(listed)
    else:
        tr.set(listed, encode(policy))


def wake_tenant(tr: Transaction, layout: ShardLayout, tenant: Tenant, *, after: str = "", now_us: int) -> str | None:
    """Wake the pointers of up to `WAKE_MAX` of a tenant's queue zones, whose names come after `after`.

    Returns the last of these names, for the next call; None: there are no more. Reads the names one by one, by
    snapshot. Reads with conflict: the pointers' guards, and the records of the pointers that it wakes. May run twice.
    """
    names = list(islice(zone_names(tr, TenantKeys(*tenant), after=after), WAKE_MAX))
    zones = [QueueZone(layout, tenant, name) for name in names]
    run_together([zone.wake_op(tr, earliest_us=now_us, now_us=now_us) for zone in zones])
    return names[-1] if len(names) == WAKE_MAX else None


def tenant_policy(tr: Transaction, layout: ShardLayout, tenant: Tenant) -> TenantPolicy:
    """Return a tenant's policy. Reads its ownership record with conflict.

    Raises:
      TenantMoved: another shard owns the tenant.
    """
    keys = TenantKeys(*tenant)
    return check_owner(tr, layout, keys, tr.get(keys.owner).value)


def tenants_with_policies(tr: Reader, *, tenants_max: int) -> list[tuple[Tenant, TenantPolicy]]:
    """Return tenants that have a policy, by name, with it. Snapshot reads; unreadable policies are skipped."""
    rows = tr.snapshot.get_range(range_begin(_TENANTS), range_end(_TENANTS), limit=tenants_max)
    found = []
    for row in rows:
        policy = decode(TenantPolicy, row.value)
        names = unpack_names(row.key, len(_TENANTS), 2)
        if policy is not None and names is not None:
            found.append((Tenant(*names[0]), policy))
    return found


def zone_names(tr: Reader, keys: TenantKeys, *, after: str = "") -> Iterator[str]:
    """Yield the names of a tenant's queue zones that come after `after`, also of zones that hold only a pointer.

    Snapshot reads, one for each name.
    """
    prefix = keys.zones
    begin, end = range_end(prefix + pack_text(after)) if after else range_begin(prefix), range_end(prefix)
    while True:
        row = next(iter(tr.snapshot.get_range(begin, end, limit=1)), None)
        if row is None:
            return
        found = unpack_names(row.key, len(prefix), 1)
        if found is None:  # It is damaged.
            begin = row.key + b"\x00"
        else:
            yield found[0][0]
            begin = range_end(row.key[: found[1]])


# --- The paused-pointer index ---


def index_paused_pointer(tr: Transaction, location: ZoneLocation, kinds: Collection[str]) -> None:
    """Enter a zone's pointer in the index of these paused kinds, because of which it sleeps.

    Reads the version with conflict.
    """
    if not kinds:
        return
    probe("a pointer sleeps because its kind is paused")
    tr.add_read_conflict_key(_VERSION)
    for kind in kinds:
        tr.set(_paused_pointer_key(location, kind), b"")


def forget_paused_pointer(tr: Transaction, location: ZoneLocation) -> None:
    """Clear a zone's pointer from the index of paused kinds; the caller deletes the pointer. Reads the policies."""
    for kind in read_policies(tr).paused_kinds:
        tr.clear(_paused_pointer_key(location, kind))


def may_sleep(tr: Transaction, location: ZoneLocation) -> bool:
    """Say whether a zone's pointer may sleep although it holds work: its tenant is paused, or the index has it.

    Reads with conflict: ownership, and the zone's index keys of paused kinds.
    """
    owner = tr.get(location.keys.tenant.owner).value
    if check_owner(tr, location.layout, location.keys.tenant, owner).paused:
        return True
    return any(tr.get(_paused_pointer_key(location, kind)).present() for kind in read_policies(tr).paused_kinds)


def wake_paused_pointers(tr: Transaction, layout: ShardLayout, *, now_us: int) -> int:
    """Wake up to `WAKE_MAX` indexed pointers of kinds that are no longer paused; return how many entries it read.

    A pointer that is gone is not made again: its tenant may have moved to another shard since. Reads with conflict: the
    pointers' guards, and the records of the pointers that it wakes. Call it until it returns 0.
    """
    begin, end = range_begin(_PAUSED_POINTERS), range_end(_PAUSED_POINTERS)
    if next(iter(tr.snapshot.get_range(begin, end, limit=1)), None) is None:
        return 0
    paused = read_policies(tr).paused_kinds
    looked = 0
    while looked < WAKE_MAX:
        row = next(iter(tr.snapshot.get_range(begin, end, limit=1)), None)
        if row is None:
            break
        found = unpack_names(row.key, len(_PAUSED_POINTERS), 1)
        if found is None:
            tr.clear(row.key)  # It is damaged, and names no pointer.
            begin = row.key + b"\x00"
            continue
        (kind,), kind_end = found
        prefix = row.key[:kind_end]
        begin = range_end(prefix)
        if kind in paused:
            continue
        rows = list(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=WAKE_MAX - looked))
        locations = [layout.location_of(row.key[kind_end:]) for row in rows]
        run_together(
            wake_if_there_op(tr, each, earliest_us=now_us, now_us=now_us) for each in locations if each is not None
        )
        for row in rows:
            tr.clear(row.key)
        looked += len(rows)
    return looked


def _paused_pointer_key(location: ZoneLocation, kind: str) -> bytes:
    return _PAUSED_POINTERS + pack_text(kind) + location.pointer_id


def _bump_version(tr: Transaction) -> None:
    tr.add(_VERSION, _ONE)
