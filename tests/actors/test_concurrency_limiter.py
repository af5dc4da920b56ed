"""A manager takes no more of a kind that is limited over the fleet than the kind's own shard has granted it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairlead.actors.manager import Manager
from fairlead.actors.messages import Report
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.keyspace import LIMIT, POLICY, ROOT, pack_int, pack_text, range_begin, range_end
from fairlead.zones.layout import Tenant, local_tenant
from fairlead.zones.placement import home
from fairlead.zones.policy import policies
from fairlead.zones.records import FORMAT
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import ALICE, BOB, LEASE_MS, SECOND, Stage, report
from tests.actors.test_manager import PlayedWorkers, managed, serve
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


def crewed(stage: Stage, **how: Any) -> tuple[Manager, PlayedWorkers]:
    """Return a manager of one worker that keeps all that it is sent, and reports it by kind."""
    manager, pool = managed(stage, [1_000], **how)

    def counted(number: int) -> Report:
        held = pool.sent[number]
        kinds = dict(Counter(ref.kind for ref in held))
        return report(in_flight_limit=1_000, held=len(held), kinds=kinds, progress=pool.progress[number])

    pool.report = counted  # type: ignore[method-assign]
    return manager, pool


def limit(stage: Stage, kind: str = "mail", *, shard: Shard | None = None, **changes: Any) -> None:
    def body(attempt: Attempt) -> None:
        policies.change_kind_policy(attempt.tr, kind, now_us=attempt.now_us, **changes)

    (shard or stage.shard).transact(body)


def fill(stage: Stage, tenants: int = 4, items: int = 10) -> None:
    for number in range(tenants):
        for _ in range(items):
            stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))


def serve_for(stage: Stage, manager: Manager, pool: PlayedWorkers, seconds: float) -> int:
    """Serve whatever has vested, ten times a second; the items stay with their workers. Return how many were taken."""
    before = len(pool.all_sent)
    for _ in range(round(seconds * 10)):
        if stage.pointers():
            serve(stage, manager)
        stage.pass_ms(100)
    return len(pool.all_sent) - before


def end(stage: Stage, pool: PlayedWorkers, count: int) -> None:
    """Let items of the pool complete."""
    gone, pool.sent[0] = pool.sent[0][:count], pool.sent[0][count:]
    for ref in gone:
        zone = stage.shard.zone(ref.tenant)
        stage.shard.transact(
            lambda attempt: zone.complete(attempt.tr, ref.item_id, now_us=attempt.now_us)  # noqa: B023
        )
    pool.move_on(0, {"mail": len(pool.sent[0])})


def test_no_more_run_than_the_fleet_may_run_at_once(stage: Stage) -> None:
    limit(stage, max_running=3)
    fill(stage)
    manager, pool = crewed(stage)
    assert serve_for(stage, manager, pool, 2) == 3


def test_two_managers_share_what_may_run(stage: Stage) -> None:
    limit(stage, max_running=3)
    fill(stage, tenants=8)
    one, ones = crewed(stage, consumer_id=b"one")
    other, others = crewed(stage, consumer_id=b"other")
    taken = 0
    for _ in range(10):
        taken += serve_for(stage, one, ones, 0.2) + serve_for(stage, other, others, 0.2)
    assert taken == 3


def test_what_runs_still_counts_for_other_managers_after_the_clock_was_set_back(stage: Stage) -> None:
    """Its grant, of a time to come, has ended for them: so its manager must renew it at once."""
    stage.clock.jump(900 * SECOND)
    limit(stage, max_running=3)
    fill(stage)
    one, ones = crewed(stage, consumer_id=b"one")
    assert serve_for(stage, one, ones, 1) == 3
    stage.clock.jump(0)
    stage.pass_ms(300)
    fill(stage, tenants=8)
    other, others = crewed(stage, consumer_id=b"other")
    assert serve_for(stage, other, others, 1) == 0


@pytest.mark.parametrize("of", ["kind", "tenant"])
def test_work_with_a_limited_rate_goes_on_after_the_clock_was_set_back(stage: Stage, of: str) -> None:
    stage.clock.jump(3_000 * SECOND)
    if of == "kind":
        limit(stage, per_s=10.0, burst=10)
    else:
        stage.shard.transact(
            lambda attempt: policies.change_tenant_policy(
                attempt.tr, stage.shard.layout, ALICE, now_us=attempt.now_us, per_s=10.0, burst=10
            )
        )
    for _ in range(40):
        stage.enqueue("mail", tenant=ALICE)
    manager, pool = crewed(stage)
    assert serve_for(stage, manager, pool, 1) >= 10
    stage.clock.jump(0)
    for _ in range(60):
        stage.enqueue("mail", tenant=BOB if of == "kind" else ALICE, priority=1)
    stage.pass_ms(1_000)
    assert 15 <= serve_for(stage, manager, pool, 2) <= 40


def test_a_limit_that_comes_while_items_run_counts_them(stage: Stage) -> None:
    fill(stage, tenants=1, items=5)
    manager, pool = crewed(stage)
    assert serve_for(stage, manager, pool, 0.5) == 5
    limit(stage, max_running=6)
    fill(stage, tenants=3)
    assert serve_for(stage, manager, pool, 3) == 1


def test_slots_that_were_granted_under_a_higher_limit_are_not_used_under_a_lower_one(stage: Stage) -> None:
    limit(stage, max_running=8)
    fill(stage, tenants=1, items=4)
    manager, pool = crewed(stage)
    assert serve_for(stage, manager, pool, 1) == 4
    limit(stage, max_running=1)
    end(stage, pool, 4)
    fill(stage, tenants=8, items=1)
    assert serve_for(stage, manager, pool, 0.1) == 0
    assert serve_for(stage, manager, pool, 2) == 1


def test_slots_that_were_granted_before_a_limit_was_lifted_are_not_used_under_the_next(stage: Stage) -> None:
    """The store forgets the grants of a limit that is lifted, and the manager has observed only the next limit."""
    limit(stage, max_running=2)
    fill(stage, tenants=1, items=1)
    one, ones = crewed(stage, consumer_id=b"one")
    assert serve_for(stage, one, ones, 0.5) == 1
    end(stage, ones, 1)
    stage.pass_ms(150)  # Its next round comes after what follows.
    limit(stage, max_running=None)
    limit(stage, max_running=2)
    fill(stage, tenants=8, items=1)
    other, others = crewed(stage, consumer_id=b"other")
    assert serve_for(stage, other, others, 0.1) == 0
    serve(stage, other)
    assert len(others.all_sent) == 2
    serve(stage, one)
    assert ones.all_sent == []


def test_a_limit_that_is_observed_in_a_batch_that_is_then_halved_holds_for_the_halves(stage: Stage) -> None:
    fill(stage)
    manager, pool = crewed(stage)
    limit(stage, max_running=1)
    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    serve(stage, manager)
    assert pool.all_sent == []


def test_a_call_that_began_before_another_observed_a_limit_takes_nothing_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its capacity reckons with no limit, and the rules are not new to the manager any more."""
    fill(stage)
    manager, pool = crewed(stage)
    turn = stage.store.exclusive_section

    def turn_after_another_call() -> Any:
        monkeypatch.undo()
        limit(stage, max_running=1)
        manager.serve("main", [])
        return turn()

    monkeypatch.setattr(stage.store, "exclusive_section", turn_after_another_call)
    serve(stage, manager)
    assert pool.all_sent == []


def test_a_manager_that_stood_still_for_longer_than_its_grant_takes_nothing_by_it(stage: Stage) -> None:
    """Others may have its slots by then, and its own loop has not come round yet."""
    limit(stage, max_running=1)
    stage.enqueue("mail", tenant=ALICE)
    manager, pool = crewed(stage)
    serve(stage, manager)
    stage.pass_ms(300)
    stage.store.away = True  # Nothing is renewed.
    stage.pass_ms(3 * LEASE_MS)
    stage.store.away = False
    serve(stage, manager)
    assert pool.all_sent == []


def test_a_limit_that_is_gone_limits_nothing(stage: Stage) -> None:
    limit(stage, max_running=1)
    fill(stage)
    manager, pool = crewed(stage)
    assert serve_for(stage, manager, pool, 1) == 1
    limit(stage, max_running=None)
    assert serve_for(stage, manager, pool, 1) == 39


def test_no_more_start_in_a_second_than_may_and_that_many_do(stage: Stage) -> None:
    limit(stage, per_s=20.0, burst=5)
    fill(stage, tenants=20)
    manager, pool = crewed(stage)
    serve_for(stage, manager, pool, 1)
    taken = serve_for(stage, manager, pool, 5)
    assert 90 <= taken <= 105


def test_other_kinds_go_on_beside_one_that_is_limited(stage: Stage) -> None:
    limit(stage, max_running=1)
    fill(stage, tenants=1)
    for tenant in (ALICE, BOB):
        stage.enqueue("index", tenant=tenant)
    manager, pool = crewed(stage)
    serve_for(stage, manager, pool, 1)
    assert sorted(ref.kind for ref in pool.all_sent) == ["index", "index", "mail"]


def test_a_manager_keeps_the_slots_of_what_it_runs_however_long_and_whatever_else_it_meets(stage: Stage) -> None:
    limit(stage, max_running=1)
    stage.enqueue("mail", tenant=ALICE)
    one, ones = crewed(stage, consumer_id=b"one")
    assert serve_for(stage, one, ones, 1) == 1
    stage.pass_ms(3 * LEASE_MS)
    stage.enqueue("mail", tenant=BOB)
    other, others = crewed(stage, consumer_id=b"other")
    serve_for(stage, other, others, 2)
    assert others.all_sent == []


@pytest.mark.parametrize("left", [0, 2])
def test_a_manager_returns_the_slots_of_what_has_ended_although_it_serves_nothing(stage: Stage, left: int) -> None:
    limit(stage, max_running=4)
    fill(stage, tenants=4, items=1)
    one, ones = crewed(stage, consumer_id=b"one")
    assert serve_for(stage, one, ones, 2) == 4
    end(stage, ones, 4 - left)
    stage.pass_ms(3_000)
    fill(stage, tenants=8, items=1)
    other, others = crewed(stage, consumer_id=b"other")
    assert serve_for(stage, other, others, 2) == 4 - left


def test_a_manager_that_only_runs_what_it_has_asks_the_store_now_and_then_and_no_more(stage: Stage) -> None:
    limit(stage, max_running=1)
    stage.enqueue("mail", tenant=ALICE)
    manager, pool = crewed(stage)
    assert serve_for(stage, manager, pool, 3) == 1
    before = stage.store.commits
    stage.pass_ms(20 * LEASE_MS)
    assert 20 <= stage.store.commits - before <= 25, "once in a lease"


def test_running_items_count_towards_a_new_limit_without_any_pointer_to_process(stage: Stage) -> None:
    fill(stage, tenants=5, items=1)
    one, ones = crewed(stage, consumer_id=b"one")
    assert serve_for(stage, one, ones, 1) == 5
    limit(stage, max_running=6)
    stage.pass_ms(1_500)
    fill(stage, tenants=9, items=1)
    other, others = crewed(stage, consumer_id=b"other")
    assert serve_for(stage, other, others, 3) == 1


def test_what_runs_beyond_a_limit_is_not_made_up_for_by_others_that_end(stage: Stage) -> None:
    """Each of two managers counts what the other runs, though together it is more than the limit."""
    fill(stage, tenants=8, items=1)
    one, ones = crewed(stage, consumer_id=b"one", dequeue_max=1, batch_pointers=4)
    other, others = crewed(stage, consumer_id=b"other", dequeue_max=1, batch_pointers=4)
    serve(stage, one, stage.pointers()[:4])
    serve(stage, other)
    assert (len(ones.all_sent), len(others.all_sent)) == (4, 4)
    limit(stage, max_running=6)
    stage.pass_ms(2_000)
    end(stage, ones, 2)
    fill(stage, tenants=12, items=1)
    assert serve_for(stage, one, ones, 2) == serve_for(stage, other, others, 2) == 0
    end(stage, others, 1)
    assert serve_for(stage, one, ones, 1) + serve_for(stage, other, others, 1) == 1


# --- What its own shard says ---


@pytest.fixture
def elsewhere(stage: Stage) -> Shard:
    """Return a second shard, on which `mail` is limited to 2; its own is the first."""
    assert home(local_tenant("mail"), ["main", "other"]) == "main"
    _, stage.shards["other"] = stage.open_shard("other")
    limit(stage, shard=stage.shards["other"], max_running=2)
    stage.pass_ms(1)
    return stage.shards["other"]


def serve_elsewhere(stage: Stage, shard: Shard, seconds: float) -> int:
    """Serve what lies on another shard; return how many were taken of ten."""
    for number in range(10):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"), shard=shard)
    manager, pool = crewed(stage)
    for _ in range(round(seconds * 10)):
        refs = stage.pointers(shard)
        if refs:
            stage.do(lambda: manager.serve("other", refs))  # noqa: B023
        stage.pass_ms(100)
    return len(pool.all_sent)


def test_a_kind_that_its_own_shard_limits_no_more_is_not_limited(stage: Stage, elsewhere: Shard) -> None:
    """As long as the end of the limit is on its way to the others."""
    limit(stage, max_running=None)
    assert serve_elsewhere(stage, elsewhere, 2) == 10


def test_slots_of_a_policy_that_a_manager_learns_from_its_grant_are_used_at_once(
    stage: Stage, elsewhere: Shard
) -> None:
    """Its own shard has a later policy than the shard that is served: the grant is by the later one."""
    limit(stage, max_running=4)
    stage.pass_ms(1)
    for number in range(10):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"), shard=elsewhere)
    manager, pool = crewed(stage)
    stage.do(lambda: manager.serve("other", stage.pointers(elsewhere)))
    stage.pass_ms(100)  # Less than a round: the first one asks at once.
    refs = stage.pointers(elsewhere)
    stage.do(lambda: manager.serve("other", refs))
    assert len(pool.all_sent) > 0


def test_a_limit_that_its_own_shard_has_forgotten_holds(stage: Stage, elsewhere: Shard) -> None:
    """As after a restored backup."""
    assert serve_elsewhere(stage, elsewhere, 2) == 2


def test_a_limit_that_has_not_reached_a_shard_holds_for_managers_that_observed_it(
    stage: Stage, elsewhere: Shard
) -> None:
    """Before, whatever was heard last counted, so that a shard without the limit lifted it."""
    limit(stage, shard=elsewhere, max_running=None)
    stage.pass_ms(1)
    limit(stage, max_running=1)
    stage.pass_ms(1)
    manager, pool = crewed(stage)
    for shard in (stage.shard, elsewhere):
        stage.enqueue("mail", tenant=ALICE, shard=shard)
        stage.enqueue("mail", tenant=BOB, shard=shard)
    for _ in range(20):
        for name, shard in stage.shards.items():
            refs = stage.pointers(shard)
            if refs:
                stage.do(lambda: manager.serve(name, refs))  # noqa: B023
        stage.pass_ms(100)
    assert len(pool.all_sent) == 1


@pytest.mark.parametrize("written", [b"\x63", bytes([FORMAT + 1])])
def test_while_its_own_shard_has_no_readable_policy_the_one_observed_elsewhere_holds(
    stage: Stage, elsewhere: Shard, written: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    limit(stage, max_running=1)
    key = ROOT + pack_int(POLICY) + pack_int(2) + pack_text("mail")
    stage.shard.transact(lambda attempt: attempt.tr.set(key, written))
    assert serve_elsewhere(stage, elsewhere, 2) == 2
    assert caplog.text.count("the policy of kind mail cannot be read") == 1


@pytest.mark.parametrize("ordinal", range(1, 6))
def test_tokens_that_come_back_in_a_commit_that_conflicts_come_back_in_the_next(stage: Stage, ordinal: int) -> None:
    limit(stage, per_s=0.1, burst=10)
    stage.enqueue("mail")
    manager, pool = crewed(stage)
    stage.store.on_commit(ordinal, lambda: stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED)))
    assert serve_for(stage, manager, pool, 2) == 1
    fill(stage, tenants=20, items=1)
    assert serve_for(stage, manager, pool, 5) == 9


@pytest.mark.parametrize("ordinal", range(1, 7))
def test_a_limit_that_is_lifted_just_before_a_commit_leaves_nothing_behind(stage: Stage, ordinal: int) -> None:
    """Before, the renewal that was under way wrote a grant that nobody would clear (seed 1012 of limits by rule)."""
    limit(stage, max_running=3)
    fill(stage)
    manager, pool = crewed(stage)
    serve_for(stage, manager, pool, 1)
    stage.store.on_commit(ordinal, lambda: limit(stage, max_running=None))
    serve_for(stage, manager, pool, 3)
    prefix = ROOT + pack_int(LIMIT)
    left = stage.shard.transact(lambda attempt: list(attempt.tr.get_range(range_begin(prefix), range_end(prefix))))
    assert left == []
    stage.do(manager.stop)
