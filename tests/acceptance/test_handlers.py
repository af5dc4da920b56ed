"""Handlers of every form, run by Ray actors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Config, TenantDatabase
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import handler_of
from fairlead.actors.runtime.ray_host.actors import EnqueueReporter, RayRunners
from fairlead.actors.runtime.ray_host.tasks import Tasks
from fairlead.actors.runtime.thread_host import ThreadHost, thread_supervisor
from fairlead.actors.telemetry.telemetry import Exports
from fairlead.clock import SystemClock
from fairlead.external_queues import ExternalQueues
from fairlead.zones.errors import BadArgument
from tests.acceptance import remote_shop
from tests.acceptance.fleets import config, consumer, eventually, opened
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left, depth
from tests.acceptance.shop import payload
from tests.actors.stage import held_item
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database

# isort: split
import ray

REMOTE = "tests.acceptance.remote_shop:app"


@pytest.mark.usefixtures("cluster")
def test_plain_async_fenced_and_transactional_handlers_take_effect(tmp_path: Path) -> None:
    chosen = config(tmp_path)
    with opened(chosen) as app, consumer(chosen):
        with Load(app, per_s=1_000) as load:
            eventually(lambda: len(load.enqueued) >= 1_000)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)


@pytest.fixture(params=[None, "pg"], ids=["shard", "postgresql"])
def store(request: pytest.FixtureRequest) -> str | None:
    """Where the items lie: in the external store of a name, or in the shard."""
    found: str | None = request.param
    return found


@pytest.fixture
def of_store(store: str | None, request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    """The settings of a fleet, with a database if the items are to lie there."""
    made = config(tmp_path)
    if store is None:
        return made
    database: Database = request.getfixturevalue("database")
    database.empty()
    return Config(shards=made.shards, external={store: database.dsn}, consumer=made.consumer, zones=made.zones)


@pytest.fixture(scope="module")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "remote_functions")
    made.prepare()
    yield made
    made.close()


def alice_of(app: App, store: str | None) -> TenantDatabase | ExternalQueues:
    """Return the queues of one tenant."""
    alice = app.tenant("shop", "alice")
    return alice if store is None else alice.external(store)


@pytest.mark.usefixtures("cluster")
def test_ray_remote_functions_run_as_tasks_of_their_own(of_store: Config, store: str | None, tmp_path: Path) -> None:
    """Each form of them: as decorated, with options, failing."""
    notes = tmp_path / "notes"
    with opened(of_store) as app, consumer(of_store, reference=REMOTE) as running:
        tenant = alice_of(app, store)
        for number in range(5):
            tenant.enqueue("work", payload(number, path=str(notes)))
        tenant.enqueue("options", payload(5, path=str(notes)))
        tenant.enqueue("fail", payload(6))
        eventually(lambda: tenant.count() == {})
        lines = remote_shop.ended(notes)
        assert sorted(int(line[1]) for line in lines) == [0, 1, 2, 3, 4, 5]
        workers = {str(pid) for pid in running.pids()["worker"]}
        assert workers.isdisjoint(line[2] for line in lines), "they ran in processes of their own"
        assert {line[3] for line in lines} == {"1"}
        (dead,) = tenant.dead_letters()
        assert "KeyError: 6" in dead.error
        assert "in fail" in dead.traceback


@pytest.mark.usefixtures("cluster")
def test_a_ray_task_completes_its_item_in_a_transaction_of_its_own(tmp_path: Path) -> None:
    chosen = config(tmp_path)
    with opened(chosen) as app, consumer(chosen, reference=REMOTE):
        tenant = app.tenant("shop", "alice")
        tenant.enqueue("complete", payload(7, store=chosen.shards["main"]))
        eventually(lambda: depth(app) == 0)
        assert tenant.transact(lambda tr: tr.get(("done", 7))) == (1).to_bytes(8, "little")


@pytest.mark.usefixtures("cluster")
def test_a_ray_task_that_has_completed_its_item_may_go_on(tmp_path: Path) -> None:
    chosen = config(tmp_path)
    notes = tmp_path / "notes"
    with opened(chosen) as app, consumer(chosen, reference=REMOTE) as running:
        more = payload(0, store=chosen.shards["main"], path=str(notes))
        app.tenant("shop", "alice").enqueue("complete_and_go_on", more)
        eventually(lambda: remote_shop.ended(notes) != [] or running.counts().get("lost"))
        eventually(lambda: running.counts().get("completed") == 1, otherwise=running.counts)
        assert len(remote_shop.ended(notes)) == 1


def several(job: Job) -> tuple[int, int]:
    return 1, 2


def yielding(job: Job) -> Iterator[int]:
    yield 1


class Mailer:
    def send(self, job: Job) -> None:
        """Do nothing."""


@pytest.fixture
def mailer(cluster: None) -> Iterator[Any]:
    """An actor of the application's own."""
    kind: Any = ray.remote(Mailer)
    actor = kind.options(num_cpus=0).remote()
    yield actor
    ray.kill(actor)


@pytest.mark.parametrize(
    "function",
    [
        ray.remote(num_returns=2)(several),
        ray.remote(several).options(num_returns=2),
        ray.remote(num_returns=2)(several).options(name="named"),
        ray.remote(yielding),
        ray.remote(yielding).options(name="named"),
    ],
)
def test_a_ray_function_that_could_not_be_stopped_is_refused_by_its_name(function: Any) -> None:
    with pytest.raises(BadArgument) as refused:
        handler_of("mail", function)
    assert refused.value.fields["argument"] == "handler"
    assert "test_handlers." in str(refused.value.fields["value"])


def test_a_method_of_a_ray_actor_is_refused_by_its_name(mailer: Any) -> None:
    for function in (mailer.send, mailer.send.options(name="named")):
        with pytest.raises(BadArgument) as refused:
            handler_of("mail", function)
        assert refused.value.fields["argument"] == "handler"
    with pytest.raises(BadArgument, match=r"Mailer.*send"):
        handler_of("mail", mailer.send)


def test_a_class_of_ray_actors_is_refused() -> None:
    """Before, it was taken for a plain function, and failed at every attempt with Ray's advice on making actors."""
    with pytest.raises(BadArgument, match="Mailer"):
        handler_of("mail", ray.remote(Mailer))
    with pytest.raises(BadArgument):
        handler_of("mail", ray.remote(Mailer).options(num_cpus=0))


def test_a_ray_task_that_cannot_be_killed_is_said_to_go_on_and_harms_nobody(
    mailer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever cancels is the loop that keeps the leases of all of a worker's items: before, it died of the error."""
    failures: list[str] = []
    for function in (ray.remote(num_returns=2, num_cpus=0)(several), mailer.send):
        held = held_item(7)
        held.job.cancel()
        with caplog.at_level("WARNING", logger="fairlead.ray"):
            host = ThreadHost(clock=SystemClock(), random=Random(1), supervisor=thread_supervisor(failures.append))
            RayRunners(host, None, Tasks(Exports().process_setup(), EnqueueReporter(None))).run_remote(function, held)
            until_s = time.monotonic() + 10
            while not caplog.records and time.monotonic() < until_s:
                threading.Event().wait(0.01)
        (record,) = caplog.records
        assert (record.levelname, "kind=mail" in record.getMessage()) == ("WARNING", True)
        caplog.clear()
    assert failures == []


@pytest.mark.usefixtures("cluster")
def test_a_ray_task_past_its_timeout_is_killed(of_store: Config, store: str | None, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with opened(of_store) as app, consumer(of_store, reference=REMOTE):
        tenant = alice_of(app, store)
        tenant.enqueue("linger", payload(1, path=str(notes)))
        eventually(lambda: remote_shop.ended(notes))
        pid = int(remote_shop.ended(notes)[0][1])
        eventually(lambda: not Path(f"/proc/{pid}").exists(), within_s=20)
        eventually(tenant.dead_letters)
        assert "JobTimeout" in tenant.dead_letters()[0].error


@pytest.mark.usefixtures("cluster")
def test_a_ray_task_that_dies_is_retried_by_the_queue_and_not_by_ray(
    of_store: Config, store: str | None, tmp_path: Path
) -> None:
    """Two attempts are two processes, and then the item is a dead letter: only the store counts attempts."""
    notes = tmp_path / "notes"
    with opened(of_store) as app, consumer(of_store, reference=REMOTE):
        tenant = alice_of(app, store)
        tenant.enqueue("die", payload(1, path=str(notes)))
        eventually(tenant.dead_letters)
        assert len({line[1] for line in remote_shop.ended(notes)}) == 2


@pytest.mark.usefixtures("cluster")
def test_a_worker_full_of_handlers_that_do_not_listen_starts_anew(tmp_path: Path) -> None:
    """Threads cannot be killed; their process can."""
    chosen = config(tmp_path, workers=1, slots=2)
    notes = tmp_path / "notes"
    with opened(chosen) as app, consumer(chosen) as running:
        before = running.pids()["worker"]
        tenant = app.tenant("shop", "alice")
        for number in range(2):
            tenant.enqueue("deaf", payload(number, path=str(notes)))
        eventually(lambda: len(tenant.dead_letters()) == 2)
        eventually(lambda: running.pids()["worker"] not in ([], before))
        tenant.enqueue("plain", payload(9))
        eventually(lambda: depth(app) == 0)


@pytest.mark.usefixtures("cluster")
def test_an_item_that_kills_its_workers_becomes_a_dead_letter_and_takes_nothing_with_it(
    of_store: Config, store: str | None, tmp_path: Path
) -> None:
    """Its lease expires with those beside it, it is a poison candidate, runs isolated, and ends that worker too."""
    chosen = replace(of_store, consumer=config(tmp_path, workers=1, lease_ms=1_000).consumer)
    with opened(chosen) as app, consumer(chosen) as running:
        tenant = alice_of(app, store)
        numbers = range(10)
        for number in numbers:
            tenant.enqueue("plain", payload(number, takes_ms=300))
        tenant.enqueue("killer", payload(99))
        eventually(lambda: tenant.count() == {}, within_s=50, otherwise=tenant.count)
        (dead,) = tenant.dead_letters()
        assert (dead.kind, dead.reason) == ("killer", "lease expired")
        eventually(lambda: running.pids()["worker"])


def test_this_process_is_no_part_of_the_fleet() -> None:
    assert os.environ.get("RAY_TASK_MAX_RETRIES") is None
