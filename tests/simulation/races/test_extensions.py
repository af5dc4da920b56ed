"""A worker that extends the lease of an item while it tries to complete the item.

An extension writes the record that a completion reads with conflict. So a worker does not extend an item that has an
open transaction of its own, or that has ended. An extension on its way when the item ends does not mean a lost lease.
"""

from types import SimpleNamespace

import pytest

from fairlead.actors.execution import deadlines, slots, status_reporting
from fairlead.actors.execution.in_flight import Phase
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import handler_of
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.missing_guards import TENANTS, Patch, read_by_snapshot
from tests.simulation.races.scene import Scene, WorkerRole
from tests.simulation.stage import SECOND

ATTEMPT_US = 4_500_000  # Longer than a third of a lease, shorter than a transaction may take.


@pytest.fixture(autouse=True)
def _no_worker_status(monkeypatch: Patch) -> None:
    """Let only extensions find lost items. A worker also finds them when it writes its status."""
    monkeypatch.setattr(status_reporting, "STATUS_US", 3600 * SECOND)


class LongAttempt:
    """A payment whose transaction is open for a long time, and a mail that takes as long.

    `attempts`: how often the handler of the payment began. `extended`: kinds whose leases were extended meanwhile.
    """

    def __init__(self, scene: Scene) -> None:
        self.attempts = 0
        scene.has(lambda alice: alice.enqueue("pay"))
        scene.has(lambda alice: alice.enqueue("mail"))
        items = scene.leased(kinds=["pay", "mail"])
        until_us = max(item.record.vesting_us for item in items)
        handlers = [handler_of("pay", self._pay, transactional=True), handler_of("mail", lambda job: self._work())]
        worker = scene.worker(handlers, items)
        self._work = lambda: worker.host.clock.sleep_us(ATTEMPT_US)
        worker.runs()
        scene.pass_us(ATTEMPT_US - SECOND // 2)
        self.extended = {record.kind for record in scene.zone.items.values() if record.vesting_us > until_us}
        scene.pass_us(2 * SECOND)
        self.refused = worker.refused
        self.remaining = len(scene.zone.items)

    def _pay(self, job: Job, tr: TenantTransaction) -> None:
        self.attempts += 1
        tr.get(("balance",))
        self._work()
        tr.set(("balance",), b"less")


def test_an_item_is_not_extended_while_its_own_transaction_is_open() -> None:
    attempt = LongAttempt(Scene())
    assert attempt.extended == {"mail"}, "it was time to extend"
    assert (attempt.attempts, attempt.refused, attempt.remaining) == (1, [], 0)


def test_an_extension_during_the_items_own_transaction_makes_the_transaction_conflict(monkeypatch: Patch) -> None:
    monkeypatch.setattr(deadlines, "Form", SimpleNamespace(TRANSACTIONAL=None))  # As if the handler were plain.
    attempt = LongAttempt(Scene())
    assert attempt.extended == {"mail", "pay"}
    assert (attempt.attempts, attempt.refused, attempt.remaining) == (2, [NOT_COMMITTED], 1)


def an_item_ends_while_its_lease_is_extended(scene: Scene) -> WorkerRole:
    ended = False

    def mail(job: Job) -> None:
        while not ended:
            worker.host.clock.sleep_us(1_000)

    scene.has(lambda alice: alice.enqueue("mail"))
    worker = scene.worker([handler_of("mail", mail)], scene.leased())
    worker.runs_until_commit(of="lease keeper")
    ended = True
    scene.pass_us(SECOND // 10)
    assert scene.zone.items == {}, "it is completed while its extension is on its way"
    worker.goes_on(SECOND // 10)
    return worker


def test_an_item_that_ends_while_its_lease_is_extended_is_completed_and_not_lost() -> None:
    worker = an_item_ends_while_its_lease_is_extended(Scene())
    assert worker.refused == [NOT_COMMITTED]
    assert worker.counts == {"completed": 1}


def test_without_the_check_for_finished_items_it_is_counted_as_lost_too(monkeypatch: Patch) -> None:
    phases = {phase.name: phase for phase in Phase}
    monkeypatch.setattr(slots, "Phase", SimpleNamespace(**{**phases, "FINISHED": None}))
    assert an_item_ends_while_its_lease_is_extended(Scene()).counts == {"completed": 1, "lost": 1}


def an_item_is_cancelled_while_its_lease_is_extended(scene: Scene) -> tuple[WorkerRole, list[bool]]:
    """The next extension tells the handler that its item is cancelled."""
    cancelled: list[bool] = []

    def mail(job: Job) -> None:
        while not job.cancelled and scene.world.elapsed_us < 8 * SECOND:
            worker.host.clock.sleep_us(1_000)
        cancelled.append(job.cancelled)

    item_id = scene.has(lambda alice: alice.enqueue("mail")).item_id
    worker = scene.worker([handler_of("mail", mail)], scene.leased())
    worker.runs_until_commit(of="lease keeper")
    scene.has(lambda alice: alice.cancel(item_id))
    worker.runs_until(lambda: cancelled)
    scene.pass_us(SECOND // 10)
    return worker, cancelled


def test_a_handler_sees_that_its_item_was_cancelled_while_the_lease_was_extended() -> None:
    scene = Scene()
    worker, cancelled = an_item_is_cancelled_while_its_lease_is_extended(scene)
    assert (worker.refused, cancelled, worker.counts) == ([NOT_COMMITTED], [True], {"lost": 1})
    assert (scene.zone.items, scene.count) == ({}, 0)


def test_without_the_conflict_on_its_record_an_extension_restores_a_cancelled_item(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    _, cancelled = an_item_is_cancelled_while_its_lease_is_extended(scene)
    assert cancelled == [False]


def an_item_is_cancelled_before_it_starts(scene: Scene) -> int:
    """A transactional attempt starts with a lease for the whole attempt. Return how often the handler began."""
    attempts = 0

    def pay(job: Job, tr: TenantTransaction) -> None:
        nonlocal attempts
        attempts += 1

    item_id = scene.has(lambda alice: alice.enqueue("pay")).item_id
    worker = scene.worker([handler_of("pay", pay, transactional=True)], scene.leased(SECOND, kinds=["pay"]))
    worker.runs_until_commit(of="slot")
    scene.has(lambda alice: alice.cancel(item_id))
    worker.runs_until_idle()
    return attempts


def test_a_handler_does_not_start_if_its_item_is_cancelled_while_the_lease_for_the_start_is_committed() -> None:
    scene = Scene()
    assert an_item_is_cancelled_before_it_starts(scene) == 0
    assert scene.count == 0


def test_without_the_conflict_on_its_record_the_handler_of_a_cancelled_item_starts(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    assert an_item_is_cancelled_before_it_starts(Scene()) == 1
