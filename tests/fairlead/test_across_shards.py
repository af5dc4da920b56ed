"""Transactions across shards in an application: threads, processes' worth of them, on embedded stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import fairlead
from fairlead import App, BadArgument, Config, NestedTransaction
from fairlead.testing import drain
from fairlead.zones.engines import StoreError
from fairlead.zones.engines.api.errors import USED_DURING_COMMIT
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.tenant_view import NotAcrossShards

NAMES = ("eu", "us")
CLIENTS = [Tenant("bank", f"client{number}") for number in range(6)]
BEGINS_WITH = 1_000
THREADS, TRANSFERS = 4, 40
WAIT_S = 60  # On a machine that does much else, four threads may keep a client locked for more than five seconds.


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    made = App(config=Config(shards={name: f"embedded:{tmp_path / name}" for name in NAMES}))

    @made.handler("mail", keep_result=60)
    def mail(job: fairlead.Job) -> str:
        return f"to {job.tenant}"

    yield made
    made.close()


def packed(number: int) -> bytes:
    return number.to_bytes(8, "little")


def balance(tr: SpanningTransaction, client: Tenant) -> int:
    return int.from_bytes(tr.on(client).get(("balance",)) or b"", "little")


def total(app: App) -> int:
    return app.transact(lambda tx: sum(balance(tx, client) for client in CLIENTS), wait=WAIT_S)


def test_clients_live_on_both_shards() -> None:
    assert {home(client, NAMES) for client in CLIENTS} == set(NAMES)


def test_the_total_of_a_bank_never_changes_while_threads_transfer(app: App) -> None:
    for client in CLIENTS:
        app.tenant(client).transact(lambda tr: tr.set(("balance",), packed(BEGINS_WITH)))
    seen: list[int] = []
    done = threading.Event()

    def transfers(number: int) -> None:
        random = Random(number)
        for _ in range(TRANSFERS):
            source, target = random.sample(CLIENTS, 2)
            amount = random.randrange(100)

            def body(
                tx: SpanningTransaction, source: Tenant = source, target: Tenant = target, n: int = amount
            ) -> None:
                before, other = balance(tx, source), balance(tx, target)
                tx.on(source).set(("balance",), packed(before - min(n, before)))
                tx.on(target).set(("balance",), packed(other + min(n, before)))
                tx.on(target).add(("transfers",), 1)

            app.transact(body, wait=WAIT_S)

    def read() -> None:
        while not done.is_set():
            seen.append(total(app))

    threads = [threading.Thread(target=transfers, args=(number,)) for number in range(THREADS)]
    reader = threading.Thread(target=read)
    for thread in [reader, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert seen
    assert set(seen) == {len(CLIENTS) * BEGINS_WITH} == {total(app)}
    counted = [app.tenant(client).transact(lambda tr: tr.get(("transfers",))) or b"" for client in CLIENTS]
    assert sum(int.from_bytes(each, "little") for each in counted) == THREADS * TRANSFERS


AFTERWARDS: dict[str, Callable[[SpanningTransaction, Any], object]] = {
    "name a tenant": lambda tx, _: tx.on(CLIENTS[0]),
    "name a new tenant": lambda tx, _: tx.on("bank/new"),
    "set": lambda _, tr: tr.set(("balance",), packed(7)),
    "add": lambda _, tr: tr.add(("balance",), 7),
    "clear": lambda _, tr: tr.clear(("balance",)),
    "clear_prefix": lambda _, tr: tr.clear_prefix(("balance",)),
    "enqueue": lambda _, tr: tr.enqueue("mail", None),
    "get": lambda _, tr: tr.get(("balance",)),
    "get_range": lambda _, tr: list(tr.get_range(())),
}


def test_a_coroutine_awaits_a_transaction_across_shards(app: App) -> None:
    one, two = CLIENTS[0], CLIENTS[-1]

    def pay(tx: SpanningTransaction) -> int:
        tx.on(one).add(("balance",), 3)
        tx.on(two).add(("balance",), 4)
        return balance(tx, one) + balance(tx, two)

    async def unawaited(tx: SpanningTransaction) -> None:
        pay(tx)

    assert asyncio.run(app.atransact(pay, wait=WAIT_S)) == 7
    with pytest.raises(BadArgument, match="async"):
        asyncio.run(app.atransact(unawaited))  # type: ignore[unused-coroutine]
    assert total(app) == 7


@pytest.mark.parametrize("what", AFTERWARDS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_across_shards_does_nothing_after_its_body(app: App, what: str, fails: bool) -> None:
    """Before, writes were accepted, and lost without an error."""
    kept: list[Any] = []

    def body(tx: SpanningTransaction) -> None:
        kept.extend([tx, tx.on(CLIENTS[0])])
        kept[1].set(("balance",), packed(1))
        if fails:
            raise RuntimeError

    with suppress(RuntimeError):
        app.transact(body)
    with pytest.raises(StoreError, match="in its own body only") as refused:
        AFTERWARDS[what](*kept)
    assert refused.value.code == USED_DURING_COMMIT


def test_a_transaction_across_shards_has_no_raw_one(app: App) -> None:
    with pytest.raises(NotAcrossShards, match="bank/client0"):
        app.transact(lambda tx: tx.on(CLIENTS[0]).raw.set(b"key", b"value"))


def test_items_that_one_transaction_enqueues_on_two_shards_run(app: App) -> None:
    alice, bob = (next(each for each in CLIENTS if home(each, NAMES) == name) for name in NAMES)

    def body(tx: SpanningTransaction) -> list[bytes]:
        return [tx.on(client).enqueue("mail", {"n": 1}, item_id="welcome").item_id for client in (alice, bob)]

    app.transact(body)
    drain(app)
    results = [app.tenant(client).item("welcome").result() for client in (alice, bob)]
    assert results == [f"to {alice}", f"to {bob}"]


def test_a_transaction_across_shards_takes_a_plain_function(app: App) -> None:
    async def body(tx: SpanningTransaction) -> None:
        tx.on(CLIENTS[0]).set(("balance",), b"")

    with pytest.raises(BadArgument):
        app.transact(body)  # type: ignore[unused-coroutine]


@pytest.mark.parametrize("named", [7, object()])
def test_what_is_no_tenant_is_refused(app: App, named: Any) -> None:
    with pytest.raises(BadArgument, match=r"argument='tenant'.*APP/USER"):
        app.transact(lambda tx: tx.on(named).get(("balance",)))
    with pytest.raises(BadArgument, match="argument='tenant'"):
        app.tenant("bank", "alice").transact(lambda tr: tr.signal("order", "paid", to=named))


# --- Transactions within transactions ---


@pytest.mark.parametrize("write", [lambda tr: tr.set(("x",), 7), lambda tr: tr.set(("x",), bytearray(b"7"))])
def test_a_value_that_is_no_bytes_is_refused_as_on_one_tenant(app: App, write: Callable[[Any], None]) -> None:
    client = CLIENTS[0]
    with pytest.raises(TypeError, match="keys and values are bytes, not") as alone:
        app.tenant(client).transact(write)
    with pytest.raises(TypeError, match="keys and values are bytes, not") as across_shards:
        app.transact(lambda tx: write(tx.on(client)))
    assert str(across_shards.value) == str(alone.value)


def across(app: App) -> None:
    app.transact(lambda tx: tx.on(CLIENTS[0]).add(("nested",), 1))


def on_a_tenant(app: App) -> None:
    app.tenant(CLIENTS[0]).transact(lambda tr: tr.add(("nested",), 1))


def nested(app: App) -> int:
    """Return how often the inner transaction was done."""
    return int.from_bytes(app.tenant(CLIENTS[0]).transact(lambda tr: tr.get(("nested",))) or b"", "little")


def test_a_transaction_across_shards_in_the_body_of_one_on_a_tenant_is_refused(app: App) -> None:
    with pytest.raises(NestedTransaction, match="inside='a transaction on a tenant'"):
        app.tenant(CLIENTS[1]).transact(lambda tr: across(app))
    assert nested(app) == 0


@pytest.mark.parametrize("begin", [across, on_a_tenant])
def test_a_transaction_in_the_body_of_one_across_shards_is_refused(app: App, begin: Callable[[App], None]) -> None:
    with pytest.raises(NestedTransaction, match="inside='a transaction across shards'"):
        app.transact(lambda tx: begin(app))
    assert nested(app) == 0


def test_a_transaction_after_a_refused_one_is_not_refused(app: App) -> None:
    with pytest.raises(NestedTransaction):
        app.tenant(CLIENTS[1]).transact(lambda tr: across(app))
    across(app)
    assert nested(app) == 1


def test_a_transaction_on_a_tenant_in_the_body_of_another_one_commits_by_itself(app: App) -> None:
    app.tenant(CLIENTS[1]).transact(lambda tr: on_a_tenant(app))
    assert nested(app) == 1


@pytest.mark.parametrize("form", ["job.transact", "transactional", "step", "wf.transact"])
def test_a_transaction_across_shards_in_the_body_of_a_handler_s_transaction_is_refused(app: App, form: str) -> None:
    if form == "job.transact":
        app.handler("k")(lambda job: job.transact(lambda tr: across(app)))
    elif form == "transactional":
        app.handler("k", transactional=True)(lambda job, tr: across(app))
    elif form == "step":
        app.workflow("k")(lambda wf: wf.step(lambda tr: across(app), name="s"))
    else:
        app.workflow("k")(lambda wf: wf.transact(lambda tx: across(app), name="s"))
    app.tenant(CLIENTS[0]).enqueue("k")
    (error,) = drain(app, raise_errors=False).errors
    assert isinstance(error, NestedTransaction)
    assert nested(app) == 0


@pytest.mark.parametrize("begin", ["tenant.transact", "job.transact"])
def test_a_transaction_in_the_body_of_a_handler_s_one_across_shards_is_refused(app: App, begin: str) -> None:
    @app.handler("k")
    def handle(job: fairlead.Job) -> None:
        inner = {"tenant.transact": on_a_tenant, "job.transact": lambda _: job.transact(lambda tr: None)}[begin]
        app.transact(lambda tx: inner(app))

    app.tenant(CLIENTS[0]).enqueue("k")
    (error,) = drain(app, raise_errors=False).errors
    assert isinstance(error, NestedTransaction)


def test_a_transaction_on_a_tenant_in_a_workflow_s_one_across_shards_is_refused(app: App) -> None:
    app.workflow("k")(lambda wf: wf.transact(lambda tx: on_a_tenant(app), name="s"))
    app.tenant(CLIENTS[0]).enqueue("k")
    (error,) = drain(app, raise_errors=False).errors
    assert isinstance(error, NestedTransaction)
    assert nested(app) == 0
