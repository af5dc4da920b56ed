"""A live store with some of every record and key in it, ways to damage it, and every action on a store.

What is damaged is drawn from a seed, and what has been done to the store can be printed, so a failure can be repeated.
"""

# ruff: noqa: B023 - what a loop yields is done before it goes on

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

from fairlead.zones import engines, transaction_runner
from fairlead.zones import submitted_handlers as handlers
from fairlead.zones.engines import Database, transact
from fairlead.zones.keyspace import (
    CHILD_RESULT,
    DB,
    FENCE,
    FLOOR,
    META_KEY,
    ROOT,
    ROOT_RANGE,
    SIGNAL,
    STEP_LOG,
    TOMBSTONE,
)
from fairlead.zones.layout import Tenant, ZoneLocation, local_tenant
from fairlead.zones.maintenance.integrity import Finding, Report
from fairlead.zones.maintenance.integrity.runs import LATER_SEGMENT, NO_HEAD
from fairlead.zones.pipelining import run_one, run_together
from fairlead.zones.policy import limits, policies
from fairlead.zones.queue import claims, dead_letters, id_retention, periodic, results
from fairlead.zones.queue.items import new_item
from fairlead.zones.queue.periodic import period
from fairlead.zones.records import KindPolicy, TenantPolicy
from fairlead.zones.reporting import completion_log, diagnosis, rollups, worker_status
from fairlead.zones.reporting.rollups import KindRollup, Rollup
from fairlead.zones.reporting.worker_status import RunningItem, WorkerStatus
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import pointers, sessions, worker_sessions
from fairlead.zones.top_level.clock_check import ShardClock
from fairlead.zones.top_level.clock_check import check_clock as beat_time
from fairlead.zones.tuples import elements_of
from tests.clocks import ManualClock
from tests.zones.corrupting_runs import begin_runs, run_actions
from tests.zones.world import ALICE, BOB, LEASE_US, PART_COUNT, SECOND, World

CAROL = Tenant("shop", "carol")
DAVE = Tenant("shop", "dave")
TENANTS = (ALICE, BOB, CAROL, DAVE)
DAY_US = 86_400 * SECOND
PERIOD = period("mail", 60)


def memory() -> tuple[Database, ManualClock]:
    clock = ManualClock()
    return engines.open("memory:", clock=clock, random=Random(1)), clock


def populate(world: World) -> None:
    """Some of everything that can be stored, due and not, of several tenants."""
    for tenant in TENANTS:
        zone = world.zone_of(tenant)
        world.enqueue_all([new_item("mail"), new_item("index", {"page": 7}, priority=3)], zone=zone)
        world.enqueue("mail", zone=zone, delay=60)
        world.shard.transact(lambda attempt: _own(world, tenant, attempt))
    world.enqueue("mail", bytes(100_000))
    world.enqueue("index", zone=world.zone_of(BOB, "other"), item_id="a name", unique_for=60)
    world.enqueue("index", zone=world.zone_of(local_tenant("index")))
    for payload in (None, bytes(100_000)):
        make_dead_letter(world, world.enqueue("mail", payload))
    world.run(lambda tr: policies.change_kind_policy(tr, "fax", now_us=world.now_us, paused=True))
    world.run(
        lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, max_running=50, per_s=50.0, burst=9)
    )
    world.run(lambda tr: policies.set_tenant_policy(tr, world.layout, BOB, TenantPolicy(max_running=20, per_s=50.0,
    burst=20),
                                               now_us=world.now_us))  # fmt: skip
    world.enqueue("fax", zone=world.zone_of(DAVE, "paused"))
    use_some(world)


def _own(world: World, tenant: Tenant, attempt: Any) -> None:
    TenantTransaction(world.shard, tenant, attempt).set(("own",), b"data")


def make_dead_letter(world: World, item_id: bytes) -> None:
    record = world.record(item_id)
    assert record is not None
    world.run(
        lambda tr: dead_letters.move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="error", error="no", traceback="", now_us=world.now_us
        )
    )


def use_some(world: World) -> None:
    """Leave behind what a fleet leaves: leases, completions, in-flight markers, grants, receipts, periods, sessions."""
    world.process({"mail": 3, "index": 2})
    for how in ({"item_id": "done", "unique_for": 60}, {}):
        done = world.enqueue("mail", **how)  # type: ignore[arg-type]
        world.complete(done)
        world.pass_us(2 * SECOND)
        world.run(lambda tr: completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us))
    world.complete(world.enqueue("mail"))
    world.present("one", "mail", "index")
    world.present("two", "mail")
    world.run(lambda tr: limits.take_slots(tr, "mail", 50, holder=b"m", held=0, wanted=3, lease_us=LEASE_US,
                                           clocks_apart_us=LEASE_US, now_us=world.now_us))  # fmt: skip
    policy = KindPolicy(per_s=50.0, burst=9)
    world.run(
        lambda tr: limits.take_tokens(
            tr, "mail", policy, wanted=2, returned=0, clocks_apart_us=LEASE_US, now_us=world.now_us
        )
    )
    world.run(lambda tr: run_one(periodic.tick_op(tr, world.layout, PERIOD, run=world.new_id(), now_us=world.now_us)))
    submit(world)
    world.run(lambda tr: beat_time(tr, ShardClock(max_skew_us=SECOND, watch_us=SECOND), now_us=world.now_us))
    kept = {"now_us": world.now_us, "kept_us": DAY_US}
    world.run(
        lambda tr: results.keep_result(tr, world.zone.location, bytes(16), results.pack_result({"page": 7}), **kept)
    )
    rollup = Rollup({"mail": KindRollup(3, 1)}, {"shop": {"alice": 7}})
    item = RunningItem("shop", "alice", "queue", bytes(16), "mail", 1, world.now_us, world.now_us)
    for incarnation in (b"one", b"two"):
        world.run(lambda tr: rollups.write(tr, incarnation, rollups.interval_of(world.now_us), rollup))
        status = WorkerStatus(b"c" * 8, "there", 1, 4, 2, world.now_us, [item])
        world.run(lambda tr: worker_status.write(tr, incarnation, status))
    world.pass_us(30 * SECOND)
    world.run(lambda tr: rollups.sum_up(tr, world.layout, now_us=world.now_us))
    world.run(lambda tr: rollups.write(tr, b"one", rollups.interval_of(world.now_us), rollup))
    depth = rollups.StoreDepth({"mail": 3}, world.now_us)
    world.run(lambda tr: rollups.write_depth(tr, "pg", rollups.interval_of(world.now_us), depth))
    claim_some(world)
    begin_runs(world)
    world.set(transaction_runner.receipt_key(b"s" * 12, world.now_us + DAY_US), bytes(4))


def claim_some(world: World) -> None:
    """Leave behind what workers leave: two sessions with claims, one of which has ended, and a notice."""
    for session_id in (b"one's session...", b"two's session..."):
        item_ids = [world.enqueue("mail") for _ in range(2)]
        held = [(item_id, world.lease(item_id)) for item_id in item_ids]

        def body(tr: Any) -> None:
            run_one(claims.claim_op(tr, world.zone.location, held, session_id=session_id, now_us=world.now_us))
            session = worker_sessions.WorkerSession(session_id[:3], world.now_us)
            worker_sessions.begin(tr, session_id, session, beat=world.new_id())

        world.run(body)
        world.run(lambda tr: world.zone.complete(tr, item_ids[0], now_us=world.now_us))
    world.run(lambda tr: run_one(worker_sessions.end_session_op(tr, b"two's session...")))


@cache
def populated() -> tuple[tuple[bytes, bytes], ...]:
    """Return all pairs of a populated shard."""
    world = World(*memory())
    populate(world)
    return tuple(world.stored(*ROOT_RANGE))


def submit(world: World) -> None:
    world.run(lambda tr: handlers.submit(tr, "report", b"code", sign=lambda *_: b"", above=0, now_us=world.now_us))


# --- Damage ---


class Damage(NamedTuple):
    """What was done to one pair: `after` takes the place of `before`."""

    what: str
    before: tuple[bytes, bytes]
    after: tuple[bytes, bytes]


def flipped(value: bytes, random: Random) -> bytes:
    """Return bytes with one bit turned over."""
    if not value:
        return b"\x80"
    at = random.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << random.randrange(8)]) + value[at + 1 :]


def truncated(value: bytes, random: Random) -> bytes:
    return value[: random.randrange(len(value))] if value else b""


def garbage(_: bytes, random: Random) -> bytes:
    return random.randbytes(random.choice((0, 1, 3, 8, 16, 40, 300)))


WAYS: tuple[Callable[[bytes, Random], bytes], ...] = (flipped, truncated, garbage)


def damage_of(pair: tuple[bytes, bytes], random: Random) -> Damage:
    """Draw how a pair is damaged: its value, or its key behind the root."""
    key, value = pair
    way = random.choice(WAYS)
    if random.random() < 0.5:
        return Damage(f"value {way.__name__}", pair, (key, way(value, random)))
    at = random.choice([len(ROOT), len(ROOT) + 2, len(key) // 2, max(len(ROOT), len(key) - 12)])
    kept = key[:at]
    return Damage(f"key {way.__name__}", pair, (kept + way(key[at:], random), value))


def damage(db: Database, damages: list[Damage]) -> None:
    """Do it, behind the queue's back."""

    def body(tr: Any) -> None:
        for each in damages:
            tr.clear(each.before[0])
            tr.set(*each.after)

    transact(db, body)


def damaged_world(random: Random, *, of_runs: bool = False) -> tuple[World, list[Damage]]:
    """Return a populated shard in memory some pairs of which are damaged, and what was done to it.

    `of_runs`: only what is stored of workflows is damaged.
    """
    pairs = [pair for pair in populated() if pair[0] != META_KEY and (is_of_run(pair[0]) or not of_runs)]
    damages = [damage_of(pair, random) for pair in random.sample(pairs, random.choice((1, 2, 8)))]
    return world_of(damages), damages


def left(report: Report) -> list[Finding]:
    """Return what is left of a check that has set damage aside, except the runs that only a person may give up."""
    return [each for each in report.findings if not each.resolved and each.what not in (NO_HEAD, LATER_SEGMENT)]


def is_of_run(key: bytes) -> bool:
    """Say whether a key belongs to a run of a workflow, or to the tombstones of a shard."""
    match elements_of(key):
        case (_, int(number), _, _, int(sort), *_) if number == DB:
            return sort in (STEP_LOG, FENCE, SIGNAL, CHILD_RESULT)
        case (_, int(number), *_):
            return number in (TOMBSTONE, FLOOR)
    return False


def world_of(damages: list[Damage]) -> World:
    db, clock = memory()
    clock.advance_us(10 * SECOND)

    def body(tr: Any) -> None:
        for key, value in populated():
            tr.set(key, value)

    transact(db, body)
    world = World(db, clock)  # Opened before: a fleet runs when it happens.
    damage(db, damages)
    return world


# --- Every action on a store ---


def actions(world: World) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield everything that producers, consumers and operators do to a shard, each in a transaction of its own.

    Each is to be done before the next is drawn.
    """
    run, layout = world.run, world.layout
    yield from _of_producers(world)
    for round in range(3):
        yield f"process {round}", world.process
        yield f"housekeeping {round}", lambda: _housekeeping(world)
        yield "pass", lambda: world.pass_us(20 * SECOND)
    yield from run_actions(world)
    yield from _of_workers(world)
    yield from _of_readers(world)
    yield "resume", lambda: run(lambda tr: policies.change_kind_policy(tr, "fax", now_us=world.now_us, paused=False))
    yield "wake", lambda: run(lambda tr: policies.wake_paused_pointers(tr, layout, now_us=world.now_us))
    yield "limit", lambda: run(lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, per_s=3.0))
    for tenant in TENANTS:
        yield (
            "pause",
            lambda: run(lambda tr: policies.change_tenant_policy(tr, layout, tenant, now_us=world.now_us, paused=True)),
        )
        yield (
            "resume",
            lambda: run(
                lambda tr: policies.change_tenant_policy(tr, layout, tenant, now_us=world.now_us, paused=False)
            ),
        )
    yield "submit", lambda: submit(world)
    yield "process at last", world.process


def _of_producers(world: World) -> Iterator[tuple[str, Callable[[], Any]]]:
    for tenant in TENANTS:
        for zone in (world.zone_of(tenant), world.zone_of(tenant, "other")):
            yield "enqueue", lambda: world.enqueue("mail", zone=zone)
            yield "enqueue by name", lambda: world.enqueue(
                "mail", zone=zone, item_id="a name", unique_for=9)  # fmt: skip
    yield "enqueue done", lambda: world.enqueue("mail", item_id="done", unique_for=60)


def _of_workers(world: World) -> Iterator[tuple[str, Callable[[], Any]]]:
    for tenant in TENANTS:
        zone = world.zone_of(tenant)
        for item_id in ids_of(zone.location):
            held = world.new_id()

            def take(zone: Any = zone, item_id: bytes = item_id, held: bytes = held) -> None:
                world.run(lambda tr: zone.obtain_lease(tr, item_id, lease_id=held, lease_us=LEASE_US,
                                                       now_us=world.now_us))  # fmt: skip
                world.run(lambda tr: zone.extend_lease(tr, item_id, held, lease_us=LEASE_US, now_us=world.now_us))
                world.run(lambda tr: zone.requeue(tr, item_id, held, delay_us=0, now_us=world.now_us, error_count=1))

            yield "take", take
            yield "complete", lambda: world.run(
                lambda tr: zone.complete(tr, item_id, now_us=world.now_us))  # fmt: skip


@cache
def _ids() -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    world = World(*memory())
    for tenant in TENANTS:
        location = world.zone_of(tenant).location
        begin, end = location.keys.item_range()
        prefix = len(location.keys.item_prefix)
        found[location.pointer_id] = [
            key[prefix + 1 : -1].replace(b"\x00\xff", b"\x00") for key, _ in populated() if begin <= key < end
        ]
    return found


def ids_of(location: ZoneLocation) -> list[bytes]:
    """Return the ids of a zone's items as they were before the damage."""
    return _ids()[location.pointer_id]


def _use_sessions(world: World, tr: Any) -> None:
    """Do with the worker sessions what workers and consumers do."""
    seen = run_one(worker_sessions.look_op(tr))
    for session_id in seen.beats:
        run_one(worker_sessions.heartbeat_op(tr, world.layout, session_id, beat=world.new_id()))
        run_one(worker_sessions.end_session_op(tr, session_id))
    for session_id in {*seen.beats, *seen.over}:
        claims.release_ended(tr, world.layout, session_id, claims_max=10, now_us=world.now_us)


def _of_readers(world: World) -> Iterator[tuple[str, Callable[[], Any]]]:
    run, layout = world.run, world.layout
    for tenant in TENANTS:
        zone = world.zone_of(tenant)
        yield "peek", lambda: run(lambda tr: zone.peek(tr, items_max=100, now_us=world.now_us))
        yield "count", lambda: run(zone.count)
        yield "min vesting", lambda: run(zone.min_vesting_us)
        for item_id in ids_of(zone.location)[:2]:
            yield "diagnose", lambda: run(
                lambda tr: diagnosis.diagnose(tr, zone.location, item_id, now_us=world.now_us))  # fmt: skip
            yield "whereabouts", lambda: run(lambda tr: diagnosis.whereabouts(tr, layout, item_id))
    yield (
        "policies",
        lambda: run(lambda tr: (policies.read_policies(tr), policies.tenants_with_policies(tr, tenants_max=100))),
    )
    yield "dead letters", lambda: _retry_dead_letters(world)
    yield "result", lambda: run(lambda tr: results.ending(tr, world.zone.location, bytes(16)))
    yield "rollups", lambda: run(lambda tr: rollups.busiest(rollups.read(tr, now_us=world.now_us)))
    yield "depths of stores", lambda: run(lambda tr: rollups.read_depths(tr, now_us=world.now_us))
    yield "worker status", lambda: run(
        lambda tr: worker_status.longest_running(worker_status.read(tr, now_us=world.now_us), items_max=9))  # fmt: skip
    yield "handlers", lambda: run(handlers.listing)
    yield "worker sessions", lambda: run(lambda tr: _use_sessions(world, tr))
    yield "consumers", lambda: run(lambda tr: sessions.listing(tr, now_us=world.now_us))
    yield "due", lambda: run(lambda tr: run_together(pointers.earliest_vesting_us(tr, part) for part in layout.parts))
    yield "from behind", lambda: run(
        lambda tr: run_together(pointers.scan_back(tr, part, before_us=world.now_us, ids_max=9) for part in
        layout.parts)
    )  # fmt: skip


def _retry_dead_letters(world: World) -> None:
    for each in world.run(lambda tr: list(dead_letters.listing(tr, world.layout, items_max=100))):
        location = world.layout.location(each.tenant, each.zone)

        def retry(tr: Any, location: ZoneLocation = location, each: Any = each) -> None:
            record = dead_letters.read(tr, location, each.id)
            if record is not None:
                dead_letters.retry_dead_letter(tr, location, each.id, record, now_us=world.now_us)

        world.run(retry)


def _housekeeping(world: World) -> None:
    now_us = world.now_us

    def body(tr: Any) -> None:
        sessions.Sessions().live(sessions.listing(tr, now_us=now_us), now_us=now_us)
        beat_time(tr, ShardClock(max_skew_us=SECOND, watch_us=SECOND), now_us=now_us, is_only_consumer=lambda: True)
        sessions.clear_dead(tr, sessions.listing(tr, now_us=now_us), now_us=now_us, keys_max=100)
        for bucket in range(transaction_runner.RECEIPT_BUCKETS):
            transaction_runner.clear_receipts(tr, bucket, now_us=now_us)
        for part in range(world.layout.part_count):
            id_retention.expire(tr, part, now_us=now_us, keys_max=100)
        run_one(periodic.tick_op(tr, world.layout, PERIOD, run=world.new_id(), now_us=now_us))
        policies.wake_paused_pointers(tr, world.layout, now_us=now_us)
        completion_log.compact(tr, range(PART_COUNT), now_us=now_us)
        limits.take_slots(
            tr, "mail", 50, holder=b"m", held=0, wanted=3, lease_us=LEASE_US, clocks_apart_us=LEASE_US, now_us=now_us
        )
        limits.take_tokens(
            tr, "mail", KindPolicy(per_s=5.0), wanted=2, returned=0, clocks_apart_us=LEASE_US, now_us=now_us
        )
        rollups.sum_up(tr, world.layout, now_us=now_us)
        worker_status.clear_old(tr, now_us=now_us, keys_max=100)

    world.run(body)
