"""Operators' commands with a commit of unknown result: each is applied once, and does not undo later changes."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead import App, TenantDatabase
from fairlead.actors.dispatch.reclaim import reclaim
from fairlead.actors.execution.submitted_handlers import submit
from fairlead.actors.messages import ItemRef
from fairlead.cli import quarantine
from fairlead.zones import submitted_handlers
from fairlead.zones.layout import Tenant
from fairlead.zones.maintenance import quarantine as kept
from fairlead.zones.policy.policies import read_policies, tenant_policy
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from tests.zones.faults import Fault, FaultyDatabase

APPLIED = pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
ALICE = Tenant("shop", "alice")


@pytest.fixture
def shard(app: App) -> Shard:
    (shard,) = app.shards.values()
    return shard


@pytest.fixture
def faulty(shard: Shard) -> FaultyDatabase:
    shard.db = FaultyDatabase(shard.db)
    return shard.db


@APPLIED
def test_a_pause_does_not_undo_the_resumption_that_came_after_it(
    app: App, shard: Shard, faulty: FaultyDatabase, applied: bool
) -> None:
    """Before, the retry of a pause that had been applied paused the kind again."""
    faulty.faults.append(Fault(applied=applied, then=lambda: app.control.resume_kind("mail")))
    app.control.pause_kind("mail")
    paused = shard.transact(lambda attempt: read_policies(attempt.tr)).paused_kinds
    assert paused == (frozenset() if applied else {"mail"})


@APPLIED
def test_a_weight_does_not_undo_the_one_that_came_after_it(
    app: App, shard: Shard, faulty: FaultyDatabase, applied: bool
) -> None:
    faulty.faults.append(Fault(applied=applied, then=lambda: app.control.set_weight("shop", "alice", weight=7)))
    app.control.set_weight("shop", "alice", weight=2)
    policy = shard.transact(lambda attempt: tenant_policy(attempt.tr, shard.layout, ALICE))
    assert policy.weight == (7 if applied else 2)
    assert len(shard.transact(lambda attempt: audit_log.latest(attempt.tr, entries_max=10))) == 2


@APPLIED
def test_a_submitted_handler_does_not_replace_the_one_that_came_after_it(
    app: App, shard: Shard, faulty: FaultyDatabase, applied: bool
) -> None:
    """Before, the retry stored the older code under the highest version."""
    shards = dict(app.shards)
    faulty.faults.append(Fault(applied=applied, then=lambda: submit(shards, "mail", b"newer", key=b"")))
    version = submit(shards, "mail", b"older", key=b"")
    (record,) = shard.transact(lambda attempt: submitted_handlers.listing(attempt.tr))
    assert (version, record.version, record.code) == ((1, 2, b"newer") if applied else (2, 2, b"older"))


@APPLIED
def test_a_worker_that_died_is_counted_once(
    alice: TenantDatabase, shard: Shard, faulty: FaultyDatabase, applied: bool
) -> None:
    """Before, one death was counted twice, and an item runs isolated after three."""
    item_id, zone = alice.enqueue("mail").item_id, shard.zone(ALICE)

    def lease(attempt: Any) -> Any:
        return zone.obtain_lease(attempt.tr, item_id, lease_id=b"l" * 16, lease_us=10**6, now_us=attempt.now_us)

    shard.transact(lease)
    faulty.faults.append(Fault(applied=applied))
    reclaim({shard.name: shard}, [ItemRef(shard.name, ALICE, "queue", item_id, b"l" * 16, "mail", False)])
    value = shard.transact(lambda attempt: attempt.tr.get(zone.location.keys.item(item_id)).value)
    record = decode(ItemRecord, value or b"")
    assert record is not None
    assert record.died == 1


@APPLIED
def test_a_pair_that_is_discarded_from_the_quarantine_is_counted(
    alice: TenantDatabase, shard: Shard, faulty: FaultyDatabase, applied: bool
) -> None:
    """Before, the command had deleted the pair, and then reported that there is none."""
    key = b"\x15a key of nobody's"

    def set_aside(attempt: Any) -> None:
        attempt.tr.set(key, b"damaged")
        kept.set_aside(attempt.tr, key, key + b"\x00", why="for a test", now_us=attempt.now_us)

    shard.transact(set_aside)
    (pair,) = shard.transact(lambda attempt: kept.listing(attempt.tr, pairs_max=10))
    faulty.faults.append(Fault(applied=applied))
    assert quarantine._discard(shard, pair.id.hex()) == 1
