"""A consumer that falls silent is taken for dead, and forgotten later."""

from __future__ import annotations

from fairlead.zones.keyspace import ROOT, SESSION, pack_bytes, pack_int
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.sessions import LIVE_US, RETENTION_US, ListedSession, SessionRecord, Sessions
from tests.zones.world import SECOND, World

ANNA, BERT = b"anna\x00id", b"bert"


def heartbeat(world: World, consumer_id: bytes, *, kinds: tuple[str, ...] = ("mail",)) -> None:
    signs = SessionRecord("host", 7, list(kinds), 1, world.now_us)
    world.run(lambda tr: sessions.heartbeat(tr, consumer_id, signs))


def listed(world: World) -> dict[bytes, bool]:
    return {each.consumer_id: each.live for each in world.run(lambda tr: sessions.listing(tr, now_us=world.now_us))}


def clear_dead(world: World, keys_max: int = 10) -> int:
    return world.run(
        lambda tr: sessions.clear_dead(
            tr, sessions.listing(tr, now_us=world.now_us), now_us=world.now_us, keys_max=keys_max
        )
    )


def test_a_consumer_is_listed_with_what_it_knows(world: World) -> None:
    heartbeat(world, ANNA, kinds=("index", "mail"))
    (found,) = world.run(lambda tr: sessions.listing(tr, now_us=world.now_us))
    assert (found.consumer_id, found.live) == (ANNA, True)
    assert found.record == SessionRecord("host", 7, ["index", "mail"], 1, world.now_us)


def test_a_consumer_is_live_as_long_as_its_heartbeats_go_on(world: World) -> None:
    heartbeat(world, ANNA)
    heartbeat(world, BERT)
    world.pass_us(LIVE_US)
    heartbeat(world, BERT)
    assert listed(world) == {ANNA: True, BERT: True}
    world.pass_us(1)
    assert listed(world) == {ANNA: False, BERT: True}


def test_a_consumer_that_stops_in_good_order_is_off_the_list_at_once(world: World) -> None:
    heartbeat(world, ANNA)
    heartbeat(world, BERT)
    world.run(lambda tr: sessions.end_session(tr, ANNA))
    assert listed(world) == {BERT: True}


def test_the_dead_are_cleared_by_others_after_a_while_a_few_at_a_time(world: World) -> None:
    for number in range(5):
        heartbeat(world, bytes([number]))
    world.pass_us(RETENTION_US)
    assert clear_dead(world) == 0
    world.pass_us(SECOND)
    heartbeat(world, ANNA)
    assert clear_dead(world, keys_max=3) == 3
    assert clear_dead(world, keys_max=3) == 2
    assert listed(world) == {ANNA: True}


def test_a_consumer_that_was_only_paused_comes_back(world: World) -> None:
    heartbeat(world, ANNA)
    world.pass_us(RETENTION_US + 1)
    clear_dead(world)
    heartbeat(world, ANNA)
    assert listed(world) == {ANNA: True}


def test_heartbeats_never_conflict(world: World) -> None:
    """Each is one blind write; even one that was read before heartbeats on."""
    one, other = world.db.create_transaction(), world.db.create_transaction()
    for tr in (one, other):
        sessions.listing(tr, now_us=world.now_us)
        sessions.heartbeat(tr, ANNA, SessionRecord("host", 7, [], 1, world.now_us))
    one.commit().wait()
    other.commit().wait()


def test_a_record_of_a_newer_format_or_a_damaged_one_is_left_out_and_kept(world: World) -> None:
    heartbeat(world, ANNA)
    strange = {pack_bytes(b"new"): b"\x02\x95", pack_bytes(b"bad"): b"\x01nonsense", pack_bytes(b"no"): b""}
    prefix = ROOT + pack_int(SESSION)
    for name, value in strange.items():
        world.set(prefix + name, value)
    world.pass_us(RETENTION_US * 2)
    clear_dead(world)
    assert listed(world) == {}
    assert len(world.stored(prefix, prefix + b"\xff")) == len(strange)


# --- Sessions ---


class Watching:
    """One who looks at the list once a second, by a clock that is `off_us` ahead of Anna's."""

    def __init__(self, *, off_us: int = 0) -> None:
        self.anna_us = 100 * SECOND
        self._off_us = off_us
        self._sessions = Sessions()

    def sees(self, heartbeat_us: int) -> bool:
        """Whether Anna's session is live, whose last heartbeat was at `heartbeat_us`."""
        anna = ListedSession(ANNA, SessionRecord("host", 7, [], 1, heartbeat_us), live=False)
        return bool(self._sessions.live([anna], now_us=self.anna_us + self._off_us))


def test_a_session_ends_once_its_heartbeat_has_stood_still_for_a_while() -> None:
    watching = Watching()
    last_us = watching.anna_us
    for _ in range(6):
        assert watching.sees(last_us)
        watching.anna_us += SECOND
    assert not watching.sees(last_us)


def test_a_session_with_heartbeats_is_live_however_far_off_its_clock() -> None:
    for off_us in (-60 * SECOND, 60 * SECOND):
        watching = Watching(off_us=off_us)
        watching.sees(watching.anna_us)
        for _ in range(10):
            watching.anna_us += SECOND
            assert watching.sees(watching.anna_us)


def test_one_whose_clock_was_ahead_is_over_as_soon_as_any_other() -> None:
    watching = Watching(off_us=-60 * SECOND)
    last_us = watching.anna_us
    for _ in range(6):
        assert watching.sees(last_us)
        watching.anna_us += SECOND
    assert not watching.sees(last_us)


def test_one_that_was_silent_before_it_was_first_seen_is_over_at_once() -> None:
    watching = Watching()
    assert not watching.sees(watching.anna_us - LIVE_US - 1)


def test_a_session_with_a_new_heartbeat_is_live_again() -> None:
    watching = Watching()
    watching.sees(watching.anna_us)
    watching.anna_us += 10 * SECOND
    assert not watching.sees(watching.anna_us - 10 * SECOND)
    assert watching.sees(watching.anna_us)


def test_a_watch_whose_own_clock_steps_back_counts_from_there() -> None:
    watching = Watching()
    last_us = watching.anna_us
    assert watching.sees(last_us)
    watching.anna_us -= 60 * SECOND
    assert watching.sees(last_us)
    watching.anna_us += LIVE_US + 1
    assert not watching.sees(last_us)
