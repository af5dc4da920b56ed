"""Snapshots: each is the state of its tenant at the commit that took it, a restore is whole, and all ends in the end.

`TenantHistory` follows the keys of a tenant commit by commit, wherever the tenant lives. It does not look at copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, ShardReplica, unpack_key
from fairlead.simulation.world import World
from fairlead.zones import keyspace
from fairlead.zones.engines import KeyValue
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.records import RestoreRecord, SnapshotRecord, TenantSnapshots
from fairlead.zones.snapshots.reading import Change

# A value that a transaction writes after it has taken a snapshot ends so. The snapshot holds the value without the end.
LATER = b" later"


class Moment(NamedTuple):
    """The pairs of a tenant from a time on, until the next moment. `since_us`: true time."""

    since_us: int
    state: Mapping[bytes, bytes]


class TakenSnapshot(NamedTuple):
    """A snapshot as it must be. `by`: the host that took it. `taken_us`: true time."""

    state: Mapping[bytes, bytes]
    by: str
    taken_us: int


@dataclass(slots=True)
class TenantHistory:
    """A tenant's own keys, as each commit left them, and its snapshots.

    Attributes:
      now: the pairs at present, perhaps in the middle of a restore.
      moments: the states that others may see, oldest first.
      taken: all snapshots that ever were, by number.
      listed: those that are listed, as they are stored.
      dropped_us: when they were dropped, by the true time.
      restore: what is under way.
    """

    now: dict[bytes, bytes] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=lambda: [Moment(0, {})])
    taken: dict[int, TakenSnapshot] = field(default_factory=dict)
    listed: dict[int, SnapshotRecord] = field(default_factory=dict)
    dropped_us: dict[int, int] = field(default_factory=dict)
    restore: RestoreRecord | None = None

    @property
    def kept(self) -> list[int]:
        """The numbers of the snapshots that can be read."""
        return [number for number in self.listed if number not in self.dropped_us]

    def states_since(self, since_us: int) -> list[Mapping[bytes, bytes]]:
        """Return the states that a transaction may see that began at a time, and ends now."""
        first = max(place for place, moment in enumerate(self.moments) if moment.since_us < since_us)
        return [moment.state for moment in self.moments[first:]]


class SnapshotsKeepTheirState(Oracle):
    """What is read at a snapshot is the tenant's state at the commit that took it. What is compared, too.

    A snapshot is listed from its commit until it is dropped and merged. Its number is new. Only its time, or a client,
    drops it. What was acknowledged as taken is there once.

    Args:
      ahead_us_max: by how much the clock of a process may be ahead.
      is_client: whether a host is one that drops snapshots before their time.
    """

    promise = "a snapshot equals the state at its time"

    def __init__(self, world: World, *, ahead_us_max: int) -> None:
        super().__init__(world)
        self.tenants: dict[Tenant, TenantHistory] = {}
        self._ahead_us_max = ahead_us_max
        self._asked: set[tuple[Tenant, int]] = set()  # what some client has asked to drop

    def of(self, tenant: Tenant) -> TenantHistory:
        """Return the history of a tenant."""
        return self.tenants.setdefault(tenant, TenantHistory())

    # --- Commits ---

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        written: dict[Tenant, dict[bytes, bytes | None]] = {}
        for key, value in parsed.data.items():
            _, app, user, *_ = unpack_key(key)
            written.setdefault(Tenant(app, user), {})[key] = value
        changed = {tenant for tenant in parsed.owners_before if parsed.shard.lives_here(tenant)}
        for tenant in sorted(changed | set(written)):
            history = self.of(tenant)
            self._write(parsed, tenant, history, written.get(tenant, {}))
            if tenant in changed:
                owner = parsed.shard.owners.get(tenant)
                self._follow(
                    parsed, tenant, history, None if owner is None else owner.snapshots, written.get(tenant, {})
                )
            if history.restore is None and history.moments[-1].state != history.now:
                history.moments.append(Moment(self.world.now_us(), dict(history.now)))

    def _write(
        self, parsed: ParsedCommit, tenant: Tenant, history: TenantHistory, written: Mapping[bytes, bytes | None]
    ) -> None:
        target = None if history.restore is None else history.taken[history.restore.number].state
        for key, value in written.items():
            if value is None:
                history.now.pop(key, None)
            else:
                history.now[key] = value
            if target is not None and value != target.get(key):
                self.world.fail(
                    RESTORED_WHOLE, f"{parsed.by} writes {key!r} = {value!r} of {_name(tenant)}, who is restored"
                )

    def _follow(
        self,
        parsed: ParsedCommit,
        tenant: Tenant,
        history: TenantHistory,
        snapshots: TenantSnapshots | None,
        written: Mapping[bytes, bytes | None],
    ) -> None:
        """Compare the list of a tenant's snapshots with the one before."""
        before, listed = history.listed, () if snapshots is None else snapshots.listed
        history.listed = {each.number: each for each in listed}
        for number, record in history.listed.items():
            if number not in before:
                self._note_new(parsed, tenant, history, number, written)
            elif record.dropped_us and not before[number].dropped_us:
                self._note_dropped(parsed, tenant, history, record)
        for number, record in before.items():
            if number not in history.listed and not record.dropped_us:
                self.report_violation(f"{parsed.by} lets snapshot {number} of {_name(tenant)} vanish, which is kept")
        restore, history.restore = history.restore, None if snapshots is None else snapshots.restore
        if restore is not None and history.restore != restore:
            self._check_restored(parsed, tenant, history, restore)

    def _note_new(
        self,
        parsed: ParsedCommit,
        tenant: Tenant,
        history: TenantHistory,
        number: int,
        written: Mapping[bytes, bytes | None],
    ) -> None:
        if history.taken and number <= max(history.taken):
            self.report_violation(f"{parsed.by} takes snapshot {number} of {_name(tenant)} after {max(history.taken)}")
        state = {key: value.removesuffix(LATER) if key in written else value for key, value in history.now.items()}
        history.taken[number] = TakenSnapshot(state, parsed.commit.by, self.world.now_us())

    def _note_dropped(
        self, parsed: ParsedCommit, tenant: Tenant, history: TenantHistory, record: SnapshotRecord
    ) -> None:
        now_us = self.world.now_us()
        history.dropped_us[record.number] = now_us
        is_due = 0 < record.expires_us <= now_us + self._ahead_us_max
        if not is_due and (tenant, record.number) not in self._asked:
            self.report_violation(f"{parsed.by} drops {record} of {_name(tenant)} before its time")

    def _check_restored(
        self, parsed: ParsedCommit, tenant: Tenant, history: TenantHistory, restore: RestoreRecord
    ) -> None:
        mismatch = _mismatch(history.taken[restore.number].state, history.now)
        if mismatch:
            self.world.fail(
                RESTORED_WHOLE, f"{parsed.by} ends the restore of {_name(tenant)} to {restore.number}: {mismatch}"
            )

    # --- What clients were told ---

    def note_asked(self, tenant: Tenant, number: int) -> None:
        """Note that a client is about to drop a snapshot."""
        self._asked.add((tenant, number))

    def note_snapshot(self, tenant: Tenant, number: int, *, by: str, since_us: int | None) -> None:
        """Note that a client has taken a snapshot, in a call that began at `since_us`.

        None: an earlier take of the client may be counted as well, because its result is unknown.
        """
        taken = self.of(tenant).taken
        if number not in taken or taken[number].by != by:
            self.report_violation(f"{by} has taken snapshot {number} of {_name(tenant)}, which is not there")
        elif since_us is not None:
            found = [each for each, how in taken.items() if how.by == by and how.taken_us >= since_us]
            if found != [number]:
                self.report_violation(f"{by} has taken one snapshot of {_name(tenant)}, and {found} are there")

    def note_listed(self, tenant: Tenant, numbers: Sequence[int], *, since_us: int) -> None:
        """Note that a client has listed the snapshots of a tenant, in a call that began at `since_us`."""
        history = self.of(tenant)
        missing = {
            number
            for number in history.taken
            if history.taken[number].taken_us < since_us and number not in history.dropped_us
        } - set(numbers)
        if missing:
            self.report_violation(f"the list {numbers} of {_name(tenant)} lacks {sorted(missing)}")
        for number in numbers:
            self._check_kept(tenant, number, since_us)

    def note_pairs(self, tenant: Tenant, number: int, rows: Sequence[KeyValue], *, since_us: int) -> None:
        """Note that a client has read all pairs at a snapshot, in a call that began at `since_us`."""
        self._check_kept(tenant, number, since_us)
        found, keys = dict(rows), [row.key for row in rows]
        mismatch = _mismatch(self.of(tenant).taken[number].state, found)
        if mismatch or keys not in (sorted(found), sorted(found, reverse=True)):
            self.report_violation(f"a read of {_name(tenant)} at {number} differs: {mismatch or keys}")

    def note_value(self, tenant: Tenant, number: int, key: bytes, value: bytes | None, *, since_us: int) -> None:
        """Note that a client has read one key at a snapshot."""
        self._check_kept(tenant, number, since_us)
        expected = self.of(tenant).taken[number].state.get(key)
        if value != expected:
            self.report_violation(f"{key!r} of {_name(tenant)} at {number} is {value!r} instead of {expected!r}")

    def note_changes(self, tenant: Tenant, number: int, changes: Sequence[Change], *, since_us: int) -> None:
        """Note what a client has found changed since a snapshot. Each key was compared at some moment of the call.

        While the tenant is restored, only what the snapshot held is checked.
        """
        self._check_kept(tenant, number, since_us)
        history = self.of(tenant)
        then, states = history.taken[number].state, history.states_since(since_us)
        wrong = [change for change in changes if change.then != then.get(change.key)]
        if history.restore is None and history.now == states[-1]:
            wrong += [each for each in changes if all(state.get(each.key) != each.now for state in states)]
            found = {change.key for change in changes}
            unnoticed = {key for key in {*then, *states[0]} - found
                         if all(state.get(key) != then.get(key) for state in states)}  # fmt: skip
            if unnoticed:
                self.report_violation(f"{_name(tenant)} has changed since {number}, unnoticed: {sorted(unnoticed)}")
        if wrong:
            self.report_violation(f"{_name(tenant)} has not changed so since {number}: {wrong}")

    def note_gone(self, tenant: Tenant, number: int) -> None:
        """Note that a client was told that a snapshot is gone."""
        if number in self.of(tenant).kept:
            self.report_violation(f"snapshot {number} of {_name(tenant)} is called gone, and is kept")

    def note_look(self, tenant: Tenant, pairs: Mapping[bytes, bytes], *, since_us: int) -> None:
        """Note that a client has read all present pairs of a tenant in one transaction."""
        states = self.of(tenant).states_since(since_us)
        if pairs not in states:
            mismatch = _mismatch(states[-1], pairs)
            self.world.fail(RESTORED_WHOLE, f"{_name(tenant)} was never as it is read: {mismatch}")

    def _check_kept(self, tenant: Tenant, number: int, since_us: int) -> None:
        history = self.of(tenant)
        if number not in history.taken:
            self.report_violation(f"snapshot {number} of {_name(tenant)} is read, and was never taken")
        elif history.dropped_us.get(number, since_us) < since_us:
            self.report_violation(f"snapshot {number} of {_name(tenant)} is read after it was dropped")

    # --- The end ---

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be merged or restored."""
        return all(
            history.restore is None and len(history.kept) == len(history.listed) for history in self.tenants.values()
        )


class NothingIsKeptOfWhatIsDropped(Oracle):
    """At the end, when all snapshots have been dropped, nothing of them is stored but the last number."""

    promise = "nothing is left of a dropped snapshot"

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for shard in shards:
            for tenant, rows in shard.rows.items():
                if not shard.lives_here(tenant):
                    continue
                keys, owner = TenantKeys(*tenant), shard.owners.get(tenant)
                copies = [key for key in rows if key.startswith(keys.snapshots) and key != keys.snapshots]
                if copies or (owner is not None and owner.snapshots is not None):
                    self.report_violation(f"{shard.name} keeps of {_name(tenant)} {owner}, and copies: {copies[:3]}")
            due = [path for path in map(unpack_key, shard.others) if path[0] == keyspace.SNAPSHOT_WORK]
            if due:
                self.report_violation(f"{shard.name} lists snapshots for housekeeping: {due}")


RESTORED_WHOLE = "a restore gives the state of its snapshot, and nobody sees half of it"


def _mismatch(expected: Mapping[bytes, bytes], found: Mapping[bytes, bytes]) -> str:
    """Describe how pairs differ; empty: they do not."""
    keys = sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))
    if not keys:
        return ""
    key = keys[0]
    return f"{len(keys)} keys; {key!r} is {found.get(key)!r} instead of {expected.get(key)!r}"


def _name(tenant: Tenant) -> str:
    return f"{tenant.app}/{tenant.user}"
