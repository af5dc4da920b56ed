"""A move that cannot catch up with the users of its tenant slows them; if that does not help, it ends itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.moving import mover
from fairlead.zones.records import MoveState
from tests.zones.moving.town import Town

KEYS = 10


@pytest.fixture(autouse=True)
def few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three changes be more than few, so that ten writes for each round outrun the mover."""
    monkeypatch.setattr(mover, "FEW_MARKS", 3)


class Writers:
    """Users who write all keys between any two rounds of a mover, while they want to.

    Attributes:
      waited_us: how long each write took.
      rounds: how many rounds they wrote in.
    """

    def __init__(self, town: Town, until: Callable[[Writers], bool]) -> None:
        self.town = town
        self.until = until
        self.waited_us: list[int] = []
        self.rounds = 0

    def write(self) -> None:
        if self.until(self):
            return
        self.rounds += 1
        value = b"%d" % self.rounds
        began_us = self.town.clock.now_us()
        for number in range(KEYS):
            self.town.on(lambda tr, number=number: tr.set(("key", number), value))  # type: ignore[misc]
        self.waited_us.append((self.town.clock.now_us() - began_us) // KEYS)

    def state_of_move(self) -> MoveState | None:
        """Let the tenant move while they write."""
        moving = self.town.mover(self.town.begin("west"), "west")
        copy_round = moving._copy_round

        def round_of_both() -> int:
            self.write()
            return copy_round()

        moving._copy_round = round_of_both  # type: ignore[method-assign]
        return moving.run()


def test_users_who_write_on_are_slowed_more_and_more_and_then_the_move_ends_itself() -> None:
    town = Town()
    writers = Writers(town, until=lambda _: False)
    assert writers.state_of_move() is MoveState.FAILED
    assert list(dict.fromkeys(writers.waited_us)) == [0, *mover.PAUSES_US]
    record = town.record("east")
    assert record is not None
    assert record.error == mover.TOO_BUSY
    assert record.slowed_us == mover.PAUSES_US[-1]
    assert town.home_name() == "east"
    assert town.data() == {("key", number): b"%d" % writers.rounds for number in range(KEYS)}
    assert town.rows("west") == []
    assert town.findings() == {}


def test_a_move_catches_up_once_its_slowed_users_write_less_and_slows_them_no_longer() -> None:
    town = Town()
    writers = Writers(town, until=lambda them: bool(them.waited_us and them.waited_us[-1] == mover.PAUSES_US[1]))
    assert writers.state_of_move() is MoveState.MOVED
    record = town.record("east")
    assert record is not None
    assert record.slowed_us == mover.PAUSES_US[1]
    assert town.home_name() == "west"
    assert town.data() == {("key", number): b"%d" % writers.rounds for number in range(KEYS)}
    began_us = town.clock.now_us()
    town.on(lambda tr: tr.set(("key", 0), b"last"))
    assert town.clock.now_us() == began_us
    assert town.findings() == {}
