"""Movers that come late do not clear what a later move leaves, before all of it is listed at the new home."""

from __future__ import annotations

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.keyspace import DEAD_LETTER_INDEX, TenantKeys
from fairlead.zones.local_index_search import search
from fairlead.zones.moving.move_record import move_key
from fairlead.zones.queue.item_keys import index_of, pack_keys
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import FORMAT, MoveState
from tests.simulation.races.missing_guards import planted
from tests.zones.moving.test_claims import claim, later_move_beside_a_late_mover
from tests.zones.moving.test_guards import cancel, put, run_until
from tests.zones.moving.test_what_names_a_tenant import leave_a_dead_letter, naming
from tests.zones.moving.town import Town

ORDER = {"order": 7}


def enqueue_with_key(town: Town) -> None:
    town.on(lambda tr: tr.enqueue_item(new_item("mail", keys=ORDER), zone="queue"))


def found_by_key(town: Town) -> int:
    """Return how many items a search of all shards finds, as `App.find_items` does it."""
    index = index_of(pack_keys(ORDER)[0])
    return len(search([shard.db for shard in town.shards.values()], index, entries_max=10).listed)


def an_item_of_an_ended_move_runs_again(town: Town) -> None:
    """East to west has ended. Its item runs once more, when west to north is decided, and north lists nothing yet."""
    first = town.begin("west")
    assert town.mover(first, "west").run() is MoveState.MOVED
    town.alice_lives_at("west")
    second = town.begin("north")
    run_until(town, second, "north", "_end_claims", at="west")
    town.mover(first, "west", at="east").run_item(epoch=town.epochs[first])


def test_the_item_of_an_ended_move_leaves_what_the_next_move_is_to_clear() -> None:
    """Before, it cleared the first destination: for a while no shard listed the tenant's items and dead letters."""
    town = Town()
    enqueue_with_key(town)
    leave_a_dead_letter(town)
    claim(town, town.enqueue())
    an_item_of_an_ended_move_runs_again(town)
    assert found_by_key(town) == 1
    assert [name for name in town.shards if naming(town, name, DEAD_LETTER_INDEX)] == ["west"]
    assert town.findings() == {}


def test_without_that_look_no_shard_finds_the_item() -> None:
    town = Town()
    enqueue_with_key(town)
    with planted("a late mover clears what a later move is to clear"):
        an_item_of_an_ended_move_runs_again(town)
    assert found_by_key(town) == 0


@pytest.mark.parametrize("until", ["_end_claims", "_arrive"])
def test_a_mover_that_stands_still_before_it_clears_leaves_that_to_a_later_move_from_there(until: str) -> None:
    town = Town()
    enqueue_with_key(town)
    item_id = town.enqueue()
    later = later_move_beside_a_late_mover(town, item_id, stands="_leave_source", until=until)
    assert found_by_key(town) == 1
    assert town.findings() == {}
    assert town.mover(later, "west", at="east").run() is MoveState.MOVED
    assert found_by_key(town) == 1
    assert town.rows("east") == [(2,)]
    assert town.findings() == {}


@pytest.mark.parametrize("to", ["north", "west"])
@pytest.mark.parametrize("has_moved_on", [False, True])
def test_what_a_move_without_a_record_has_left_is_cleared_although_the_tenant_has_moved_on(
    to: str, has_moved_on: bool
) -> None:
    town = Town()
    put(town, b"1")
    leave_a_dead_letter(town)
    other = {"north": "west", "west": "north"}[to]
    first = town.begin(to)
    run_until(town, first, to, "_leave_source")
    transact(town.shards["east"].db, lambda tr: tr.clear(move_key(TenantKeys(*town.alice))))
    assert town.home_name() == to
    second = town.begin(other)
    if has_moved_on:
        assert town.mover(second, other, at=to).run() is MoveState.MOVED
    assert town.mover(first, to, at="east").run_item(epoch=town.epochs[first])
    assert town.mover(second, other, at=to).run() is MoveState.MOVED
    assert town.rows("east") == [(2,)]
    assert [name for name in town.shards if naming(town, name, DEAD_LETTER_INDEX)] == [other]
    assert town.findings() == {}


def test_a_move_back_that_is_cancelled_clears_its_copies_although_the_first_move_has_not_cleared_its_source() -> None:
    """Seed 140847: the mover of the first move stands still before it clears. Then neither cleared the copies."""
    town = Town()
    put(town, b"1")
    first = town.begin("west")
    run_until(town, first, "west", "_leave_source")
    back = town.begin("east")
    run_until(town, back, "east", "_hand_over", at="west")
    cancel(town, "west")
    assert town.mover(back, "east", at="west").run() is MoveState.CANCELLED
    assert town.mover(first, "west", at="east").run() is MoveState.MOVED
    assert town.home_name() == "west"
    assert town.rows("east") == [(2,)]
    assert town.findings() == {}


def test_a_cancelled_move_clears_its_copies_beside_the_record_of_an_ended_move_of_a_newer_version() -> None:
    town = Town()
    put(town, b"1")
    assert town.move("west") is MoveState.MOVED
    newer = bytes([FORMAT + 1]) + b"what it means only they know"
    transact(town.shards["east"].db, lambda tr: tr.set(move_key(TenantKeys(*town.alice)), newer))
    back = town.begin("east")
    run_until(town, back, "east", "_hand_over", at="west")
    cancel(town, "west")
    assert town.mover(back, "east", at="west").run() is MoveState.CANCELLED
    assert town.rows("east") == [(2,)]
    assert town.findings() == {}
