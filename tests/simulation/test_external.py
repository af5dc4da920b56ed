"""External stores in worlds with faults. `test_seeds` draws fresh seeds, mutations plant bugs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fairlead.simulation.external import statements
from fairlead.simulation.external.faults import STORE_FAULTS
from fairlead.simulation.external.items import Transaction
from fairlead.simulation.external.server import StoreServer
from fairlead.simulation.external.users import KINDS
from fairlead.simulation.external.world import ExternalSimulation, run_external
from fairlead.simulation.oracles.external_sessions import SessionsInStoreLastAsLongAsTheirHeartbeats
from fairlead.simulation.world import World
from fairlead.zones.external.store import ItemLease, Queue, Want
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item

SEEDS = (*range(11), 22)  # In the last one, a worker falls silent.


def test_the_same_seed_gives_the_same_events() -> None:
    assert run_external(2).events == run_external(2).events


def test_all_kinds_run_and_all_faults_of_the_store_strike() -> None:
    """A world with few events would prove little."""
    seen: Counter[str] = Counter()
    probes: Counter[str] = Counter()
    for seed in SEEDS:
        world = ExternalSimulation(seed)
        report = world.run()
        assert not report.violations, report
        happened = "\n".join(report.lines)
        seen.update(kind for kind in KINDS for _ in range(happened.count(f"runs {kind} ")))
        seen.update(type(fault).__name__ for fault in world.store_faults)
        for event in ("SerializationFailure", "Deadlock", "cut_late", "cut_after", "without the last", "pg restarts"):
            seen[event] += happened.count(event)
        probes.update(report.probes)
    names = [*KINDS, *(fault.__name__ for fault in STORE_FAULTS), "SerializationFailure", "cut_late", "cut_after"]
    assert [name for name in (*names, "without the last", "pg restarts") if not seen[name]] == []
    for rare in (
        "a visit does not commit, and its items are leased all the same",
        "a visit finds an external store away",
        "a process takes over the reading of an external store",
        "a reader of an external store looks at all queues",
        "items of an external queue are locked by another transaction",
        "the pointer of an external queue moves with its tenant",
        "the silent session of a worker in an external store is ended",
        "what an ended session claims in an external store is released",
    ):
        assert probes[rare], rare


def test_a_claim_under_a_session_that_has_ended_is_found() -> None:
    """No seed draws it: who ends a session waits for a claim that is being made, and releases it afterwards."""
    world = World(1)
    server = StoreServer(world)
    oracle = SessionsInStoreLastAsLongAsTheirHeartbeats(world, server, calm_us=0, is_dead=lambda _: False)
    oracle.attach(server)
    queue, item_id, lease_id = Queue(Tenant("shop", "alice"), "queue"), b"i" * 16, b"l" * 16

    def commit(by: str, statement: Callable[[Transaction], object]) -> None:
        transaction = server.table.begin()
        statement(transaction)
        server.commit(by, transaction)

    commit("user", lambda tx: statements.enqueue(tx, queue, item_id, new_item("mail")))
    lease = {"lease_id": lease_id, "lease_us": 1_000_000, "now_us": 0}
    commit("m0", lambda tx: statements.dequeue(tx, [Want(queue, 1)], {"mail": 1}, **lease))  # type: ignore[arg-type]
    held = [ItemLease(item_id, lease_id)]
    commit("w0", lambda tx: statements.extend(tx, held, lease_us=1_000_000, session=b"s" * 16))
    assert world.violation is not None
    assert "for a session that has ended" in world.violation.what
