"""The manager: leases pointers, dequeues, hands over, and takes no more than its workers can (Algorithm 2)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairlead.actors.dispatch.pointer_batches import PointerBatches
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.manager import Manager
from fairlead.actors.messages import VERSION_AGE_US_MAX, ItemRef, Report, ScanInfo, ServeReply
from fairlead.actors.runtime.host import ActorDied
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines.api.errors import NOT_COMMITTED, TRANSACTION_TOO_LARGE, TRANSACTION_TOO_OLD
from fairlead.zones.layout import Tenant
from fairlead.zones.policy import policies
from fairlead.zones.records import Lock, OwnerRecord, TransactionId, encode
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.sessions import SessionRecord, heartbeat
from tests.actors.stage import ALICE, BOB, LEASE_MS, MS, SECOND, Played, Stage, report
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


class PlayedWorkers:
    """Workers played by the test: each has capacity for so many, and keeps what it is sent."""

    def __init__(self, stage: Stage, capacities: list[int]) -> None:
        self.capacities = capacities
        self.sent: list[list[ItemRef]] = [[] for _ in capacities]
        self.dead: set[int] = set()
        self.kinds: list[dict[str, int]] = [{} for _ in capacities]
        self.progress = [0 for _ in capacities]
        self.remotes = [Played(stage.host, self._replies(number)) for number in range(len(capacities))]

    def _replies(self, number: int) -> Any:
        def reply(method: str, args: tuple[Any, ...]) -> Report | Exception | None:
            if number in self.dead:
                return ActorDied(method=method)
            if method == "place":
                self.sent[number] += args[0]
            elif args[0] == self.progress[number]:
                return None  # a question for progress, of which there is none
            return self.report(number)

        return reply

    def report(self, number: int) -> Report:
        held = len(self.sent[number])
        kinds, progress = self.kinds[number], self.progress[number]
        return report(in_flight_limit=self.capacities[number], held=held, kinds=kinds, progress=progress)

    def move_on(self, number: int, kinds: dict[str, int]) -> None:
        """Let an item leave a worker, which holds `kinds` now, and answer the questions for progress."""
        self.progress[number] += 1
        self.kinds[number] = kinds
        for call in self.remotes[number].taken():
            if call.method == "await_progress":
                call.answer(self.report(number))

    @property
    def all_sent(self) -> list[ItemRef]:
        return [ref for refs in self.sent for ref in refs]


def managed(
    stage: Stage, capacities: list[int], *, index: int = 0, count: int = 1, limits: dict[str, int] | None = None,
    consumer_id: bytes = b"consumer", isolates: bool = False, registry: Registry | None = None, **settings: Any
) -> tuple[Manager, PlayedWorkers]:  # fmt: skip
    """Return a manager of played workers that knows the kinds `mail` and `index`; the last one may be isolated."""
    pool = PlayedWorkers(stage, capacities)
    workers = pool.remotes[: len(capacities) - isolates]
    registry = Registry() if registry is None else registry
    for kind in ("mail", "index"):
        registry.add(handler_of(kind, lambda job: None, max_running=(limits or {}).get(kind)))
    chosen = ConsumerSettings(**{"managers": 1, "workers": len(workers), "lease_ms": LEASE_MS, **settings})
    manager = Manager(
        stage.host, stage.shards, registry, chosen, workers,
        isolated=pool.remotes[-1] if isolates else None, consumer_id=consumer_id, index=index, count=count,
    )  # fmt: skip
    return manager, pool


def serve(stage: Stage, manager: Manager, refs: list[PointerRef] | None = None) -> ServeReply:
    """Let the manager serve the pointers that have vested."""
    refs = stage.pointers() if refs is None else refs
    return stage.do(lambda: manager.serve("main", refs))


def tenants(count: int) -> list[Tenant]:
    return [Tenant("shop", f"user {number}") for number in range(count)]


# --- Serving ---


def test_a_batch_uses_the_read_version_of_its_scan_and_a_new_one_if_that_conflicts(stage: Stage) -> None:
    """The scan has asked the cluster for a version, and the visit need not ask again (QuiCK section 6)."""
    stage.enqueue("mail", 1)
    manager, pool = managed(stage, [10])
    version = stage.shard.transact(lambda attempt: attempt.tr.get_read_version().wait())
    refs = stage.pointers()
    scan = ScanInfo(version=version, us=stage.now_us)
    assert stage.do(lambda: manager.serve("main", refs, scan)).conflicts == 0
    assert len(pool.all_sent) == 1
    stage.enqueue("mail", 2)
    stage.pass_ms(1)
    served = stage.do(lambda: manager.serve("main", stage.pointers(), scan._replace(us=stage.now_us)))
    assert (served.items, served.conflicts, len(pool.all_sent)) == (1, 1, 2)


def test_a_read_version_that_is_too_old_is_not_taken_over(stage: Stage) -> None:
    version = stage.shard.transact(lambda attempt: attempt.tr.get_read_version().wait())
    stage.enqueue("mail", 1)
    manager, _ = managed(stage, [10])
    scan = ScanInfo(version=version, us=stage.now_us)
    stage.pass_ms(VERSION_AGE_US_MAX // 1_000)
    served = stage.do(lambda: manager.serve("main", stage.pointers(), scan))
    assert (served.items, served.conflicts) == (1, 0)


def test_items_are_leased_and_sent_and_their_pointers_requeued(stage: Stage) -> None:
    ids = [stage.enqueue("mail", number) for number in range(3)]
    manager, pool = managed(stage, [10])
    served = serve(stage, manager)
    assert [ref.item_id for ref in pool.all_sent] == ids
    assert (served.items, served.capacity) == (3, 7)
    for item_id in ids:
        record = stage.record(item_id)
        assert record is not None
        assert record.vesting_us > stage.now_us + 9 * SECOND, "nobody else sees it for ten seconds"
    pointer = stage.pointer()
    assert pointer is not None
    assert pointer.vesting_us > stage.now_us, "there is nothing more to do until a lease ends"


def test_it_says_how_long_each_pointer_that_it_leased_had_been_vested(stage: Stage) -> None:
    """One that another consumer leased in between was not picked up here."""
    stage.enqueue("mail")
    stage.pass_ms(30)
    manager, _ = managed(stage, [10])
    refs = stage.pointers()
    (waited_us,) = serve(stage, manager, refs).waited_us
    assert 30_000 <= waited_us <= 60_000
    assert serve(stage, manager, refs).waited_us == ()


def test_a_batch_takes_no_more_than_its_quantum(stage: Stage) -> None:
    """A tenant with a million items delays a tenant with one by one visit."""
    for number in range(50):
        stage.enqueue("mail", number)
    manager, pool = managed(stage, [1_000], dequeue_max=16)
    serve(stage, manager)
    assert len(pool.all_sent) == 16
    pointer = stage.pointer()
    assert pointer is not None
    assert pointer.vesting_us <= stage.now_us, "behind every other vested pointer, but vested"


def test_never_more_is_leased_than_the_workers_can_take(stage: Stage) -> None:
    for tenant in tenants(10):
        for _ in range(5):
            stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [4, 3])
    for _ in range(3):
        serve(stage, manager)
    assert len(pool.all_sent) == 7
    leased = sum(len(stage.lease(["mail"], tenant=tenant)) for tenant in tenants(10))
    assert leased == 50 - 7, "what was not sent is free for others"


def test_little_capacity_is_shared_by_the_pointers_of_a_batch(stage: Stage) -> None:
    for tenant in tenants(4):
        for _ in range(5):
            stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [8])
    serve(stage, manager)
    assert {ref.tenant for ref in pool.all_sent} == set(tenants(4))


def test_of_tenants_with_more_items_fewer_are_served_next_and_more_is_taken_of_each(stage: Stage) -> None:
    """A visit writes the pages of its zone for two items as for four."""
    for tenant in tenants(128):
        for number in range(6):
            stage.enqueue("mail", number, tenant=tenant)
    manager, pool = managed(stage, [256])
    stage.do(manager.await_capacity)
    assert serve(stage, manager).items == 256
    assert set(Counter(ref.tenant for ref in pool.all_sent).values()) == {2}
    pool.sent[0].clear()
    pool.move_on(0, {})
    assert serve(stage, manager).items == 256
    assert sorted(Counter(ref.tenant for ref in pool.all_sent).values()) == [4] * 64


def test_a_batch_of_many_pointers_is_one_transaction(stage: Stage) -> None:
    for tenant in tenants(30):
        stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [100])
    before = stage.store.commits
    serve(stage, manager)
    assert len(pool.all_sent) == 30
    assert stage.store.commits == before + 1


def test_a_kind_unknown_here_is_deferred_for_others(stage: Stage) -> None:
    stage.enqueue("unheard of")
    mine = stage.enqueue("mail")
    manager, pool = managed(stage, [10])
    serve(stage, manager)
    assert [ref.item_id for ref in pool.all_sent] == [mine]


def test_a_kind_whose_handler_is_submitted_later_is_taken_from_then_on(stage: Stage) -> None:
    item_id = stage.enqueue("late")
    registry = Registry()
    manager, pool = managed(stage, [10], registry=registry)
    serve(stage, manager)
    assert not pool.all_sent
    registry.handlers = {**registry.handlers, "late": handler_of("late", lambda job: None)}
    stage.enqueue("late")
    serve(stage, manager)
    assert item_id in {ref.item_id for ref in pool.all_sent}


def test_a_short_record_travels_with_the_call_and_a_long_one_does_not(stage: Stage) -> None:
    stage.enqueue("mail", "short")
    stage.enqueue("mail", "l" * 5_000)
    manager, pool = managed(stage, [10])
    serve(stage, manager)
    assert [bool(ref.stored) for ref in pool.all_sent] == [True, False]


def test_a_pointer_that_another_consumer_has_leased_is_left_to_it(stage: Stage) -> None:
    stage.enqueue("mail")
    refs = stage.pointers()
    other, _ = managed(stage, [10])
    serve(stage, other, refs)
    manager, pool = managed(stage, [10])
    served = serve(stage, manager, refs)
    assert (served.items, served.missed_at_read, pool.all_sent) == (0, 1, [])


# --- Conflicts ---


def test_a_batch_that_conflicts_is_halved_so_that_one_hot_pointer_sinks_no_neighbour(stage: Stage) -> None:
    for tenant in tenants(8):
        stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [100])
    # The whole, then the first half, then the first quarter meet a conflict.
    stage.store.faults.extend(Fault(applied=False, code=NOT_COMMITTED) for _ in range(3))
    served = serve(stage, manager)
    assert sorted(ref.tenant for ref in pool.all_sent) == sorted(tenants(8))
    assert (served.items, served.conflicts, served.missed_at_commit) == (8, 3, 0)


def test_a_pointer_that_conflicts_by_itself_is_leased_first(stage: Stage) -> None:
    """Under its lease nobody else looks at it, so the second visit meets no other consumer."""
    stage.enqueue("mail")
    manager, pool = managed(stage, [10], pointer_lease_ms=500)
    leases: list[int] = []

    def look() -> None:
        pointer = stage.pointer()
        assert pointer is not None
        leases.append(pointer.lease_us)

    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    stage.store.on_commit(3, look)  # the first was refused, the second took the lease
    served = serve(stage, manager)
    assert (served.items, served.missed_at_commit, leases) == (1, 1, [500 * MS])
    assert len(pool.all_sent) == 1


def test_enqueues_that_conflict_with_every_batch_do_not_block_their_tenants_items(stage: Stage) -> None:
    """Two consumers once let one item in a hundred wait a second: the lease, of a visit that met an enqueue again."""
    stage.enqueue("mail")
    manager, pool = managed(stage, [10])

    def enqueue_during_the_visit_under_the_lease() -> None:
        stage.enqueue("mail", priority=2)
        stage.store.on_commit(2, lambda: stage.enqueue("mail", priority=1))

    stage.store.on_commit(1, enqueue_during_the_visit_under_the_lease)
    assert serve(stage, manager).items == 2
    stage.pass_ms(stage.shard.layout.settings.wake_slack_ms)
    assert serve(stage, manager).items == 1
    assert len(pool.all_sent) == 3


def test_one_that_conflicts_even_under_its_lease_is_left_until_the_lease_ends(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [10], pointer_lease_ms=500)
    # The visit conflicts; the lease is taken; the visit under it conflicts again.
    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    conflict = Fault(applied=False, code=NOT_COMMITTED)
    stage.store.on_commit(3, lambda: stage.store.faults.append(conflict))
    assert serve(stage, manager).items == 0
    assert stage.pointers() == []
    stage.pass_ms(500)
    assert serve(stage, manager).items == 1
    assert len(pool.all_sent) == 1


def test_a_transaction_that_became_too_old_is_halved_too(stage: Stage) -> None:
    for tenant in tenants(4):
        stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [100])
    stage.store.faults.append(Fault(applied=False, code=TRANSACTION_TOO_OLD))
    assert serve(stage, manager).items == 4
    assert len(pool.all_sent) == 4


def test_after_a_dequeue_of_unknown_result_that_happened_its_items_are_sent(stage: Stage) -> None:
    """They carry the manager's lease: nobody else would run them until it ends."""
    ids = [stage.enqueue("mail", tenant=tenant) for tenant in tenants(3)]
    manager, pool = managed(stage, [10])
    stage.store.faults.append(Fault(applied=True))
    assert serve(stage, manager).items == 3
    assert sorted(ref.item_id for ref in pool.all_sent) == sorted(ids)


def test_it_recognises_its_dequeue_even_if_an_item_of_it_was_cancelled_at_once(stage: Stage) -> None:
    first, second = stage.enqueue("mail", 1), stage.enqueue("mail", 2)
    manager, pool = managed(stage, [10])
    zone = stage.shard.zone(ALICE)

    def cancel() -> None:
        stage.shard.transact(lambda attempt: zone.complete(attempt.tr, first, now_us=attempt.now_us))

    stage.store.faults.append(Fault(applied=True, then=cancel))
    serve(stage, manager)
    assert second in [ref.item_id for ref in pool.all_sent]


def test_after_a_dequeue_of_unknown_result_that_did_not_happen_nothing_is_sent_and_nothing_lost(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [10])
    stage.store.faults.append(Fault(applied=False))
    assert serve(stage, manager).items == 0
    assert pool.all_sent == []
    assert serve(stage, manager).items == 1


def test_a_store_that_refuses_is_waited_for_and_named_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.enqueue("mail")
    refs = stage.pointers()
    manager, pool = managed(stage, [10])
    stage.store.full = True
    begun_us = stage.now_us
    for _ in range(4):
        assert serve(stage, manager, refs).items == 0
    assert stage.now_us - begun_us >= 2 * SECOND, "the scanner is slowed down"
    assert len(caplog.records) == 1
    stage.store.full = False
    assert serve(stage, manager, refs).items == 1
    assert len(pool.all_sent) == 1


def test_an_item_that_is_dead_lettered_because_its_workers_died_is_logged_as_an_error(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is left to report such an error where its attempts ended, and no hook is called."""
    item_id = stage.enqueue("mail", item_id="order-7")
    manager, _ = managed(stage, [10])
    serve(stage, manager)
    stage.change(item_id, ran_isolated=True)
    stage.pass_ms(LEASE_MS + 1_000)
    served = serve(stage, manager)
    assert (served.items, served.dead_lettered) == (0, 1)
    (record,) = [each for each in caplog.records if each.name == "fairlead.manager"]
    assert (record.levelname, record.getMessage()) == (
        "ERROR",
        f"item {item_id.hex()} ('order-7') of kind mail of shop/alice is given up: its worker died or stalled while it "
        "ran this item alone; see fairlead dead-letters list",
    )


def test_a_tenant_that_has_moved_does_not_hold_up_the_others(stage: Stage) -> None:
    for tenant in tenants(4):
        stage.enqueue("mail", tenant=tenant)
    key = stage.shard.zone(tenants(4)[1]).location.keys.tenant.owner
    moved = encode(OwnerRecord(1, b"another shard..."))
    stage.shard.transact(lambda attempt: attempt.tr.set(key, moved))
    manager, pool = managed(stage, [10])
    serve(stage, manager)
    assert len(pool.all_sent) == 3
    assert stage.pointers() == [], "and nobody looks at it again and again"


def test_a_tenant_whom_a_transaction_across_shards_has_locked_does_not_hold_up_the_others(stage: Stage) -> None:
    for tenant in tenants(4):
        stage.enqueue("mail", tenant=tenant)
    key = stage.shard.zone(tenants(4)[1]).location.keys.tenant.owner
    lock = Lock(TransactionId(stage.shard.clock.now_us(), b"r" * 10, 1), b"another shard...", exclusive=True)
    locked = encode(OwnerRecord(0, stage.shard.layout.shard_id, locks=(lock,)))
    stage.shard.transact(lambda attempt: attempt.tr.set(key, locked))
    manager, pool = managed(stage, [10])
    began_us = stage.shard.clock.now_us()
    serve(stage, manager)
    assert len(pool.all_sent) == 3
    assert stage.shard.clock.now_us() - began_us < 1_000_000
    stage.shard.transact(lambda attempt: attempt.tr.clear(key))
    serve(stage, manager)
    assert len(pool.all_sent) == 4


# --- Room ---


def test_a_manager_that_was_just_started_asks_its_workers_first(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [10])
    serve(stage, manager)
    methods = [call.method for call in pool.remotes[0].calls]
    assert (methods[0], methods[-1]) == ("await_progress", "place")


def test_a_call_that_fails_by_a_bug_returns_what_it_was_granted_of_a_limit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, nothing of that kind was leased any more as long as the manager lived."""
    stage.enqueue("mail")
    manager, pool = managed(stage, [10], limits={"mail": 1})

    def broken(*_: Any) -> Any:
        raise TypeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr("fairlead.actors.dispatch.pointer_batches.process_pointers", broken)
        with pytest.raises(TypeError, match="planted"):
            serve(stage, manager)
    assert serve(stage, manager).items == 1
    assert len(pool.all_sent) == 1


def test_of_two_concurrent_calls_only_one_may_take_a_poison_candidate(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the second of the two items would wait behind the first, under a lease."""
    for tenant in (ALICE, BOB):
        poison_candidate = stage.enqueue("mail", tenant=tenant)
        stage.change(poison_candidate, tenant=tenant, expiry_count=3, expired_count=3)
    manager, pool = managed(stage, [10, 1], isolates=True)
    stage.do(manager.await_capacity)
    stage.pass_ms(10)
    first, second = stage.pointers()
    process = PointerBatches._transact
    capacities: list[int] = []

    def overtaken(self: PointerBatches, *args: Any) -> Any:
        capacities.append(args[2].poison_candidates)
        if len(capacities) == 1:
            manager.serve("main", [second])
        return process(self, *args)

    monkeypatch.setattr(PointerBatches, "_transact", overtaken)
    serve(stage, manager, [first])
    assert capacities == [1, 0]
    assert [len(sent) for sent in pool.sent] == [0, 1]
    pool.sent[1].clear()
    pool.move_on(1, {})
    serve(stage, manager, [])  # It asks the isolated worker, now that there are such items.
    stage.pass_ms(500)
    serve(stage, manager)
    assert (capacities[-1], len(pool.sent[1])) == (1, 1), "the place is free again"


def test_it_leaves_no_more_pointers_to_others_than_its_scanner_can_pass_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, what was beyond was visited in vain, thousands of times a second."""
    monkeypatch.setattr("fairlead.actors.dispatch.pointer_batches.DEFERRED_MAX", 1)
    sign = SessionRecord("there", 1, ["fax"], stage.now_us, stage.now_us)
    stage.shard.transact(lambda attempt: heartbeat(attempt.tr, b"another", sign))
    manager, _ = managed(stage, [10], pause_recheck_ms=2_000)
    left = []
    for number in range(3):
        tenant = Tenant("shop", f"user {number}")
        stage.enqueue("fax", tenant=tenant)
        (ref,) = [ref for ref in stage.pointers() if ref.id == stage.shard.zone(tenant).location.pointer_id]
        left.append(len(serve(stage, manager, [ref]).deferred))
        stage.pass_ms(1_200)
    assert left == [1, 0, 1]


def test_without_capacity_it_waits_for_some_and_takes_nothing(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [0])
    pool.remotes[0]._reply = None
    asked = stage.begin(lambda: manager.serve("main", stage.pointers()))
    stage.pass_ms(300)
    assert asked.over_us is None
    pool.capacities[0] = 1
    pool.remotes[0].calls[0].answer(pool.report(0))
    stage.pass_ms(1)
    assert asked.over_us is not None
    assert asked.result.items == 1


def test_it_answers_after_a_second_even_if_there_is_no_capacity(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [0])
    pool.remotes[0]._reply = None
    begun_us = stage.now_us
    served = serve(stage, manager)
    assert (served.items, served.capacity) == (0, 0)
    assert stage.now_us - begun_us <= SECOND + MS
    assert stage.pointers(), "they are left as they are"


def test_dead_workers_are_not_asked_again_and_again(stage: Stage) -> None:
    """They answer at once."""
    manager, pool = managed(stage, [10, 10])
    pool.dead = {0, 1}
    assert stage.do(manager.await_capacity) == 0
    assert sum(len(remote.calls) for remote in pool.remotes) <= 4


def test_a_worker_that_is_back_is_used_again(stage: Stage) -> None:
    manager, pool = managed(stage, [10])
    pool.dead = {0}
    assert stage.do(manager.await_capacity) == 0
    pool.dead = set()
    assert stage.do(manager.await_capacity) == 10


def test_a_worker_that_is_back_is_noticed_although_another_has_capacity(stage: Stage) -> None:
    """Before, nobody asked it until the other was full; if that one died too, nobody was known to live."""
    manager, pool = managed(stage, [10, 10])
    stage.do(manager.await_capacity)
    stage.pass_ms(1)
    assert stage.do(manager.await_capacity) == 20
    pool.dead = {0}
    stage.enqueue("mail")
    serve(stage, manager)
    assert stage.do(manager.await_capacity) == 10
    pool.dead = set()
    stage.pass_ms(300)
    assert stage.do(manager.await_capacity) == 20


def all_die_while_a_visit_commits(stage: Stage) -> tuple[Manager, PlayedWorkers]:
    """Return a manager whose workers die while its next transaction commits, and are asked for progress then."""
    manager, pool = managed(stage, [5, 5], limits={"index": 1})

    def die() -> None:
        pool.dead = {0, 1}
        for remote in pool.remotes:
            for call in remote.taken():
                call.answer(error=ActorDied(method=call.method))
        stage.clock.sleep_us(MS)

    stage.do(manager.await_capacity)
    stage.store.on_commit(1, die)
    return manager, pool


def test_items_leased_for_workers_that_all_died_are_returned_at_once_without_an_expiry(stage: Stage) -> None:
    """Nobody was sent it. Before, it was sent to the dead, and waited out its lease if none was back in time."""
    item_id = stage.enqueue("mail")
    manager, pool = all_die_while_a_visit_commits(stage)
    serve(stage, manager)
    assert [call for remote in pool.remotes for call in remote.named("place")] == []
    assert [ref.item_id for ref in stage.lease(["mail"])] == [item_id]
    record = stage.record(item_id)
    assert record is not None
    assert (record.expiry_count, record.error_count) == (0, 0)


def test_what_a_clock_that_is_ahead_leases_and_returns_is_not_delayed_by_it(stage: Stage) -> None:
    """Before, it vested when that clock returned it: an hour later by all others."""
    item_id = stage.enqueue("mail")
    before = stage.record(item_id)
    manager, _ = all_die_while_a_visit_commits(stage)
    stage.clock.jump(3_600 * SECOND)
    serve(stage, manager)
    stage.clock.jump(0)
    after = stage.record(item_id)
    assert before is not None
    assert after is not None
    assert (after.vesting_us, after.lease_id, after.return_count) == (before.vesting_us, b"", 1)


def test_if_the_store_refuses_a_return_that_is_logged_and_the_lease_expires(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    item_id = stage.enqueue("mail")
    manager, _ = all_die_while_a_visit_commits(stage)
    stage.store.on_commit(2, lambda: setattr(stage.store, "full", True))
    serve(stage, manager)
    assert "shard main refuses; the items leased there for dead workers vest when their leases expire" in caplog.text
    stage.store.full = False
    assert stage.lease(["mail"]) == []
    stage.pass_ms(LEASE_MS)
    assert [ref.item_id for ref in stage.lease(["mail"])] == [item_id]


def test_what_a_worker_had_that_died_vests_at_once_and_so_does_what_was_on_its_way(stage: Stage) -> None:
    """It was sent to the life that ended, and no other takes it. Before, it waited out its lease."""
    had = stage.enqueue("mail")
    manager, pool = managed(stage, [5])
    serve(stage, manager)
    pool.dead.add(0)
    stage.world.ended_incarnations.add("first life")
    sent = stage.enqueue("mail")
    serve(stage, manager)
    stage.wait_for(stage.pointers, within_ms=300)
    assert {ref.item_id for ref in stage.lease(["mail"])} == {had, sent}


def test_items_are_sent_to_the_incarnation_of_a_worker_that_answered_last(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [5])
    serve(stage, manager)
    (sent,) = [call.args for call in pool.remotes[0].calls if call.method == "place"]
    assert sent == (pool.sent[0], b"first life")


def test_a_worker_that_died_with_items_on_their_way_to_it_has_its_capacity_back_when_it_returns(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [10])
    stage.do(manager.await_capacity)
    pool.dead = {0}
    assert serve(stage, manager).items == 1
    pool.dead = set()
    assert stage.do(manager.await_capacity) == 10, "nothing is counted as on its way for ever"


def test_work_goes_to_both_workers(stage: Stage) -> None:
    for tenant in tenants(10):
        stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [10, 10])
    stage.do(manager.await_capacity)
    serve(stage, manager)
    assert [len(refs) for refs in pool.sent] == [5, 5]


# --- Limits ---


def test_no_more_of_a_kind_is_taken_than_may_run(stage: Stage) -> None:
    for number in range(5):
        stage.enqueue("mail", number)
    other = stage.enqueue("index")
    manager, pool = managed(stage, [10], limits={"mail": 2})
    serve(stage, manager)
    assert sorted(ref.kind for ref in pool.all_sent) == ["index", "mail", "mail"]
    assert other in [ref.item_id for ref in pool.all_sent]
    pointer = stage.pointer()
    assert pointer is not None
    assert 90 * MS <= pointer.vesting_us - stage.now_us <= 100 * MS, "throttled: neither now nor much later"


def test_capacity_for_a_kind_comes_back_when_its_items_have_left(stage: Stage) -> None:
    for number in range(5):
        stage.enqueue("mail", number)
    manager, pool = managed(stage, [10], limits={"mail": 2})
    pool.kinds[0] = {"mail": 2}
    serve(stage, manager)
    assert pool.all_sent == []
    pool.move_on(0, {"mail": 1})
    stage.pass_ms(100)
    serve(stage, manager)
    assert len(pool.all_sent) == 1


def test_each_manager_uses_its_share_of_a_limit(stage: Stage) -> None:
    for number in range(9):
        stage.enqueue("mail", number)
    sent = []
    for index in range(2):
        manager, pool = managed(stage, [10], limits={"mail": 3}, index=index, count=2)
        stage.pass_ms(200)
        serve(stage, manager)
        sent.append(len(pool.all_sent))
    assert sent == [2, 1]


# --- Stopping ---


def test_a_manager_that_was_stopped_takes_nothing(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, pool = managed(stage, [10])
    stage.do(manager.await_capacity)
    stage.do(manager.stop)
    assert serve(stage, manager).items == 0
    assert pool.all_sent == []
    assert stage.lease(["mail"]) != []


def test_a_manager_waits_no_longer_for_capacity_because_its_clock_is_set_back(stage: Stage) -> None:
    """Before, it waited by the clock: an hour set back was an hour more, and a process that ended waited for it."""
    manager, _ = managed(stage, [0])
    stage.do(manager.await_capacity)
    asked = stage.begin(manager.await_capacity)
    stage.pass_ms(500)
    stage.clock.jump(-3600 * SECOND)
    stage.pass_ms(2_000)
    assert asked.result == 0


def test_an_answer_that_comes_late_does_no_harm(stage: Stage) -> None:
    stage.enqueue("mail", tenant=BOB)
    manager, pool = managed(stage, [10])
    pool.remotes[0]._reply = None
    asked = stage.begin(manager.await_capacity)
    stage.pass_ms(2_000)
    assert asked.result == 0
    pool.remotes[0].calls[0].answer(report(in_flight_limit=10, progress=3))
    stage.pass_ms(1)
    assert stage.do(manager.await_capacity) == 10


# --- Transactions that cannot be ---


def test_a_batch_too_large_for_one_transaction_is_served_in_halves(stage: Stage) -> None:
    """The same pointers would be chosen again and again, and nobody of the shard be served any more."""
    for tenant in tenants(8):
        stage.enqueue("mail", tenant=tenant)
    manager, _ = managed(stage, [100])
    serve(stage, manager, [])
    stage.store.faults.append(Fault(applied=False, code=TRANSACTION_TOO_LARGE))
    assert serve(stage, manager).items == 8


def test_a_zone_whose_items_are_too_large_together_gives_them_in_smaller_helpings(stage: Stage) -> None:
    for number in range(8):
        stage.enqueue("mail", number)
    manager, _ = managed(stage, [100], dequeue_max=8)
    serve(stage, manager, [])
    for _ in range(2):
        stage.store.faults.append(Fault(applied=False, code=TRANSACTION_TOO_LARGE))
    assert serve(stage, manager).items == 2
    assert serve(stage, manager).items == 6, "the rest, now that they fit"


def test_on_a_disk_with_little_room_batches_become_as_small_as_fits(stage: Stage) -> None:
    """To lease items takes the most room, and to complete them makes some. Before, all work stood still."""
    for tenant in tenants(8):
        for number in range(8):
            stage.enqueue("mail", bytes([number]) * 500, tenant=tenant)
    manager, _ = managed(stage, [100], dequeue_max=8)
    serve(stage, manager, [])
    stage.store.room_bytes = 8_000
    assert serve(stage, manager).items > 8


def test_on_a_full_disk_the_smallest_batch_is_the_last_that_is_tried(stage: Stage) -> None:
    for tenant in tenants(8):
        for number in range(8):
            stage.enqueue("mail", number, tenant=tenant)
    manager, _ = managed(stage, [100], dequeue_max=8)
    serve(stage, manager, [])
    stage.store.full = True
    before = stage.store.commits
    assert serve(stage, manager).items == 0
    assert stage.store.commits - before == 7, "of 8, 4, 2 and 1 pointers; then 4, 2 and 1 items of that one"


def test_a_batch_that_was_halved_gives_no_tenant_more_than_its_share_of_the_capacity(stage: Stage) -> None:
    for tenant in tenants(8):
        for _ in range(3):
            stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [8])
    serve(stage, manager, [])
    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    serve(stage, manager)
    assert sorted(ref.tenant for ref in pool.all_sent) == tenants(8)


def test_a_contended_tenant_that_moves_does_not_block_the_others(stage: Stage) -> None:
    for tenant in tenants(4):
        stage.enqueue("mail", tenant=tenant)
    manager, pool = managed(stage, [100])
    serve(stage, manager, [])
    refs = stage.pointers()
    first = next(each for each in tenants(4) if stage.shard.zone(each).location.pointer_id == refs[0].id)
    owner = stage.shard.zone(first).location.keys.tenant.owner
    moved = encode(OwnerRecord(1, b"another shard..."))

    def move() -> None:
        stage.shard.transact(lambda attempt: attempt.tr.set(owner, moved))

    for then in (lambda: None, lambda: None, move):  # The batch, its half, and the visit of the first alone.
        stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED, then=then))
    serve(stage, manager, refs)
    assert {ref.tenant for ref in pool.all_sent} == set(tenants(4)) - {first}


# --- What is paused ---


def pause_mail(stage: Stage, paused: bool) -> None:
    stage.shard.transact(
        lambda attempt: policies.change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, paused=paused)
    )


def test_a_kind_that_is_paused_between_two_calls_is_taken_only_by_the_first(stage: Stage) -> None:
    stage.enqueue("mail", tenant=ALICE)
    stage.enqueue("mail", tenant=BOB)
    manager, pool = managed(stage, [10])
    first, second = stage.pointers()
    assert serve(stage, manager, [first]).items == 1
    pause_mail(stage, True)
    assert serve(stage, manager, [second]).items == 0
    pause_mail(stage, False)
    stage.shard.transact(
        lambda attempt: policies.wake_paused_pointers(attempt.tr, stage.shard.layout, now_us=attempt.now_us)
    )
    assert serve(stage, manager).items == 1
    assert len(pool.all_sent) == 2


def test_a_shard_that_is_paused_while_its_pointers_are_on_their_way_is_left_as_it_is(stage: Stage) -> None:
    stage.enqueue("mail")
    manager, _ = managed(stage, [10])
    refs = stage.pointers()
    stage.shard.transact(lambda attempt: policies.pause_shard(attempt.tr))
    assert serve(stage, manager, refs).items == 0
    assert stage.pointers() == refs
