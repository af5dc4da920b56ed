"""Live moves, and what others commit meanwhile: movers that die or come late, rescuers, workers, signals, transfers.

Alice lives on her first home, and moves to the other shard by the product's own mover. After every commit the oracles
of moves and of queues look at both shards.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.actors.execution.job import Job
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.world import Violation
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import TenantMoved
from fairlead.zones.keyspace import SIGNAL, TenantKeys, pack_int
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.records import MovePhase, MoveState
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.lock_wait import PATIENCE_US, WAIT_US
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.director import DirectedStore, Role, SentCommit
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.move_scene import BOB, ITEM, NEW, OLD, MoveScene, on, reads, writes
from tests.simulation.stage import ALICE, SECOND


def test_a_client_takes_a_move_back_whose_mover_died_while_the_tenant_was_frozen() -> None:
    scene = MoveScene()
    mover, decision = scene.frozen()
    mover.host.kill()
    began_us = scene.world.now_us()
    scene.does(writes)
    assert PATIENCE_US <= scene.world.now_us() - began_us < 2 * PATIENCE_US
    decision.arrives()
    assert decision.refusal == NOT_COMMITTED
    assert scene.does(reads) == b"2"
    scene.mover("next").runs()
    scene.ends_well(MoveState.FAILED)


def test_a_client_says_that_a_tenant_has_moved_whose_mover_died_after_the_decision() -> None:
    scene = MoveScene()
    mover, decision = scene.frozen()
    mover.host.kill()
    decision.arrives()
    scene.does(writes)
    assert scene.suite.shards[NEW].lives_here(ALICE)
    assert scene.does(reads) == b"2"
    scene.mover("next").runs()
    scene.ends_well(MoveState.MOVED)


def test_a_mover_that_takes_over_between_close_and_thaw_takes_the_move_back_too() -> None:
    scene = MoveScene()
    mover, _ = scene.frozen()
    mover.host.kill()
    client = scene.role("client", writes)
    thaw = client.runs_until_commit(at=scene.old)
    assert scene.phase is MovePhase.FROZEN
    following = scene.mover("next")
    following.runs()
    assert scene.phase is None
    thaw.goes_its_way()
    client.runs()
    assert scene.does(reads) == b"2"
    scene.ends_well(MoveState.FAILED)


def a_mover_decides_between_close_and_thaw(scene: MoveScene) -> None:
    """A client has closed the destination, and does not know it yet. The next mover dies once it has decided."""
    mover, _ = scene.frozen()
    mover.host.kill()
    client = scene.role("client", writes)
    client.runs_until_commit(at=scene.new).arrives()
    following = scene.mover("next")
    following.runs_until(lambda: following.is_over or scene.suite.shards[NEW].lives_here(ALICE))
    following.host.kill()
    client.runs()
    assert scene.does(reads) == b"2"
    scene.ends_well(MoveState.FAILED)


def test_a_destination_that_was_closed_owns_no_tenant_before_the_thaw() -> None:
    a_mover_decides_between_close_and_thaw(MoveScene())


def test_without_a_note_of_the_close_the_tenant_lives_on_two_shards() -> None:
    with (
        planted("a destination forgets that it is closed before the source is thawed"),
        pytest.raises(Violation, match=TenantsMoveWhole.promise),
    ):
        a_mover_decides_between_close_and_thaw(MoveScene())


def test_a_mover_that_stood_still_while_the_next_one_ended_the_move_changes_nothing() -> None:
    scene = MoveScene()
    mover, decision = scene.frozen()
    assert scene.mover("next").runs() is MoveState.MOVED
    scene.does(writes)
    decision.goes_its_way()
    mover.runs()
    assert decision.refusal == NOT_COMMITTED
    assert scene.does(reads) == b"2"
    scene.ends_well(MoveState.MOVED)


def pays(job: Job) -> None:
    """Handle an item: pay, and complete the item in the same transaction."""

    def body(tr: TenantTransaction) -> None:
        tr.add(("paid",), 1)
        job.complete_in(tr)

    job.transact(body)


def pays_first(job: Job) -> None:
    """Handle an item: pay. The worker completes the item afterwards."""
    job.transact(lambda tr: tr.add(("paid",), 1))


@pytest.mark.parametrize(("handle", "completed_by"), [(pays, "slot"), (pays_first, "completer")])
def test_a_worker_completes_an_item_under_its_lease_at_the_new_home_of_a_tenant_that_moves_meanwhile(
    handle: Callable[[Job], None], completed_by: str
) -> None:
    scene = MoveScene()
    scene.does(lambda shards: on(shards, ALICE, lambda tr: tr.enqueue("mail", item_id=ITEM)))
    worker = scene.worker(handle)
    commit = worker.runs_until_commit(of=completed_by, at=scene.old)
    assert scene.moves() is MoveState.MOVED
    assert scene.items_of(ALICE) == [item_id_of(ITEM)]
    worker.runs_until_idle()
    assert commit.refusal == NOT_COMMITTED
    assert worker.counts == {"completed": 1}
    assert scene.does(lambda shards: on(shards, ALICE, lambda tr: tr.get(("paid",)))) == (1).to_bytes(8, "little")
    assert scene.items_of(ALICE) == []
    scene.ends_well(MoveState.MOVED)


def test_a_signal_that_is_sent_while_its_tenant_moves_is_stored_once_at_its_new_home() -> None:
    scene = MoveScene()
    scene.does(lambda shards: on(shards, ALICE, lambda tr: tr.enqueue("checkout", item_id=ITEM)))
    sender = scene.role("sender", lambda shards: on(shards, ALICE, lambda tr: tr.signal(ITEM, "approved", 1)))
    signal = sender.runs_until_commit(at=scene.old)
    assert scene.moves() is MoveState.MOVED
    sender.runs()
    assert signal.refusal == NOT_COMMITTED
    assert [signals_at(scene, name) for name in (OLD, NEW)] == [0, 1]
    scene.ends_well(MoveState.MOVED)


def signals_at(scene: MoveScene, name: str) -> int:
    signals = TenantKeys(*ALICE).prefix + pack_int(SIGNAL)
    return sum(key.startswith(signals) for key in scene.suite.shards[name].rows[ALICE])


def pays_across(shards: OpenShards) -> None:
    """Pay ten to Alice from Bob, whose shard decides."""
    host = shards[OLD]

    def body(tx: SpanningTransaction) -> None:
        tx.on(BOB).add(("money",), -10)
        tx.on(ALICE).add(("money",), 10)

    run_across_shards(shards, body, wait_us=WAIT_US, clock=host.clock, random=host.random)


def money(scene: MoveScene, tenant: Tenant) -> int:
    stored = scene.does(lambda shards: on(shards, tenant, lambda tr: tr.get(("money",))))
    return int.from_bytes(stored or b"", "little", signed=True)


def test_a_transaction_across_shards_that_prepares_while_its_tenant_moves_begins_anew_at_the_new_home() -> None:
    scene = MoveScene()
    payer = scene.role("payer", pays_across)
    prepare = payer.runs_until_commit(at=scene.old)
    assert scene.moves() is MoveState.MOVED
    payer.runs()
    assert prepare.refusal == NOT_COMMITTED
    assert (money(scene, ALICE), money(scene, BOB)) == (10, -10)
    scene.ends_well(MoveState.MOVED)


def a_mover_beside_a_transaction_across_shards(scene: MoveScene) -> MovePhase | None:
    """Alice is prepared, and the decision is on its way. Return in which phase her move is when it arrives."""
    scene.begins()
    payer = scene.role("payer", pays_across)
    payer.runs_until_commit(at=scene.new)
    mover = scene.mover()
    mover.goes_on(SECOND // 2)
    phase = scene.phase
    payer.runs()
    assert mover.runs() is MoveState.MOVED
    return phase


def test_a_tenant_is_not_frozen_before_a_transaction_across_shards_that_locks_it_is_settled() -> None:
    scene = MoveScene()
    assert a_mover_beside_a_transaction_across_shards(scene) is MovePhase.MOVING
    assert (money(scene, ALICE), money(scene, BOB)) == (10, -10)
    scene.ends_well(MoveState.MOVED)


def test_what_a_transaction_across_shards_applies_is_lost_if_the_tenant_is_frozen_under_its_lock() -> None:
    with (
        planted("a tenant is frozen although a transaction across shards has locked it"),
        pytest.raises(Violation, match=TenantsMoveWhole.promise),
    ):
        a_mover_beside_a_transaction_across_shards(MoveScene())


# --- Guards that seeds seldom need ---


def a_reader_behind_a_writer_at_the_new_home(scene: MoveScene) -> bytes | None:
    """The decision has been applied, and the source does not know. Return what a process reads that knows the source.

    A process that knows the destination has written before.
    """
    _, decision = scene.frozen()
    decision.arrives()
    moved = TenantMoved(app=ALICE.app, user=ALICE.user, owner=scene.suite.shards[NEW].shard_id.hex())

    def write(shards: OpenShards) -> None:
        assert shards.note_moved(moved)
        writes(shards)

    scene.does(write)
    return scene.does(reads)


def test_a_reader_waits_while_the_tenant_is_frozen_and_reads_what_was_written_at_the_new_home() -> None:
    assert a_reader_behind_a_writer_at_the_new_home(MoveScene()) == b"2"


def test_without_the_wait_of_readers_one_reads_what_was_written_over_at_the_new_home() -> None:
    with planted("who only reads goes on while the tenant is frozen"):
        assert a_reader_behind_a_writer_at_the_new_home(MoveScene()) == b"1"


def until_stage(scene: MoveScene, mover: Role[MoveState | None], stage: str, at: DirectedStore) -> SentCommit:
    """Run a mover until it is said to be at a stage; return its next commit to a store, which is on its way."""
    while True:
        commit = mover.runs_until_commit(at=at)
        if scene.record.stage == stage:
            return commit


def an_earlier_mover_forgets_the_marks(scene: MoveScene) -> None:
    """It stood still before it copied. The next mover has copied the tenant, and a user writes since."""
    scene.begins()
    earlier = scene.mover()
    forgets = until_stage(scene, earlier, "copying", scene.old)
    following = scene.mover("next")
    until_stage(scene, following, "copying what has changed", scene.old)
    scene.does(writes)
    forgets.goes_its_way()
    earlier.runs()
    following.runs()
    assert scene.does(reads) == b"2"
    scene.ends_well(MoveState.MOVED)


def test_a_mover_that_was_replaced_forgets_no_marks() -> None:
    an_earlier_mover_forgets_the_marks(MoveScene())


def test_without_the_number_of_the_mover_at_the_source_an_earlier_one_forgets_what_is_to_be_copied() -> None:
    with (
        planted("an earlier mover goes on at the source"),
        pytest.raises(Violation, match=TenantsMoveWhole.promise),
    ):
        an_earlier_mover_forgets_the_marks(MoveScene())


def a_mover_dies_before_it_has_copied_a_change(scene: MoveScene) -> None:
    """A user writes while the first chunk is on its way. The mover dies when it has sent what was changed."""
    scene.begins()
    mover = scene.mover()
    until_stage(scene, mover, "copying", scene.new)
    scene.does(writes)
    until_stage(scene, mover, "copying what has changed", scene.new)
    mover.host.kill()
    scene.mover("next").runs()
    assert scene.does(reads) == b"2"
    scene.ends_well(MoveState.MOVED)


def test_a_mover_that_dies_before_it_has_copied_a_change_leaves_its_mark() -> None:
    a_mover_dies_before_it_has_copied_a_change(MoveScene())


def test_a_mark_that_is_cleared_before_its_change_is_copied_loses_the_change() -> None:
    with (
        planted("marks are cleared before what they name is copied"),
        pytest.raises(Violation, match=TenantsMoveWhole.promise),
    ):
        a_mover_dies_before_it_has_copied_a_change(MoveScene())
