"""A clock steps by an hour, forward and back, while work runs: fleets in threads, in real time, on a real store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fairlead import App, Config, Job, TenantTransaction
from fairlead.clock import SystemClock
from fairlead.fleet import Fleet, start
from tests.acceptance.fleets import config, eventually
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left, effects
from tests.acceptance.shop import payload

HOUR_US = 3_600_000_000
LEASE_MS = 600
GOES_ON_S = 10.0  # A clock is judged once a second, and watched for three before it may set the shard's time.


class SteppedClock(SystemClock):
    """The machine's clock, which may be set wrong."""

    ahead_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us


class Machine:
    """An application on a clock of its own, and what ran here."""

    def __init__(self, chosen: Config) -> None:
        self.clock = SteppedClock()
        self.app = App(config=chosen, clock=self.clock)
        self.ran: Counter[int] = Counter()
        self.added = 0
        self.app.handler("transactional", transactional=True)(self._add)
        self.app.handler("long")(self._run_long)

    def _add(self, job: Job, tr: TenantTransaction) -> None:
        tr.add(("done", job.payload["number"]), 1)
        self.added += 1

    def _run_long(self, job: Job) -> None:
        self.ran[job.payload["number"]] += 1
        time.sleep(2 * LEASE_MS / 1_000)


@contextmanager
def running(machine: Machine) -> Iterator[Fleet]:
    fleet = start(machine.app, "", runtime="threads")
    try:
        yield fleet
    finally:
        fleet.stop(drain=1)
        machine.app.close()


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path, lease_ms=LEASE_MS)


def has_said(caplog: pytest.LogCaptureFixture, what: str, times: int) -> bool:
    return sum(what in message for message in caplog.messages) == times


def is_done(app: App, number: int) -> bool:
    return effects(app)[0][number] > 0


def test_work_goes_on_and_happens_once_when_the_clock_steps(chosen: Config, caplog: pytest.LogCaptureFixture) -> None:
    """What was enqueued by a clock that is then set back vests by that clock: it waits until the hour has passed."""
    machine = Machine(chosen)
    app = machine.app
    asked: dict[int, str] = {}
    with running(machine):
        with Load(app, per_s=100, kinds=("transactional",)) as load:
            eventually(lambda: len(load.enqueued) >= 100)
            for number, ahead_us in enumerate((HOUR_US, 0, HOUR_US)):
                machine.clock.ahead_us = ahead_us
                asked[-1 - number] = "transactional"
                app.tenant("shop", "user 0").enqueue("transactional", payload(-1 - number))
                eventually(partial(is_done, app, -1 - number), within_s=GOES_ON_S)
                eventually(partial(has_said, caplog, "this machine's clock has stepped", number + 1))
        assert_all_done(app, {**load.enqueued, **asked})
        assert_nothing_left(app)


def test_a_backlog_that_a_clock_met_which_was_ahead_for_a_second_is_done_without_new_enqueues(chosen: Config) -> None:
    """Before, its queues were asleep until the time that the clock had shown."""
    machine = Machine(chosen)
    app = machine.app
    slow = {"takes_ms": 20}
    machine.app.handler("slow")(lambda job: (time.sleep(0.02), machine.ran.update([job.payload["number"]]))[-1])
    numbers = range(800)
    for number in numbers:
        app.tenant("shop", f"user {number % 20}").enqueue("slow", {**payload(number), **slow})
    with running(machine):
        eventually(lambda: len(machine.ran) >= 20)
        machine.clock.ahead_us = HOUR_US
        time.sleep(1.0)  # What is tested is a clock that is wrong for so long.
        machine.clock.ahead_us = 0
        eventually(lambda: set(machine.ran) == set(numbers), within_s=2 * GOES_ON_S + 20)
        assert_nothing_left(app)


@pytest.mark.parametrize("ahead_us", [HOUR_US, pytest.param(-HOUR_US, marks=pytest.mark.long)])
def test_a_machine_whose_clock_is_wrong_says_so_and_takes_no_lease_that_another_holds(
    chosen: Config, caplog: pytest.LogCaptureFixture, ahead_us: int
) -> None:
    right, wrong = Machine(chosen), Machine(chosen)
    app = right.app
    with running(right), running(wrong):
        with Load(app, per_s=100, kinds=("transactional",)) as load:
            eventually(lambda: len(load.enqueued) >= 100)
            wrong.clock.ahead_us = ahead_us
            eventually(partial(has_said, caplog, "no leases are taken there until it is set right", 1))
            numbers = range(10)
            for number in numbers:
                app.tenant("shop", f"user {number}").enqueue("long", payload(number))
            eventually(lambda: set(right.ran) == set(numbers))
            time.sleep(2 * LEASE_MS / 1_000)
            assert dict(wrong.ran) == {}  # Beside other load the right one may run an item again: it stood still.
            wrong.clock.ahead_us = 0
            before = wrong.added
            eventually(lambda: wrong.added > before, within_s=GOES_ON_S)
        # What it held when its clock was set is tried again by that time.
        right.clock.ahead_us = wrong.clock.ahead_us = max(0, ahead_us)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)
