"""Commits whose answer tells nothing, and what others do before they are tried again.

After 1021 a commit was applied, or was not, or still may be; after 1031 its sender only knows that it took too long.
Whoever tries again first looks for what the first attempt has left: an enqueue for its receipt, a dequeue for items
under its lease, a completion for an item that is gone. What lands later than its own repetition is refused.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from actors import settlement
from actors.handlers import handler_of
from actors.job import Job
from actors.settlement import Verdict
from fairlead import tenant_database
from simulation.database import SimulatedDatabase
from tests.simulation.races.director import Role, SentCommit
from tests.simulation.races.missing_guards import Patch, read_by_snapshot
from tests.simulation.races.scene import ManagerRole, Scene, WorkerRole, held, paid
from tests.simulation.stage import SECOND
from zones.engines.errors import (
    COMMIT_UNKNOWN_RESULT,
    NOT_COMMITTED,
    TRANSACTION_TIMED_OUT,
    TRANSACTION_TOO_OLD,
    StoreError,
)
from zones.items import Enqueued, EnqueueStatus
from zones.keyspace import DB, ROOT, pack_int
from zones.layout import item_id_of
from zones.probes import probes_into
from zones.shard import Shard
from zones.tenant_transaction import TenantTransaction

TENANTS = ROOT + pack_int(DB)
MAIL = handler_of("mail", lambda job: None)
WINDOW_US = 5 * SECOND  # of a transaction


@pytest.fixture
def met() -> Iterator[Counter[str]]:
    """Count the rare points of the product that the story comes by."""
    counter: Counter[str] = Counter()
    with probes_into(counter):
        yield counter


def run_and_complete(scene: Scene) -> None:
    """Let a worker do what is due, all of it."""
    done = [held(scene.shard, item, MAIL) for item in scene.leased()]
    assert done
    scene.play(lambda: settlement.settle(scene.shard, done, []))
    assert scene.zone.items == {}


def look_for_nothing(patch: Patch) -> None:
    """Let nobody ask whether a commit of unknown result was applied."""
    transact = Shard.transact

    def without_asking(self: Shard, body: Any, *, applied: object = None, **how: Any) -> Any:
        return transact(self, body, **how)

    patch.setattr(Shard, "transact", without_asking)


# --- Enqueue ---


def enqueued_run_and_completed_before_the_retry(scene: Scene) -> None:
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    commit = enqueuer.runs_until_commit()
    commit.arrives()
    run_and_complete(scene)
    commit.is_answered(COMMIT_UNKNOWN_RESULT)
    assert enqueuer.runs().status is EnqueueStatus.ENQUEUED


def test_an_item_that_has_run_before_its_enqueue_is_tried_again_does_not_come_again(met: Counter[str]) -> None:
    scene = Scene()
    enqueued_run_and_completed_before_the_retry(scene)
    assert met["an enqueue of unknown result looks for its receipt"] == 1
    assert scene.zone.items == {}
    scene.check_stored()


def test_without_a_receipt_an_item_that_has_run_comes_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SimulatedDatabase, "results_can_be_unknown", False)
    scene = Scene()
    enqueued_run_and_completed_before_the_retry(scene)
    assert len(scene.zone.items) == 1


def enqueued_later_than_anybody_asked(scene: Scene) -> Role[Enqueued]:
    """The first attempt lands when the second has found no trace of it, and is run before the second lands."""
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    commit = enqueuer.runs_until_commit()
    commit.is_answered(COMMIT_UNKNOWN_RESULT)
    enqueuer.runs_until_commit()
    commit.arrives()
    run_and_complete(scene)
    enqueuer.runs()
    return enqueuer


def test_an_enqueue_that_lands_later_than_anybody_asked_happens_once(met: Counter[str]) -> None:
    scene = Scene()
    assert enqueued_later_than_anybody_asked(scene).refused == [NOT_COMMITTED]
    assert met["an enqueue of unknown result is found applied by its own retry"] == 1
    assert scene.zone.items == {}
    scene.check_stored()


def test_without_a_receipt_an_enqueue_that_lands_late_happens_twice(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SimulatedDatabase, "results_can_be_unknown", False)
    scene = Scene()
    enqueued_later_than_anybody_asked(scene)
    assert len(scene.zone.items) == 1


def enqueued_by_name_and_again(scene: Scene) -> SentCommit:
    """The application is told that its enqueue took too long, and calls again with the same name."""
    scene.has(lambda alice: alice.enqueue("mail"))  # The pointer is there: nothing else can refuse what lands late.
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail", item_id="order 7"))
    commit = enqueuer.runs_until_commit()
    commit.is_answered(TRANSACTION_TIMED_OUT)
    with pytest.raises(StoreError) as told:
        enqueuer.runs()
    assert told.value.code == TRANSACTION_TIMED_OUT
    assert scene.has(lambda alice: alice.enqueue("mail", item_id="order 7")).status is EnqueueStatus.ENQUEUED
    commit.arrives()
    return commit


def test_an_enqueue_by_name_that_lands_later_than_its_repetition_is_refused() -> None:
    scene = Scene()
    assert enqueued_by_name_and_again(scene).refusal == NOT_COMMITTED
    scene.check_stored()


def test_without_the_conflict_on_its_key_an_item_that_lands_late_is_counted_twice(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert enqueued_by_name_and_again(scene).refusal is None
    assert (scene.count, len(scene.zone.items)) == (3, 2)


# --- Dequeue ---


def dequeued_with_unknown_result(scene: Scene, *, applied: bool) -> ManagerRole:
    scene.has(lambda alice: alice.enqueue("mail"))
    manager = scene.manager()
    commit = manager.runs_until_commit()
    if applied:
        commit.arrives()
    commit.is_answered(COMMIT_UNKNOWN_RESULT)
    manager.runs()
    return manager


def test_items_that_carry_the_lease_of_an_unknown_dequeue_are_handed_over(met: Counter[str]) -> None:
    scene = Scene()
    (ref,) = dequeued_with_unknown_result(scene, applied=True).handed
    assert scene.zone.items[ref.item_id].lease_id == ref.lease_id
    assert met["a dequeue of unknown result is found applied"] == 1


def test_items_of_a_dequeue_that_was_lost_are_left_to_the_next_manager() -> None:
    scene = Scene()
    assert dequeued_with_unknown_result(scene, applied=False).handed == []
    next_manager = scene.manager("next manager")
    next_manager.runs()
    assert len(next_manager.handed) == 1
    assert scene.zone.items[next_manager.handed[0].item_id].lapse_count == 0


def test_without_a_look_for_its_lease_the_items_of_an_unknown_dequeue_must_lapse(monkeypatch: Patch) -> None:
    look_for_nothing(monkeypatch)
    scene = Scene()
    assert dequeued_with_unknown_result(scene, applied=True).handed == []
    (record,) = scene.zone.items.values()
    assert record.vesting_us > scene.now_us + SECOND, "nobody runs it for as long"


# --- Completion ---


def completed_with_unknown_result(scene: Scene) -> WorkerRole:
    scene.has(lambda alice: alice.enqueue("mail"))
    worker = scene.worker([MAIL], scene.leased())
    commit = worker.runs_until_commit(of="settling")
    commit.arrives()
    commit.is_answered(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    return worker


def test_an_item_that_is_gone_after_an_unknown_completion_is_completed() -> None:
    scene = Scene()
    worker = completed_with_unknown_result(scene)
    assert (worker.counts, scene.count) == ({"completed": 1}, 0)
    scene.check_stored()


def test_without_taking_what_is_gone_for_its_own_a_worker_calls_it_lost(monkeypatch: Patch) -> None:
    settle_once = settlement._settle_once

    def doubting(*args: Any, gone_is_mine: bool) -> settlement.Settled:
        return settle_once(*args, gone_is_mine=False)

    monkeypatch.setattr(settlement, "_settle_once", doubting)
    assert completed_with_unknown_result(Scene()).counts == {"lost": 1}


def paid_with_unknown_result(scene: Scene) -> tuple[int, int]:
    """Return how often the handler began, and what was paid."""
    attempts = 0

    def pay(job: Job, tr: TenantTransaction) -> None:
        nonlocal attempts
        attempts += 1
        tr.add(("paid",), 1)

    scene.has(lambda alice: alice.enqueue("pay"))
    worker = scene.worker([handler_of("pay", pay, transactional=True)], scene.leased(kinds=["pay"]))
    commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    commit.is_answered(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    return attempts, paid(scene)


def test_effects_whose_commit_is_unknown_are_found_done_with_their_item() -> None:
    assert paid_with_unknown_result(Scene()) == (1, 1)


def test_without_a_look_for_its_item_a_handler_runs_again_for_nothing(monkeypatch: Patch) -> None:
    """Its effects still happen once: the second attempt finds no item to complete."""
    look_for_nothing(monkeypatch)
    assert paid_with_unknown_result(Scene()) == (2, 1)


def completed_again_before_it_lands(scene: Scene, after_us: int) -> SentCommit:
    """The worker was told that its commit took too long, and tries again while the lease stands."""
    scene.has(lambda alice: alice.enqueue("mail"))
    worker = scene.worker([MAIL], scene.leased())
    commit = worker.runs_until_commit(of="settling")
    commit.is_answered(TRANSACTION_TIMED_OUT)
    worker.runs_until_idle()
    assert (worker.counts, scene.zone.items) == ({"completed": 1}, {})
    scene.pass_us(after_us)
    scene.plant(b"the log of commits", b"is pruned")
    commit.arrives()
    return commit


@pytest.mark.parametrize("after_us, code", [(0, NOT_COMMITTED), (2 * WINDOW_US, TRANSACTION_TOO_OLD)])
def test_a_completion_that_lands_later_than_its_repetition_is_refused(after_us: int, code: int) -> None:
    scene = Scene()
    assert completed_again_before_it_lands(scene, after_us).refusal == code
    scene.check_stored()


def test_without_the_conflict_on_its_record_a_completion_that_lands_late_is_counted_twice(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert completed_again_before_it_lands(scene, 0).refusal is None
    assert scene.count == -1


# --- Cancel and discard ---


def cancelled_and_enqueued_again(scene: Scene) -> Role[None]:
    """The name that was cancelled is given to another item before anybody asks what became of the cancel."""
    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    canceller = scene.user("canceller", lambda alice: alice.cancel("order 7"))
    commit = canceller.runs_until_commit()
    commit.arrives()
    assert scene.has(lambda alice: alice.enqueue("mail", item_id="order 7")).status is EnqueueStatus.ENQUEUED
    commit.is_answered(COMMIT_UNKNOWN_RESULT)
    canceller.runs()
    return canceller


def test_a_cancel_of_unknown_result_leaves_what_was_enqueued_since_by_the_same_name() -> None:
    scene = Scene()
    cancelled_and_enqueued_again(scene)
    assert item_id_of("order 7") in scene.zone.items


def test_without_telling_items_of_one_name_apart_a_cancel_of_unknown_result_takes_two(monkeypatch: Patch) -> None:
    monkeypatch.setattr(tenant_database, "_enqueued_us", lambda value: None if value is None else 0)
    scene = Scene()
    cancelled_and_enqueued_again(scene)
    assert scene.zone.items == {}


def discarded_and_buried_again(scene: Scene) -> None:
    """The same with a buried item, of whose name another one is buried since."""
    enqueue_and_bury(scene)
    operator = scene.user("operator", lambda alice: alice.discard("order 7"))
    commit = operator.runs_until_commit()
    commit.arrives()
    enqueue_and_bury(scene)
    commit.is_answered(COMMIT_UNKNOWN_RESULT)
    operator.runs()


def enqueue_and_bury(scene: Scene) -> None:
    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    never = [Verdict(held(scene.shard, item, MAIL), None, "never", "") for item in scene.leased()]
    scene.play(lambda: settlement.settle(scene.shard, [], never))


def test_a_discard_of_unknown_result_leaves_what_was_buried_since_by_the_same_name() -> None:
    scene = Scene()
    discarded_and_buried_again(scene)
    assert item_id_of("order 7") in scene.zone.buried


def test_without_telling_burials_of_one_name_apart_a_discard_of_unknown_result_takes_two(monkeypatch: Patch) -> None:
    monkeypatch.setattr(tenant_database, "_same_burial", lambda one, other: other is not None)
    scene = Scene()
    discarded_and_buried_again(scene)
    assert scene.zone.buried == {}
