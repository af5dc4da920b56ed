"""Coroutines in virtual time: each simulated process has its own event loop, all in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlead.simulation.event_loop import EventLoop
from fairlead.zones.layout import Tenant
from tests.simulation.stage import SECOND, Stage

ALICE = Tenant("shop", "alice")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def run_on(loop: EventLoop, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run a coroutine as a worker's slot does."""
    loop.run_to_end(function(), on_cancel=lambda cancel: None)


def loop_of(stage: Stage, host: Any) -> EventLoop:
    loop = EventLoop(host)
    host.spawn("event loop", loop.live)
    return loop


def test_a_coroutine_that_sleeps_an_hour_takes_an_hour_of_virtual_time_only(stage: Stage) -> None:
    woken_us = []

    async def sleep() -> None:
        await asyncio.sleep(3600)
        woken_us.append(stage.now_us)

    begun_us = stage.now_us
    stage.play(lambda: run_on(loop_of(stage, stage.host), sleep), within_us=3700 * SECOND)
    assert woken_us == [begun_us + 3600 * SECOND]
    stage.host.kill()


def test_a_loop_whose_actor_is_killed_before_its_first_turn_is_closed(stage: Stage) -> None:
    """Otherwise the garbage collector would find the open loop during another test, which would print a warning."""
    loop = loop_of(stage, stage.host)
    stage.host.kill()
    assert loop.is_closed()


def test_coroutines_of_one_process_share_its_loop(stage: Stage) -> None:
    order = []
    loop = loop_of(stage, stage.host)
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()
        order.append("waited")

    async def open_it() -> None:
        await asyncio.sleep(1)
        order.append("opens")
        gate.set()

    stage.host.spawn("slot", lambda: run_on(loop, wait))
    stage.play(lambda: run_on(loop, open_it))
    stage.pass_us(SECOND)
    assert order == ["opens", "waited"]
    stage.host.kill()


def test_a_coroutine_that_waits_for_the_store_does_not_change_the_running_loop_of_others(stage: Stage) -> None:
    """Asyncio has one running loop per thread. A task that waits inside a loop must not pass the loop on to others."""
    other = stage.add_host("b#1")
    loops = [loop_of(stage, stage.host), loop_of(stage, other)]
    seen: list[tuple[int, bool]] = []

    async def work(number: int) -> None:
        for _ in range(20):
            stage.shard.transact(lambda attempt: attempt.tr.get(b"k").value)
            seen.append((number, asyncio.get_running_loop() is loops[number]))
            await asyncio.sleep(0.0001)

    other.spawn("slot", lambda: run_on(loops[1], lambda: work(1)))
    stage.play(lambda: run_on(loops[0], lambda: work(0)))
    stage.pass_us(SECOND)
    assert sorted(set(seen)) == [(0, True), (1, True)]
    assert len(seen) == 40
    stage.host.kill()
    other.kill()


def test_an_error_of_a_coroutine_is_raised_in_the_slot(stage: Stage) -> None:
    async def fail() -> None:
        raise KeyError("order")

    def slot() -> str:
        with pytest.raises(KeyError, match="order"):
            run_on(loop_of(stage, stage.host), fail)
        return "goes on"

    assert stage.play(slot) == "goes on"
    stage.host.kill()


@pytest.mark.parametrize("wait", ["await", "store"])
def test_the_coroutines_of_a_killed_process_end_with_it(stage: Stage, wait: str) -> None:
    """No part of them runs after the kill, even when the garbage collector finds their frames."""
    happened = []

    async def child() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            happened.append("child ends")

    async def work() -> None:
        asyncio.get_running_loop().create_task(child())
        await asyncio.sleep(1)
        happened.append("begins")
        if wait == "await":
            await asyncio.sleep(5)
        else:
            stage.host.clock.sleep_us(5 * SECOND)
        happened.append("goes on")

    loop = loop_of(stage, stage.host)
    stage.host.spawn("slot", lambda: run_on(loop, work))
    stage.host.spawn("slot", lambda: run_on(loop, lambda: asyncio.sleep(60)))
    stage.pass_us(3 * SECOND)
    assert happened == ["begins"]
    stage.host.kill()
    assert happened == ["begins", "child ends"]
    assert loop.is_closed()
    stage.pass_us(60 * SECOND)
    assert happened == ["begins", "child ends"]
