"""The session of a worker in an external store, and the consumer that looks whether the session is silent."""

from __future__ import annotations

from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.messages import ItemRef
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.worker import Worker
from fairlead.simulation.external.client import SimulatedItemStore
from fairlead.simulation.external.items import StoredItem
from fairlead.simulation.handler_runners import SimulatedRunners
from fairlead.simulation.host import SimulatedHost
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Queue, Want
from tests.actors.stage import IDENTITY
from tests.simulation.races.external_scene import SECOND, SHARDS, STORE, Readers, living_on
from tests.simulation.races.missing_guards import planted

ALICE = living_on(SHARDS[0], 0)
LEASE_ID = b"l" * 16
LEASE_MS = 1_000
LONG_US = 60 * SECOND


class LongMail:
    """A worker that claims an item in the store for a minute, and a consumer that reads the store."""

    def __init__(self) -> None:
        self.scene = Readers()
        self.scene.start("a#1")
        self.scene.enqueue(ALICE)
        self.host = self.scene.new_host("w#1")
        self.host.spawn("begin", lambda: self._begin(self.host))
        self.scene.passes(3 * SECOND)
        assert self.session

    def _begin(self, host: SimulatedHost) -> None:
        store = SimulatedItemStore(self.scene.server, host)
        wants = [Want(Queue(ALICE, "queue"), 1)]
        found = store.dequeue(wants, {"mail": 1}, lease_id=LEASE_ID, lease_us=LEASE_MS * 1_000, now_us=0)
        registry = Registry({"mail": handler_of("mail", lambda job: host.clock.sleep_us(LONG_US))})
        submitted = SubmittedHandlers(registry, key=b"", allow=False)
        settings = ConsumerSettings(managers=1, workers=1, lease_ms=LEASE_MS)
        shards, externals = self.scene.open_in(host), {STORE: store}
        worker = Worker(host, shards, submitted, settings, SimulatedRunners(host), IDENTITY, externals=externals)
        worker.start()
        (row,) = found.rows
        zone = pointer_zone(STORE, "queue")
        worker.place([ItemRef(SHARDS[0], ALICE, zone, row.id, LEASE_ID, "mail", False)], host.incarnation)

    @property
    def session(self) -> bytes:
        """The session that claims the item; empty: none does."""
        (row,) = self.scene.server.table.rows()
        assert isinstance(row, StoredItem)
        return row.session


def claim_after_a_pause(pause_us: int) -> bool:
    """Whether a worker has its claim still after it stood still for so long."""
    mail = LongMail()
    before = mail.session
    mail.host.paused_until_us = mail.scene.world.now_us() + pause_us
    mail.scene.passes(pause_us)
    return mail.session == before


def test_a_worker_that_stands_still_for_three_seconds_keeps_its_claims() -> None:
    assert claim_after_a_pause(3 * SECOND)


def test_a_worker_that_stands_still_for_seven_seconds_loses_them() -> None:
    assert not claim_after_a_pause(7 * SECOND)


def test_one_that_is_taken_for_silent_after_two_looks_loses_them_in_three_seconds() -> None:
    with planted("a session in an external store is taken for silent after two looks"):
        assert not claim_after_a_pause(3 * SECOND)
