"""Retained ids: the id of a completed item is retained for the time that its enqueuer chose, and no other id is."""

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit, unpack_key
from fairlead.simulation.world import World
from fairlead.zones import keyspace
from fairlead.zones.keyspace import TenantKeys, ZoneKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndReason


class IdsStayTaken(Oracle):
    """The completion of such an item stores the end of the retention; before that, no item of that id is enqueued.

    The time counts by the enqueuer's clock. The stored key is not cleared before the end by any clock of the cluster.
    The id of a cancelled or dropped item is free.
    """

    promise = "the id of a completed item stays taken for its time"

    def __init__(self, world: World, ahead_us_max: int) -> None:
        super().__init__(world)
        self._ahead_us_max = ahead_us_max

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        given_up = _given_up(parsed)
        for change in parsed.items:
            before, after = change.before, change.after
            if before is None and after is not None and after.given_id is not None and not change.retried:
                until_us = _time(parsed.shard.others.get(_key(change.item)))
                if until_us > after.enqueued_us:
                    self.report_violation(
                        f"{parsed.by} enqueues {change.item}, taken for {until_us - after.enqueued_us} us more"
                    )
            elif before is not None and after is None and change.dead_lettered is None and before.unique_us:
                until_us = _time(parsed.shard.others.get(_key(change.item)))
                if change.item in given_up:
                    if until_us > before.enqueued_us + before.unique_us:
                        self.report_violation(f"{parsed.by} cancels or drops {change.item}, and leaves it taken")
                elif until_us < before.enqueued_us + before.unique_us - 2 * self._ahead_us_max:
                    self.report_violation(f"{parsed.by} completes {change.item}, and leaves it taken until {until_us}")
        if not parsed.items:
            self._check_cleared(parsed)

    def _check_cleared(self, parsed: ParsedCommit) -> None:
        latest_us = self.world.now_us() + self._ahead_us_max
        for key, before, after in parsed.changes:
            path = unpack_key(key) if after is None and key.startswith(_DB) else []
            if path[3:4] == [keyspace.ZONE] and path[5:6] == [keyspace.RETAINED_ID]:
                early_us = _time(before) - latest_us
                if early_us > 0:
                    self.report_violation(f"{parsed.by} expires {path} {early_us} us too early")


_DB = keyspace.ROOT + keyspace.pack_int(keyspace.DB)


def _given_up(parsed: ParsedCommit) -> set[ItemName]:
    """Return the items that a commit has cancelled or dropped, according to the completion log."""
    ends = [
        each for key, _, after in parsed.changes if after is not None for each in completion_log.ends_of(key, after)
    ]
    return {
        ItemName(parsed.shard.name, Tenant(each.app, each.user), each.zone, item.item_id)
        for each in ends
        for item in each.items
        if item.end_reason != EndReason.COMPLETED
    }


def _key(item: ItemName) -> bytes:
    return ZoneKeys(TenantKeys(item.tenant.app, item.tenant.user), item.zone).retained_id(item.item_id)


def _time(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value, "big")
