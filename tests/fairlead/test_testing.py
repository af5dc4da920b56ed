"""`drain` runs an application's due items in the test's process, with the code of production, in a fixed order."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import pytest
import ray

from fairlead import App, BadArgument, Config, Job, PermanentError, Retry, TenantTransaction, new_item
from fairlead.testing import ManualClock, NotDrained, drain

MINUTE_S = 60


def ran(app: App, kind: str = "mail", **options: Any) -> list[Any]:
    """Register a handler that notes the payloads it was run with, in order."""
    seen: list[Any] = []
    app.handler(kind, **options)(lambda job: seen.append(job.payload))
    return seen


def test_what_is_due_is_run_and_what_it_enqueues_too(app: App) -> None:
    seen = ran(app)

    @app.handler("order")
    def order(job: Job) -> None:
        app.tenant(*job.tenant).enqueue("mail", job.payload)

    app.tenant("shop", "alice").enqueue("order", 7)
    drained = drain(app)
    assert seen == [7]
    assert drained.completed == {"order": 1, "mail": 1}
    assert app.tenant("shop", "alice").count() == {}


def test_each_active_tenant_takes_its_turn(app: App) -> None:
    """A tenant with many items delays a tenant with one item by a single item."""
    seen = ran(app)
    app.tenant("shop", "heavy").enqueue_many(new_item("mail", "heavy") for _ in range(5))
    app.tenant("shop", "light").enqueue("mail", "light")
    drain(app)
    assert seen.index("light") <= 1


def test_the_order_is_the_same_in_every_run() -> None:
    def order() -> list[Any]:
        app = App("memory:", clock=ManualClock(), random=Random(1))
        seen = ran(app)
        app.enqueue_many((app.tenant("shop", f"user {number % 7}"), new_item("mail", number)) for number in range(40))
        drain(app)
        return seen

    assert order() == order()


def test_priority_goes_before_age(app: App) -> None:
    seen = ran(app)
    alice = app.tenant("shop", "alice")
    alice.enqueue("mail", "later", priority=200)
    alice.enqueue("mail", "first", priority=0)
    drain(app)
    assert seen == ["first", "later"]


def test_a_delayed_item_stays_until_its_time_is_let_pass(app: App) -> None:
    seen = ran(app)
    app.tenant("shop", "alice").enqueue("mail", "reminder", delay=5 * MINUTE_S)
    assert drain(app).runs == 0
    assert drain(app, within=4 * MINUTE_S).runs == 0
    assert drain(app, within=2 * MINUTE_S).completed == {"mail": 1}
    assert seen == ["reminder"]


def test_exactly_the_time_asked_for_passes(app: App) -> None:
    ran(app)
    before_us = app.clock.now_us()
    app.tenant("shop", "alice").enqueue("mail", delay=1)
    drain(app, within=MINUTE_S)
    assert app.clock.now_us() - before_us == MINUTE_S * 1_000_000


def test_what_a_handler_raises_fails_the_test(app: App) -> None:
    @app.handler("mail")
    def broken(job: Job) -> None:
        raise ZeroDivisionError("seven")

    app.tenant("shop", "alice").enqueue("mail")
    with pytest.raises(ZeroDivisionError, match="seven"):
        drain(app)
    (item,) = app.tenant("shop", "alice").peek()
    assert (item.error_count, item.last_error) == (1, "ZeroDivisionError: seven")


def test_retries_can_be_watched_to_the_end(app: App) -> None:
    attempts: list[int] = []

    @app.handler("mail", retry=Retry(attempts=3, backoff=1))
    def broken(job: Job) -> None:
        attempts.append(job.attempt)
        raise ZeroDivisionError

    app.tenant("shop", "alice").enqueue("mail", "p")
    drained = drain(app, within=MINUTE_S, raise_errors=False)
    assert attempts == [1, 2, 3]
    assert (drained.retried, drained.dead_lettered, len(drained.errors)) == ({"mail": 2}, {"mail": 1}, 3)
    (dead,) = app.tenant("shop", "alice").dead_letters()
    assert (dead.payload, dead.error_count, dead.reason) == ("p", 3, "error")
    assert "ZeroDivisionError" in dead.traceback


def test_a_permanent_error_dead_letters_at_once_or_drops_if_the_kind_says_so(app: App) -> None:
    def refuse(job: Job) -> None:
        raise PermanentError

    app.handler("kept")(refuse)
    app.handler("dropped", drop=True)(refuse)
    alice = app.tenant("shop", "alice")
    alice.enqueue("kept")
    alice.enqueue("dropped")
    drained = drain(app, raise_errors=False)
    assert (drained.dead_lettered, drained.dropped) == ({"kept": 1}, {"dropped": 1})
    assert [item.kind for item in alice.dead_letters()] == ["kept"]


def test_a_transactional_handler_commits_with_the_completion(app: App) -> None:
    @app.handler("count", transactional=True)
    def count(job: Job, tr: TenantTransaction) -> None:
        tr.add(("runs",), 1)

    alice = app.tenant("shop", "alice")
    alice.enqueue("count")
    assert drain(app).completed == {"count": 1}
    assert alice.transact(lambda tr: tr.get(("runs",))) == (1).to_bytes(8, "little")


def test_a_coroutine_may_drain_an_application_with_async_handlers(app: App) -> None:
    """An async test of a web application does so."""

    @app.handler("mail")
    async def send(job: Job) -> None:
        await job.atransact(lambda tr: tr.set(("sent",), b"yes"))

    async def story() -> Counter[str]:
        await send.aenqueue("shop/alice")
        return drain(app).completed

    assert asyncio.run(story()) == {"mail": 1}
    assert app.tenant("shop/alice").transact(lambda tr: tr.get(("sent",))) == b"yes"


def test_an_async_handler_is_run_to_its_end(app: App) -> None:
    seen = []

    @app.handler("mail")
    async def send(job: Job) -> None:
        seen.append(job.payload)

    app.tenant("shop", "alice").enqueue("mail", 1)
    drain(app)
    assert seen == [1]


def test_an_item_of_a_kind_without_a_handler_waits(app: App) -> None:
    seen = ran(app)
    alice = app.tenant("shop", "alice")
    alice.enqueue("unknown")
    alice.enqueue("mail", "behind it")
    drain(app)
    assert seen == ["behind it"]
    assert alice.count() == {"unknown": 1}


def test_an_item_of_a_kind_without_a_handler_delays_no_item_of_its_queue(app: App) -> None:
    seen = ran(app)
    alice = app.tenant("shop", "alice")
    alice.enqueue("unknown")
    alice.enqueue("mail", "later", delay=MINUTE_S)
    drain(app, within=MINUTE_S - 1)
    assert seen == []
    drain(app, within=1)
    assert seen == ["later"]


def test_a_paused_kind_delays_no_item_of_its_queue(app: App) -> None:
    seen = ran(app)
    app.control.pause_kind("fax")
    alice = app.tenant("shop", "alice")
    alice.enqueue("fax")
    alice.enqueue("mail", "later", delay=MINUTE_S)
    drain(app, within=MINUTE_S)
    assert seen == ["later"]


def test_a_tenant_at_its_limit_ends_a_drain(app: App) -> None:
    seen = ran(app)
    alice = app.tenant("shop", "alice")
    app.control.limit_tenant(alice.tenant, per_s=1, burst=1)
    for number in range(3):
        alice.enqueue("mail", number)
    drain(app)
    assert seen == [0]


def test_a_long_payload_comes_whole(app: App) -> None:
    seen = ran(app)
    app.tenant("shop", "alice").enqueue("mail", "x" * 500_000)
    drain(app)
    assert seen == ["x" * 500_000]


def test_a_kind_that_enqueues_itself_for_ever_is_noticed(app: App) -> None:
    @app.handler("loop")
    def loop(job: Job) -> None:
        app.enqueue_local("loop")

    app.enqueue_local("loop")
    with pytest.raises(NotDrained):
        drain(app, items_max=20)


def test_time_can_be_let_pass_on_a_manual_clock_only() -> None:
    with pytest.raises(BadArgument, match="ManualClock"):
        drain(App("memory:"), within=0.001)


def test_periodic_items_come_at_their_ticks(app: App) -> None:
    ticks = []

    @app.every(3600)
    def sweep(job: Job) -> None:
        ticks.append(job.payload["tick_us"])

    assert drain(app).runs == 0
    drain(app, within=3 * 60 * MINUTE_S)
    assert len(ticks) == 3
    assert all(tick % 3_600_000_000 == 0 for tick in ticks)


def test_work_on_all_shards_is_run() -> None:
    app = App({"eu": "memory:", "us": "memory:"}, clock=ManualClock())
    seen = ran(app)
    app.enqueue_many((app.tenant("shop", f"user {number}"), new_item("mail", number)) for number in range(20))
    assert {app.tenant("shop", f"user {number}").shard.name for number in range(20)} == {"eu", "us"}
    drain(app)
    assert sorted(seen) == list(range(20))


def test_a_submitted_handler_is_run_and_the_application_keeps_its_own() -> None:
    config = Config(shards={"main": "memory:"}, signing_key="a key of the tests' own")
    app = App(config=config, clock=ManualClock(), random=Random(3))
    seen = ran(app)
    app.submit(lambda job: 1 / 0, kind="mail")

    @app.handler("after")
    def after(job: Job) -> None: ...

    app.submit(_divide, kind="divide")
    app.tenant("shop", "alice").enqueue("mail", "own")
    app.tenant("shop", "alice").enqueue("divide", 0)
    with pytest.raises(ZeroDivisionError):
        drain(app)
    drain(app)
    assert seen == ["own"]
    assert "divide" not in app.registry.handlers


def _divide(job: Job) -> None:
    assert 1 / job.payload


def test_a_ray_function_runs_as_the_function_that_it_was_made_of(app: App) -> None:
    seen = []

    def mail(job: Job) -> None:
        seen.append(job.kind)

    remote: Any = ray.remote(mail)
    app.handler("plain")(remote)
    app.handler("with options")(remote.options(num_cpus=2))
    for kind in ("plain", "with options"):
        app.tenant("shop", "alice").enqueue(kind)
    drain(app)
    assert sorted(seen) == ["plain", "with options"]


@pytest.fixture
def charging(app: App) -> App:
    """Its handler of `charge` fails; an item is retried for an hour, about 16 times."""
    retry = Retry(attempts=100, backoff=300, backoff_max=300, give_up_after=3600)

    @app.handler("charge", retry=retry)
    def charge(job: Job) -> None:
        raise ConnectionError("the bank is down")

    return app


def tried(app: App) -> int:
    """Return how many retries there were until the item was dead."""
    drained = drain(app, within=timedelta(hours=6), raise_errors=False)
    assert drained.dead_lettered["charge"] == 1
    return drained.retried["charge"]


def test_what_is_retried_has_all_its_time_again(charging: App) -> None:
    alice = charging.tenant("shop", "alice")
    alice.enqueue("charge", item_id="c1")
    assert tried(charging) >= 10
    alice.retry_dead_letter("c1")
    assert tried(charging) >= 10


def test_the_time_that_an_item_is_delayed_does_not_count_against_its_retries(charging: App) -> None:
    charging.tenant("shop", "alice").enqueue("charge", delay=timedelta(hours=2))
    assert tried(charging) >= 10
