"""The FoundationDB server itself is killed, stops and comes back in the middle of work: nothing lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from fairlead import App, Config
from tests.acceptance.fleets import config, consumer, eventually, is_whole, opened
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left
from tests.foundationdb_server import FoundationServer, needs_server

pytestmark = [needs_server, pytest.mark.timeout(600)]

Note = Callable[[str, object], None]

STOPPED_S = 4.0  # Long enough for timeouts of looks and beats, and below that of a transaction.
WRITERS = 4
FEW_AND_MANY = pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.long)])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FoundationServer]:
    with FoundationServer(tmp_path / "cluster") as started:
        yield started


@pytest.fixture
def chosen(server: FoundationServer, tmp_path: Path) -> Config:
    return config(tmp_path, url=server.url)


def at_work(load: Load, count: int) -> None:
    """Wait until so many more items have been acknowledged."""
    wanted = len(load.enqueued) + count
    eventually(lambda: len(load.enqueued) >= wanted)


@pytest.mark.usefixtures("cluster")
@FEW_AND_MANY
def test_a_fleet_loses_and_doubles_nothing_when_the_server_is_killed(
    app: App, chosen: Config, server: FoundationServer, kills: int, record_property: Note
) -> None:
    with consumer(chosen):
        with Load(app, per_s=200, survives=app.shards["main"].db.errors) as load:
            for _ in range(kills):
                at_work(load, 200)
                server.restart()
            at_work(load, 200)
        assert_all_done(app, load.enqueued, doubtful=load.doubtful, within_s=120)
        assert_nothing_left(app)
    record_property(
        f"{kills} kills of the FoundationDB server under a fleet",
        f"{len(load.enqueued)} items acknowledged, {len(load.doubtful)} in doubt, 0 lost, 0 doubled",
    )


@pytest.mark.usefixtures("cluster")
def test_a_fleet_loses_and_doubles_nothing_when_the_server_stands_still_for_seconds(
    app: App, chosen: Config, server: FoundationServer
) -> None:
    with consumer(chosen):
        with Load(app, per_s=200, survives=app.shards["main"].db.errors) as load:
            for _ in range(2):
                at_work(load, 200)
                with server.stopped():
                    time.sleep(STOPPED_S)
            at_work(load, 200)
        assert_all_done(app, load.enqueued, doubtful=load.doubtful, within_s=120)
        assert_nothing_left(app)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("stopped_s", [15.0, pytest.param(120.0, marks=pytest.mark.long)])
def test_no_actor_is_restarted_because_the_server_stands_still(
    app: App, chosen: Config, server: FoundationServer, stopped_s: float
) -> None:
    """Longer than a loop may make no progress: each attempt that waits for the store is progress."""
    with consumer(chosen) as running:
        eventually(lambda: is_whole(running, chosen))
        before = running.pids()
        with server.stopped():
            time.sleep(stopped_s)
        with Load(app, per_s=100, survives=app.shards["main"].db.errors) as load:
            at_work(load, 100)
        assert_all_done(app, load.enqueued, doubtful=load.doubtful, within_s=60)
        assert running.pids() == before


class Writer:
    """A thread that adds 1 to a counter of its own tenant, again and again. `told`: how often it was acknowledged.

    `doubtful`: how often it got an error instead, so that nobody knows.
    """

    def __init__(self, app: App, number: int) -> None:
        self.told = 0
        self.doubtful = 0
        self._tenant = app.tenant("bank", f"customer {number}")
        self._errors = self._tenant.shard.db.errors
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer {number}")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._tenant.transact(lambda tr: tr.add(("balance",), 1))
                self.told += 1
            except self._errors:
                self.doubtful += 1

    def counted(self) -> int:
        """Return what the counter says."""
        return int.from_bytes(self._tenant.transact(lambda tr: tr.get(("balance",))) or b"", "little")


@FEW_AND_MANY
def test_what_is_only_written_is_counted_once_when_the_server_is_killed(
    chosen: Config, server: FoundationServer, kills: int, record_property: Note
) -> None:
    """Before, some of each writer's additions were made twice."""
    with opened(chosen) as app:
        writers = [Writer(app, number) for number in range(WRITERS)]
        with ExitStack() as running:
            for writer in writers:
                running.enter_context(writer)
            for _ in range(kills):
                for writer in writers:
                    eventually(partial(_has_been_told, writer, writer.told + 20))
                server.restart()
            for writer in writers:
                eventually(partial(_has_been_told, writer, writer.told + 20))
        found = [(writer.told, writer.doubtful, writer.counted()) for writer in writers]
    for told, doubtful, counted in found:
        assert told <= counted <= told + doubtful, found
    record_property(f"{kills} kills of the FoundationDB server: told, in doubt, counted", found)


def _has_been_told(writer: Writer, count: int) -> bool:
    return writer.told >= count
