"""Snapshots of a tenant that moves: they move with it, and are taken, dropped and restored meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from fairlead import snapshots
from fairlead.snapshots import OldKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots import merging, reading
from fairlead.zones.snapshots.snapshot_keys import WORK_PREFIX
from fairlead.zones.snapshots.upkeep import SnapshotUpkeep
from tests.zones.moving.story import Story
from tests.zones.moving.town import NAMES, Town

T = TypeVar("T")

SEEDS = 150
SNAPSHOTS_MAX = 5


class Alice:
    """The tenant of a town, by the calls of its database."""

    calls: Any = None

    def __init__(self, town: Town) -> None:
        self.town = town

    @property
    def tenant(self) -> Tenant:
        return self.town.alice

    def at_home(self, call: Callable[[Shard], T]) -> T:
        return self.town.at_home(call)


class StoryWithSnapshots(Story):
    """A story of moves whose users also take, drop and restore snapshots."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.users.pays = False  # A restored tenant has its old money.
        self.alice = Alice(self.town)
        self.taken: dict[int, dict[tuple[Any, ...], bytes]] = {}

    def act(self) -> None:
        if self.random.random() < 0.6:
            super().act()
        elif not self.is_frozen():
            self.random.choice((self.take, self.take, self.drop, self.restore, self.look))()

    def take(self) -> None:
        if len(self.taken) < SNAPSHOTS_MAX:
            self.taken[snapshots.take(self.alice, None).number] = dict(self.users.data)

    def drop(self) -> None:
        if self.taken:
            number = self.random.choice(sorted(self.taken))
            snapshots.drop(self.alice, number)
            del self.taken[number]

    def restore(self) -> None:
        if self.taken and self.random.random() < 0.3:
            number = self.random.choice(sorted(self.taken))
            snapshots.restore(self.alice, number)
            self.users.data = dict(self.taken[number])

    def look(self) -> None:
        """Compare all snapshots with what the tenant had when they were taken."""
        for number, then in self.taken.items():
            assert dict(OldKeys(self.alice, number).get_range()) == then

    def check(self) -> None:
        self.look()
        for number in sorted(self.taken):
            snapshots.drop(self.alice, number)
        super().check()


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "PIECE_ROWS", 3)
    monkeypatch.setattr(reading, "CHANGES_ROWS", 3)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_snapshot_equals_the_state_at_its_time_wherever_the_tenant_lives(seed: int) -> None:
    StoryWithSnapshots(seed).run()


def listed(town: Town, name: str) -> int:
    """Return how many tenants housekeeping of a shard is to look at."""
    shard = town.shards[name]
    return shard.transact(lambda attempt: len(list(attempt.tr.get_range(WORK_PREFIX, WORK_PREFIX + b"\xff"))))


def test_a_snapshot_expires_where_the_tenant_lives_by_then() -> None:
    town = Town()
    alice = Alice(town)
    town.on(lambda tr: tr.set(("key",), b"1"))
    number = snapshots.take(alice, 5_000_000).number
    town.on(lambda tr: tr.set(("key",), b"2"))
    town.move("west")
    assert OldKeys(alice, number).get(("key",)) == b"1"
    assert {name: listed(town, name) for name in NAMES} == {"east": 0, "north": 0, "west": 1}
    assert town.findings() == {}
    looked = {
        name: SnapshotUpkeep(shard).look(now_us=town.clock.now_us() + 5_000_000) for name, shard in town.shards.items()
    }
    assert looked == {"east": 0, "north": 0, "west": 1}
    assert snapshots.listing(alice).kept == []
    assert town.rows("west") == [(1, "key"), (2,), (11,)]
