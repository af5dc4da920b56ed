"""Steps in SQL, one transaction each: executors that overlap, fences, conflicts, and connections that are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import LeaseLost, RunUnreadable
from fairlead.zones.external.steps import EffectsRefused, StoreStep
from fairlead.zones.workflow.participants import AskAgain, RunEnded
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import StepName
from tests.records.storage_model.cutting_proxy import Cut, CuttingProxy
from tests.zones.postgresql.database import Database

OUR_RUN = bytes(range(16))
STEP = StepName("reserve", 0)
LEVELS = ["read committed", "repeatable read", "serializable"]
WAIT_S = 10.0


def with_level(dsn: str, level: str) -> str:
    """Return a DSN whose transactions are at a level by default."""
    escaped = level.replace(" ", "%5C%20")
    return f"{dsn}?options=-c%20default_transaction_isolation%3D{escaped}"


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    """The isolation level of steps."""
    return str(request.param)


@pytest.fixture
def proxy(database: Database) -> Iterator[CuttingProxy]:
    """A proxy between the steps and their server."""
    with CuttingProxy(int(database.dsn.rpartition(":")[2].partition("/")[0])) as running:
        yield running


@pytest.fixture
def store(database: Database, proxy: CuttingProxy, level: str) -> Iterator[Any]:
    """The steps of the database, without any; their transactions reach it by the proxy."""
    from fairlead.zones.postgresql.connections import Connections
    from fairlead.zones.postgresql.step_store import StepStore

    server, _, name = database.dsn.rpartition("/")
    dsn = with_level(f"{server.rpartition(':')[0]}:{proxy.port}/{name}", level)
    transactions = Connections(dsn, {"store": "pg"}, reads_committed=False)
    with database.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS step_effects (name text)")
        connection.execute("TRUNCATE step_effects, fairlead.steps, fairlead.fences")
    yield StepStore(database.connections, transactions)
    transactions.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for executors that overlap."""
    with ThreadPoolExecutor(3) as running:
        yield running


def step(store: Any, *, number: int = 1, place: ParticipantState | None = None, **fields: Any) -> StoreStep:
    """Return the step as an executor with a lease number does it, who has asked just now."""
    return StoreStep(OUR_RUN, number, fields.get("segment", 0), fields.get("step", STEP), place or store.ask())


def entry(by: str = "") -> StepEntry:
    return StepEntry(0, StepKind.STEP, b"digest", StepState.DONE, 1, by.encode())


def insert(by: str = "") -> Callable[[Any], StepEntry]:
    """Return a body that leaves an effect."""

    def body(connection: Any) -> StepEntry:
        connection.execute("INSERT INTO step_effects VALUES (%s)", [by])
        return entry(by)

    return body


class Paused:
    """A body that leaves an effect, and stands still until it may go on."""

    def __init__(self, by: str) -> None:
        self.stands = Event()
        self.may_go_on = Event()
        self._insert = insert(by)

    def __call__(self, connection: Any) -> StepEntry:
        made = self._insert(connection)
        self.stands.set()
        assert self.may_go_on.wait(WAIT_S)
        return made


def wait_for_lock(database: Database) -> None:
    """Wait until some transaction waits for another one."""
    statement = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with database.connections.call() as call:
        while call.execute(statement).fetchone() == (0,):
            pass


def effects(database: Database) -> list[str]:
    with database.connections.call() as call:
        return [name for (name,) in call.execute("SELECT name FROM step_effects ORDER BY name")]


def run_beside(
    threads: ThreadPoolExecutor, database: Database, first: Callable[..., Any], second: Callable[[], Any]
) -> tuple[Future[Any], Future[Any]]:
    """Run `first` with a body that pauses, `second` until it waits for `first`; then let both go on."""
    paused = Paused("first")
    one = threads.submit(first, paused)
    assert paused.stands.wait(WAIT_S)
    other = threads.submit(second)
    wait_for_lock(database)
    paused.may_go_on.set()
    return one, other


def test_the_effects_and_the_entry_are_there_together_or_not_at_all(store: Any, database: Database) -> None:
    def fail(connection: Any) -> StepEntry:
        insert("fails")(connection)
        raise KeyError

    with pytest.raises(KeyError):
        store.run_step(step(store), fail)
    assert (effects(database), store.entries(OUR_RUN, 0)) == ([], {})
    assert store.run_step(step(store), insert("done")) == entry("done")
    assert (effects(database), store.entries(OUR_RUN, 0)) == (["done"], {STEP: entry("done")})


def test_a_second_executor_waits_for_the_first_one_and_takes_its_answer(
    store: Any, database: Database, threads: ThreadPoolExecutor
) -> None:
    one, other = run_beside(
        threads,
        database,
        lambda body: store.run_step(step(store), body),
        lambda: store.run_step(step(store, number=2), insert("second")),
    )
    assert one.result(WAIT_S) == other.result(WAIT_S) == entry("first")
    assert effects(database) == ["first"]


def test_a_second_executor_does_the_step_if_the_first_one_fails(
    store: Any, database: Database, threads: ThreadPoolExecutor
) -> None:
    def fail(paused: Paused) -> None:
        def body(connection: Any) -> StepEntry:
            paused(connection)
            raise KeyError

        store.run_step(step(store), body)

    one, other = run_beside(threads, database, fail, lambda: store.run_step(step(store, number=2), insert("second")))
    assert isinstance(one.exception(WAIT_S), KeyError)
    assert other.result(WAIT_S) == entry("second")
    assert effects(database) == ["second"]


def test_a_raised_fence_waits_for_a_step_and_refuses_later_ones(
    store: Any, database: Database, threads: ThreadPoolExecutor
) -> None:
    place = store.ask()

    def new_attempt() -> Any:
        assert store.raise_fence(OUR_RUN, 2, place)
        return store.entries(OUR_RUN, 0)

    one, other = run_beside(threads, database, lambda body: store.run_step(step(store), body), new_attempt)
    assert one.result(WAIT_S) == entry("first")
    assert other.result(WAIT_S) == {STEP: entry("first")}
    with pytest.raises(LeaseLost):
        store.run_step(step(store, step=StepName("other", 0)), insert("late"))
    with pytest.raises(LeaseLost):
        store.raise_fence(OUR_RUN, 1, place)
    assert effects(database) == ["first"]


def test_a_cleanup_waits_for_a_step_and_leaves_a_tombstone_until_floor_is_raised(
    store: Any, database: Database, threads: ThreadPoolExecutor
) -> None:
    place = store.ask()
    one, other = run_beside(
        threads, database, lambda body: store.run_step(step(store), body), lambda: store.clean_up(OUR_RUN)
    )
    assert (one.result(WAIT_S), other.result(WAIT_S)) == (entry("first"), None)
    assert store.entries(OUR_RUN, 0) == {}
    with pytest.raises(RunEnded):
        store.run_step(step(store, place=place), insert("late"))
    with pytest.raises(RunEnded):
        store.raise_fence(OUR_RUN, 9, place)
    store.raise_floor()
    assert store.ask().floor == place.floor + 1
    with pytest.raises(AskAgain):
        store.run_step(step(store, place=place), insert("late"))
    assert not store.raise_fence(OUR_RUN, 9, place)
    with database.connections.call() as call:
        assert call.execute("SELECT count(*) FROM fairlead.fences").fetchone() == (0,)
    assert effects(database) == ["first"]


def test_floor_is_raised_once_and_not_without_tombstones(store: Any) -> None:
    before = store.ask()
    store.raise_floor()
    assert store.ask() == before
    store.clean_up(OUR_RUN)
    store.clean_up(OUR_RUN)
    store.raise_floor()
    store.raise_floor()
    assert store.ask().floor == before.floor + 1


def test_a_store_with_another_history_is_asked_again(store: Any) -> None:
    """A promoted replica may have lost a fence that was raised."""
    before = ParticipantState(1, store.ask().floor)
    with pytest.raises(AskAgain):
        store.run_step(step(store, place=before), insert("late"))


@pytest.mark.parametrize("cut", list(Cut))
def test_a_commit_without_an_answer_is_done_once(store: Any, database: Database, proxy: CuttingProxy, cut: Cut) -> None:
    proxy.cut_next(b"COMMIT\x00", cut)
    bodies = []

    def body(connection: Any) -> StepEntry:
        bodies.append(1)
        return insert("done")(connection)

    assert store.run_step(step(store), body) == entry("done")
    assert (proxy.cuts, effects(database)) == (1, ["done"])
    assert len(bodies) == (2 if cut is Cut.BEFORE else 1)


def test_a_connection_that_breaks_before_the_commit_changes_nothing(
    store: Any, database: Database, proxy: CuttingProxy
) -> None:
    for text in (b"begin_step", b"INSERT"):
        proxy.cut_next(text, Cut.AFTER)
        with pytest.raises(StoreUnavailable):
            store.run_step(step(store), insert("lost"))
    assert (proxy.cuts, effects(database), store.entries(OUR_RUN, 0)) == (2, [], {})
    assert store.run_step(step(store), insert("done")) == entry("done")


def test_a_conflict_of_the_body_repeats_the_step(store: Any, database: Database, level: str) -> None:
    with database.connect() as connection:
        connection.execute("INSERT INTO step_effects VALUES ('counter')")
    bodies = []

    def body(connection: Any) -> StepEntry:
        bodies.append(connection.execute("SELECT count(*) FROM step_effects").fetchone())
        if len(bodies) == 1:
            with database.connect() as other:
                other.execute("UPDATE step_effects SET name = 'theirs'")
        connection.execute("UPDATE step_effects SET name = name || ' and mine'")
        return entry()

    store.run_step(step(store), body)
    assert effects(database) == ["theirs and mine"]
    assert len(bodies) == (1 if level == "read committed" else 2)


def test_what_the_store_refuses_at_the_commit_is_an_error_of_the_body(store: Any, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS once")
        connection.execute("CREATE TABLE once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    def body(connection: Any) -> StepEntry:
        connection.execute("INSERT INTO once VALUES (1), (1)")
        return entry()

    with pytest.raises(EffectsRefused, match="once_id_key"):
        store.run_step(step(store), body)
    assert store.entries(OUR_RUN, 0) == {}


def test_a_body_that_rolls_back_is_refused(store: Any) -> None:
    def body(connection: Any) -> StepEntry:
        connection.execute("ROLLBACK")
        return entry()

    with pytest.raises(EffectsRefused, match="has ended its transaction"):
        store.run_step(step(store), body)
    assert store.entries(OUR_RUN, 0) == {}


def test_a_later_segment_clears_the_entries_of_earlier_ones(store: Any) -> None:
    store.run_step(step(store), insert("before"))
    store.run_step(step(store, segment=1), insert("after"))
    assert (store.entries(OUR_RUN, 0), store.entries(OUR_RUN, 1)) == ({}, {STEP: entry("after")})


def test_an_entry_that_cannot_be_read_is_not_done_again(store: Any, database: Database) -> None:
    store.run_step(step(store), insert("done"))
    with database.connections.call() as call:
        call.execute("UPDATE fairlead.steps SET entry = ''")
    with pytest.raises(RunUnreadable):
        store.run_step(step(store), insert("again"))
    with pytest.raises(RunUnreadable):
        store.entries(OUR_RUN, 0)
    assert effects(database) == ["done"]
