"""Random stories of moves: users, workers, other movers and faults come between any two commits of a mover.

Afterwards the tenant lives on exactly one shard, has all that was acknowledged and nothing else, and nothing is left
elsewhere.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT
from fairlead.zones.errors import ItemGone, LeaseLost
from fairlead.zones.moving import source
from fairlead.zones.moving.errors import MoveRefused, MoveUnderWay
from fairlead.zones.records import MovePhase, MoveState
from tests.zones.moving.town import NAMES, Killed, Town

SEEDS = 150
MANY_SEEDS = 5_000
MOVES = 3
MOVERS_MAX = 60
KEYS = 8


class Story:
    """One town, what happens there, and what its users have been told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.town = Town()
        self.town.random = Random(seed + 1)
        self.data: dict[tuple[Any, ...], bytes] = {}
        self.items: set[bytes] = set()
        self.done: set[bytes] = set()
        self.busy = self.random.choice((0.1, 0.4, 0.8))
        self.faults = self.random.choice((0.0, 0.02, 0.1))
        self.takeovers = self.random.choice((0.0, 0.02, 0.05))
        self.move: tuple[bytes, str, str] | None = None

    def run(self) -> None:
        for _ in range(self.random.randrange(20)):
            self.act()
        for _ in range(MOVES):
            self.begin()
            self.finish()
        self.check()

    def begin(self) -> None:
        to = self.random.choice(NAMES)
        try:
            move_id = self.town.begin(to)
        except MoveRefused:
            assert self.town.home_name() == to
            return
        except MoveUnderWay:
            raise AssertionError("a move is under way, although the last one has ended") from None
        self.move = move_id, self.town.began_at, to

    def finish(self) -> None:
        """Let one mover after the other carry out the move, each until it dies."""
        for _ in range(MOVERS_MAX):
            if self.move is None:
                return
            self.town.hook = self.between
            try:
                state = self.new_mover().run()
            except Killed:
                continue
            finally:
                self.town.hook = None
            if state is not None:
                self.move = None
        self.faults = self.takeovers = 0.0  # From now on all goes well.
        self.town.hook = None
        if self.move is not None:
            assert self.new_mover().run() is not None
            self.move = None

    def new_mover(self) -> Any:
        assert self.move is not None
        move_id, at, to = self.move
        return self.town.mover(move_id, to, at=at)

    def between(self, shard: str, number: int, after: bool) -> None:
        """Let something happen before or after a commit of a mover."""
        roll = self.random.random
        if after and roll() < self.busy:
            self.act()
        if self.move is not None and roll() < self.takeovers:
            self.happen_elsewhere()
        if roll() < self.faults:
            if roll() < 0.5:
                raise Killed
            if after or roll() < 0.5:
                raise self.town.stores[shard].errors[0](COMMIT_UNKNOWN_RESULT)

    def happen_elsewhere(self) -> None:
        """Let another mover take over, or somebody cancel the move."""
        assert self.move is not None
        if self.random.random() < 0.3:
            at = self.town.shards[self.move[1]]
            transact(at.db, lambda tr: source.request_cancel(tr, self.town.alice))
            return
        with suppress(Killed):
            self.new_mover().run()

    def is_frozen(self) -> bool:
        owners = [self.town.owner(name) for name in NAMES]
        return any(each and each.move and each.move.phase is MovePhase.FROZEN for each in owners)

    def act(self) -> None:
        """Do what a user or a worker does. One who meets a frozen tenant waits, and ends the move after a second."""
        if self.is_frozen() and self.random.random() < 0.9:
            return
        self.random.choice((self.set, self.set, self.clear, self.clear_all, self.add, self.enqueue, self.work))()

    def set(self) -> None:
        key, value = ("key", self.random.randrange(KEYS)), self.random.randbytes(3)
        self.town.on(lambda tr: tr.set(key, value))
        self.data[key] = value

    def clear(self) -> None:
        key = ("key", self.random.randrange(KEYS))
        self.town.on(lambda tr: tr.clear(key))
        self.data.pop(key, None)

    def clear_all(self) -> None:
        if self.random.random() < 0.3:
            self.town.on(lambda tr: tr.clear_prefix(("key",)))
            self.data = {key: value for key, value in self.data.items() if key[0] != "key"}

    def add(self) -> None:
        key = ("counter", self.random.randrange(2))
        self.town.on(lambda tr: tr.add(key, 1))
        before = int.from_bytes(self.data.get(key, b""), "little")
        self.data[key] = (before + 1).to_bytes(8, "little")

    def enqueue(self) -> None:
        zone = self.random.choice(("queue", "other"))
        self.items.add(self.town.enqueue(self.random.choice(("mail", "index")), zone=zone))

    def work(self) -> None:
        """Complete an item, keep its name taken, or make it a dead letter."""
        if not self.items:
            return
        item_id = self.random.choice(sorted(self.items))
        for zone in ("queue", "other"):
            try:
                self.town.in_queue(
                    lambda tr, queue, now_us: queue.complete(tr, item_id, now_us=now_us, lease_id=None), zone
                )
            except (ItemGone, LeaseLost):
                continue
            self.items.discard(item_id)
            self.done.add(item_id)
            return
        raise AssertionError(f"item {item_id.hex()} is lost")

    def check(self) -> None:
        town = self.town
        assert town.data() == self.data
        for item_id in sorted(self.items):
            self.items = {item_id}
            self.work()
        at = town.home_name()
        for name in NAMES:
            left = [row for row in town.rows(name) if name != at]
            assert left in ([], [(2,)]), (name, left)
        assert not any(row[0] == 12 for row in town.rows(at)), "marks are left"
        assert town.findings() == {}
        record = town.record(at)
        assert record is None or record.state is not MoveState.UNDER_WAY


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_move_loses_nothing_and_leaves_nothing(seed: int) -> None:
    Story(seed).run()


@pytest.mark.long
def test_thousands_of_moves_lose_nothing_and_leave_nothing() -> None:
    for seed in range(SEEDS, MANY_SEEDS):
        Story(seed).run()
