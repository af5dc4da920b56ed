"""The promises of the standard workload: effects happen once, no order is lost, every tick is one item."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.simulation.oracles.answers import Answer
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit, ShardReplica, unpack_key
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant

EXACTLY_ONCE = frozenset({"effect", "fenced", "chain"})  # Kinds whose handlers write an effect with their completion.


class EffectsHappenOnce(Oracle):
    """The effect of an exactly-once handler is committed if and only if its item left its queue in the same commit."""

    promise = "transactional effects happen exactly once"

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        if parsed.by.startswith("p"):
            return  # a producer may cancel
        effects = {path[5] for path in map(unpack_key, parsed.data) if path[4] == "effect"}
        gone = {
            change.item.item_id
            for change in parsed.items
            if change.before is not None
            and change.after is None
            and change.dead_lettered is None
            and change.before.kind in EXACTLY_ONCE
        }
        if effects != gone:
            only = sorted(item_id.hex() for item_id in effects ^ gone)
            self.report_violation(f"{parsed.by} commits an effect or a completion without the other: {only}")


class OrdersAreKept(Oracle):
    """An order is counted once, and each acknowledged enqueue was committed."""

    promise = "a transaction that enqueues happens once, and what was acknowledged is there"

    def __init__(self, world: World, acknowledged: list[ItemName]) -> None:
        super().__init__(world)
        self._acknowledged = acknowledged
        self._orders: set[bytes] = set()
        self._enqueued: set[ItemName] = set()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            if change.before is None and change.after is not None:
                self._enqueued.add(change.item)
        for key in parsed.data:
            if unpack_key(key)[4] == "order":
                if key in self._orders:
                    self.report_violation(f"{parsed.by} counts {unpack_key(key)} twice")
                self._orders.add(key)

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for item in self._acknowledged:
            if item not in self._enqueued:
                self.report_violation(f"{item} was acknowledged and never was there")


class Payment(NamedTuple):
    """An acknowledged write without a read: `name` is its key's last element."""

    tenant: Tenant
    name: str


@dataclass(slots=True)
class ShopLog:
    """The acknowledgements of the store to the processes of the shop."""

    enqueued: list[ItemName] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class PaymentsHappenOnce(Oracle):
    """An add to a key is applied at most once, with any answer of its commit; if acknowledged, exactly once."""

    promise = "a write without a read is applied once, and not lost if it was acknowledged"

    def __init__(self, world: World, acknowledged: list[Payment]) -> None:
        super().__init__(world)
        self._acknowledged = acknowledged
        self._paid: set[Payment] = set()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for key in parsed.data:
            _, app, user, _, what, name, *_ = [*unpack_key(key), None]
            if what != "payment":
                continue
            payment = Payment(Tenant(app, user), name)
            if payment in self._paid:
                self.report_violation(f"{parsed.by} makes {payment} twice")
            self._paid.add(payment)

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for payment in self._acknowledged:
            if payment not in self._paid:
                self.report_violation(f"{payment} was acknowledged and never was there")


class TicksComeOnce(Oracle):
    """A tick is one item, even if several consumers enqueue it."""

    promise = "each tick of a period is enqueued once"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ticks: set[bytes] = set()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            if change.before is None and change.after is not None and change.after.kind == "tick":
                if change.item.item_id in self._ticks:
                    self.report_violation(f"{parsed.by} enqueues the tick {change.item} again")
                self._ticks.add(change.item.item_id)
