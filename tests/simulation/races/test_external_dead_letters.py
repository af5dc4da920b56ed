"""An item of an external store whose lease expires in an isolated run becomes a dead letter; another one does not."""

from __future__ import annotations

from dataclasses import replace

from fairlead.simulation.external import statements
from fairlead.simulation.external.items import Change, State
from fairlead.simulation.external.server import StoreCommit, StoreServer
from fairlead.simulation.oracles.external import CommittedItemsRun
from fairlead.simulation.oracles.zone_operations import EXPIRED
from fairlead.simulation.world import Violation, World
from fairlead.zones.external.store import Queue, Start
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import DeadLetterRecord
from tests.simulation.stage import ALICE

ITEM_ID = b"i" * 16


def violation_of(start: Start) -> Violation | None:
    """Return the violation if a worker is killed whose item has started so, and a manager makes it a dead letter."""
    world = World(1)
    server = StoreServer(world)
    oracle = CommittedItemsRun(world, server, is_consumer=lambda by: by != "user")
    transaction = server.table.begin()
    statements.enqueue(transaction, Queue(ALICE, "queue"), ITEM_ID, new_item("mail"))
    server.commit("user", transaction)
    (leased,) = server.table.rows()
    started = replace(leased, started=int(start))
    dead = replace(started, state=State.DEAD, dead_letter=DeadLetterRecord(started.record, EXPIRED, "killed", "", 0))
    oracle.on_store_commit(StoreCommit("w0", [Change(ITEM_ID, leased, started)]))
    oracle.on_store_commit(StoreCommit("m0", [Change(ITEM_ID, started, dead)]))
    return world.violation


def test_an_item_whose_isolated_worker_is_killed_becomes_a_dead_letter() -> None:
    """Nobody can tell who killed the worker: the handler, or somebody else."""
    assert violation_of(Start.ISOLATED) is None


def test_an_item_whose_worker_is_killed_beside_others_does_not() -> None:
    found = violation_of(Start.BESIDE_OTHERS)
    assert found is not None
    assert CommittedItemsRun.promise in str(found)
