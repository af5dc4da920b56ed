"""Watching a shard's parts: what a scanner that sleeps hears, and what it must not rely on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from fairlead.actors.scanning.part_watch import LOOK_US, WATCH_US_MAX, PartWatch
from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import PartKeys


class RejectedHandler(Exception):
    """What a future of this engine raises."""


class Future:
    """A watch whose key the test changes, or that it loses."""

    def __init__(self) -> None:
        self._fired = False
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        if self._fired:
            callback(self)
        else:
            self._callbacks.append(callback)

    def wait(self) -> None:
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        self.fire(RejectedHandler())

    def fire(self, error: Exception | None = None) -> None:
        self._fired, self._error = True, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


class Scene:
    """Two parts: the first is the scanner's own, the second is another's, and may wait until 500."""

    def __init__(self) -> None:
        self.parts = [PartKeys(0), PartKeys(1)]
        self.futures: dict[bytes, Future] = {}
        self.woken = 0
        self.now_us = 100
        self.watch = PartWatch(
            threading.Lock(), self.parts, due_us=self._due_us, wake=self._wake, errors=(RejectedHandler,)
        )

    def _due_us(self, part: PartKeys) -> int:
        return self.now_us if part.part == 0 else 500

    def _wake(self) -> None:
        self.woken += 1

    def watch_key(self, key: bytes) -> Future:
        self.futures[key] = Future()
        return self.futures[key]

    def change(self, part: int, error: Exception | None = None) -> None:
        self.futures[self.parts[part].change_counter].fire(error)

    def scan(self, *, due_us: int = 900) -> list[int]:
        """Let the scanner scan what is due, find nothing, and watch; return which parts it has read."""
        number = self.watch.begin()
        parts = self.watch.due(self.now_us)
        self.watch.record_scan(
            number,
            self.now_us,
            {part.part: due_us for part in parts},
            self.watch.watch(cast("Transaction", Watching(self)), parts, self.now_us),
        )
        return [part.part for part in parts]


class Watching:
    """What `watch` needs of a transaction."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def watch(self, key: bytes) -> Future:
        return self._scene.watch_key(key)


def test_a_part_is_scanned_again_when_it_has_changed_and_no_other_is() -> None:
    scene = Scene()
    assert scene.scan() == [0, 1]
    assert scene.scan() == []
    scene.change(0)
    assert (scene.woken, scene.scan()) == (1, [0])


def test_a_part_is_scanned_again_when_something_there_has_vested() -> None:
    scene = Scene()
    scene.scan(due_us=300)
    scene.now_us = 299
    assert (scene.watch.next_due_us, scene.scan()) == (300, [])
    scene.now_us = 300
    assert scene.scan() == [0, 1]


def test_what_is_anothers_may_wait_until_it_may_be_overdue() -> None:
    scene = Scene()
    scene.scan()
    scene.change(1)
    assert (scene.watch.next_due_us, scene.scan()) == (500, [])
    scene.now_us = 500
    assert scene.scan() == [1]


def test_a_part_whose_watch_stands_is_not_watched_anew() -> None:
    scene = Scene()
    scene.scan(due_us=300)
    before = dict(scene.futures)
    scene.now_us = 300
    scene.scan()
    assert scene.futures == before
    assert all(map(scene.watch.is_watched, scene.parts))


def test_a_part_whose_watch_is_lost_is_looked_at_within_a_second_and_watched_anew() -> None:
    """A client may have no more than ten thousand watches. Before, a part without one was looked at after eight."""
    scene = Scene()
    scene.scan(due_us=8 * LOOK_US)
    refused = RejectedHandler()
    scene.change(0, refused)
    assert (scene.woken, scene.watch.next_due_us) == (1, scene.now_us + LOOK_US)
    assert not scene.watch.is_watched(scene.parts[0])
    assert (scene.watch.lost(), scene.watch.lost()) == (refused, None)
    scene.now_us += LOOK_US
    scene.scan()
    assert scene.watch.is_watched(scene.parts[0])


def test_a_watch_that_was_lost_without_a_word_is_replaced_within_a_minute() -> None:
    """Before, its part was looked at every eight seconds from then on, as long as the scanner lived."""
    scene = Scene()
    scene.scan(due_us=WATCH_US_MAX)
    lost = dict(scene.futures)
    scene.now_us += WATCH_US_MAX - 1
    scene.scan(due_us=2 * WATCH_US_MAX)
    assert scene.futures == lost
    scene.now_us = 2 * WATCH_US_MAX
    scene.scan(due_us=3 * WATCH_US_MAX)
    assert not set(scene.futures.values()) & set(lost.values())
    assert (scene.woken, scene.watch.lost()) == (0, None)
    scene.change(0)
    assert (scene.woken, scene.scan()) == (1, [0])


def test_what_happens_to_a_part_while_it_is_scanned_outdates_what_was_found() -> None:
    """Another stretch is its own now, or a manager has moved a pointer: the scan may have read what was before."""
    scene = Scene()
    number = scene.watch.begin()
    scene.watch.invalidate({1})
    scene.watch.record_scan(number, scene.now_us, {0: 900, 1: 900}, [])
    assert scene.scan() == [1]


def test_what_changes_before_the_scan_has_taken_its_watch_over_is_scanned_again() -> None:
    scene = Scene()
    number = scene.watch.begin()
    watches = scene.watch.watch(cast("Transaction", Watching(scene)), scene.parts, scene.now_us)
    scene.change(0)
    scene.watch.record_scan(number, scene.now_us, {0: 900, 1: 900}, watches)
    assert scene.woken == 1
    assert scene.scan() == [0]


def test_a_shard_that_cannot_be_scanned_is_put_off_until_it_changes() -> None:
    scene = Scene()
    scene.watch.put_off(400)
    assert (scene.watch.next_due_us, scene.scan()) == (400, [])
    scene.watch.invalidate()
    assert scene.scan() == [0, 1]


def test_a_scan_that_is_made_anyway_looks_at_parts_whose_watch_may_be_lost() -> None:
    scene = Scene()
    scene.scan(due_us=10 * LOOK_US)
    scene.now_us += LOOK_US
    assert scene.scan() == []
    scene.change(0)
    assert scene.scan() == [0, 1]


def test_once_the_clock_has_been_set_back_every_part_is_scanned_again() -> None:
    """What is due was reckoned by the clock that was ahead."""
    scene = Scene()
    scene.now_us = 3_600_000_000
    scene.scan(due_us=3_600_000_900)
    scene.now_us = 100
    assert (scene.watch.is_due(scene.now_us), scene.scan()) == (True, [0, 1])
