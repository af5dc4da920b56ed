"""Writes for keeping the leases of long jobs: one worker, a thousand jobs at once, in virtual time.

    python -m bench.long_jobs [--json] [--quick]

The worker is the product's, on a simulated host over a store in memory. In one run the jobs take up to ten minutes,
evenly distributed; in the other all take just under ten minutes. An item is written for its lease when its vesting time
changes while it is held. Heartbeats are one write each for all jobs together. Both are read from the store each second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from bench.report import options, say, show
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.messages import ItemRef
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.worker import Worker
from fairlead.simulation.handler_runners import SimulatedRunners
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.world import World
from fairlead.zones import engines
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dequeue_plan import UNLIMITED, Capacity
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.top_level.worker_sessions import look_op
from fairlead.zones.transaction_runner import Attempt

JOBS, LONGEST_S = 1_000, 600
QUICK_JOBS = 100
TENANT = Tenant("bench", "alice")
SECOND = 1_000_000


def measure(jobs: int) -> dict[str, Any]:
    """Return the figures of both runs."""
    random = Random(1)
    say(f"{jobs} jobs of up to ten minutes")
    mixed = keep([random.uniform(1, LONGEST_S) for _ in range(jobs)])
    say(f"{jobs} jobs of ten minutes")
    return {"up_to_ten_minutes": mixed, "ten_minutes": keep([LONGEST_S - 1] * jobs)}


def keep(durations_s: Sequence[float]) -> dict[str, Any]:
    """Run a job for each duration, all at once, and return the writes for keeping their leases."""
    world = World(1)
    clock = NodeClock(world, 0)
    random = Random(2)
    db = engines.open("memory:", clock=clock, random=random)
    shard = open_shard("main", db, clock=clock, random=random, settings=None, part_count=2)
    host = SimulatedHost(world, "worker#1", clock, random, on_recycle=_refuse, on_failure=_refuse)
    settings = ConsumerSettings(managers=1, workers=1, slots=len(durations_s))

    def work(job: Job) -> None:
        clock.sleep_us(round(durations_s[job.payload] * SECOND))

    worker = _worker(host, shard, work, settings)
    held = _leased(shard, len(durations_s), lease_us=settings.lease_ms * 1000)

    def place() -> None:
        worker.place(held, host.incarnation)

    host.spawn("manager", place)
    changes, beats = [0] * len(held), set[bytes]()
    vesting_us: list[int | None] = [None] * len(held)
    while worker.counts().get("completed", 0) < len(held):
        world.run_until(world.now_us() + SECOND)
        for number, record in enumerate(_records(shard, held)):
            if record is not None:
                changes[number] += record.vesting_us != (vesting_us[number] or record.vesting_us)
                vesting_us[number] = record.vesting_us
        beats.update(shard.transact(lambda attempt: run_one(look_op(attempt.tr))).beats.values())
    return {
        "jobs": len(held),
        "lease_writes_per_job": round(sum(changes) / len(held), 3),
        "lease_writes_of_a_job_max": max(changes),
        "heartbeats": len(beats),
        "writes_per_job_in_all": round((sum(changes) + len(beats)) / len(held), 3),
    }


def _worker(host: SimulatedHost, shard: Shard, work: Callable[[Job], None], settings: ConsumerSettings) -> Worker:
    registry = Registry()
    registry.add(handler_of("report", work))
    submitted = SubmittedHandlers(registry, key=b"", allow=False)
    identity = Identity(consumer_id=bytes(16), host="here", pid=1, started_us=0)
    worker = Worker(host, {shard.name: shard}, submitted, settings, SimulatedRunners(host), identity)
    worker.start()
    return worker


def _leased(shard: Shard, count: int, *, lease_us: int) -> list[ItemRef]:
    """Enqueue items whose payloads are their numbers, lease them all, and return them in the order of their numbers."""
    zone = shard.zone(TENANT)
    capacity = Capacity(count, {"report": UNLIMITED})

    def enqueue(attempt: Attempt) -> list[bytes]:
        items = [(attempt.new_id(), new_item("report", number)) for number in range(count)]
        run_one(zone.enqueue_op(attempt.tr, items, now_us=attempt.now_us))
        return [item_id for item_id, _ in items]

    def lease(attempt: Attempt) -> dict[bytes, ItemRef]:
        found = zone.dequeue(
            attempt.tr, capacity=capacity, lease_id=attempt.new_id(), lease_us=lease_us, now_us=attempt.now_us
        )
        return {
            item.id: ItemRef(shard.name, TENANT, DEFAULT_ZONE, item.id, item.record.lease_id, "report", item.isolated)
            for item in found
        }

    item_ids = shard.transact(enqueue)
    refs: dict[bytes, ItemRef] = {}
    while len(refs) < count:
        refs |= shard.transact(lease)
    return [refs[item_id] for item_id in item_ids]


def _records(shard: Shard, held: Sequence[ItemRef]) -> list[ItemRecord | None]:
    keys = shard.zone(TENANT).location.keys

    def body(attempt: Attempt) -> list[ItemRecord | None]:
        values = [attempt.tr.snapshot.get(keys.item(ref.item_id)).value for ref in held]
        return [None if value is None else decode(ItemRecord, value) for value in values]

    return shard.transact(body)


def _refuse(why: str) -> None:
    raise AssertionError(why)


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    show(measure(QUICK_JOBS if opts.quick else JOBS), opts, "Writes for keeping the leases of long jobs")


if __name__ == "__main__":
    main()
