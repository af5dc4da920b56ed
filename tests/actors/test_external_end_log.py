"""The ends of items of an external store in the completion log: written together, and lost if the shard refuses."""

from __future__ import annotations

import pytest

from fairlead.actors.execution.external_end_log import ENDS_MAX, FLUSH_S, ExternalEndLog
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.messages import ItemRef
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.layout import Tenant
from fairlead.zones.records import ItemRecord
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndReason
from tests.actors.stage import ALICE, BOB, Stage

FLUSH_MS = FLUSH_S * 1_000
ZONE = pointer_zone("pg", "queue")


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def end_log(stage: Stage) -> ExternalEndLog:
    made = ExternalEndLog(stage.host, stage.shards)
    made.start()
    return made


def held(stage: Stage, number: int = 1, tenant: Tenant = ALICE) -> HeldItem:
    """Return an item that a worker holds."""
    item_id = number.to_bytes(16, "big")
    record = ItemRecord("mail", b"", 100, 0, 0)
    record.leased_us = stage.now_us
    ref = ItemRef("main", tenant, ZONE, item_id, b"lease", "mail", isolated=False)
    handler = stage.handler("mail", lambda job: None)
    return HeldItem(ref, record, handler, Job(stage.shard, ref, record, b"\xc0"), stage.now_us)


def reason(stage: Stage, item: HeldItem) -> EndReason | None:
    """Return how an item ended, by the completion log."""
    location = stage.shard.layout.location(item.ref.tenant, item.ref.zone)
    return stage.shard.transact(lambda tr: completion_log.end_reason_of(tr.tr, location, item.ref.item_id))


def test_ends_of_a_fifth_of_a_second_are_one_commit(stage: Stage, end_log: ExternalEndLog) -> None:
    items = [held(stage, number, tenant) for number in range(1, 51) for tenant in (ALICE, BOB)]
    before = stage.store.commits
    for item in items:
        end_log.note([(item, "completed" if item.ref.tenant == ALICE else "dropped")])
        stage.pass_ms(1)
    stage.pass_ms(FLUSH_MS)
    assert stage.store.commits == before + 1
    assert {reason(stage, item) for item in items if item.ref.tenant == ALICE} == {EndReason.COMPLETED}
    assert {reason(stage, item) for item in items if item.ref.tenant == BOB} == {EndReason.DROPPED}


def test_an_item_that_stays_or_is_a_dead_letter_has_no_end(stage: Stage, end_log: ExternalEndLog) -> None:
    before = stage.store.commits
    end_log.note([(held(stage), became) for became in ("retried", "returned", "lost", "dead_lettered")])
    stage.pass_ms(2 * FLUSH_MS)
    assert stage.store.commits == before


def test_a_shard_that_refuses_loses_ends_and_holds_up_nothing(stage: Stage, end_log: ExternalEndLog) -> None:
    first, second = held(stage, 1), held(stage, 2)
    stage.store.full = True
    end_log.note([(first, "completed")])
    stage.pass_ms(2 * FLUSH_MS)
    stage.store.full = False
    end_log.note([(second, "completed")])
    stage.pass_ms(2 * FLUSH_MS)
    assert (reason(stage, first), reason(stage, second)) == (None, EndReason.COMPLETED)
    assert not stage.failed


def test_a_worker_that_stops_writes_the_last_ends_at_once(stage: Stage, end_log: ExternalEndLog) -> None:
    item = held(stage)
    end_log.note([(item, "completed")])
    stage.pass_ms(1)

    def stop() -> None:
        end_log.stop()
        end_log.await_end(60_000_000)

    stage.do(stop, within_ms=10)
    assert reason(stage, item) is EndReason.COMPLETED


def test_while_a_shard_does_not_answer_a_bounded_number_of_ends_is_kept(stage: Stage, end_log: ExternalEndLog) -> None:
    first, last = held(stage, 1), held(stage, 2)
    end_log.note([(first, "completed")] * ENDS_MAX)
    end_log.note([(last, "completed")])
    stage.pass_ms(2 * FLUSH_MS)
    assert (reason(stage, first), reason(stage, last)) == (EndReason.COMPLETED, None)
    end_log.note([(last, "completed")])
    stage.pass_ms(2 * FLUSH_MS)
    assert reason(stage, last) is EndReason.COMPLETED
