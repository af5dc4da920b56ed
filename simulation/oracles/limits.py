"""Limits: the number of items of a tenant in one dequeue, and of a kind or a tenant that run at once."""

from collections import Counter
from collections.abc import Callable, Mapping
from math import ceil

from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.replica import ItemName, Limit, ParsedCommit
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.records import ItemRecord
from fairlead.zones.workflow.locks import HOLD_KIND


class DequeuesTakeTheirShare(Oracle):
    """One dequeue takes at most `dequeue_max` items of a zone (QuiCK section 6): a flood waits behind other tenants.

    A tenant of a greater weight gives so many times as many, see `fair_share`.
    """

    promise = "one dequeue takes at most `dequeue_max` items of a zone"

    def __init__(self, world: World, dequeue_max: int) -> None:
        super().__init__(world)
        self._dequeue_max = dequeue_max

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        taken: Counter[tuple[Tenant, str]] = Counter()
        for change in parsed.items:
            before, after = change.before, change.after
            if before is not None and after is not None and after.lease_id not in (b"", before.lease_id):
                taken[change.item.tenant, change.item.zone] += 1
        for (tenant, zone), count in taken.items():
            owner = parsed.shard.owners.get(tenant)
            weight = 1.0 if owner is None else max(1.0, owner.policy.weight)
            if count > ceil(weight * self._dequeue_max):
                self.report_violation(f"{parsed.by} takes {count} items of {tenant}/{zone} in one dequeue")


class KindsKeepToTheirLimits(Oracle):
    """No more items of a kind run at once in a consumer than its `max_running`; cancelled attempts do not count.

    This is for runs without faults that hide running items from their manager.

    Args:
      limits: by kind.
    """

    promise = "a consumer runs no more of a kind than its `max_running`"

    def __init__(self, world: World, limits: Mapping[str, int]) -> None:
        super().__init__(world)
        self._limits = limits
        self._running: dict[tuple[str, str], list[HandlerRun]] = {}

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        limit = self._limits.get(run.job.kind)
        if limit is None:
            return
        consumer = run.host.partition(".")[0]
        beside = self._running.setdefault((consumer, run.job.kind), [])
        beside[:] = [other for other in beside if not other.over and not other.job.cancelled]
        beside.append(run)
        if len(beside) > limit:
            self.report_violation(f"{consumer} runs {len(beside)} items of kind {run.job.kind} at once")


class _Leases:
    """The present leases that were taken under a limit."""

    def __init__(self) -> None:
        self._taken: dict[ItemName, tuple[ItemRecord, Limit]] = {}

    def follow(self, parsed: ParsedCommit, limit_of: Callable[[ItemName, ItemRecord], Limit | None]) -> list[ItemName]:
        """Add a commit. Return the items that it leases under a limit that it could have read."""
        new = []
        for item, before, after, *_ in parsed.items:
            if after is None or not after.lease_id:
                self._taken.pop(item, None)
            elif before is not None and after.lease_id == before.lease_id:
                if item in self._taken:
                    self._taken[item] = after, self._taken[item][1]
            elif (limit := limit_of(item, after)) is not None:
                self._taken[item] = after, limit
                new.append(item)
            else:
                self._taken.pop(item, None)
        return new

    def in_force(self, limit: Limit, now_us: int, belongs: Callable[[ItemName, ItemRecord], bool]) -> int:
        """Count the leases that belong, were taken under this limit, and have not ended by `now_us`."""
        return sum(
            taken_under == limit and record.vesting_us > now_us and belongs(item, record)
            for item, (record, taken_under) in self._taken.items()
        )


class TenantsKeepToTheirLimits(Oracle):
    """No dequeue leases more items of a tenant than its policy allows at once, by the clock of the manager.

    Args:
      clock_of: returns the latest time that the clock of a host's node has shown.
    """

    promise = "no more items of a tenant are leased than its limit"

    def __init__(self, world: World, clock_of: Callable[[str], int]) -> None:
        super().__init__(world)
        self._clock_of = clock_of
        self._leases = _Leases()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        limits = parsed.shard.limits

        def limit_of(item: ItemName, record: ItemRecord) -> Limit | None:
            return None if record.kind == HOLD_KIND else limits.get(item.tenant)  # Nothing runs while a lock is held.

        for tenant in {item.tenant for item in self._leases.follow(parsed, limit_of)}:
            limit, now_us = limits[tenant], self._clock_of(parsed.commit.by)
            count = self._leases.in_force(limit, now_us, _is_of(tenant))
            if count > limit.max_running:
                self.report_violation(f"{parsed.by} leases, so that {count} of {tenant.app}/{tenant.user} run at once")


class KindsKeepToFleetLimits(Oracle):
    """No dequeue leases more items of a kind than its policy allows at once in the whole fleet.

    This is for runs without faults whose clocks agree to a third of a lease. Otherwise the grant of a manager that is
    delayed, or whose clock is behind, may end and be granted again. While a policy is propagated to all shards, only
    leases under the latest policy count.
    """

    promise = "no more items of a kind are leased in a fleet than its limit"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._leases = _Leases()
        self._updated_us: dict[str, int] = {}  # the time of the latest policy of each kind, on any shard

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        limits, read_version = parsed.shard.limits, parsed.commit.read_version
        updated_us = {kind: policy.updated_us for kind, policy in parsed.shard.kind_policies.items()}
        for kind, time_us in updated_us.items():
            self._updated_us[kind] = max(time_us, self._updated_us.get(kind, 0))

        def limit_of(item: ItemName, record: ItemRecord) -> Limit | None:
            if record.kind == HOLD_KIND:
                return None  # A process leases its hold by itself: nothing runs while a lock is held.
            limit = limits.get(record.kind)
            readable = limit is not None and read_version is not None and limit.since <= read_version
            latest = updated_us.get(record.kind) == self._updated_us.get(record.kind)
            return limit._replace(since=0) if readable and latest and limit is not None else None

        kinds = {parsed.shard.zones[item.tenant, item.zone].items[item.item_id].kind  # type: ignore[index]
                 for item in self._leases.follow(parsed, limit_of)}  # fmt: skip
        for kind in kinds:
            limit = limits[kind]._replace(since=0)
            count = self._leases.in_force(limit, self.world.now_us(), lambda _, record, kind=kind: record.kind == kind)  # type: ignore[misc]
            if count > limit.max_running:
                self.report_violation(f"{parsed.by} leases, so that {count} of kind {kind} run at once")


def _is_of(tenant: Tenant) -> Callable[[ItemName, ItemRecord], bool]:
    return lambda item, _: item.tenant == tenant
