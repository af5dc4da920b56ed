"""Unique items: a unique key has one holder in the whole application, and a refusal is right.

An item holds its key while it waits, runs, or is a dead letter, and after its completion as long as its id is kept.
Processes read that time by clocks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit
from fairlead.simulation.world import World
from fairlead.zones.keyspace import TenantKeys, ZoneKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.id_retention import TIME_BYTES


class UniqueItem(NamedTuple):
    """An item with a unique key. No part of it changes by a move."""

    tenant: Tenant
    zone: str
    item_id: bytes


@dataclass(slots=True)
class Holding:
    """The time for which an item holds its key. `ended_us`: None while it is there; `kept_us`: until then by clocks."""

    unique_key: bytes
    began_us: int
    ended_us: int | None = None
    kept_us: int = 0


class KeysHaveOneHolder(Oracle):
    """At no time two items hold one key. No item is lost: one that is acknowledged ends only by a request.

    Args:
      ahead_us_max: how much a clock may be off.
    """

    promise = "a unique key has one holder in the whole application"

    def __init__(self, world: World, ahead_us_max: int) -> None:
        super().__init__(world)
        self._ahead_us_max = ahead_us_max
        self._by_item: dict[UniqueItem, Holding] = {}
        self._asked_to_end: set[UniqueItem] = set()
        self._refused: set[UniqueItem] = set()

    # --- What processes report ---

    def note_acknowledged(self, item: UniqueItem) -> None:
        """An enqueue has succeeded."""
        if item not in self._by_item:
            self.report_violation(f"{item} is acknowledged, and was never there")

    def note_key_refused(self, item: UniqueItem, unique_key: bytes, since_us: int) -> None:
        """An enqueue that began at `since_us` was refused, because another item had the key."""
        self.note_refused(item)
        if not any(self._may_hold_us(each) >= since_us for each in self._of(unique_key)):
            self.report_violation(f"{item} is refused, and nobody has held {unique_key!r} since {since_us}")

    def note_refused(self, item: UniqueItem) -> None:
        """An enqueue was refused: there will be no such item."""
        self._refused.add(item)
        if item in self._by_item:
            self.report_violation(f"{item} is refused, and is there")

    def note_asked(self, item: UniqueItem) -> None:
        """A process is about to end an item."""
        self._asked_to_end.add(item)

    # --- What is so now ---

    def holder(self, unique_key: bytes) -> UniqueItem | None:
        """Return the item that holds a key by every clock; None: it is free, or some clocks say that it is."""
        now_us = self.world.now_us()
        for item, holding in self._by_item.items():
            is_kept = holding.kept_us > now_us + self._ahead_us_max
            if holding.unique_key == unique_key and (holding.ended_us is None or is_kept):
                return item
        return None

    def is_free(self, unique_key: bytes) -> bool:
        """Whether a key is free by every clock."""
        return not any(self._may_hold_us(each) >= self.world.now_us() for each in self._of(unique_key))

    def present(self) -> list[UniqueItem]:
        """Return the items that wait or are dead letters."""
        return [item for item, holding in self._by_item.items() if holding.ended_us is None]

    def counts(self) -> dict[str, int]:
        """Return how many items there were, how many keys stayed taken after them, and how many enqueues failed."""
        kept = sum(bool(each.kept_us) for each in self._by_item.values())
        return {"held": len(self._by_item), "kept": kept, "refused": len(self._refused)}

    # --- Commits ---

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            item = UniqueItem(*change.item[1:])
            if change.after is not None and change.after.unique_key and item not in self._by_item:
                self._begin(parsed, item, change.after.unique_key)
            elif change.after is None and change.dead_lettered is None and item in self._by_item:
                self._end(parsed, item, change.item)
        for name in parsed.removed_dead_letters:
            item = UniqueItem(*name[1:])
            if item in self._by_item and item.item_id not in parsed.zones[name[1:3]].items:  # type: ignore[index]
                self._end(parsed, item, name)

    def _begin(self, parsed: ParsedCommit, item: UniqueItem, unique_key: bytes) -> None:
        other = self.holder(unique_key)
        if other is not None:
            self.report_violation(f"{parsed.by} enqueues {item}, and {other} has {unique_key!r}")
        if item in self._refused:
            self.report_violation(f"{parsed.by} enqueues {item}, whose enqueue was refused")
        self._by_item[item] = Holding(unique_key, self.world.now_us())

    def _end(self, parsed: ParsedCommit, item: UniqueItem, name: ItemName) -> None:
        holding = self._by_item[item]
        if item not in self._asked_to_end:
            self.report_violation(f"{parsed.by} ends {item}, which nobody has ended")
        key = ZoneKeys(TenantKeys(*item.tenant), item.zone).retained_id(name.item_id)
        kept = parsed.shard.others.get(key)
        holding.ended_us = self.world.now_us()
        holding.kept_us = 0 if kept is None else int.from_bytes(kept[:TIME_BYTES], "big")

    def _of(self, unique_key: bytes) -> Iterator[Holding]:
        return (each for each in self._by_item.values() if each.unique_key == unique_key)

    def _may_hold_us(self, holding: Holding) -> int:
        """Return until when some clock may say that an item holds its key."""
        if holding.ended_us is None:
            return self.world.now_us()
        return max(holding.ended_us, holding.kept_us + self._ahead_us_max if holding.kept_us else 0)
