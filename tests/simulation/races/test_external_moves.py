"""A tenant with a queue in an external store moves: the pointer moves too, vests there, and is not made here again."""

from __future__ import annotations

import pytest

from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.consistency import IndexNamesEveryItem
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.replica import ZoneName, ZoneReplica
from fairlead.simulation.world import Violation
from fairlead.zones.external import arrivals
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Arrival, Queue
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.policy import policies
from fairlead.zones.records import MoveState
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import drop_moved
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.move_scene import NEW, OLD, MoveScene
from tests.simulation.stage import ALICE

STORE, QUEUE = "pg", "queue"


def notes_an_arrival(shards: OpenShards) -> None:
    """Make the pointer of Alice's external queue, as the reader of its store does."""

    def note(shard: Shard) -> None:
        shard.transact(
            lambda attempt: arrivals.note_arrival(
                attempt.tr, shard.layout, STORE, Arrival(Queue(ALICE, QUEUE), 0), now_us=attempt.now_us
            )
        )

    shards.at_home(ALICE, note)


def moves_with_an_external_queue(scene: MoveScene) -> ZoneReplica:
    """Return the queue's pointer at the new home."""
    scene.does(notes_an_arrival)
    assert scene.moves() is MoveState.MOVED
    return scene.suite.shards[NEW].zones[ZoneName(ALICE, pointer_zone(STORE, QUEUE))]


def test_the_pointer_of_an_external_queue_has_an_entry_where_its_tenant_arrives() -> None:
    scene = MoveScene()
    moved = moves_with_an_external_queue(scene)
    assert moved.pointer is not None
    assert moved.pointer_entries == {(moved.pointer.priority, moved.pointer.vesting_us)}
    scene.ends_well(MoveState.MOVED)


def test_without_that_no_scan_finds_it() -> None:
    with (
        planted("the pointer of an external queue has no entry where its tenant arrives"),
        pytest.raises(Violation, match=IndexNamesEveryItem.promise),
    ):
        moves_with_an_external_queue(MoveScene())


def test_without_the_pointer_the_queue_waits_for_its_next_item() -> None:
    with planted("the pointer of an external queue does not move with its tenant"), pytest.raises(KeyError):
        moves_with_an_external_queue(MoveScene())


# --- A consumer that has not read the entries for a while visits a shard where the tenant comes in ---


def visits_where_she_comes_in(scene: MoveScene) -> None:
    """Let a late consumer visit the pointer at the new home, which has been copied there, before the decision."""

    def visit(shards: OpenShards) -> None:
        shard = shards[NEW]
        location = shard.layout.location(ALICE, pointer_zone(STORE, QUEUE))
        ref = PointerRef(location.part.part, location.pointer_id, 0, 0)
        shard.transact(lambda attempt: drop_moved(attempt.tr, shard.layout, ref))

    scene.does(notes_an_arrival)
    mover, decision = scene.frozen()
    scene.does(visit)
    decision.goes_its_way()
    mover.runs()


def test_a_late_visit_leaves_the_pointer_of_a_tenant_that_comes_in() -> None:
    scene = MoveScene()
    visits_where_she_comes_in(scene)
    scene.ends_well(MoveState.MOVED)


def test_without_the_look_whether_she_comes_in_the_visit_deletes_her_pointer() -> None:
    with (
        planted("a visit deletes the pointer of a tenant that comes in"),
        pytest.raises(Violation, match=TenantsMoveWhole.promise),
    ):
        visits_where_she_comes_in(MoveScene())


# --- A kind that was paused is resumed, and consumers wake the pointers that slept because of it ---


def wakes_what_was_paused(shards: OpenShards) -> None:
    """Wake the pointers of resumed kinds at the tenant's old home, as a consumer does in its housekeeping."""
    old = shards[OLD]
    old.transact(lambda attempt: policies.wake_paused_pointers(attempt.tr, old.layout, now_us=attempt.now_us))


def moves_before_the_waking(scene: MoveScene) -> None:
    """Let the pointer sleep because of a pause. The pause ends, the tenant moves, and then pointers are woken."""

    def sleep(attempt: Attempt, location: ZoneLocation) -> None:
        policies.change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, paused=True)
        policies.index_paused_pointer(attempt.tr, location, ["mail"])

    def resume(attempt: Attempt) -> None:
        policies.change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, paused=False)

    def pause_and_resume(shards: OpenShards) -> None:
        location = shards[OLD].layout.location(ALICE, pointer_zone(STORE, QUEUE))
        shards[OLD].transact(lambda attempt: sleep(attempt, location))
        shards[OLD].transact(resume)

    scene.does(notes_an_arrival)
    scene.does(pause_and_resume)
    assert scene.moves() is MoveState.MOVED
    scene.does(wakes_what_was_paused)


def test_a_pause_that_has_ended_wakes_no_pointer_of_a_tenant_that_has_moved() -> None:
    scene = MoveScene()
    moves_before_the_waking(scene)
    scene.ends_well(MoveState.MOVED)


def test_without_the_look_whether_it_is_there_the_old_home_has_a_pointer_again() -> None:
    with (
        planted("a resumed kind makes the pointers again that have gone"),
        pytest.raises(Violation, match=TenantsMoveWhole.promise),
    ):
        moves_before_the_waking(MoveScene())
