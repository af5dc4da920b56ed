"""Items that are suspected of ending their worker's process stop nobody else. Real threads and real time."""

from __future__ import annotations

import threading
import time
from random import Random

from fairlead.actors.consumer import Consumer, Resources
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.settings import ConsumerSettings
from fairlead.clock import SystemClock
from fairlead.zones import engines
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import ItemRecord, decode, encode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.transaction_runner import Attempt

CLOCK = SystemClock()
PATIENCE_S = 20.0
QUICK = 20
EXPIRIES = ZoneSettings().expiries_before_isolation


class Story:
    """A consumer of two workers with a long job on each, and items that its handlers count."""

    def __init__(self) -> None:
        self.shard = open_shard(
            "main", engines.open("memory:", clock=CLOCK, random=Random(1)), clock=CLOCK, random=Random(2)
        )
        self.release = threading.Event()
        self.long_ones = threading.Semaphore(0)
        self.quick_ones = threading.Semaphore(0)
        self.poison_candidates: list[str] = []
        self.beside = 0
        self._lock = threading.Lock()
        registry = Registry()
        for handler in (self.report, self.suspect, self.quick):
            registry.add(handler_of(handler.__name__, handler))
        submitted = SubmittedHandlers(registry, b"", allow=False)
        settings = ConsumerSettings(workers=2)
        opened = Resources({"main": self.shard}, settings, (), submitted, CLOCK, Random(3))
        self.consumer = Consumer(opened, Identity(b"consumer", "test", 1, 0))

    def report(self, job: Job) -> None:
        self.long_ones.release()
        self.release.wait(PATIENCE_S)

    def quick(self, job: Job) -> None:
        self.quick_ones.release()

    def suspect(self, job: Job) -> None:
        with self._lock:
            self.beside += bool(self.poison_candidates)
            self.poison_candidates.append(job.tenant.user)
        self.release.wait(PATIENCE_S)
        with self._lock:
            self.poison_candidates.remove(job.tenant.user)

    def enqueue(self, kind: str, user: str, *, suspect: bool = False) -> None:
        """Enqueue an item; a suspect is one whose workers have died under it as often as it takes."""
        enqueue(self.shard, kind, Tenant("shop", user), expiries=EXPIRIES if suspect else 0)

    def stop(self) -> None:
        self.release.set()
        self.consumer.stop()


def enqueue(shard: Shard, kind: str, tenant: Tenant, *, expiries: int) -> None:
    zone = shard.zone(tenant)

    def body(attempt: Attempt) -> None:
        tr, now_us = attempt.tr, attempt.now_us
        item_id = attempt.new_id()
        zone.enqueue(tr, new_item(kind, None), item_id=item_id, now_us=now_us)
        key = zone.location.keys.item(item_id)
        record = decode(ItemRecord, tr.get(key).value or b"")
        assert record is not None
        record.expiry_count, record.expired_count = expiries, expiries
        tr.set(key, encode(record))

    shard.transact(body)


def test_items_that_must_run_alone_hold_up_nobody_though_long_ones_run_on_every_worker() -> None:
    """Before, the two suspects waited for the reports, and all that came later waited for the suspects."""
    story = Story()
    for number in range(2):
        story.enqueue("report", f"long {number}")
    for _ in range(2):
        assert story.long_ones.acquire(timeout=PATIENCE_S)
    for number in range(2):
        story.enqueue("suspect", f"suspect {number}", suspect=True)
    until_s = time.monotonic() + PATIENCE_S
    while not story.poison_candidates and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    assert len(story.poison_candidates) == 1, "it waits for nobody"
    begun_s = time.monotonic()
    for number in range(QUICK):
        story.enqueue("quick", f"user {number}")
    for _ in range(QUICK):
        assert story.quick_ones.acquire(timeout=1.0 - (time.monotonic() - begun_s))
    assert len(story.poison_candidates) == 1, "one at a time"
    story.stop()


def test_items_that_must_run_alone_run_one_after_the_other_and_all_do() -> None:
    story = Story()
    story.release.set()
    for number in range(5):
        story.enqueue("suspect", f"suspect {number}", suspect=True)
    until_s = time.monotonic() + PATIENCE_S
    while story.consumer.counts().get("completed") != 5:
        assert time.monotonic() < until_s
        threading.Event().wait(0.01)
    assert story.beside == 0
    story.stop()
