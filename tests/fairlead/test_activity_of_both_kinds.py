"""What runs, what has ended, and progress: shown the same for items of a shard and of an external store."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, Cause, Config, ConsumerSettings, Explanation, Job, PermanentError, Retry, TenantDatabase
from fairlead.actors.execution import status_reporting
from fairlead.external_queues import ExternalQueues
from fairlead.queries.activity import RunningItem, busiest, by_kind, longest_running
from fairlead.queries.summary import summarize
from tests.fairlead.dashboard.asking import open_site, read
from tests.fairlead.live_consumers import Gate, consumer, eventually
from tests.fairlead.shell import run
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database

Queues = TenantDatabase | ExternalQueues


@pytest.fixture(scope="module")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "activity")
    made.prepare()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers report ten times a second."""
    monkeypatch.setattr(status_reporting, "STATUS_US", 100_000)


@pytest.fixture(params=[None, "pg"], ids=["shard", "external store"])
def store(request: pytest.FixtureRequest) -> str | None:
    """Where the items lie: None: in the shard of their tenant."""
    name: str | None = request.param
    return name


@pytest.fixture
def config(store: str | None, request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    """Two shards; with a database if the items are to lie there."""
    external = {}
    if store is not None:
        database = request.getfixturevalue("database")
        database.empty()
        external = {store: database.dsn}
    settings = ConsumerSettings(workers=1, managers=1, slots=2, lease_ms=2_000, drain_ms=100)
    shards = {name: f"embedded:{tmp_path / name}" for name in ("one", "two")}
    return Config(shards=shards, external=external, consumer=settings)


@pytest.fixture
def app(config: Config) -> Iterator[App]:
    """An application with stores, and no items."""
    made = App(config=config)
    made.shards.on_store_created = lambda sentence: None
    assert list(made.shards.values())
    yield made
    made.close()


@pytest.fixture
def alice(app: App, store: str | None) -> Queues:
    """The queues of one tenant."""
    tenant = app.tenant("shop", "alice")
    return tenant if store is None else tenant.external(store)


class Working(Gate):
    """A handler that reports progress, and waits for a gate."""

    def __call__(self, job: Job) -> None:
        job.progress(3, 8, "pages")
        super().__call__(job)


def running(app: App) -> list[RunningItem]:
    """Return what runs, as the workers report."""
    return longest_running(summarize(app).activity)


def until_reported(app: App) -> RunningItem:
    """Wait until a worker reports the one item that runs, and its progress."""
    eventually(lambda: [each.item.progress is not None for each in running(app)] == [True])
    return running(app)[0]


def until_said(alice: Queues, item: str, said: Callable[[Explanation], bool]) -> Explanation:
    """Wait until an explanation fulfils a condition."""
    eventually(lambda: said(alice.explain(item)))
    return alice.explain(item)


def test_an_item_that_runs_is_listed_with_its_place_and_its_worker(app: App, alice: Queues, store: str | None) -> None:
    gate = Working()
    app.handler("report")(gate)
    with consumer(app):
        handle = alice.enqueue("report", item_id="report 7")
        found = until_reported(app)
        assert summarize(app).running == 1
        gate.opened.set()
        eventually(lambda: running(app) == [])
    assert (found.item.item_id, found.item.tenant, found.item.attempt) == (handle.item_id, ("shop", "alice"), 1)
    assert (found.shard, found.store, found.zone) == (app.tenant("shop", "alice").shard.name, store, "queue")
    assert (found.status.host, found.status.busy) == (socket.gethostname(), 1)


def test_why_says_where_an_item_runs_and_since_when_and_how_far_it_is(app: App, alice: Queues) -> None:
    gate = Working()
    app.handler("report")(gate)
    with consumer(app):
        alice.enqueue("report", item_id="report 7")
        said = until_said(alice, "report 7", lambda said: said.progress is not None)
        gate.opened.set()
    where = f"the consumer on {socket.gethostname()}, process {os.getpid()} has had it for "
    assert said.cause is Cause.RUNNING
    assert said.sentence.startswith(where)
    assert "; its lease ends in " in said.sentence
    assert (said.details["pid"], said.details["live"]) == (os.getpid(), True)
    assert said.details["lease_until_us"] - said.details["since_us"] > 0
    assert said.progress is not None
    assert (said.progress.done, said.progress.total, said.progress.note) == (3, 8, "pages")


def test_ends_and_the_time_of_handlers_are_counted_on_the_tenants_shard(app: App, alice: Queues) -> None:
    @app.handler("report", retry=Retry(attempts=2, backoff=0.1))
    def report(job: Job) -> None:
        if job.payload == "fails" or (job.payload == "fails once" and job.attempt == 1):
            raise ConnectionError
        if job.payload == "impossible":
            raise PermanentError("no")

    with consumer(app):
        for payload in ("well", "fails once", "fails", "impossible"):
            alice.enqueue("report", payload)

        def counted() -> tuple[int, int, int] | None:
            seen = summarize(app)
            found = by_kind(seen.activity, seen.now_us).get("report")
            return None if found is None else (found.completed, found.retried, found.dead_lettered)

        eventually(lambda: counted() == (2, 2, 2))
    home = app.tenant("shop", "alice").shard.name
    tenants = {each.shard: [tenant for tenant, _ in busiest(each)] for each in summarize(app).activity}
    assert tenants == {"one": [], "two": [], home: [("shop", "alice")]}


def test_progress_is_found_by_the_next_attempt_after_a_failure(app: App, alice: Queues) -> None:
    found: list[Any] = []

    @app.handler("report", retry=Retry(attempts=2, backoff=0.1))
    def report(job: Job) -> None:
        found.append(job.last_progress and job.last_progress.note)
        if job.attempt == 1:
            job.progress(3, 8, "of the first attempt")
            while not running(app):  # In a shard, progress is written with the status.
                assert not job.cancelled
            raise ConnectionError

    with consumer(app):
        alice.enqueue("report")
        eventually(lambda: len(found) == 2)
    assert found == [None, "of the first attempt"]


def test_progress_is_found_by_the_next_worker_after_a_drain(app: App, alice: Queues, config: Config) -> None:
    found: list[Any] = []
    gate = Working()

    def report(job: Job) -> None:
        found.append((job.attempt, job.last_progress and job.last_progress.note))
        gate(job)

    app.handler("report")(report)
    with consumer(app):
        alice.enqueue("report", item_id="report 7")
        until_reported(app)
    said = alice.explain("report 7")
    assert said.cause is Cause.NO_CONSUMER
    assert said.progress is not None
    gate.opened.set()
    with consumer(app):
        eventually(lambda: len(found) == 2)
    assert found == [(1, None), (1, "pages")]


def test_the_progress_of_a_failed_item_is_in_its_dead_letter(app: App, alice: Queues) -> None:
    @app.handler("report")
    def report(job: Job) -> None:
        job.progress(3, 8, "before it failed")
        while not running(app):
            assert not job.cancelled
        raise PermanentError("no")

    with consumer(app):
        alice.enqueue("report", item_id="report 7")
        said = until_said(alice, "report 7", lambda said: said.cause is Cause.DEAD_LETTER)
    assert said.progress is not None
    assert said.progress.note == "before it failed"


def test_an_item_whose_tenant_moves_meanwhile_is_listed_and_explained(app: App, alice: Queues) -> None:
    gate = Working()
    app.handler("report")(gate)
    with consumer(app):
        alice.enqueue("report", item_id="report 7")
        until_reported(app)
        source = app.tenant("shop", "alice").shard.name
        app.move("shop/alice", to={"one": "two", "two": "one"}[source]).result(timeout=30)
        said = until_said(alice, "report 7", lambda said: said.progress is not None)
        eventually(lambda: "report" in [each.item.kind for each in running(app)])
        gate.opened.set()
        eventually(lambda: running(app) == [])
    assert said.cause is Cause.RUNNING
    assert said.sentence.startswith("the consumer on ")


# --- The command and the page ---


def test_top_lists_the_item(app: App, alice: Queues, store: str | None, config: Config, tmp_path: Path) -> None:
    (tmp_path / "fairlead.toml").write_text(
        "".join(f'shards.{name} = "{url}"\n' for name, url in config.shards.items())
        + "".join(f'external.{name} = "{dsn}"\n' for name, dsn in config.external.items()),
        encoding="utf-8",
    )
    gate = Working()
    app.handler("report")(gate)
    with consumer(app):
        handle = alice.enqueue("report")
        until_reported(app)
        shown = run("top", "--config", str(tmp_path / "fairlead.toml"))
        (found,) = run("top", "--json", "--config", str(tmp_path / "fairlead.toml")).json["longest_running"]
        gate.opened.set()
    assert ("shop/alice in pg" in shown.out) == (store is not None)
    assert "3 of 8, pages" in shown.out
    assert (found["item"], found["store"], found["zone"]) == (handle.item_id.hex(), store, "queue")
    assert found["progress"]["note"] == "pages"


def test_the_page_lists_the_item_by_its_name_and_leads_to_it(app: App, alice: Queues, store: str | None) -> None:
    gate = Working()
    app.handler("report")(gate)
    with consumer(app):
        alice.enqueue("report", {"year": 2031}, item_id="report 7")
        found = until_reported(app)
        listed = read(open_site(app), "/running", {}).text
        link = {"app": "shop", "user": "alice", "zone": "queue", "id": found.item.item_id.hex()}
        page = read(open_site(app), "/item", link if store is None else {**link, "store": store}).text
        gate.opened.set()
    assert "report 7</a>" in listed
    assert "2031" in listed
    assert ("in pg</span>" in listed) == (store is not None)
    assert (f"id={found.item.item_id.hex()}&amp;store=pg" in listed) == (store is not None)
    assert "3 of 8, pages" in page
    assert "Attempt 1 leased" in page


# --- What only stores have ---


@pytest.mark.parametrize("store", ["pg"], indirect=True)
def test_a_handler_in_sql_is_listed_and_why_says_where_its_transaction_is_open(app: App, alice: Queues) -> None:
    gate = Working()

    @app.handler("report", transactional=True, store="pg")
    def report(job: Job, connection: Any) -> None:
        gate(job)

    with consumer(app):
        alice.enqueue("report", item_id="report 7")
        until_reported(app)
        said = until_said(alice, "report 7", lambda said: said.progress is not None)
        gate.opened.set()
    assert said.cause is Cause.RUNNING
    assert said.sentence.startswith(f"the consumer on {socket.gethostname()}, process {os.getpid()} has had it for ")
    assert "; the transaction of its handler is open, and holds its row" in said.sentence


@pytest.mark.parametrize("store", ["pg"], indirect=True)
def test_progress_of_a_handler_in_sql_is_forgotten_with_its_transaction(app: App, alice: Queues) -> None:
    found: list[Any] = []

    @app.handler("report", transactional=True, store="pg", retry=Retry(attempts=2, backoff=0.1))
    def report(job: Job, connection: Any) -> None:
        found.append(job.last_progress)
        job.progress(3, 8)
        if job.attempt == 1:
            raise ConnectionError

    with consumer(app):
        alice.enqueue("report")
        eventually(lambda: len(found) == 2)
    assert found == [None, None]


@pytest.mark.parametrize("store", ["pg"], indirect=True)
@pytest.mark.parametrize("handler", [Gate(), Working()], ids=["reports nothing", "reports progress"])
def test_an_item_that_a_drain_returns_has_ended_no_worker_in_a_row(
    app: App, alice: Queues, database: Database, handler: Gate
) -> None:
    app.handler("report")(handler)
    alice.enqueue("report")
    assert database.lease(rooms={"report": 1}, lease_us=1)
    with database.connect() as connection:
        connection.execute("UPDATE fairlead.items SET started = 1")
        with consumer(app):
            eventually(lambda: len(running(app)) == 1)
            assert connection.execute("SELECT deaths FROM fairlead.items").fetchall() == [(1,)]
        assert connection.execute("SELECT deaths FROM fairlead.items").fetchall() == [(0,)]


@pytest.mark.parametrize("store", ["pg"], indirect=True)
def test_a_long_payload_is_not_read_for_the_list(app: App, alice: Queues) -> None:
    gate = Working()
    app.handler("report")(gate)
    with consumer(app):
        alice.enqueue("report", "x" * 5_000, item_id="report 7")
        until_reported(app)
        listed = read(open_site(app), "/running", {}).text
        gate.opened.set()
    assert "report 7</a>" in listed
    assert "5,003 bytes" in listed


def test_a_store_that_is_away_hides_no_running_item(app: App, alice: Queues, store: str | None, config: Config) -> None:
    gate = Working()
    app.handler("report")(gate)
    other = App(config=Config(shards=config.shards, external=dict.fromkeys(config.external, AWAY)))
    with consumer(app):
        alice.enqueue("report", item_id="report 7")
        found = until_reported(app)
        listed = read(open_site(other), "/running", {}).text
        gate.opened.set()
    other.close()
    assert ("report 7" in listed) == (store is None)
    assert found.item.item_id.hex() in listed


AWAY = "postgresql://127.0.0.1:1/none"
