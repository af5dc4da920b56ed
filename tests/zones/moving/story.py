"""A random story of moves: users, workers, other movers and faults come between any two commits of a mover.

A mover may die or be passed by others at any commit, and go on when the move has ended and the next one has begun. What
it sends to the destination may arrive late, and without an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TypeVar

from fairlead.zones.engines import Transaction, transact
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT
from fairlead.zones.moving.errors import MoveRefused, MoverReplaced, MoveUnderWay, Unmovable
from fairlead.zones.moving.move_record import request_cancel
from fairlead.zones.moving.mover import Mover
from fairlead.zones.records import MovePhase, MoveState
from tests.zones.moving.town import NAMES, Killed, Town
from tests.zones.moving.users import Users

T = TypeVar("T")

UnderWay = tuple[bytes, str, str]  # the id of a move, the names of its source and its destination

MOVES = 3
MOVES_MAX = 8
MOVERS_MAX = 30
AT_ONCE = 2  # Movers work in the midst of another one, and others in their midst.
NOT_RETRIED = 2_200  # An error of the API that no transaction is repeated for.


class Story:
    """One town, what happens there, and what its users have been told.

    Args:
      fixed: chances that are not drawn: how `busy` users are, `faults`, `takeovers`, those of moves
        that are decided or cancelled (`takeovers_at_end`), `late` commits, `cancels`, and
        whether the next move goes to the same shard `again`.
    """

    def __init__(self, seed: int, **fixed: float) -> None:
        self.random = Random(seed)
        self.town = Town()
        self.town.random = Random(seed + 1)
        self.users = Users(self.town, self.let_movers_work)
        draw = self.random.choice
        self.busy, self.faults = draw((0.1, 0.4, 0.8)), draw((0.0, 0.02, 0.1))
        self.takeovers, self.late = draw((0.0, 0.03, 0.15)), draw((0.0, 0.05, 0.3))
        self.takeovers_at_end = draw((0.0, 0.1, 0.4))
        self.cancels, self.again = draw((0.0, 0.2, 0.6)), draw((0.0, 0.7))
        for name, chance in fixed.items():
            assert hasattr(self, name)
            setattr(self, name, chance)
        self.moves: list[UnderWay] = []
        self.to = "north"
        self.began = 0
        self.left_behind: set[str] = set()  # Destinations of ended moves, at which one of their movers came late.
        self.sent: list[tuple[UnderWay, Transaction]] = []  # Commits without an answer: they may arrive later.
        self.depth = 0
        self.is_quiet = False  # Nobody but movers does anything.

    def run(self) -> None:
        """Let all happen, and check everything.

        Raises:
          AssertionError: something was lost, or is wrong.
        """
        for _ in range(self.random.randrange(20)):
            self.act()
        for _ in range(MOVES):
            self.begin()
            self.finish()
        self.check()

    # --- Moves ---

    def begin(self) -> None:
        """Begin a move, unless the tenant lives there already, or moves."""
        if self.began == MOVES_MAX:
            return
        if self.random.random() > self.again:
            self.to = self.random.choice(NAMES)
        with suppress(MoveRefused, MoveUnderWay):
            move_id = self.town.begin(self.to)
            self.moves.append((move_id, self.town.began_at, self.to))
            self.began += 1

    def finish(self) -> None:
        """Let one mover after the other carry out the moves, each until it dies; at last all goes well."""
        for _ in range(MOVERS_MAX):
            if self.moves:
                self.let_one_work()
        drawn = self.busy, self.faults, self.takeovers, self.takeovers_at_end, self.late
        self.busy = self.faults = self.takeovers = self.takeovers_at_end = self.late = 0.0
        for move in list(self.moves):
            assert self.new_mover(move).run_item(epoch=self.town.epochs[move[0]]), "no mover can end the move"
        self.moves.clear()
        self.busy, self.faults, self.takeovers, self.takeovers_at_end, self.late = drawn

    def let_one_work(self) -> None:
        """Let a mover carry out a move, until it dies, or its stores fail."""
        move, hook = self.random.choice(self.moves), self.town.hook
        mover = self.new_mover(move)
        self.depth += 1
        self.town.hook = self.between
        try:
            if mover.run_item(epoch=self.town.epochs[move[0]]) and move in self.moves:
                self.moves.remove(move)
        except Killed:
            self.note_what_stays(move)
        except self.town.stores["east"].errors:
            self.note_what_stays(move)
        finally:
            self.town.hook = hook
            self.depth -= 1

    def note_what_stays(self, move: UnderWay) -> None:
        """Note that a mover may have left something at its destination, if its move's item is done."""
        if move not in self.moves:
            self.left_behind.add(move[2])

    def new_mover(self, move: UnderWay) -> Mover:
        """Return a mover that sends some transactions without an answer."""
        move_id, at, to = move
        mover = self.town.mover(move_id, to, at=at)
        in_destination = mover._in_destination

        def sent(body: Callable[[Transaction], T]) -> T:
            if self.random.random() < self.late:
                self.send(move, body)
                if self.random.random() < 0.5:
                    raise self.town.stores[to].errors[0](NOT_RETRIED)
            return in_destination(body)

        mover._in_destination = sent  # type: ignore[method-assign]
        return mover

    def send(self, move: UnderWay, body: Callable[[Transaction], object]) -> None:
        """Send a commit to the destination of a move, which arrives later, or never."""
        tr = self.town.stores[move[2]].create_transaction()
        with suppress(MoverReplaced, Unmovable):
            body(tr)
            self.sent.append((move, tr))

    def between(self, shard: str, number: int, after: bool) -> None:
        """Let something happen before or after a commit of a mover."""
        roll = self.random.random
        if after and roll() < self.busy and not self.is_quiet:
            self.act()
        if self.sent and roll() < 0.2:
            self.let_one_arrive()
        if roll() < (self.takeovers_at_end if self.is_near_end() else self.takeovers):
            self.happen_elsewhere()
        if roll() < self.faults:
            if roll() < 0.5:
                raise Killed
            if after or roll() < 0.5:
                raise self.town.stores[shard].errors[0](COMMIT_UNKNOWN_RESULT)

    def is_near_end(self) -> bool:
        """Say whether a move is decided, or is to be taken back."""
        records = [self.town.record(at) for _, at, _ in self.moves]
        return any(self.owns(to) for _, _, to in self.moves) or any(each and each.cancel_requested for each in records)

    def let_one_arrive(self) -> None:
        """Let a commit arrive that nobody has an answer of; it may conflict."""
        move, tr = self.sent.pop(self.random.randrange(len(self.sent)))
        with suppress(*self.town.stores[move[2]].errors):
            tr.commit().wait()
            self.note_what_stays(move)

    def happen_elsewhere(self) -> None:
        """Let other movers go on, even to the next move; or let somebody cancel a move."""
        if self.moves and self.random.random() < self.cancels:
            at = self.town.shards[self.random.choice(self.moves)[1]]
            transact(at.db, lambda tr: request_cancel(tr, self.town.alice))
        if self.depth >= AT_ONCE:
            return
        for _ in range(self.random.randrange(4)):
            if not self.moves or self.random.random() < 0.3:
                self.begin()
            if self.moves:
                self.let_one_work()

    def let_movers_work(self) -> None:
        """Let movers work in the midst of a transaction of a user. No other user does anything meanwhile."""
        if self.depth >= AT_ONCE or self.is_quiet:
            return
        self.is_quiet = True
        try:
            self.happen_elsewhere()
        finally:
            self.is_quiet = False

    # --- Users ---

    def act(self) -> None:
        """Do what a user or a worker does. One who meets a frozen tenant waits, and ends the move after a second."""
        if self.is_frozen():
            if self.random.random() < 0.7:
                return
            at = [name for name in NAMES if self.owns(name)]
            if len(at) == 2 and self.random.random() < 0.7:  # The destination owns it; the source does not say so yet.
                frozen = next(name for name in at if self.is_frozen_at(name))
                self.users.write_and_read(next(name for name in at if name != frozen), frozen)
                return
            if self.random.random() < 0.5 and self.depth < AT_ONCE:
                self.rescue()
                return
        self.users.act()

    def is_frozen(self) -> bool:
        """Say whether some shard says that the tenant is frozen."""
        return any(self.is_frozen_at(name) for name in NAMES)

    def is_frozen_at(self, name: str) -> bool:
        """Say whether a shard says that the tenant is frozen."""
        owner = self.town.owner(name)
        return owner is not None and owner.move is not None and owner.move.phase is MovePhase.FROZEN

    def owns(self, name: str) -> bool:
        """Say whether the record of a shard says that the tenant lives there."""
        owner = self.town.owner(name)
        return owner is not None and owner.shard_id == self.town.shards[name].layout.shard_id

    def rescue(self) -> None:
        """Meet the frozen tenant for long, and end its move; movers work between the two transactions."""
        hook = self.town.hook
        self.town.hook = lambda name, number, after: self.let_movers_work()
        try:
            self.users.read()
        finally:
            self.town.hook = hook

    # --- In the end ---

    def check(self) -> None:
        """Check all that users have been told, and that nothing is left anywhere."""
        town = self.town
        assert not self.moves
        while self.sent:
            self.let_one_arrive()
        self.users.check()
        at = town.home_name()
        for name in NAMES:
            if name == at or name in self.left_behind:
                continue
            owner, left = town.owner(name), town.rows(name)
            assert left in ([], [(2,)]), (name, left)
            assert owner is None or owner.move is None, (name, "it says that the tenant comes in")
        assert not any(row[0] == 12 for row in town.rows(at)), "marks are left"
        assert town.findings() == {}
        record = town.record(at)
        assert record is None or record.state is not MoveState.UNDER_WAY
