"""Transactions across shards: what they have stored fits together after every commit, and is gone at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, ShardReplica, unpack_key
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.records import DecisionRecord, TransactionId
from fairlead.zones.spanning.decision import DECISION_LIFE_US

EXCHANGED = "exchanged"  # Begins the keys that an exchange writes, one below each of its tenants.
SIDES = 2
CLOSER = "operator"  # Forgets decisions at the end of a world, as if their time were over.


class LocksHaveTransactions(Oracle):
    """A tenant is locked by a transaction if and only if this one is prepared on the shard; its pieces are as many.

    Of two locks on a tenant, both are shared. At the end nothing is prepared.
    """

    promise = "a tenant is locked as long as a transaction is prepared"

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        shard = parsed.shard
        if not parsed.locks_may_differ:
            return
        prepared = {(Tenant(each.app, each.user), transaction)
                    for transaction, record in shard.prepared.items() for each in record.tenants}  # fmt: skip
        locked = {(tenant, lock.transaction) for tenant, locks in shard.locks.items() for lock in locks}
        if prepared != locked:
            self.report_violation(f"{parsed.by} leaves on {shard.name} {locked} locked, and {prepared} prepared")
        for tenant, locks in shard.locks.items():
            if len(locks) > 1 and any(lock.exclusive for lock in locks):
                self.report_violation(f"{parsed.by} leaves {tenant} with {locks}")
        expected = {transaction: record.pieces for transaction, record in shard.prepared.items() if record.pieces}
        if expected != shard.pieces:
            self.report_violation(f"{parsed.by} leaves on {shard.name} {shard.pieces} pieces instead of {expected}")

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for shard in shards:
            if shard.prepared or shard.locks or shard.pieces:
                self.report_violation(f"{shard.name} keeps {shard.prepared}, {shard.locks}, {shard.pieces}")


class DecisionsAreFinal(Oracle):
    """What is decided about a transaction never changes, not even after the decision was forgotten.

    A commit is not forgotten before its time, nor while it is still to be carried out on a shard.
    """

    promise = "a decision about a transaction across shards is final"

    def __init__(self, world: World, shards: Sequence[ShardReplica]) -> None:
        super().__init__(world)
        self._shards = shards
        self._committed: dict[TransactionId, bool] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.decisions:
            if change.after is not None:
                committed = change.after.committed
                if self._committed.setdefault(change.transaction, committed) != committed:
                    now = "commits" if committed else "aborts"
                    self.report_violation(f"{parsed.by} {now} {change.transaction}, which was decided otherwise")
            elif change.before is not None and change.before.committed:
                self._check_forgotten(parsed.by, change.transaction, change.before)

    def _check_forgotten(self, by: str, transaction: TransactionId, record: DecisionRecord) -> None:
        what = f"{by} forgets the commit {transaction}"
        left = [shard.name for shard in self._shards if transaction in shard.prepared]
        if left:
            self.report_violation(f"{what}, which is prepared on {left}")
        age_us = self.world.now_us() - record.decided_us
        if age_us < DECISION_LIFE_US // 2 and by != CLOSER:
            self.report_violation(f"{what} after {age_us / 1e6:.1f} s")


class ExchangesAreWhole(Oracle):
    """What a transaction across shards writes below two tenants is there below both, or below none.

    What was acknowledged is there.
    """

    promise = "a transaction across shards is whole"

    def __init__(self, world: World, acknowledged: Sequence[str]) -> None:
        super().__init__(world)
        self._acknowledged = acknowledged
        self._written: Counter[str] = Counter()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for key in parsed.data:
            path = unpack_key(key)[4:]
            if path[0] == EXCHANGED:
                self._written[path[1]] += 1

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for token, count in self._written.items():
            if count != SIDES:
                self.report_violation(f"{token} is written {count} times instead of {SIDES}")
        for token in self._acknowledged:
            if token not in self._written:
                self.report_violation(f"{token} was acknowledged, and is not there")
