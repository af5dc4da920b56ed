"""The upkeep of an external store: who does it, when a session is silent, and when a vacuum is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fairlead.actors import external_upkeep
from fairlead.actors.external_upkeep import BATCH, BATCHES_MAX, DEAD_ROWS_MAX, ExternalUpkeep
from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.simulation.external.sessions import Upkeep
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.external.depth import Depth
from fairlead.zones.external.names import Queue
from fairlead.zones.external.store import ItemLease, Want
from fairlead.zones.keyspace import ROLLUP, ROOT, pack_int, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import Outcome, new_item
from fairlead.zones.reporting.rollups import INTERVAL_US, StoreDepth, interval_of, read_depths
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.silence import LOOKS
from tests.actors.stage import SECOND, Stage
from tests.simulation.mutations.mutation import in_a_race

QUEUE = Queue(Tenant("shop", "alice"), "queue")
SESSION, WORKER = b"s" * 16, b"a worker's life"
LEASE_US, TERM_US = 60 * SECOND, 600 * SECOND


class Reader:
    """Stands for the reader of the store in this consumer. `home`: the shard that holds what is saved of the store."""

    is_reading = True

    def __init__(self, home: Shard) -> None:
        self.home = home


class Rows(Upkeep):
    """Rows of a database: dead ones, and ended ones that are kept no longer. `pinned`: a vacuum frees none.

    `counts`: how often its items were counted; `whole`: whether that counted all.
    """

    def __init__(self) -> None:
        self.dead = self.vacuums = self.expired = self.counts = 0
        self.pinned, self.whole = False, True

    def expire(self, items_max: int) -> int:
        some = min(items_max, self.expired)
        self.expired -= some
        return some

    def dead_rows(self) -> int:
        return self.dead

    def depth(self) -> Depth:
        self.counts += 1
        return Depth({"mail": 3}, 2 * SECOND, self.whole)

    def vacuum(self) -> None:
        self.vacuums += 1
        self.dead = self.dead if self.pinned else 0


class Scene:
    """A store, its upkeep in one consumer, and a worker that claims an item there."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.clock = self.stage.clock
        self.items = ItemsAtOnce(self.clock.now_us)
        self.rows = self.items.upkeep = Rows()
        self.reader = Reader(self.stage.shard)
        reader: Any = self.reader
        self.upkeep = ExternalUpkeep(self.stage.host, "pg", self.items, reader)

    def claim(self) -> None:
        """Enqueue an item, lease it, and claim it."""
        user = self.items.begin()
        self.items.enqueue(user, QUEUE, b"i" * 16, new_item("mail"))
        self.items.commit(user)
        assert self.lease(b"1" * 16) == [b"i" * 16]
        held = [ItemLease(b"i" * 16, b"1" * 16)]
        claimed = self.items.sessions.claim(SESSION, held, worker=WORKER, begins=True, term_us=TERM_US)
        assert claimed == [Outcome.DONE]

    def lease(self, lease_id: bytes) -> Sequence[bytes]:
        """Lease what can be leased now."""
        found = self.items.dequeue([Want(QUEUE, 9)], {"mail": 9}, lease_id=lease_id, lease_us=LEASE_US, now_us=0)
        return [row.id for row in found.rows]

    def looks(self, count: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Look so often, a second apart."""
        for _ in range(count):
            self.stage.pass_ms(1_000)
            meanwhile()
            self.upkeep.look()


def a_dead_worker() -> str:
    """Return what is wrong with what a dead worker claims."""
    scene = Scene()
    scene.claim()
    scene.looks(LOOKS)
    return "" if scene.lease(b"2" * 16) else "what a dead worker claims waits for the end of the claim"


def a_slow_worker() -> str:
    """Return what is wrong with what a worker claims whose heartbeat comes after the look that finds it silent."""
    scene = Scene()
    scene.claim()
    scene.looks(LOOKS - 1)
    sessions = scene.items.sessions
    beats = sessions.beats

    def beats_late() -> dict[bytes, bytes]:
        found = beats()
        sessions.beat(SESSION)
        return found

    sessions.beats = beats_late  # type: ignore[method-assign]
    scene.looks(1)
    return "a worker that lives has lost what it claims" if scene.lease(b"2" * 16) else ""


def a_store_that_was_away() -> str:
    """Return what is wrong with what a worker claims, after a look that the store did not answer."""
    scene = Scene()
    scene.claim()
    scene.looks(LOOKS - 1)
    sessions = scene.items.sessions
    beats = sessions.beats

    def is_away() -> dict[bytes, bytes]:
        sessions.beats = beats  # type: ignore[method-assign]
        raise StoreUnavailable("no server answers", remedy="Start it.")

    sessions.beats = is_away  # type: ignore[method-assign]
    scene.stage.pass_ms(1_000)
    scene.upkeep.look_if_reading()
    scene.looks(1)
    return "a worker has lost what it claims because the store was away" if scene.lease(b"2" * 16) else ""


SCENES = [a_dead_worker, a_slow_worker, a_store_that_was_away]
GUARDS: dict[str, tuple[Any, str, str]] = {
    "only a session without a later heartbeat is ended": (
        ExternalUpkeep.look, "silent_since=beats[session_id]", "silent_since=None",
    ),
    "what ended sessions claim is released": (
        ExternalUpkeep.look, "_in_batches(sessions.release_ended)", "False",
    ),
    "a look without an answer begins the count anew": (
        ExternalUpkeep.look_if_reading, "self._silence.note_failure()\n            self._refusals", "self._refusals",
    ),
}  # fmt: skip


@pytest.mark.parametrize("scene", SCENES)
def test_only_what_silent_workers_claim_runs_again(scene: Callable[[], str]) -> None:
    assert scene() == ""


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_one_of_them_goes_wrong(guard: str) -> None:
    with in_a_race(guard, GUARDS[guard]).planted():
        assert any(scene() for scene in SCENES)


def test_a_worker_that_sends_heartbeats_keeps_what_it_claims() -> None:
    scene = Scene()
    scene.claim()
    scene.looks(3 * LOOKS, lambda: scene.items.sessions.beat(SESSION))
    assert scene.lease(b"2" * 16) == []


def test_a_consumer_whose_reader_does_not_read_does_no_upkeep() -> None:
    scene = Scene()
    scene.reader.is_reading = False
    scene.rows.expired, scene.rows.dead = 1, DEAD_ROWS_MAX
    scene.upkeep.look_if_reading()
    scene.upkeep.vacuum_if_reading()
    assert (scene.rows.expired, scene.rows.vacuums) == (1, 0)


def test_a_look_deletes_in_batches_until_few_are_left_and_not_for_ever() -> None:
    scene = Scene()
    scene.rows.expired = 2 * BATCH + 1
    scene.upkeep.look_if_reading()
    assert scene.rows.expired == 0
    scene.rows.expired = 100 * BATCH
    scene.upkeep.look_if_reading()
    assert scene.rows.expired == (100 - BATCHES_MAX) * BATCH


@pytest.mark.parametrize(("dead", "vacuums"), [(DEAD_ROWS_MAX - 1, 0), (DEAD_ROWS_MAX, 1)])
def test_a_vacuum_is_due_at_100_000_dead_rows(dead: int, vacuums: int) -> None:
    scene = Scene()
    scene.rows.dead = dead
    scene.upkeep.vacuum_if_reading()
    assert external_upkeep.DEAD_ROWS_MAX == 100_000
    assert scene.rows.vacuums == vacuums


def test_a_vacuum_that_frees_nothing_is_done_again_once_as_many_rows_have_died() -> None:
    """An old snapshot still sees them."""
    scene = Scene()
    scene.rows.pinned = True
    vacuums = []
    for dead in (DEAD_ROWS_MAX, 2 * DEAD_ROWS_MAX - 1, 2 * DEAD_ROWS_MAX):
        scene.rows.dead = dead
        scene.upkeep.vacuum_if_reading()
        vacuums.append(scene.rows.vacuums)
    assert vacuums == [1, 1, 2]


def noted(scene: Scene) -> dict[int, list[StoreDepth]]:
    """Return what is noted for charts."""
    return scene.stage.shard.transact(lambda attempt: read_depths(attempt.tr, now_us=attempt.now_us))


def test_what_waits_is_noted_for_charts_once_in_ten_seconds() -> None:
    scene = Scene()
    first = interval_of(scene.clock.now_us()) + 1
    scene.stage.pass_ms((first * INTERVAL_US - scene.clock.now_us()) // 1_000)
    seen_us = scene.clock.now_us()
    for _ in range(15):
        scene.upkeep.look_if_reading()
        scene.stage.pass_ms(1_000)
    of_first, of_second = StoreDepth({"mail": 3}, seen_us - 2 * SECOND), StoreDepth({"mail": 3}, seen_us + 8 * SECOND)
    assert noted(scene) == {first: [of_first], first + 1: [of_second]}


@pytest.mark.parametrize(("whole", "counts"), [(True, 12), (False, 2)])
def test_a_store_with_very_many_items_is_counted_once_a_minute_and_noted_as_often(whole: bool, counts: int) -> None:
    scene = Scene()
    scene.rows.whole = whole
    for _ in range(12):
        scene.upkeep.look_if_reading()
        scene.stage.pass_ms(10_000)
    assert (scene.rows.counts, len(noted(scene))) == (counts, 12)


def test_what_waited_more_than_an_hour_ago_is_cleared() -> None:
    scene = Scene()
    scene.upkeep.look_if_reading()
    scene.stage.pass_ms(3_700_000)
    scene.upkeep.look_if_reading()
    assert list(noted(scene)) == [interval_of(scene.clock.now_us())]
    begin = ROOT + pack_int(ROLLUP)
    rows = scene.stage.shard.transact(lambda attempt: list(attempt.tr.get_range(begin, range_end(begin))))
    assert len(rows) == 1


def test_a_shard_that_refuses_delays_only_the_charts(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.rows.expired = 1
    scene.stage.store.away = True
    scene.upkeep.look_if_reading()
    assert scene.rows.expired == 0
    assert "its charts lack what waits in external stores" in caplog.text
