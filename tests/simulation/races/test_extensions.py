"""A worker that extends the leases of what it runs, against its own attempts to complete it.

An extension writes the record that a completion reads with conflict. So a worker leaves alone what has an open
transaction of its own or has ended, and an extension that was on its way when the item ended is no loss.
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
    """A worker also finds lost items when it writes its status. Here only extensions find them."""
    monkeypatch.setattr(status_reporting, "STATUS_US", 3600 * SECOND)


class LongAttempt:
    """How a payment goes whose transaction is open for long, beside a mail that takes as long.

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
        self.left = len(scene.zone.items)

    def _pay(self, job: Job, tr: TenantTransaction) -> None:
        self.attempts += 1
        tr.get(("balance",))
        self._work()
        tr.set(("balance",), b"less")


def test_an_item_is_not_extended_while_its_own_transaction_is_open() -> None:
    attempt = LongAttempt(Scene())
    assert attempt.extended == {"mail"}, "it was time to extend"
    assert (attempt.attempts, attempt.refused, attempt.left) == (1, [], 0)


def test_extended_all_the_same_an_item_makes_its_own_transaction_fail(monkeypatch: Patch) -> None:
    monkeypatch.setattr(deadlines, "Form", SimpleNamespace(TRANSACTIONAL=None))  # as if it were plain
    attempt = LongAttempt(Scene())
    assert attempt.extended == {"mail", "pay"}
    assert (attempt.attempts, attempt.refused, attempt.left) == (2, [NOT_COMMITTED], 1)


def an_item_ends_while_it_is_extended(scene: Scene) -> WorkerRole:
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


def test_an_item_that_ends_while_it_is_extended_is_completed_and_not_lost() -> None:
    worker = an_item_ends_while_it_is_extended(Scene())
    assert worker.refused == [NOT_COMMITTED]
    assert worker.counts == {"completed": 1}


def test_without_a_look_at_whether_it_has_ended_it_is_called_lost(monkeypatch: Patch) -> None:
    phases = {phase.name: phase for phase in Phase}
    monkeypatch.setattr(slots, "Phase", SimpleNamespace(**{**phases, "FINISHED": None}))
    assert an_item_ends_while_it_is_extended(Scene()).counts == {"completed": 1, "lost": 1}


def an_item_is_cancelled_while_it_is_extended(scene: Scene) -> tuple[WorkerRole, list[bool]]:
    """Its handler is told, at the next extension, that nobody wants its result any more."""
    told: list[bool] = []

    def mail(job: Job) -> None:
        while not job.cancelled and scene.world.elapsed_us < 8 * SECOND:
            worker.host.clock.sleep_us(1_000)
        told.append(job.cancelled)

    item_id = scene.has(lambda alice: alice.enqueue("mail")).item_id
    worker = scene.worker([handler_of("mail", mail)], scene.leased())
    worker.runs_until_commit(of="lease keeper")
    scene.has(lambda alice: alice.cancel(item_id))
    worker.runs_until(lambda: told)
    scene.pass_us(SECOND // 10)
    return worker, told


def test_a_handler_is_told_that_its_item_is_cancelled_while_its_lease_is_extended() -> None:
    scene = Scene()
    worker, told = an_item_is_cancelled_while_it_is_extended(scene)
    assert (worker.refused, told, worker.counts) == ([NOT_COMMITTED], [True], {"lost": 1})
    assert (scene.zone.items, scene.count) == ({}, 0)


def test_without_the_conflict_on_its_record_an_extension_brings_a_cancelled_item_back(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    _, told = an_item_is_cancelled_while_it_is_extended(scene)
    assert told == [False]


def an_item_is_cancelled_before_it_starts(scene: Scene) -> int:
    """A transactional attempt starts with a lease that outlasts it; return how often the handler began."""
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


def test_a_handler_does_not_start_whose_item_is_cancelled_while_it_is_leased_for_the_start() -> None:
    scene = Scene()
    assert an_item_is_cancelled_before_it_starts(scene) == 0
    assert scene.count == 0


def test_without_the_conflict_on_its_record_the_handler_of_a_cancelled_item_starts(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    assert an_item_is_cancelled_before_it_starts(Scene()) == 1
