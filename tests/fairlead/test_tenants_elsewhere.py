"""A tenant that has moved is found where it lives now: by calls, by handles, by handlers and by other processes.

The move is done by hand here: all of the tenant's keys are copied, and the records are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any

import pytest

import fairlead
from fairlead import App, Config, TenantMoved
from fairlead.error_text import remedy_of, sentence_of
from fairlead.shards import NAME_ALL, UNKNOWN_OWNER, Shards
from fairlead.tenant_database import TenantDatabase
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import TenantKeys, range_end
from fairlead.zones.layout import Tenant, named_tenant
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.ownership import check_home
from fairlead.zones.records import OwnerRecord, decode, encode

ALICE = Tenant("shop", "alice")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = application(tmp_path)
    yield made
    made.close()


def application(directory: Path) -> App:
    app = App(config=Config(shards={name: f"embedded:{directory / name}" for name in ("eu", "us")}))

    @app.handler("mail", keep_result=60)
    def mail(job: fairlead.Job) -> str:
        return "sent"

    return app


def move(app: App, tenant: Tenant = ALICE) -> str:
    """Move a tenant to the other shard, and return its name. Nobody else uses the tenant meanwhile."""
    keys = TenantKeys(*tenant)
    begin, end = keys.prefix, range_end(keys.prefix)
    owns = [name for name in app.shards if owner_of(app, name, tenant) == app.shards[name].layout.shard_id]
    (source,) = owns or [app.shards.home_name(tenant)]
    (destination,) = set(app.shards) - {source}
    pairs = transact(app.shards[source].db, lambda tr: [(row.key, row.value) for row in tr.get_range(begin, end)])
    record = next((decode(OwnerRecord, value) for key, value in pairs if key == keys.owner), None)
    epoch = 1 if record is None else record.epoch + 1
    now = encode(OwnerRecord(epoch, app.shards[destination].layout.shard_id))

    def take(tr: Any) -> None:
        tr.clear_range(begin, end)
        for key, value in pairs:
            tr.set(key, value)
        tr.set(keys.owner, now)

    def leave(tr: Any) -> None:
        tr.clear_range(begin, end)
        tr.set(keys.owner, now)

    transact(app.shards[destination].db, take)
    transact(app.shards[source].db, leave)
    for shard in app.shards.values():
        check_integrity(shard, repair=True)  # It makes the entries of the top-level queue.
    return destination


def owner_of(app: App, shard: str, tenant: Tenant) -> bytes | None:
    value = transact(app.shards[shard].db, lambda tr: tr.get(TenantKeys(*tenant).owner).value)
    record = None if value is None else decode(OwnerRecord, value)
    return None if record is None else record.shard_id


CALLS: dict[str, tuple[Callable[[TenantDatabase], Any], Any]] = {
    "transact": (lambda alice: alice.transact(lambda tr: tr.get(("order", 7))), b"paid"),
    "get_range": (lambda alice: alice.transact(lambda tr: list(tr.get_range())), [(("order", 7), b"paid")]),
    "enqueue": (lambda alice: alice.enqueue("mail", item_id="new").status.value, "enqueued"),
    "enqueue_many": (
        lambda alice: alice.enqueue_many([fairlead.new_item("mail", item_id="new")])[0].status.value,
        "enqueued",
    ),
    "enqueue of a name that is there": (lambda alice: alice.enqueue("mail", item_id="mail").status.value, "present"),
    "peek": (lambda alice: [each.kind for each in alice.peek()], ["mail"]),
    "count": (lambda alice: alice.count(), {"mail": 1}),
    "cancel": (lambda alice: alice.cancel("mail").value, "deleted"),
    "explain": (lambda alice: alice.explain("mail").kind, "mail"),
    "steps": (lambda alice: list(alice.steps("mail").steps), []),
    "signal": (lambda alice: alice.signal("mail", "go"), None),
    "dead_letters": (lambda alice: alice.dead_letters(), []),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_follows_a_tenant_that_has_moved(app: App, call: str) -> None:
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: (tr.set(("order", 7), b"paid"), tr.enqueue("mail", item_id="mail")))
    do, answer = CALLS[call]
    destination = move(app)
    assert do(alice) == answer
    assert alice.shard.name == destination


@pytest.mark.parametrize("call", CALLS)
def test_a_call_follows_a_tenant_that_has_moved_back(app: App, call: str) -> None:
    alice = app.tenant("shop", "alice")
    first_home = alice.shard.name
    alice.transact(lambda tr: (tr.set(("order", 7), b"paid"), tr.enqueue("mail", item_id="mail")))
    move(app)
    assert alice.count() == {"mail": 1}
    assert move(app) == first_home
    do, answer = CALLS[call]
    assert do(alice) == answer
    assert alice.shard.name == first_home


def test_threads_that_ask_a_shard_which_the_tenant_has_left_all_find_it(app: App) -> None:
    """The second of them learns that the process has forgotten the shard already."""
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: tr.set(("order", 7), b"paid"))
    move(app)
    left = alice.find()
    move(app)
    with pytest.raises(TenantMoved) as refused:
        left.transact(lambda attempt: check_home(attempt.tr, left.layout.location(ALICE, "queue")))
    assert [app.shards.note_moved(refused.value) for _ in range(2)] == [True, True]
    assert alice.transact(lambda tr: tr.get(("order", 7))) == b"paid"


def test_another_process_finds_a_tenant_that_has_moved(app: App, tmp_path: Path) -> None:
    app.tenant("shop", "alice").transact(lambda tr: tr.set(("order", 7), b"paid"))
    move(app)
    other = application(tmp_path)
    assert other.tenant("shop", "alice").transact(lambda tr: tr.get(("order", 7))) == b"paid"
    other.close()


def test_a_result_is_awaited_where_the_tenant_lives(app: App) -> None:
    made = app.tenant("shop", "alice").enqueue("mail")
    drain(app)
    move(app)
    assert made.result(timeout=0) == "sent"
    assert asyncio.run(made.aresult(timeout=0)) == "sent"


def test_a_transaction_that_has_used_raw_is_not_repeated_elsewhere(app: App) -> None:
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: tr.set(("order", 7), b"paid"))
    bodies = []

    def body(tr: Any) -> None:
        bodies.append(tr)
        if len(bodies) == 1:
            tr.raw.get(TenantKeys(*ALICE).owner).value  # noqa: B018 - as a user's code reads
            tr.set(("order", 8), b"open")
            move(app)
        tr.get(("order", 7))

    with pytest.raises(TenantMoved, match=r"used \.raw"):
        alice.transact(body)
    assert alice.transact(lambda tr: tr.get(("order", 8))) is None


def test_a_body_runs_again_on_the_shard_to_which_its_tenant_moves_meanwhile(app: App) -> None:
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: tr.add(("orders",), 1))
    runs = []

    def body(tr: Any) -> None:
        tr.add(("orders",), 1)
        runs.append(1)
        if len(runs) == 1:
            move(app)

    alice.transact(body)
    assert alice.transact(lambda tr: tr.get(("orders",))) == (2).to_bytes(8, "little")
    assert len(runs) == 2


def test_items_of_several_tenants_are_enqueued_where_each_lives(app: App) -> None:
    names = [f"shop/user {number}" for number in range(20)]
    for name in names:
        app.tenant(name).transact(lambda tr: tr.set(("order",), b"paid"))
    for name in names[::3]:
        move(app, named_tenant(name))
    made = app.enqueue_many((name, fairlead.new_item("mail")) for name in names)
    assert [each.status.value for each in made] == ["enqueued"] * len(names)
    assert [app.tenant(name).count() for name in names] == [{"mail": 1}] * len(names)


def test_a_policy_is_set_where_the_tenant_lives(app: App) -> None:
    alice = app.tenant("shop", "alice")
    alice.enqueue("mail")
    move(app)
    app.control.pause_tenant("shop", "alice")
    assert drain(app).completed == {}
    app.control.resume_tenant("shop", "alice")
    assert drain(app).completed == {"mail": 1}


def test_a_shard_that_is_not_configured_is_named(app: App) -> None:
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: tr.set(("order", 7), b"paid"))
    lost = encode(OwnerRecord(1, b"another shard's."))
    transact(alice.shard.db, lambda tr: tr.set(TenantKeys(*ALICE).owner, lost))
    with pytest.raises(TenantMoved) as refused:
        alice.count()
    assert refused.value.fields["reason"] == UNKNOWN_OWNER
    assert sentence_of(refused.value).startswith(f"the tenant lives on another shard, reason: {UNKNOWN_OWNER}")
    assert (refused.value.owner, refused.value.fields["shard"]) == (b"another shard's.".hex(), alice.shard.name)


def test_a_transaction_across_shards_says_what_to_do_about_a_shard_that_is_not_configured(app: App) -> None:
    """Before, its advice was to try again."""
    alice = app.tenant("shop", "alice")
    lost = encode(OwnerRecord(2, b"another shard's."))
    transact(alice.shard.db, lambda tr: tr.set(TenantKeys(*ALICE).owner, lost))
    with pytest.raises(TenantMoved) as refused:
        app.transact(lambda tx: tx.on("shop/alice").set(("order", 7), b"paid"))
    assert refused.value.fields["reason"] == UNKNOWN_OWNER
    assert remedy_of(refused.value) == NAME_ALL


def test_a_first_home_that_is_not_configured_is_named_though_the_tenant_has_not_moved(app: App, tmp_path: Path) -> None:
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: tr.set(("order", 7), b"paid"))
    first_home = alice.shard.name
    (other,) = set(app.shards) - {first_home}
    app.shards[other]  # It stores with which shards the application began.
    app.close()
    urls, settings = {other: f"embedded:{tmp_path / other}"}, app.config.zones
    tool = Shards(urls, clock=ManualClock(), random=Random(1), settings=settings, part_count=1)
    tool.must_exist = True
    with pytest.raises(TenantMoved) as refused:
        tool.find(ALICE)
    tool.close()
    said = f"the tenant lives on another shard, reason: it lives on {first_home}, which is not configured"
    assert sentence_of(refused.value).startswith(said)
    assert remedy_of(refused.value) == f"name the shard {first_home} in the configuration"
    assert refused.value.fields["shard"] == other


def test_a_lock_of_a_process_goes_along_with_its_tenant(app: App) -> None:
    alice = app.tenant(ALICE)
    with alice.lock(("account", 7)) as held:
        destination = move(app)
        alice.transact(lambda tr: tr.set(("order", 7), b"here"), under=held)
        with pytest.raises(fairlead.Busy):
            Context().run(alice.lock(("account", 7), wait=0.01).__enter__)
    assert alice.shard.name == destination
    assert alice.count() == {}
    alice.transact(lambda tr: tr.require_unlocked(("account", 7)))
