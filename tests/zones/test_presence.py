"""A consumer that falls silent is taken for dead, and forgotten later."""

from __future__ import annotations

from tests.zones.world import SECOND, World
from zones import presence
from zones.keyspace import ROOT, SESSION, pack_bytes, pack_int
from zones.presence import FORGET_US, LIVE_US, Presence

ANNA, BERT = b"anna\x00id", b"bert"


def beat(world: World, consumer_id: bytes, *, kinds: tuple[str, ...] = ("mail",)) -> None:
    signs = Presence("host", 7, list(kinds), 1, world.now_us)
    world.run(lambda tr: presence.beat(tr, consumer_id, signs))


def listed(world: World) -> dict[bytes, bool]:
    return {each.consumer_id: each.live for each in world.run(lambda tr: presence.listing(tr, now_us=world.now_us))}


def clear_dead(world: World, keys_max: int = 10) -> int:
    return world.run(lambda tr: presence.clear_dead(tr, now_us=world.now_us, keys_max=keys_max))


def test_a_consumer_is_listed_with_what_it_knows(world: World) -> None:
    beat(world, ANNA, kinds=("index", "mail"))
    (found,) = world.run(lambda tr: presence.listing(tr, now_us=world.now_us))
    assert (found.consumer_id, found.live) == (ANNA, True)
    assert found.presence == Presence("host", 7, ["index", "mail"], 1, world.now_us)


def test_a_consumer_lives_as_long_as_it_beats(world: World) -> None:
    beat(world, ANNA)
    beat(world, BERT)
    world.pass_us(LIVE_US)
    beat(world, BERT)
    assert listed(world) == {ANNA: True, BERT: True}
    world.pass_us(1)
    assert listed(world) == {ANNA: False, BERT: True}


def test_a_consumer_that_stops_in_good_order_is_off_the_list_at_once(world: World) -> None:
    beat(world, ANNA)
    beat(world, BERT)
    world.run(lambda tr: presence.leave(tr, ANNA))
    assert listed(world) == {BERT: True}


def test_the_dead_are_cleared_by_others_after_a_while_a_few_at_a_time(world: World) -> None:
    for number in range(5):
        beat(world, bytes([number]))
    world.pass_us(FORGET_US)
    assert clear_dead(world) == 0
    world.pass_us(SECOND)
    beat(world, ANNA)
    assert clear_dead(world, keys_max=3) == 3
    assert clear_dead(world, keys_max=3) == 2
    assert listed(world) == {ANNA: True}


def test_a_consumer_that_was_only_paused_comes_back(world: World) -> None:
    beat(world, ANNA)
    world.pass_us(FORGET_US + 1)
    clear_dead(world)
    beat(world, ANNA)
    assert listed(world) == {ANNA: True}


def test_beats_never_conflict(world: World) -> None:
    """Each is one blind write; even one that was read before beats on."""
    one, other = world.db.create_transaction(), world.db.create_transaction()
    for tr in (one, other):
        presence.listing(tr, now_us=world.now_us)
        presence.beat(tr, ANNA, Presence("host", 7, [], 1, world.now_us))
    one.commit().wait()
    other.commit().wait()


def test_a_record_of_a_newer_format_or_of_nonsense_is_left_out_and_left_alone(world: World) -> None:
    beat(world, ANNA)
    strange = {pack_bytes(b"new"): b"\x02\x95", pack_bytes(b"bad"): b"\x01nonsense", pack_bytes(b"no"): b""}
    prefix = ROOT + pack_int(SESSION)
    for name, value in strange.items():
        world.set(prefix + name, value)
    world.pass_us(FORGET_US * 2)
    clear_dead(world)
    assert listed(world) == {}
    assert len(world.stored(prefix, prefix + b"\xff")) == len(strange)
