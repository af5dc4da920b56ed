"""A scanner whose engine has watches only: a watch wakes it at once, and it finds vested pointers without a watch, too.

Without a watch its next scan would come `WATCHED_RESCAN_US` later.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.messages import ServeReply
from fairlead.actors.scanner import Scanner
from fairlead.actors.scanning.idle_policy import HELD_RESCAN_US, SLEEP_US_MIN, WATCHED_RESCAN_US
from fairlead.actors.settings import ConsumerSettings
from fairlead.simulation.database import LatentTransaction, LateWatch
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import PointerRecord, decode
from fairlead.zones.top_level.pointers import move
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import ALONE, Played
from tests.simulation.stage import ALICE, SECOND, Stage

MS = 1_000
PARTS = 16


class Watching:
    """A scanner of the only consumer, and the manager that it calls."""

    def __init__(self) -> None:
        self.stage = stage = Stage(part_count=PARTS)
        host = stage.add_host("b#1")
        shard = stage.play(lambda: stage.open(host), host=host)
        assert shard.layout.is_watched
        self.manager = Played(host)
        self.scanner = Scanner(
            host, {"s0": shard}, ConsumerSettings(managers=1), [self.manager], Played(host), consumer="me"
        )
        host.spawn("session", lambda: self.scanner.set_session("s0", ALONE))
        host.spawn("scanner", self.scanner.run)
        stage.pass_us(50 * MS)

    def enqueue(self, *, delay: float = 0) -> None:
        def body(attempt: Attempt) -> None:
            named = [(attempt.new_id(), new_item("mail", None, delay=delay))]
            run_one(self.stage.shard.zone(ALICE).enqueue_op(attempt.tr, named, now_us=attempt.now_us))

        self.stage.play(lambda: self.stage.shard.transact(body))

    def requeue_pointer(self, delay_us: int) -> None:
        """Requeue the pointer as a manager does, which wakes no scanner."""

        def body(attempt: Attempt) -> None:
            location = self.stage.shard.zone(ALICE).location
            pointer = decode(PointerRecord, attempt.tr.get(location.keys.pointer).value or b"")
            assert pointer is not None
            move(attempt.tr, location, pointer, attempt.now_us + delay_us, now_us=attempt.now_us)

        self.stage.play(lambda: self.stage.shard.transact(body))

    def found_after_us(self) -> int:
        """Let the world go on until pointers are handed over. Return how long that took."""
        begun_us = self.stage.now_us
        while not self.manager.named("serve"):
            assert self.stage.now_us - begun_us < 2 * WATCHED_RESCAN_US, "nothing was found"
            self.stage.pass_us(MS)
        return self.stage.now_us - begun_us

    def answer(self) -> None:
        for call in self.manager.taken():
            call.answer(ServeReply(1, 0, 0, 0, 100) if call.method == "serve" else 100)


@pytest.fixture
def watching() -> Watching:
    watching = Watching()
    watching.answer()
    watching.stage.pass_us(SECOND)
    return watching


def test_the_first_item_of_a_queue_is_found_at_once(watching: Watching) -> None:
    watching.enqueue()
    assert watching.found_after_us() < 50 * MS


def test_an_item_that_comes_while_the_scanner_computes_its_sleep_is_found_at_once(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a watch between the computation and the sleep was lost, and the item waited for eight seconds."""
    poll_us, clock = Scanner._poll_us, watching.scanner._host.clock
    slept_us: list[int] = []

    def slowly(scanner: Scanner) -> int:
        slept_us.append(poll_us(scanner))
        clock.sleep_us(200 * MS)
        return slept_us[-1]

    watching.enqueue()
    watching.found_after_us()
    watching.requeue_pointer(60 * SECOND)
    monkeypatch.setattr(Scanner, "_poll_us", slowly)
    watching.answer()
    while not slept_us or slept_us[-1] < SECOND:
        watching.stage.pass_us(10 * MS)
    watching.enqueue()
    assert watching.found_after_us() < SECOND


def test_an_item_that_wakes_a_pointer_is_found_at_once(watching: Watching) -> None:
    watching.enqueue(delay=60)
    watching.stage.pass_us(SECOND)
    watching.enqueue()
    assert watching.found_after_us() < 50 * MS


def test_a_pointer_that_a_manager_requeues_for_a_moment_is_found_when_it_vests(watching: Watching) -> None:
    """A requeue by a manager wakes no scanner; only the answer to its own scanner shows the new vesting time."""
    watching.enqueue()
    watching.found_after_us()
    watching.stage.pass_us(HELD_RESCAN_US // 10)
    watching.requeue_pointer(HELD_RESCAN_US // 10)
    watching.answer()
    assert watching.found_after_us() < HELD_RESCAN_US // 2


def test_a_pointer_that_vests_while_another_shard_is_read_is_read_next(watching: Watching) -> None:
    """All parts are watched then, and no watch would tell the scanner that a pointer has vested."""
    scanner, watch = watching.scanner, watching.scanner._shards["s0"].watch
    assert watch is not None
    watch.put_off(watching.stage.now_us - 1)
    watch.record_scan(watch.begin(), 0, {0: watching.stage.now_us - 1}, [])
    assert scanner._poll_us() == SLEEP_US_MIN
    watch.put_off(watching.stage.now_us + 60 * SECOND)
    assert scanner._poll_us() == WATCHED_RESCAN_US


def test_an_item_costs_the_reads_of_its_own_part(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a scan after a watch read all parts, and watched all of them anew: a hundred calls for each item."""
    calls = 0

    def counted(method: Any) -> Any:
        def call(*args: Any, **how: Any) -> Any:
            nonlocal calls
            calls += 1
            return method(*args, **how)

        return call

    watching.enqueue()
    for name in ("late_range", "watch"):
        monkeypatch.setattr(LatentTransaction, name, counted(getattr(LatentTransaction, name)))
    watching.found_after_us()
    watching.requeue_pointer(60 * SECOND)
    watching.answer()
    watching.stage.pass_us(SECOND)
    assert calls <= 2 * PARTS


def test_a_watch_of_a_dead_process_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch may stay in a cycle until the collector finds it, so its draws would depend on the collector."""
    stage = Stage()
    host = stage.add_host("b#1")
    drawn: list[str] = []
    monkeypatch.setattr(stage.store, "wakeup_us", lambda: drawn.append("latency") or 1)

    def arm() -> LateWatch:
        tr = stage.database.create_transaction()
        watch = tr.watch(b"key")
        watch.on_ready(print)
        tr.commit().wait()
        return watch

    def write() -> None:
        tr = stage.database.create_transaction()
        tr.set(b"key", b"new")
        tr.commit().wait()

    kept = stage.play(arm, host=host)
    host.kill()
    stage.play(write)
    assert (kept.is_ready(), drawn) == (True, [])
