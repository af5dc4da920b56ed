"""A tenant that moves although it has a queue in an external store: its pointer moves, and vests at the new home."""

from __future__ import annotations

import pytest

from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.consistency import IndexNamesEveryItem
from fairlead.simulation.replica import ZoneName, ZoneReplica
from fairlead.simulation.world import Violation
from fairlead.zones.external import arrivals
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Arrival, Queue
from fairlead.zones.records import MoveState
from fairlead.zones.shard import Shard
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.move_scene import NEW, MoveScene
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
