"""Rules: what operators have decided about a shard, its kinds and its tenants, in force with the commit that says so.

    (ROOT, RULE)                    -> version: counts how often the rules of the shard and its kinds have changed
    (ROOT, RULE, SHARD)             -> empty; present while the shard is paused
    (ROOT, RULE, KIND, kind)        -> rule of a kind
    (ROOT, RULE, TENANT, app, user) -> a copy of a tenant's rule, for whoever lists them
    (ROOT, PARKED, kind, zone)      -> empty; pointers that sleep because the kind is paused

**How a rule comes to be known.** Whoever visits pointers reads the version beside them, one key for a whole batch, and
the rules again when it is not the one that they know. A tenant's rule lies in its ownership record, which every
operation on the tenant reads as it is. So a rule costs next to nothing where there is none, nobody has to be told of
it, and what runs already is not touched by it.

**How all shards come to say the same of a kind.** Its own shard (`placement.home`) is told first, and says when: later
than anything before. The others repeat that, each unless it has heard something later. So two who steer a kind at the
same moment leave all shards with what was said last, in whatever order they come to them; and what somebody has left
half done is made good by whoever steers the kind next.

**How what was paused comes to run again.** A pointer with nothing but paused work sleeps; to look again and again would
cost as much as to run it. One that sleeps because of a kind is *parked*: it is written down under the kind, and woken
when that goes on. Whoever parks reads the version with conflict, whoever ends a pause writes it, so that of two at the
same moment one sees the other. A tenant's own pointers are found from its name, and woken with the end of the pause; of
a tenant with thousands of queue zones in pieces after that, since no transaction could look at all of them.

All changes read what they change with conflict, whatever is there, and may run twice: one whose result is unknown may
be applied late, and must not undo what somebody has said since.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.engines.api.database import ValueFuture
from fairlead.zones.errors import RuleUnreadable
from fairlead.zones.keyspace import (
    PARKED,
    ROOT,
    RULE,
    TenantKeys,
    pack_int,
    pack_text,
    range_begin,
    range_end,
    unpack_name,
    unpack_names,
)
from fairlead.zones.layout import Layout, Place, Tenant, check_name
from fairlead.zones.pipelining import Steps, alone, in_step
from fairlead.zones.policy.limits import forget_limit
from fairlead.zones.policy.tenant_limits import forget_tenant_limit
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import KindRule, OwnerRecord, TenantRule, decode, encode, is_newer

_SHARD, _KIND, _TENANT = (pack_int(number) for number in range(1, 4))
_VERSION = ROOT + pack_int(RULE)
_PAUSED = _VERSION + _SHARD
_KINDS = _VERSION + _KIND
_TENANTS = _VERSION + _TENANT
_PARKED = ROOT + pack_int(PARKED)
_ONE = (1).to_bytes(8, "little")
WAKE_MAX = 500  # Pointers woken in one transaction.


class Rules(NamedTuple):
    """The rules of a shard and of its kinds, as they were found.

    `version`: tells whether they have changed; empty: there never were any. `kinds`: also those that say nothing any
    more; not those that are damaged, or of a newer version.
    """

    version: bytes
    shard_paused: bool
    kinds: Mapping[str, KindRule]
    paused_kinds: frozenset[str]
    limited_kinds: frozenset[str]

    def later_than(self, heard: Mapping[str, KindRule]) -> dict[str, KindRule]:
        """Return the rules that were said after those that somebody has heard, by kind."""
        return {kind: rule for kind, rule in self.kinds.items() if rule.said_us > heard.get(kind, NOTHING_SAID).said_us}

    def tighter_than(self, heard: Mapping[str, KindRule]) -> list[str]:
        """Return the kinds that they limit more than what somebody has heard, which was said before."""
        later = self.later_than(heard) if self.limited_kinds else {}
        return [kind for kind, rule in later.items() if rule.is_tighter_than(heard.get(kind, NOTHING_SAID))]


NOTHING_SAID = KindRule(said_us=-1)  # Older versions wrote rules that do not tell when: later than this, too.
NO_RULES = Rules(b"", False, {}, frozenset(), frozenset())


def rules_steps(tr: Reader, known: Rules) -> Steps[Rules]:
    """Read the rules of the shard and its kinds; `known` if they are still the ones, or newer. Snapshot reads.

    A transaction at a relaxed read version may find older ones than are known. One rule that a newer version of the
    program wrote is passed over.
    """
    version = tr.snapshot.get(_VERSION)
    yield
    found = version.value or b""
    if int.from_bytes(found, "little") <= int.from_bytes(known.version, "little"):
        return known
    return _read(tr, found)


def read_rules(tr: Reader) -> Rules:
    """Return the rules of the shard and its kinds. Snapshot reads."""
    return alone(rules_steps(tr, NO_RULES))


def record_type(key: bytes) -> type[KindRule | TenantRule] | None:
    """Return what the record under a key of the rules is; None: the key holds no record."""
    return KindRule if key.startswith(_KINDS) else TenantRule if key.startswith(_TENANTS) else None


def _read(tr: Reader, version: bytes) -> Rules:
    paused = tr.snapshot.get(_PAUSED)
    kinds = {}
    for row in tr.snapshot.get_range(range_begin(_KINDS), range_end(_KINDS), streaming_mode=WANT_ALL):
        rule, kind = decode(KindRule, row.value), unpack_name(row.key, len(_KINDS))
        if rule is not None and kind is not None:
            kinds[kind] = rule
    return Rules(
        version,
        paused.present(),
        kinds,
        frozenset(kind for kind, rule in kinds.items() if rule.paused),
        frozenset(kind for kind, rule in kinds.items() if rule.is_limited),
    )


def is_shard_paused(tr: Reader) -> ValueFuture:
    """Send for whether the shard is paused, by snapshot, and return the future; its `present()` tells."""
    return tr.snapshot.get(_PAUSED)


# --- Changing them ---


def pause_shard(tr: Transaction) -> None:
    """Let nobody take anything from this shard."""
    tr.get(_PAUSED).wait()
    tr.set(_PAUSED, b"")
    _count_change(tr)


def resume_shard(tr: Transaction) -> None:
    """Let work be taken from this shard again; its pointers have stayed as they were."""
    tr.get(_PAUSED).wait()
    tr.clear(_PAUSED)
    _count_change(tr)


def kind_rule(tr: Transaction, kind: str) -> KindRule | None:
    """Return a kind's rule on this shard, `NOTHING_SAID` if there is none, None if it cannot be read.

    Reads it with conflict.
    """
    value = tr.get(_KINDS + pack_text(kind)).value
    return NOTHING_SAID if value is None else decode(KindRule, value)


def change_kind_rule(tr: Transaction, kind: str, *, now_us: int, after_us: int = 0, **changes: Any) -> KindRule:
    """Change some of what a kind's rule says, on the kind's own shard, and return it: the others repeat it then.

    What was parked while the kind was paused must be woken then: `wake_parked`. Reads and writes the rule, with
    conflict. One that is damaged is made anew.

    Args:
      after_us: it is said after that.

    Raises:
      RuleUnreadable: a newer version wrote it.
    """
    before = _rule_to_change(tr, kind)
    rule = msgspec.structs.replace(before, **changes, said_us=max(now_us, before.said_us + 1, after_us + 1))
    _set_kind_rule(tr, kind, rule)
    return rule


def repeat_kind_rule(tr: Transaction, kind: str, rule: KindRule) -> KindRule:
    """Let a shard say of a kind what the kind's own does, unless it has heard something later; return what it says.

    Reads and writes its rule, with conflict. One that is damaged is made anew.

    Raises:
      RuleUnreadable: a newer version wrote it.
    """
    found = _rule_to_change(tr, kind)
    if found.said_us > rule.said_us:
        probe("a shard has heard something later of a kind")
        return found
    _set_kind_rule(tr, kind, rule)
    return rule


def _rule_to_change(tr: Transaction, kind: str) -> KindRule:
    rule = kind_rule(tr, check_name("kind", kind))
    stored = tr.get(_KINDS + pack_text(kind)).value
    if rule is None and stored is not None and is_newer(stored):
        raise RuleUnreadable(kind=kind)
    return rule or NOTHING_SAID


def _set_kind_rule(tr: Transaction, kind: str, rule: KindRule) -> None:
    tr.set(_KINDS + pack_text(kind), encode(rule))
    if not rule.is_limited:
        forget_limit(tr, kind)
    _count_change(tr)


def change_tenant_rule(tr: Transaction, layout: Layout, tenant: Tenant, *, now_us: int, **changes: Any) -> TenantRule:
    """Change some of what a tenant's rule says, and return it; see `set_tenant_rule`."""
    rule = msgspec.structs.replace(tenant_rule(tr, layout, tenant), **changes)
    set_tenant_rule(tr, layout, tenant, rule, now_us=now_us)
    return rule


def set_tenant_rule(tr: Transaction, layout: Layout, tenant: Tenant, rule: TenantRule, *, now_us: int) -> None:
    """Give a tenant a rule; one that says nothing is none.

    Reads and writes the ownership record, with which every operation on the tenant conflicts. If it was paused and is
    no longer, wakes its first pointers; of one with more than `WAKE_MAX` queue zones the others must be woken then:
    `wake_tenant`.

    Raises:
      TenantMoved: the tenant is another shard's.
    """
    keys = TenantKeys(*tenant)
    value = tr.get(keys.owner).value
    before = stored_item.check_owner(layout, value)
    owner = None if value is None else decode(OwnerRecord, value)
    listed = _TENANTS + keys.packed
    if rule == TenantRule():
        tr.clear(listed)
    else:
        tr.set(listed, encode(rule))
    if not rule.is_limited:
        forget_tenant_limit(tr, tenant)
    if rule != TenantRule() or (owner is not None and owner.epoch):
        epoch = 0 if owner is None else owner.epoch
        tr.set(keys.owner, encode(OwnerRecord(epoch, layout.shard_id, rule)))
    else:
        tr.clear(keys.owner)
    if before.paused and not rule.paused:
        wake_tenant(tr, layout, tenant, now_us=now_us)


def wake_tenant(tr: Transaction, layout: Layout, tenant: Tenant, *, after: str = "", now_us: int) -> str | None:
    """Wake the pointers of `WAKE_MAX` of a tenant's queue zones, those whose names come after `after`.

    Returns the last of these names: call it again with that; or None: there are no more. Reads a name at a time, by
    snapshot; with conflict the pointers' guards, and the records of those that it wakes. May run twice.
    """
    names = list(islice(zone_names(tr, TenantKeys(*tenant), after=after), WAKE_MAX))
    _wake(tr, [QueueZone(layout, tenant, name) for name in names], now_us)
    return names[-1] if len(names) == WAKE_MAX else None


def tenant_rule(tr: Transaction, layout: Layout, tenant: Tenant) -> TenantRule:
    """Return a tenant's rule. Reads its ownership record with conflict.

    Raises:
      TenantMoved: the tenant is another shard's.
    """
    return stored_item.check_owner(layout, tr.get(TenantKeys(*tenant).owner).value)


def tenants_with_rules(tr: Reader, *, tenants_max: int) -> list[tuple[Tenant, TenantRule]]:
    """Return tenants that have a rule, by name, with it. Snapshot reads; one that is unreadable is passed over."""
    rows = tr.snapshot.get_range(range_begin(_TENANTS), range_end(_TENANTS), limit=tenants_max)
    found = []
    for row in rows:
        rule = decode(TenantRule, row.value)
        names = unpack_names(row.key, len(_TENANTS), 2)
        if rule is not None and names is not None:
            found.append((Tenant(*names[0]), rule))
    return found


def zone_names(tr: Reader, keys: TenantKeys, *, after: str = "") -> Iterator[str]:
    """Yield the names of a tenant's queue zones, also of those that hold nothing but a pointer, from behind `after` on.

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


# --- Pointers that sleep because of a paused kind ---


def park(tr: Transaction, place: Place, kinds: Collection[str]) -> None:
    """Note that a zone's pointer falls asleep because these kinds are paused. Reads the version with conflict."""
    if not kinds:
        return
    probe("a pointer is parked")
    tr.add_read_conflict_key(_VERSION)
    for kind in kinds:
        tr.set(_parked(place, kind), b"")


def may_sleep(tr: Transaction, place: Place) -> bool:
    """Say whether a zone's pointer may sleep on although it holds work: its tenant is paused, or it is parked.

    Reads with conflict: ownership, the parked keys of kinds that are paused.
    """
    owner = tr.get(place.keys.tenant.owner).value
    if stored_item.check_owner(place.layout, owner).paused:
        return True
    return any(tr.get(_parked(place, kind)).present() for kind in read_rules(tr).paused_kinds)


def wake_parked(tr: Transaction, layout: Layout, *, now_us: int) -> int:
    """Wake up to `WAKE_MAX` parked pointers of kinds that are not paused any more; return how many were looked at.

    Reads with conflict: the pointers' guards, and the records of those that it wakes. Call it until it returns 0.
    """
    begin, end = range_begin(_PARKED), range_end(_PARKED)
    if next(iter(tr.snapshot.get_range(begin, end, limit=1)), None) is None:
        return 0
    paused = read_rules(tr).paused_kinds
    looked = 0
    while looked < WAKE_MAX:
        row = next(iter(tr.snapshot.get_range(begin, end, limit=1)), None)
        if row is None:
            break
        found = unpack_names(row.key, len(_PARKED), 1)
        if found is None:
            tr.clear(row.key)  # It is damaged, and wakes nobody.
            begin = row.key + b"\x00"
            continue
        (kind,), kind_end = found
        prefix = row.key[:kind_end]
        begin = range_end(prefix)
        if kind in paused:
            continue
        rows = list(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=WAKE_MAX - looked))
        places = [layout.place_of(row.key[kind_end:]) for row in rows]
        _wake(tr, [QueueZone(layout, each.tenant, each.name) for each in places if each is not None], now_us)
        for row in rows:
            tr.clear(row.key)
        looked += len(rows)
    return looked


def _parked(place: Place, kind: str) -> bytes:
    return _PARKED + pack_text(kind) + place.pointer_id


def _wake(tr: Transaction, zones: Iterable[QueueZone], now_us: int) -> None:
    in_step([zone.wake_steps(tr, earliest_us=now_us, now_us=now_us) for zone in zones])


def _count_change(tr: Transaction) -> None:
    tr.add(_VERSION, _ONE)
