"""A manager takes no more of a kind that is limited over the fleet than the kind's own shard has granted it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from actors.manager import Manager
from actors.messages import Report
from tests.actors.stage import ALICE, BOB, LEASE_MS, Stage, report
from tests.actors.test_manager import Crew, managed, serve
from tests.zones.faults import Fault
from zones import rules
from zones.engines.errors import NOT_COMMITTED
from zones.keyspace import LIMIT, ROOT, pack_int, range_begin, range_end
from zones.layout import Tenant


@pytest.fixture
def stage() -> Stage:
    return Stage()


def crewed(stage: Stage, **how: Any) -> tuple[Manager, Crew]:
    """Return a manager of one worker that keeps all that it is sent, and reports it by kind."""
    manager, crew = managed(stage, [1_000], **how)

    def counted(number: int) -> Report:
        held = crew.sent[number]
        kinds = dict(Counter(ref.kind for ref in held))
        return report(capacity=1_000, held=len(held), kinds=kinds, progress=crew.progress[number])

    crew.report = counted  # type: ignore[method-assign]
    return manager, crew


def limit(stage: Stage, kind: str = "mail", **changes: object) -> None:
    stage.shard.transact(lambda attempt: rules.change_kind_rule(attempt.tr, kind, **changes))


def fill(stage: Stage, tenants: int = 4, items: int = 10) -> None:
    for number in range(tenants):
        for _ in range(items):
            stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))


def serve_for(stage: Stage, manager: Manager, crew: Crew, seconds: float) -> int:
    """Serve whatever has vested, ten times a second; the items stay with their workers. Return how many were taken."""
    before = len(crew.all_sent)
    for _ in range(round(seconds * 10)):
        if stage.pointers():
            serve(stage, manager)
        stage.pass_ms(100)
    return len(crew.all_sent) - before


def end(stage: Stage, crew: Crew, count: int) -> None:
    """Let items of the crew complete."""
    gone, crew.sent[0] = crew.sent[0][:count], crew.sent[0][count:]
    for ref in gone:
        zone = stage.shard.zone(ref.tenant)
        stage.shard.transact(
            lambda attempt: zone.complete(attempt.tr, ref.item_id, now_us=attempt.now_us)  # noqa: B023
        )
    crew.move_on(0, {"mail": len(crew.sent[0])})


def test_no_more_run_than_the_fleet_may_run_at_once(stage: Stage) -> None:
    limit(stage, max_running=3)
    fill(stage)
    manager, crew = crewed(stage)
    assert serve_for(stage, manager, crew, 2) == 3


def test_two_managers_share_what_may_run(stage: Stage) -> None:
    limit(stage, max_running=3)
    fill(stage, tenants=8)
    one, ones = crewed(stage, consumer_id=b"one")
    other, others = crewed(stage, consumer_id=b"other")
    taken = 0
    for _ in range(10):
        taken += serve_for(stage, one, ones, 0.2) + serve_for(stage, other, others, 0.2)
    assert taken == 3


def test_a_limit_that_comes_while_items_run_counts_them(stage: Stage) -> None:
    fill(stage, tenants=1, items=5)
    manager, crew = crewed(stage)
    assert serve_for(stage, manager, crew, 0.5) == 5
    limit(stage, max_running=6)
    fill(stage, tenants=3)
    assert serve_for(stage, manager, crew, 3) == 1


def test_a_limit_that_is_heard_of_in_a_batch_that_is_then_halved_holds_for_the_halves(stage: Stage) -> None:
    fill(stage)
    manager, crew = crewed(stage)
    limit(stage, max_running=1)
    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    serve(stage, manager)
    assert crew.all_sent == []


def test_a_manager_that_stood_still_for_longer_than_its_grant_takes_nothing_by_it(stage: Stage) -> None:
    """Others may have its slots by then, and its own loop has not come round yet."""
    limit(stage, max_running=1)
    stage.enqueue("mail", tenant=ALICE)
    manager, crew = crewed(stage)
    serve(stage, manager)
    stage.pass_ms(300)
    stage.store.away = True  # Nothing is renewed.
    stage.pass_ms(3 * LEASE_MS)
    stage.store.away = False
    serve(stage, manager)
    assert crew.all_sent == []


def test_a_limit_that_is_gone_limits_nothing(stage: Stage) -> None:
    limit(stage, max_running=1)
    fill(stage)
    manager, crew = crewed(stage)
    assert serve_for(stage, manager, crew, 1) == 1
    limit(stage, max_running=None)
    assert serve_for(stage, manager, crew, 1) == 39


def test_no_more_start_in_a_second_than_may_and_that_many_do(stage: Stage) -> None:
    limit(stage, per_s=20.0, burst=5)
    fill(stage, tenants=20)
    manager, crew = crewed(stage)
    serve_for(stage, manager, crew, 1)
    taken = serve_for(stage, manager, crew, 5)
    assert 90 <= taken <= 105


def test_other_kinds_go_on_beside_one_that_is_limited(stage: Stage) -> None:
    limit(stage, max_running=1)
    fill(stage, tenants=1)
    for tenant in (ALICE, BOB):
        stage.enqueue("index", tenant=tenant)
    manager, crew = crewed(stage)
    serve_for(stage, manager, crew, 1)
    assert sorted(ref.kind for ref in crew.all_sent) == ["index", "index", "mail"]


def test_a_manager_that_runs_nothing_of_a_limited_kind_any_more_gives_its_slots_back(stage: Stage) -> None:
    limit(stage, max_running=1)
    stage.enqueue("mail", tenant=ALICE)
    one, ones = crewed(stage, consumer_id=b"one")
    assert serve_for(stage, one, ones, 1) == 1
    end(stage, ones, 1)
    stage.pass_ms(3_000)
    stage.enqueue("mail", tenant=BOB)
    other, others = crewed(stage, consumer_id=b"other")
    assert serve_for(stage, other, others, 2) == 1


@pytest.mark.parametrize("ordinal", range(1, 7))
def test_a_limit_that_is_lifted_just_before_a_commit_leaves_nothing_behind(stage: Stage, ordinal: int) -> None:
    """Before, the renewal that was under way wrote a grant that nobody would clear (seed 1012 of limits by rule)."""
    limit(stage, max_running=3)
    fill(stage)
    manager, crew = crewed(stage)
    serve_for(stage, manager, crew, 1)
    stage.store.on_commit(ordinal, lambda: limit(stage, max_running=None))
    serve_for(stage, manager, crew, 3)
    prefix = ROOT + pack_int(LIMIT)
    left = stage.shard.transact(lambda attempt: list(attempt.tr.get_range(range_begin(prefix), range_end(prefix))))
    assert left == []
    stage.do(manager.stop)
