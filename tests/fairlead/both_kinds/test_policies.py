"""What operators decide holds for queues in a shard and for queues in PostgreSQL, with a consumer in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import App
from tests.fairlead.live_consumers import consumer, eventually
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database

Enqueue = Callable[..., None]


@pytest.fixture(scope="module")
def prepared(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "policies")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def app(prepared: Database, tmp_path: Path) -> Iterator[App]:
    """An application without items."""
    prepared.empty()
    made = App(f"embedded:{tmp_path / 'data'}", external={"pg": prepared.dsn})
    yield made
    made.close()


@pytest.fixture(params=["shard", "pg"])
def enqueue(request: pytest.FixtureRequest, app: App, prepared: Database) -> Enqueue:
    """Enqueue some items of a kind for a user."""

    def in_shard(user: str, kind: str = "mail", count: int = 1) -> None:
        for _ in range(count):
            app.tenant("shop", user).enqueue(kind)

    def in_sql(user: str, kind: str = "mail", count: int = 1) -> None:
        with prepared.connect() as connection:
            connection.execute(
                "SELECT fairlead.enqueue('shop', %s, %s) FROM generate_series(1, %s)", [user, kind, count]
            )

    return in_shard if request.param == "shard" else in_sql


class Handlers:
    """A handler that waits for a gate, and counts how many run at once; and one of another kind that does not wait."""

    def __init__(self, app: App, **options: Any) -> None:
        self.gate = threading.Event()
        self.another_ran = threading.Event()
        self.done: list[str] = []  # the users, in order
        self.highest = 0
        self._running = 0
        self._lock = threading.Lock()
        app.handler("mail", **options)(self._run)
        app.handler("other")(lambda job: self.another_ran.set())

    @property
    def running(self) -> int:
        """How many run now."""
        return self._running

    def _run(self, job: fairlead.Job) -> None:
        with self._lock:
            self._running += 1
            self.highest = max(self.highest, self._running)
        while not self.gate.wait(0.01) and not job.cancelled:
            pass
        with self._lock:
            self._running -= 1
            self.done.append(job.tenant.user)


def another_runs(handlers: Handlers, enqueue: Enqueue) -> None:
    """Let an item of another tenant and kind run from its enqueue to its end."""
    enqueue("carol", "other")
    assert handlers.another_ran.wait(30)


LIMITS: dict[str, Callable[[App], None]] = {
    "of the tenant": lambda app: app.control.limit_tenant("shop/alice", max_running=2),
    "of the kind": lambda app: app.control.limit_kind("mail", max_running=2),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_no_more_items_run_at_once_than_the_limit(app: App, enqueue: Enqueue, limit: str) -> None:
    handlers = Handlers(app)
    LIMITS[limit](app)
    enqueue("alice", count=6)
    with consumer(app):
        eventually(lambda: handlers.running == 2)
        another_runs(handlers, enqueue)
        handlers.gate.set()
        eventually(lambda: len(handlers.done) == 6)
    assert handlers.highest == 2


def test_a_handlers_own_limit_holds(app: App, enqueue: Enqueue) -> None:
    handlers = Handlers(app, max_running=2)
    enqueue("alice", count=6)
    with consumer(app):
        eventually(lambda: handlers.running == 2)
        another_runs(handlers, enqueue)
        handlers.gate.set()
        eventually(lambda: len(handlers.done) == 6)
    assert handlers.highest == 2


RATES: dict[str, Callable[..., None]] = {
    "of the tenant": lambda app, **rate: app.control.limit_tenant("shop/alice", **rate),
    "of the kind": lambda app, **rate: app.control.limit_kind("mail", **rate),
}


@pytest.mark.parametrize("limit", RATES)
def test_no_more_items_start_than_the_rate_allows(app: App, enqueue: Enqueue, limit: str) -> None:
    handlers = Handlers(app)
    handlers.gate.set()
    RATES[limit](app, per_s=0.01, burst=2)
    enqueue("alice", count=6)
    with consumer(app):
        eventually(lambda: len(handlers.done) == 2)
        another_runs(handlers, enqueue)
        assert len(handlers.done) == 2
        RATES[limit](app)
        eventually(lambda: len(handlers.done) == 6)


PAUSES: dict[str, tuple[Callable[[App], None], Callable[[App], None]]] = {
    "the tenant": (
        lambda app: app.control.pause_tenant("shop/alice"), lambda app: app.control.resume_tenant("shop/alice"),
    ),
    "the kind": (lambda app: app.control.pause_kind("mail"), lambda app: app.control.resume_kind("mail")),
}  # fmt: skip


@pytest.mark.parametrize("paused", PAUSES)
def test_what_is_paused_waits_and_goes_on_when_it_is_resumed(app: App, enqueue: Enqueue, paused: str) -> None:
    pause, resume = PAUSES[paused]
    handlers = Handlers(app)
    handlers.gate.set()
    pause(app)
    enqueue("alice", count=3)
    with consumer(app):
        another_runs(handlers, enqueue)
        assert not handlers.done
        resume(app)
        eventually(lambda: len(handlers.done) == 3)


def test_tenants_share_the_workers_by_their_weights(app: App, enqueue: Enqueue) -> None:
    handlers = Handlers(app)
    handlers.gate.set()
    app.configure(app.load_config({"consumer.workers": 1, "consumer.slots": 2, "consumer.dequeue_max": 8}))
    app.control.set_weight("shop/alice", weight=3)
    for user in ("alice", "bob"):
        enqueue(user, count=200)
    with consumer(app):
        eventually(lambda: len(handlers.done) >= 160)
    first = handlers.done[:160]
    assert 2 <= first.count("alice") / first.count("bob") <= 4


def test_a_limit_of_a_tenant_counts_its_items_in_both_places(app: App, prepared: Database) -> None:
    handlers = Handlers(app)
    app.control.limit_tenant("shop/alice", max_running=2)
    with prepared.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail') FROM generate_series(1, 4)")
    for _ in range(4):
        app.tenant("shop", "alice").enqueue("mail")
    with consumer(app):
        eventually(lambda: handlers.running == 2)
        handlers.gate.set()
        eventually(lambda: len(handlers.done) == 8)
    assert handlers.highest <= 2
