"""When the doorbell of an external store rings: while a reader waits for it, and only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.actors.external_reader import BUSY_LOOK_S, BUSY_PER_S, POLL_S, Doorbell, ExternalReader
from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.external.store import Arrival, Look, Queue
from fairlead.zones.layout import Tenant
from tests.actors.stage import Stage
from tests.simulation.mutations.mutation import in_a_race

ALICE = Tenant("shop", "alice")


class BelledItems(ItemsAtOnce):
    """A store with a doorbell. `rings`: None: it was never set."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        super().__init__(now_us)
        self.rings: bool | None = None
        self.is_away = False
        self.is_heard = True
        self.looks = 0
        self.rings_in_100_ms = 0

    def arrivals(self, seen: str, history: str) -> Look:
        self._check()
        self.looks += 1
        look = super().arrivals(seen, history)._replace(rings=bool(self.rings))
        return look._replace(arrivals=[Arrival(Queue(ALICE, "queue"), 0)]) if self.rings_in_100_ms else look

    def hears_doorbell(self) -> bool:
        return self.is_heard

    def set_doorbell(self, rings: bool) -> None:
        self._check()
        self.rings = rings

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("no server answers", remedy="Start it.")

    def await_doorbell(self, timeout_s: float) -> int:
        self.stage.sleep_ms(100 if self.rings_in_100_ms else timeout_s * 1_000)
        return self.rings_in_100_ms

    stage: Stage


class Scene:
    """A store, and readers of it."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.items = BelledItems(self.stage.clock.now_us)
        self.items.stage = self.stage

    def reader(self) -> ExternalReader:
        """Start a reader."""
        reader = ExternalReader(self.stage.host, "pg", self.items, {"main": self.stage.shard})
        self.stage.begin(reader.run)
        return reader


def test_it_rings_after_a_second_of_quiet() -> None:
    scene = Scene()
    scene.reader()
    scene.stage.pass_ms(3_000)
    assert scene.items.rings


def rings_after_a_stop() -> bool:
    scene = Scene()
    reader = scene.reader()
    scene.stage.pass_ms(3_000)
    reader.stop()
    scene.stage.pass_ms(2_000)
    return bool(scene.items.rings)


def test_it_is_off_once_the_reader_has_stopped() -> None:
    assert not rings_after_a_stop()


def test_without_that_it_stays_on() -> None:
    bug = ExternalReader._release, "self._store.set_doorbell(False)", "pass"
    with in_a_race("a reader that stops leaves the bell on", bug).planted():
        assert rings_after_a_stop()


def test_another_process_reads_at_once_after_a_stop_though_the_store_was_away() -> None:
    """The lease is given back all the same."""
    scene = Scene()
    first = scene.reader()
    scene.stage.pass_ms(3_000)
    second = scene.reader()
    scene.stage.pass_ms(500)
    assert not second.is_reading
    scene.items.is_away = True
    first.stop()
    scene.stage.pass_ms(500)
    scene.items.is_away = False
    scene.stage.pass_ms(2_500)
    assert second.is_reading


def test_a_reader_that_follows_one_that_stopped_turns_it_on_again() -> None:
    scene = Scene()
    first = scene.reader()
    scene.stage.pass_ms(3_000)
    scene.reader()
    first.stop()
    scene.stage.pass_ms(4_000)
    assert scene.items.rings


def rings_after_a_late_end_of_another_reader() -> bool:
    """Let a reader that was replaced, and stood still, turn the bell off as it ends."""
    scene = Scene()
    scene.reader()
    scene.stage.pass_ms(3_000)
    scene.items.set_doorbell(False)
    scene.stage.pass_ms(3_000)
    return bool(scene.items.rings)


def test_it_is_turned_on_again_if_another_reader_has_turned_it_off() -> None:
    """Before, the bell stayed off for up to a day: each item of a quiet store waited for a second."""
    assert rings_after_a_late_end_of_another_reader()


def test_without_a_look_at_the_bell_it_stays_off() -> None:
    bug = Doorbell.see, "self.is_set and rings is self.rings", "self.is_set"
    with in_a_race("a reader believes that the bell is as it has set it", bug).planted():
        assert not rings_after_a_late_end_of_another_reader()


def looks_of_a_quiet_second(scene: Scene) -> int:
    scene.stage.pass_ms(3_000)
    before = scene.items.looks
    scene.stage.pass_ms(1_000)
    return scene.items.looks - before


def test_a_store_that_does_not_notify_is_looked_at_often_and_never_rings() -> None:
    scene = Scene()
    scene.items.notifies = False
    scene.reader()
    assert looks_of_a_quiet_second(scene) == 1 / POLL_S
    assert scene.items.rings is False


def test_a_bell_that_nobody_hears_is_turned_off_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Through a pooler in transaction mode no notification arrives: items waited for a second."""
    scene = Scene()
    scene.items.is_heard = False
    scene.reader()
    assert looks_of_a_quiet_second(scene) == 1 / POLL_S
    assert scene.items.rings is False
    (warning,) = caplog.messages
    assert "connect to the server itself, or set external.pg.notify = false" in warning


def test_a_bell_is_tried_again_after_the_store_was_away() -> None:
    scene = Scene()
    scene.items.is_heard = False
    scene.reader()
    scene.stage.pass_ms(3_000)
    scene.items.is_heard = scene.items.is_away = True
    scene.stage.pass_ms(2_000)
    scene.items.is_away = False
    scene.stage.pass_ms(3_000)
    assert scene.items.rings


def rings_while_many_transactions_enqueue_in_one_queue() -> bool:
    scene = Scene()
    scene.reader()
    scene.stage.pass_ms(3_000)
    assert scene.items.rings
    scene.items.rings_in_100_ms = 30
    scene.stage.pass_ms(2_500)
    return bool(scene.items.rings)


def test_it_is_off_while_many_transactions_enqueue_in_one_queue() -> None:
    """A look finds one queue then. Their commits would go one by one."""
    assert not rings_while_many_transactions_enqueue_in_one_queue()


def test_if_only_queues_count_it_stays_on() -> None:
    bug = Doorbell.note, "max(queues, self._rung)", "queues"
    with in_a_race("a reader counts queues, and no commits", bug).planted():
        assert rings_while_many_transactions_enqueue_in_one_queue()


def test_while_many_items_come_a_store_that_does_not_notify_is_looked_at_as_often_as_others() -> None:
    doorbell = Doorbell(may_ring=False)
    doorbell.note(0, 2_000_000)
    assert doorbell.wait_s == POLL_S
    doorbell.note(BUSY_PER_S, 2_100_000)
    assert doorbell.wait_s == BUSY_LOOK_S
