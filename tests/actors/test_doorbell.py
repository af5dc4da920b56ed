"""When the doorbell of an external store rings: while a reader waits for it, and only then."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.actors.external_reader import ExternalReader
from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.zones.engines import StoreUnavailable
from tests.actors.stage import Stage
from tests.simulation.mutations.mutation import in_a_race


class BelledItems(ItemsAtOnce):
    """A store with a doorbell. `rings`: None: it was never set."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        super().__init__(now_us)
        self.rings: bool | None = None
        self.is_away = False

    def set_doorbell(self, rings: bool) -> None:
        if self.is_away:
            raise StoreUnavailable("no server answers", remedy="Start it.")
        self.rings = rings

    def await_doorbell(self, timeout_s: float) -> bool:
        self.stage.sleep_ms(timeout_s * 1_000)
        return False

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
