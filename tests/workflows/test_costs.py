"""What workflows cost: commits, reads, and what stays in the store."""

from __future__ import annotations

from collections import Counter
from time import thread_time
from typing import Any

import pytest

import fairlead
from fairlead.actors.execution.runner import run_handler
from fairlead.testing import ManualClock, drain
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.memory.engine import MemoryStore
from fairlead.zones.engines.optimistic.range_read import SnapshotReads
from fairlead.zones.keyspace import COMPLETION_LOG, FLOOR, ROOT, ROOT_RANGE, TOMBSTONE, TenantKeys, pack_int
from fairlead.zones.layout import Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.run_records import END, FENCE_BYTES

STEPS = 4
RECORDED = 1_000
REPLAYS = 4
REPLAY_MS_MAX = 50
LEFT_BYTES = 67  # At a participant, besides twice its names and twice the zeros in the id of the run, three at least.
LEFT_BYTES_MAX = 100  # For names of up to 13 characters together.


class Counted:
    """Two shards, and the commits that write by the kind of the item whose handler makes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.app = fairlead.App({"one": "memory:", "two": "memory:"}, clock=self.clock)
        self.home = self.app.tenant("shop", "alice")
        self.participant = self.elsewhere("depot", "d")
        self.commits: Counter[str] = Counter()
        running = [""]
        submit = MemoryStore.submit

        def submit_counted(store: MemoryStore, request: Any) -> Any:
            self.commits[running[-1]] += 1
            return submit(store, request)

        def run_counted(held: Any, *arguments: Any) -> None:
            running.append(held.ref.kind)
            try:
                run_handler(held, *arguments)
            finally:
                running.pop()

        monkeypatch.setattr(MemoryStore, "submit", submit_counted)
        monkeypatch.setattr("fairlead.testing.run_handler", run_counted)

    def elsewhere(self, app: str, user: str) -> fairlead.TenantDatabase:
        """Return a tenant on the other shard: its user's name has a number at its end."""
        return next(
            tenant
            for number in range(100)
            if (tenant := self.app.tenant(app, f"{user}{number}")).shard.name != self.home.shard.name
        )

    def run(self, function: Any, *, within: int = 0) -> int:
        """Run a workflow; return how many commits its attempts have made."""
        self.app.workflow("w")(function)
        self.home.enqueue("w")
        drain(self.app, replays=False, within=within)
        return self.commits["w"]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def add_one(tr: Any, number: int = 0) -> int:
    tr.add(("count",), 1)
    return number


def test_a_step_at_home_is_one_commit(counted: Counted) -> None:
    assert counted.run(lambda wf: [wf.step(add_one, number) for number in range(STEPS)]) == STEPS


def test_a_step_that_reads_nothing_opens_no_snapshot(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    snapshot = MemoryStore.snapshot

    def noted(store: MemoryStore, clock: Any) -> Any:
        opened.append("snapshot")
        return snapshot(store, clock)

    def work(wf: WorkflowContext) -> None:
        wf.step(add_one)  # It writes the item's record.
        wf.step(add_one)  # It reads the record, and does not write it.
        monkeypatch.setattr(MemoryStore, "snapshot", noted)
        for number in range(STEPS):
            wf.step(add_one, number)
        assert opened == []
        wf.step(lambda tr: tr.get(("count",)), name="read")
        assert opened == ["snapshot"]
        monkeypatch.undo()

    counted.run(work)


@pytest.mark.parametrize(("place", "commits"), [("home", 2), ("neighbour", 3), ("elsewhere", 3)])
def test_a_lock_is_two_commits_and_one_to_record_another_tenant(counted: Counted, place: str, commits: int) -> None:
    neighbour = next(
        tenant
        for number in range(100)
        if (tenant := counted.app.tenant("depot", f"n{number}")).shard.name == counted.home.shard.name
    )
    tenant = {"home": counted.home, "neighbour": neighbour, "elsewhere": counted.participant}[place]

    def work(wf: WorkflowContext) -> None:
        for _ in range(STEPS):
            with wf.lock(("account", 7), on=tenant):
                pass

    recorded = commits - 2
    assert counted.run(work) == 2 * STEPS + recorded


def test_a_step_on_another_tenant_of_the_home_shard_is_one_commit(counted: Counted) -> None:
    neighbour = next(
        tenant
        for number in range(100)
        if (tenant := counted.app.tenant("shop", f"n{number}")).shard.name == counted.home.shard.name
    )
    assert counted.run(lambda wf: [wf.step(add_one, number, on=neighbour) for number in range(STEPS)]) == STEPS


def test_steps_on_another_shard_are_one_commit_more_and_two_for_the_cleanup(counted: Counted) -> None:
    steps = counted.run(lambda wf: [wf.step(add_one, number, on=counted.participant) for number in range(STEPS)])
    assert steps == STEPS + 1
    assert counted.commits[CLEANUP_KIND] == 2


def test_a_wait_is_one_commit_if_it_really_waits(counted: Counted) -> None:
    assert counted.run(lambda wf: wf.sleep(60), within=120) == 1


def test_a_wait_for_a_signal_that_is_there_is_no_commit(counted: Counted) -> None:
    @counted.app.workflow("w")
    def waits(wf: WorkflowContext) -> None:
        assert wf.wait_for("approved", timeout=60) == "yes"

    counted.home.enqueue("w").signal("approved", "yes")
    drain(counted.app, replays=False)
    assert counted.commits["w"] == 0


def test_finish_is_one_commit_with_the_completion(counted: Counted) -> None:
    assert counted.run(lambda wf: wf.finish(add_one)) == 1


def test_an_effect_is_one_commit_and_two_if_it_must_happen_at_most_once(counted: Counted) -> None:
    def pay(key: str) -> str:
        return key

    @counted.app.workflow("once")
    def once(wf: WorkflowContext) -> None:
        wf.effect(pay, once=True)
        assert counted.commits["once"] == 2
        wf.effect(pay)
        assert counted.commits["once"] == 3

    counted.home.enqueue("once")
    drain(counted.app, replays=False)
    assert counted.commits["once"] == 3


def test_an_effect_that_is_the_first_call_of_its_run_is_two_commits(counted: Counted) -> None:
    assert counted.run(lambda wf: wf.effect(lambda key: key, name="pay")) == 2


def test_a_read_and_a_replay_are_no_commit(counted: Counted) -> None:
    assert counted.run(lambda wf: wf.read(lambda tr: tr.get(("count",)))) == 0


@pytest.mark.parametrize(
    ("user", "is_small"),
    [("d", True), ("2c1f6e3a-7d84-4b0e-9a55-13f0c8e6b7d2-", False)],
)
def test_of_a_run_nothing_stays_at_home_and_at_a_participant_a_tombstone_until_floor_is_raised(
    counted: Counted, user: str, is_small: bool
) -> None:
    """Two keys: the tombstone, and its entry in the index of the shard. Both hold the tenant's name."""
    there = counted.elsewhere("depot", user)

    def steps(wf: Any) -> None:
        wf.step(add_one)
        wf.step(add_one, on=there)
        wf.wait_for("never", timeout=1, default=None)

    before, before_at_home = dict(stored(there.shard)), dict(stored(counted.home.shard))
    counted.run(steps, within=600)
    at_home = added(counted.home, before_at_home)
    assert keys_of_tenant(counted.home.shard, counted.home.tenant) == []
    assert all(key.startswith(ROOT + pack_int(COMPLETION_LOG)) for key in at_home), "which every item is noted in"
    left = added(there, before)
    (tombstone,) = keys_of_tenant(there.shard, there.tenant)
    (entry,) = left.keys() - {tombstone}
    assert entry.startswith(ROOT + pack_int(TOMBSTONE))
    assert (left[tombstone], left[entry]) == (END.to_bytes(FENCE_BYTES, "big"), b"")
    left_bytes = sum(len(key) + len(value) for key, value in left.items())
    assert left_bytes == LEFT_BYTES + 2 * (len("".join(there.tenant)) + tombstone.count(b"\x00\xff"))
    assert (left_bytes <= LEFT_BYTES_MAX) is is_small
    there.shard.transact(lambda attempt: participants.raise_floor(attempt.tr, tombstones_max=10))
    assert added(there, before).keys() == {ROOT + pack_int(FLOOR)}, "one number for all runs of the shard"


def test_a_replay_reads_each_log_by_one_range_read(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is that of the thread, from the begin of the attempt to the first call that is not recorded.

    The least of several: other processes use up the caches of a busy machine.
    """
    ranges, began_s = 0, 0.0
    read: list[int] = []
    took_ms: list[float] = []
    get_range = SnapshotReads.get_range

    def get_range_counted(*arguments: Any, **options: Any) -> Any:
        nonlocal ranges
        ranges += 1
        return get_range(*arguments, **options)

    def steps(wf: Any) -> None:
        for number in range(RECORDED // 2):
            wf.step(add_one, number)
            wf.step(add_one, number, on=counted.participant)
        for _ in range(REPLAYS):
            wf.sleep(60)
            took_ms.append((thread_time() - began_s) * 1000)

    def run(*arguments: Any) -> None:
        nonlocal began_s, ranges
        began_s, ranges = thread_time(), 0
        run_handler(*arguments)
        read.append(ranges)

    monkeypatch.setattr("fairlead.testing.run_handler", run)
    monkeypatch.setattr(SnapshotReads, "get_range", get_range_counted)
    counted.app.workflow("w")(steps)
    counted.home.enqueue("w")
    drain(counted.app, replays=False, within=600)
    assert read[:2] == [0, 2]
    assert min(took_ms) < REPLAY_MS_MAX


def keys_of_tenant(shard: Shard, tenant: Tenant) -> list[bytes]:
    """Return the keys of a tenant, but for its data."""
    keys = TenantKeys(*tenant)
    return [key for key, _ in stored(shard) if key.startswith(keys.prefix) and not key.startswith(keys.data)]


def added(tenant: fairlead.TenantDatabase, before: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return what a shard has that it had not before, but for the data of a tenant."""
    data = TenantKeys(*tenant.tenant).data
    return {key: value for key, value in stored(tenant.shard) if key not in before and not key.startswith(data)}


def stored(shard: Shard) -> list[tuple[bytes, bytes]]:
    """Return all keys and values of a shard."""
    return shard.transact(lambda attempt: [(row.key, row.value) for row in attempt.tr.snapshot.get_range(*ROOT_RANGE)])
