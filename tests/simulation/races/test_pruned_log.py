"""A process that is paused in a transaction while another prunes the commit log past its read version.

On the embedded engine each commit checks for conflicts in a log in the store. A transaction that read before the
beginning of the log is refused, whatever its own clock shows. Two processes run this story.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from fairlead.zones.engines import Database, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import TRANSACTION_TOO_OLD
from fairlead.zones.engines.embedded import stored_log
from fairlead.zones.errors import ItemGone
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import SEED_BYTES, Attempt
from tests.clocks import ManualClock
from tests.contract.conftest import code_of
from tests.contract.other_process import OtherProcess
from tests.simulation.races.missing_guards import Patch

ALICE = Tenant("shop", "alice")
SECOND = 1_000_000
STOPPED_US = 1_700_000_000 * SECOND  # The clock of the worker shows this time for ever.
LEASE_US = 10 * SECOND
COMMITS = 80  # The log is pruned every 64.


def open_here(db: Database, clock: ManualClock) -> Shard:
    """Open the store of `db` as a shard in this process, with a clock that the story sets."""
    random = Random(1)
    return open_shard("s0", open_database(db.url, clock=clock, random=random), clock=clock, random=random)


def lease(shard: Shard) -> LeasedItem:
    """Lease the one vested item."""

    def body(attempt: Attempt) -> LeasedItem:
        capacity = Capacity(1, {"mail": 1})
        (item,) = shard.zone(ALICE).dequeue(
            attempt.tr, capacity=capacity, lease_id=attempt.new_id(), lease_us=LEASE_US, now_us=attempt.now_us
        )
        return item

    return shard.transact(body)


def pay(shard: Shard, attempt: Attempt, item: LeasedItem) -> None:
    """Do the work of an item and complete it, in one transaction."""
    TenantTransaction(shard, ALICE, attempt).add(("paid",), 1)
    shard.zone(ALICE).complete(attempt.tr, item.id, lease_id=item.record.lease_id, now_us=attempt.now_us)


def take_over(db: Database) -> None:
    """Do the work of the item in another process, after the lease has expired. Then commit much else."""
    clock = ManualClock(STOPPED_US + LEASE_US)
    shard = open_here(db, clock)
    item = lease(shard)
    shard.transact(lambda attempt: pay(shard, attempt, item))
    for _ in range(COMMITS):
        transact(shard.db, lambda tr: tr.add(b"something else", b"\x01"))
        clock.advance_us(SECOND)


class PausedWorker:
    """A worker that is paused for minutes before the commit of its work.

    `code`: the answer to that commit, 0 if it was applied. `paid`: how many payments there were then.
    """

    def __init__(self, store: Path) -> None:
        clock = ManualClock(STOPPED_US)
        db = open_database(f"embedded:{store}", clock=clock, random=Random(1))
        shard = open_here(db, clock)
        shard.transact(lambda attempt: TenantTransaction(shard, ALICE, attempt).enqueue("mail"))
        item = lease(shard)
        stopped = Attempt(db.create_transaction(), b"stopped".ljust(SEED_BYTES), clock.now_us())
        pay(shard, stopped, item)
        with OtherProcess(db.url) as another:
            another.call(take_over)
        self.code = code_of(stopped.tr.commit())
        self.is_gone = is_gone(shard, item)
        self.paid = shard.transact(lambda attempt: TenantTransaction(shard, ALICE, attempt).get(("paid",)))
        self.count = shard.transact(lambda attempt: shard.zone(ALICE).count(attempt.tr))
        shard.db.close()
        db.close()


def is_gone(shard: Shard, item: LeasedItem) -> bool:
    """Whether the worker finds the item gone when it retries."""
    try:
        shard.transact(lambda attempt: pay(shard, attempt, item))
    except ItemGone:
        return True
    return False


ONCE, TWICE = (number.to_bytes(8, "little") for number in (1, 2))


def test_a_worker_that_was_paused_while_the_log_was_pruned_does_not_pay_twice(tmp_path: Path) -> None:
    worker = PausedWorker(tmp_path / "store")
    assert (worker.code, worker.is_gone) == (TRANSACTION_TOO_OLD, True)
    assert (worker.paid, worker.count) == (ONCE, {})


def test_without_the_check_where_the_log_begins_it_pays_twice(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(stored_log, "_first_version", lambda cursor: 0)
    worker = PausedWorker(tmp_path / "store")
    assert worker.code == 0
    assert (worker.paid, worker.count) == (TWICE, {"mail": -1})
