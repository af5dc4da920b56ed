"""The promises of the bank: its money stays, and what a transfer enqueues is there exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fairlead.simulation.bank.clerk import BALANCE, DUE, STATEMENT
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, ShardReplica, unpack_key
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant


class MoneyStays(Oracle):
    """The money of all accounts together never changes: not for who audits, nor by what is stored in the end."""

    promise = "the money of the bank stays the same"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stored: dict[bytes, int] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for key, value in parsed.data.items():
            if _is_money(key):
                self._stored[key] = _amount(value)

    def note_audit(self, total: int) -> None:
        """An audit of all accounts has found so much money."""
        if total:
            self.report_violation(f"an audit finds {total:+} too much")

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        total = sum(self._stored.values())
        if total:
            self.report_violation(f"{total:+} too much is stored: {self._stored}")


def stored_money(pairs: Mapping[bytes, bytes]) -> int:
    """Return the money in some of an account's pairs."""
    return sum(_amount(value) for key, value in pairs.items() if _is_money(key))


def _is_money(key: bytes) -> bool:
    return bool(unpack_key(key)[4] == BALANCE[0])


def _amount(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "little", signed=True)


class StatementsComeOnce(Oracle):
    """A transaction across shards enqueues an item if and only if it commits."""

    promise = "a transaction across shards enqueues an item if and only if it commits"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._due: dict[Tenant, int] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for key, value in parsed.data.items():
            _, app, user, *rest = unpack_key(key)
            if rest[1] == DUE[0]:
                self._due[Tenant(app, user)] = int.from_bytes(value or b"", "little")

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        there = Counter(
            zone.name.tenant
            for shard in shards
            for zone in shard.zones.values()
            for record in zone.items.values()
            if record.kind == STATEMENT
        )
        if there != self._due:
            self.report_violation(f"{there} statements are there, and {self._due} are due")
