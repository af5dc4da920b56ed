"""Each guard of `tests/protocol_models/move.py` in the product: a story that needs it, and fails without it.

A planted bug takes the guard away. The story then ends with a lost write, two owners, or a tenant that nobody finds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlead.zones.engines import Transaction, transact
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.moving import destination, mover, source
from fairlead.zones.moving.destination import Copied
from fairlead.zones.moving.mover import Mover
from fairlead.zones.records import MovePhase, OwnerRecord
from tests.protocol_models.move import Guard
from tests.zones.moving.town import Killed, Town

KEY = ("key",)


def put(town: Town, value: bytes, key: tuple[Any, ...] = KEY) -> None:
    """Let a user write."""
    town.on(lambda tr: tr.set(key, value))


def has(town: Town, **data: bytes) -> bool:
    """Say whether the tenant lives on one shard, has these data and no others, and every check finds all well."""
    homes = [name for name in town.shards if lives_at(town, name)]
    if len(homes) != 1:
        return False
    try:
        return town.data() == {(key,): value for key, value in data.items()} and town.findings() == {}
    except AssertionError:  # Nobody finds it.
        return False


def lives_at(town: Town, name: str) -> bool:
    owner = town.owner(name)
    return name == "east" if owner is None else owner.shard_id == town.shards[name].layout.shard_id


def die() -> None:
    raise Killed


def elsewhere(mover: Mover, **before: Callable[[], object]) -> Mover:
    """Let something happen once before a method of a mover."""
    for name, happen in before.items():
        method, pending = getattr(mover, name), [happen]

        def planted(*args: Any, method: Any = method, pending: Any = pending, **named: Any) -> Any:
            if pending:
                pending.pop()()
            return method(*args, **named)

        setattr(mover, name, planted)
    return mover


def run_until(town: Town, move_id: bytes, to: str, method: str, **how: Any) -> None:
    """Let a mover begin, or go on, and die before a method."""
    with suppress(Killed):
        elsewhere(town.mover(move_id, to, **how), **{method: die}).run()


def cancel(town: Town, at: str) -> None:
    """Ask for a move to be taken back."""
    transact(town.shards[at].db, lambda tr: source.request_cancel(tr, town.alice))


# --- Stories: whether all is well in the end ---


def many_changes_in_the_last_moment_and_a_mover_that_dies(town: Town) -> bool:
    """More is marked while the tenant is frozen than one transaction reads, and the mover dies before it has copied."""
    move_id = town.begin("north")
    first = town.mover(move_id, "north")

    def write_and_die_later() -> None:
        for number in range(3):
            put(town, b"new", (f"key{number}",))
        elsewhere(first, _write=die)

    with suppress(Killed):
        elsewhere(first, _hand_over=write_and_die_later).run()
    town.mover(move_id, "north").run()
    return has(town, key0=b"new", key1=b"new", key2=b"new")


def a_mover_that_begins_between_close_and_thaw(town: Town) -> bool:
    """A rescuer closes the destination. A new mover takes over, and dies when it has decided. The rescuer thaws."""
    put(town, b"1")
    move_id = town.begin("north")
    run_until(town, move_id, "north", "_own")
    town.clock.advance_us(2_000_000)

    def once_closed(name: str, _: int, after: bool) -> None:
        if name == "north" and after:
            run_until(town, move_id, "north", "_say_moved")

    town.hook = once_closed
    put(town, b"2")
    town.hook = None
    town.mover(move_id, "north").run()
    return has(town, key=b"2")


def a_mover_that_takes_back_while_the_next_move_has_begun(town: Town) -> bool:
    """The tenant lives on neither its first home nor the destination; the second move is taken back, too."""
    town.move("north")
    first_move = town.begin("west")
    late = town.mover(first_move, "west")

    def end_and_begin_anew() -> None:
        town.mover(first_move, "west").run()
        run_until(town, town.begin("west"), "west", "_copy")

    cancel(town, "north")
    elsewhere(late, _close=end_and_begin_anew).run()
    cancel(town, "north")
    record = town.record("north")
    assert record is not None
    town.mover(record.move_id, "west").run()
    town._at.clear()
    return has(town)


# --- Planted bugs ---


def clear_marks_before_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(self: Mover) -> list[Copied]:
        copied: list[Copied] = []
        while True:
            marks, some = self._read(self._read_marks)
            copied += some
            if not marks:
                self._write(copied)
                return []
            self._in_source(partial(self._clear_marks, marks=marks))

    monkeypatch.setattr(Mover, "_copy_last", planted)


def forget_that_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    close = destination.close

    def planted(tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes, *, epoch: int) -> bool:
        closed = close(tr, layout, tenant, move_id, epoch=epoch)
        destination.forget_closed(tr, layout, tenant, move_id, epoch=epoch, source_id=b"")
        return closed

    monkeypatch.setattr(destination, "close", planted)


def take_a_later_move_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(_: ShardLayout, owner: OwnerRecord | None, *, epoch: int) -> bool:
        if owner is None or owner.epoch <= epoch:
            return False
        return owner.move is None or owner.move.phase is not MovePhase.INCOMING or owner.epoch > epoch + 1

    monkeypatch.setattr(destination, "owns", planted)


STORIES: dict[Guard, tuple[Callable[[Town], bool], Callable[[pytest.MonkeyPatch], None]]] = {
    Guard.COPIED_FIRST: (many_changes_in_the_last_moment_and_a_mover_that_dies, clear_marks_before_copying),
    Guard.STAYS_CLOSED: (a_mover_that_begins_between_close_and_thaw, forget_that_it_is_closed),
    Guard.OWNS: (a_mover_that_takes_back_while_the_next_move_has_begun, take_a_later_move_for_this_one),
}


@pytest.fixture(autouse=True)
def few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a mover copy two marks at once, so that three of them need two rounds."""
    monkeypatch.setattr(mover, "MARKS_MAX", 2)


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_with_the_guard_the_story_ends_well(guard: Guard) -> None:
    story, _ = STORIES[guard]
    assert story(Town())


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_without_the_guard_the_story_ends_badly(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    story, plant = STORIES[guard]
    plant(monkeypatch)
    assert not story(Town())
