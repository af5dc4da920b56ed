"""Snapshots as an application and an operator use them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, BadArgument, KeyChange, Restoring, SnapshotGone, TenantDatabase
from fairlead.testing import ManualClock
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.snapshots.restoring import begin_restore
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.tenant_view import NotAcrossShards
from tests.fairlead.live_consumers import consumer, eventually
from tests.fairlead.shell import run
from tests.workflows.application import ELSEWHERE, HOME, two_shards

KEY = ("order", 7)


def put(tenant: TenantDatabase, value: bytes) -> None:
    tenant.transact(lambda tr: tr.set(KEY, value))


def get(tenant: TenantDatabase) -> bytes | None:
    return tenant.transact(lambda tr: tr.get(KEY))


def test_a_tenant_is_read_compared_and_restored_as_it_was(alice: TenantDatabase) -> None:
    put(alice, b"open")
    taken = alice.snapshot()
    put(alice, b"paid")
    with alice.at(taken) as old:
        assert (old.get(KEY), list(old.get_range(("order",)))) == (b"open", [(KEY, b"open")])
    assert list(taken.diff()) == [KeyChange(KEY, b"open", b"paid")]
    alice.restore(taken)
    assert get(alice) == b"open"
    assert list(taken.diff()) == []
    taken.drop()
    assert alice.snapshots() == []
    with pytest.raises(SnapshotGone), alice.at(taken):
        pass


def test_an_application_takes_a_snapshot_of_each_of_some_tenants(app: App, alice: TenantDatabase) -> None:
    bob = app.tenant("shop/bob")
    put(alice, b"open")
    put(bob, b"paid")
    taken = app.snapshot([alice, "shop/bob"], keep=3600)
    put(alice, b"sent")
    put(bob, b"sent")
    assert {tenant: app.tenant(tenant).at(snap).get(KEY) for tenant, snap in taken.items()} == {
        alice.tenant: b"open",
        bob.tenant: b"paid",
    }


def test_one_text_in_place_of_a_list_of_tenants_is_refused(app: App) -> None:
    with pytest.raises(BadArgument, match="a list of tenants"):
        app.snapshot("shop/alice")


def test_snapshots_are_listed_with_their_times(app: App, alice: TenantDatabase) -> None:
    now_us = app.clock.now_us()
    first, second = alice.snapshot(), alice.snapshot(keep=timedelta(days=7))
    assert alice.snapshots() == [first, second]
    assert (first.number, first.taken_us, first.expires_us) == (1, now_us, None)
    assert second.expires_us == now_us + 7 * 86_400 * 1_000_000
    assert repr(second) == "<Snapshot 2 of shop/alice>"


def test_a_snapshot_is_named_by_its_number_too(alice: TenantDatabase) -> None:
    put(alice, b"open")
    number = alice.transact(lambda tr: tr.snapshot(keep=60))
    put(alice, b"paid")
    assert alice.at(number).get(KEY) == b"open"
    alice.restore(number)
    assert get(alice) == b"open"


@pytest.mark.parametrize("number", [0, -1, "1", None, 1.0, True])
def test_what_is_no_snapshot_is_refused(alice: TenantDatabase, number: Any) -> None:
    with pytest.raises(BadArgument):
        alice.at(number)
    with pytest.raises(BadArgument):
        alice.restore(number)


def test_a_snapshot_of_another_tenant_is_refused(app: App, alice: TenantDatabase) -> None:
    """Before, the tenant was restored to its own snapshot of the same number."""
    bob = app.tenant("shop/bob")
    put(alice, b"open")
    put(bob, b"paid")
    taken, alices = bob.snapshot(), alice.snapshot()
    assert taken.number == alices.number
    put(alice, b"sent")
    for call in (alice.restore, alice.at):
        with pytest.raises(BadArgument, match="a snapshot of shop/alice"):
            call(taken)
    assert get(alice) == b"sent"


@pytest.mark.parametrize("keep", [-1, "a day", float("nan")])
def test_a_time_to_keep_a_snapshot_that_is_none_is_refused(alice: TenantDatabase, keep: Any) -> None:
    with pytest.raises(BadArgument):
        alice.snapshot(keep=keep)


def test_coroutines_take_read_restore_and_drop_snapshots(alice: TenantDatabase) -> None:
    async def main() -> list[object]:
        await alice.atransact(lambda tr: tr.set(KEY, b"open"))
        taken = await alice.asnapshot(keep=60)
        await alice.atransact(lambda tr: tr.set(KEY, b"paid"))
        old = alice.at(taken)
        found = [await old.aget(KEY), await old.aget_range(), await taken.adiff()]
        await alice.arestore(taken)
        found.append(await alice.atransact(lambda tr: tr.get(KEY)))
        await taken.adrop()
        return [*found, await alice.asnapshots()]

    assert asyncio.run(main()) == [b"open", [(KEY, b"open")], [KeyChange(KEY, b"open", b"paid")], b"open", []]


def test_a_consumer_drops_snapshots_that_have_expired_and_finishes_a_restore_that_was_left(live: App) -> None:
    alice, bob = live.tenant("shop/alice"), live.tenant("shop/bob")
    for tenant in (alice, bob):
        put(tenant, b"open")
    alice.snapshot(keep=0.1)
    left = bob.snapshot()
    put(bob, b"paid")
    keys, shard = TenantKeys("shop", "bob"), bob.shard
    long_ago_us = live.clock.now_us() - 3_600_000_000
    shard.transact(lambda attempt: begin_restore(attempt.tr, shard.layout, keys, left.number, now_us=long_ago_us))
    with pytest.raises(Restoring):
        get(bob)
    with consumer(live):
        eventually(lambda: alice.snapshots() == [])
        eventually(lambda: is_restored(bob))
    assert get(bob) == b"open"


def is_restored(tenant: TenantDatabase) -> bool:
    try:
        get(tenant)
    except Restoring:
        return False
    return True


# --- Across shards ---


def test_a_transaction_across_shards_copies_what_it_changes_on_both() -> None:
    app = two_shards()
    home, other = app.tenant(HOME), app.tenant(ELSEWHERE)
    for tenant in (home, other):
        tenant.transact(lambda tr: [tr.set((name,), b"before") for name in "abc"])
    taken = {tenant: tenant.snapshot() for tenant in (home, other)}

    def body(tx: SpanningTransaction) -> None:
        for tenant in (home, other):
            on = tx.on(tenant)
            on.set(("a",), b"after")
            on.add(("n",), 1)
            on.clear_prefix()
            on.set(("b",), b"after")

    app.transact(body)
    for tenant, snapshot in taken.items():
        assert list(tenant.at(snapshot).get_range()) == [((name,), b"before") for name in "abc"]
        assert tenant.transact(lambda tr: list(tr.get_range())) == [(("b",), b"after")]


def test_a_transaction_across_shards_neither_takes_a_snapshot_nor_sees_half_a_restore() -> None:
    app = two_shards()
    home, other = app.tenant(HOME), app.tenant(ELSEWHERE)
    put(other, b"open")
    taken = other.snapshot()
    put(other, b"paid")
    with pytest.raises(NotAcrossShards):
        app.transact(lambda tx: tx.on(other).snapshot())
    shard, keys = other.shard, TenantKeys(*other.tenant)
    shard.transact(lambda attempt: begin_restore(attempt.tr, shard.layout, keys, taken.number, now_us=1))
    for body in (lambda tx: tx.on(other).get(KEY), lambda tx: (tx.on(home).set(KEY, b""), tx.on(other).set(KEY, b""))):
        with pytest.raises(Restoring):
            app.transact(body)
    assert get(home) is None
    other.restore(taken)
    assert app.transact(lambda tx: tx.on(other).get(KEY)) == b"open"


# --- The command line ---


@pytest.fixture
def store(tmp_path: Path) -> list[str]:
    """A store with two orders of a tenant that have changed since its snapshot 1; as options of a command."""
    url = f"embedded:{tmp_path / 'store'}"
    app = App(url, clock=ManualClock())
    alice = app.tenant("shop/alice")
    alice.transact(lambda tr: [tr.set(("order", n), b"open") for n in range(3)])
    alice.snapshot()
    alice.transact(lambda tr: (tr.set(("order", 1), b"paid"), tr.clear(("order", 2))))
    app.close()
    return ["--tenant", "shop/alice", "--store", url]


def test_an_operator_takes_lists_and_drops_snapshots(store: list[str]) -> None:
    taken = run("snapshots", "take", "--keep", "7d", *store, "--json").json
    assert taken["snapshot"] == 2
    listed = run("snapshots", "list", *store, "--json").json
    assert [each["snapshot"] for each in listed["snapshots"]] == [1, 2]
    assert [each["expires"] is None for each in listed["snapshots"]] == [True, False]
    assert "never" in run("snapshots", "list", *store).out
    assert run("snapshots", "drop", "1", *store).out.strip() == "dropped snapshot 1 of shop/alice"
    assert [each["snapshot"] for each in run("snapshots", "list", *store, "--json").json["snapshots"]] == [2]


def test_an_operator_compares_and_restores_a_tenant(store: list[str]) -> None:
    changes = run("snapshots", "diff", "1", *store, "--json").json
    assert [(each["key"], each["now"] is None) for each in changes["changes"]] == [
        (["order", 1], False),
        (["order", 2], True),
    ]
    assert changes["whole"]
    assert not run("snapshots", "diff", "1", "--limit", "1", *store, "--json").json["whole"]
    assert "b'paid'" in run("snapshots", "diff", "1", *store).out
    assert run("snapshots", "restore", "1", *store).code == 0
    assert "nothing has changed" in run("snapshots", "diff", "1", *store).out


def test_a_snapshot_that_is_not_there_is_told_by_the_exit_code(store: list[str]) -> None:
    for command in ("diff", "restore", "drop"):
        answer = run("snapshots", command, "9", *store)
        assert (answer.code, "the tenant has no such snapshot" in answer.err) == (4, True)


def test_an_operator_takes_no_snapshot_of_a_tenant_that_does_not_exist(store: list[str]) -> None:
    """Before, a wrong name got a snapshot of nothing, and the operator believed to have a copy."""
    answer = run("snapshots", "take", "--tenant", "shop/alcie", *store[2:])
    assert (answer.code, "a tenant that has data or a queue" in answer.err) == (2, True)
    assert run("snapshots", "list", "--tenant", "shop/alcie", *store[2:], "--json").json["snapshots"] == []


def test_what_operators_do_to_snapshots_is_in_the_audit_log(store: list[str]) -> None:
    for command in (["take"], ["restore", "1"], ["drop", "1"]):
        run("snapshots", *command, *store)
    entries = run("log", *store[2:], "--json").json["entries"]
    assert [(each["what"], each["to"]) for each in entries] == [
        (what, {"tenant": ["shop", "alice"], "snapshot": number})
        for what, number in (("drop snapshot", 1), ("restore", 1), ("take snapshot", 2))
    ]
