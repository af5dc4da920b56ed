"""Keys of items: the local indexes of the shards find what has a key, and a search misses nothing while tenants move.

The local index is read here by the rules of the tuple layer, commit by commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit, ShardReplica, unpack_key
from fairlead.simulation.world import World
from fairlead.zones import tuples
from fairlead.zones.keyspace import DB, INDEXED, LOCAL_INDEX, MOVE_COUNT, ROOT, pack_int, tenant_prefix
from fairlead.zones.layout import ID_BYTES, Tenant
from fairlead.zones.records import MovePhase

ITEMS = ""  # The name of the index of items.
SEARCH_FRAC = 0.1  # How many commits begin a search.
SEARCHES_MAX = 8  # Under way at once.
PACES = (0.01, 0.03, 0.1, 0.5)  # How many commits let a search go on: a slow one lasts longer than a move.
ROUNDS_MAX = 5

_LOCAL_INDEX, _MOVE_COUNT, _DB = (ROOT + pack_int(number) for number in (LOCAL_INDEX, MOVE_COUNT, DB))
_INDEXED = pack_int(INDEXED)

Key = tuple[str, Any]  # name and value


class HeldKey(NamedTuple):
    """A key of an item."""

    item: ItemName
    key: Key


def keys_of(packed: Sequence[bytes]) -> set[Key]:
    """Return the keys that a record holds."""
    return {(name, value) for name, value in map(tuples.unpack, packed)}


def held(shard: ShardReplica) -> Iterator[HeldKey]:
    """Yield the keys of all items and dead letters of a shard's residents."""
    for zone in shard.zones.values():
        records = [*zone.items.items(), *((item_id, each.item) for item_id, each in zone.dead_lettered.items())]
        for item_id, record in records:
            for key in keys_of(record.keys):
                yield HeldKey(ItemName(shard.name, *zone.name, item_id), key)


def keys_held(shard: ShardReplica, item: ItemName) -> set[Key]:
    """Return the keys of an item, or of a dead letter."""
    zone = shard.zones.get(item[1:3])  # type: ignore[call-overload]
    record = None if zone is None else zone.items.get(item.item_id)
    dead = None if zone is None else zone.dead_lettered.get(item.item_id)
    return keys_of(() if record is None else record.keys) | keys_of(() if dead is None else dead.item.keys)


class ListedKeys:
    """The local index of a shard, and what lies beside the rows of its tenants, as the commits have written them."""

    def __init__(self, shard_name: str) -> None:
        self._shard_name = shard_name
        self.listed: dict[HeldKey, None] = {}  # in order, so that a run repeats
        self.beside: dict[HeldKey, None] = {}
        self.moves = 0  # the shard's count

    def read(self, key: bytes, after: bytes | None) -> HeldKey | None:
        """Note a change; return the entry that it changes."""
        if key == _MOVE_COUNT:
            self.moves = int.from_bytes(after or b"", "little")
        if key.startswith(_LOCAL_INDEX):
            _, index, app, user, member = unpack_key(key)
            return self._note(self.listed, Tenant(app, user), index, member, after)
        if key.startswith(_DB) and key.startswith(_INDEXED, len(tenant_prefix(key))):
            _, app, user, _, index, member = unpack_key(key)
            return self._note(self.beside, Tenant(app, user), index, member, after)
        return None

    def _note(
        self, entries: dict[HeldKey, None], tenant: Tenant, index: Sequence[Any], member: bytes, after: bytes | None
    ) -> HeldKey | None:
        if index[0] != ITEMS:
            return None
        item = ItemName(self._shard_name, tenant, member[ID_BYTES:].decode(), member[:ID_BYTES])
        found = HeldKey(item, (index[1], index[2]))
        if after is None:
            entries.pop(found, None)
        else:
            entries[found] = None
        return found


class KeysFindItems(Oracle):
    """After each commit, what it has changed is listed if and only if an item, or a dead letter, has the key.

    A tenant who arrives is listed piece by piece, so of such a tenant only what lies beside the rows is compared. At
    the end everything is.
    """

    promise = "an item is found by its keys from its enqueue to its end, and no other one is"

    def __init__(self, world: World, shards: Mapping[str, ShardReplica]) -> None:
        super().__init__(world)
        self._indexes = {name: ListedKeys(name) for name in shards}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        shard, index = parsed.shard, self._indexes[parsed.shard.name]
        changed = [index.read(change.key, change.after) for change in parsed.commit.changes]
        items = {each.item: None for each in changed if each is not None}
        items |= {change.item: None for change in parsed.items}
        items |= dict.fromkeys(parsed.removed_dead_letters)
        for item in items:
            if shard.lives_here(item.tenant):
                owner = shard.owners.get(item.tenant)
                arrives = owner is not None and owner.move is not None and owner.move.phase is MovePhase.ARRIVING
                self._compare(parsed, index, item, keys_held(shard, item), arrives=arrives)

    def _compare(
        self, parsed: ParsedCommit, index: ListedKeys, item: ItemName, keys: set[Key], *, arrives: bool
    ) -> None:
        for what, entries in (("lists", index.listed), ("has beside the rows", index.beside)):
            if arrives and entries is index.listed:
                continue
            found = {key for key in self._candidates(entries, item, keys) if HeldKey(item, key) in entries}
            if found != keys:
                self.report_violation(f"{parsed.by} leaves {item} with {keys}, and {parsed.shard.name} {what} {found}")

    def _candidates(self, entries: Mapping[HeldKey, None], item: ItemName, keys: set[Key]) -> set[Key]:
        return keys | {each.key for each in entries if each.item == item}

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for shard in shards:
            index, expected = self._indexes[shard.name], set(held(shard))
            for what, entries in (("lists", index.listed), ("has beside the rows", index.beside)):
                if set(entries) != expected:
                    wrong = sorted(map(str, set(entries) ^ expected))
                    self.report_violation(f"{shard.name} {what} other keys than those of its items: {wrong}")


class _Search:
    """A search that asks one shard after the other, and then compares their counts of moves."""

    def __init__(self, key: Key, order: list[str], there: dict[ItemName, None], *, pace: float) -> None:
        self.key = key
        self.pace = pace
        self.there = there  # what has the key since the beginning
        self.found: set[ItemName] = set()
        self.rounds = 1
        self._order = order
        self._counts: list[int] = []
        self._compared = 0

    def go_on(self, indexes: Mapping[str, ListedKeys]) -> bool:
        """Make one transaction; return whether the search has ended."""
        if len(self._counts) < len(self._order):
            index = indexes[self._order[len(self._counts)]]
            self.found.update(each.item for each in index.listed if each.key == self.key)
            self._counts.append(index.moves)
            return False
        if indexes[self._order[self._compared]].moves != self._counts[self._compared]:
            self.rounds, self._counts, self._compared = self.rounds + 1, [], 0
            return self.rounds > ROUNDS_MAX
        self._compared += 1
        return self._compared == len(self._order)


class SearchesMissNothing(Oracle):
    """A reader who asks all shards, as `local_index_search` does, at any pace, finds what is there all the time."""

    promise = "a search of all shards misses no item that has the key all the time"

    def __init__(self, world: World, shards: Mapping[str, ShardReplica]) -> None:
        super().__init__(world)
        self._draw: Random = world.random("searches by keys")
        self._shards = shards
        self._indexes = {name: ListedKeys(name) for name in shards}
        self._searches: list[_Search] = []

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.commit.changes:
            self._indexes[parsed.shard.name].read(change.key, change.after)
        for item in [*(change.item for change in parsed.items), *parsed.removed_dead_letters]:
            keys = keys_held(parsed.shard, item)
            for search in self._searches:
                if search.key not in keys:
                    search.there.pop(item, None)
        for search in list(self._searches):
            if self._draw.random() < search.pace and search.go_on(self._indexes):
                self._searches.remove(search)
                self._check(search)
        if len(self._searches) < SEARCHES_MAX and self._draw.random() < SEARCH_FRAC:
            self._begin()

    def _check(self, search: _Search) -> None:
        missed = [item for item in search.there if item not in search.found]
        if missed and search.rounds <= ROUNDS_MAX:
            self.report_violation(f"a search by {search.key} has missed {', '.join(map(str, missed))}")

    def _begin(self) -> None:
        there = [each for shard in self._shards.values() for each in held(shard)]
        if there:
            key = self._draw.choice(there).key
            order = list(self._shards)
            self._draw.shuffle(order)
            items = {each.item: None for each in there if each.key == key}
            self._searches.append(_Search(key, order, items, pace=self._draw.choice(PACES)))
