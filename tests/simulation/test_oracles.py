"""Oracles that the standard campaign seldom needs: each finds its bug in a chosen plan."""

from typing import Any

from fairlead.actors.execution import acknowledgement, deadlines
from fairlead.actors.scanning.manager_calls import ManagerCalls
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.worker import Worker
from fairlead.simulation.oracles.call_rates import NobodyCallsInABusyLoop
from fairlead.simulation.oracles.item_lifecycle import NoLeaseExpiresWithoutCause
from fairlead.simulation.oracles.leases import LeasesAreRespected
from fairlead.simulation.oracles.work_conservation import NothingWaitsBesideFreeSlots
from fairlead.simulation.run import DRAINS, run
from fairlead.simulation.store import Latencies
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level import pointers
from tests.simulation.mutations.mutation import mutation

SEEDS = range(17, 42)  # With the first, most bugs are found at once.
LATE_STARTS = range(29, 42)  # Likewise.
# A fleet that is idle most of the time, and finds work by watches only.
IDLE: dict[str, Any] = {
    "faults": (), "items": 12, "producers": 1, "tenants": 4, "trouble_us": 40_000_000, "has_commit_sequence": False,
    "has_listener": False, "pays": False, "moves": False, "snapshots": False, "skew_us_max": 0, "call_us": 100,
    "latencies": Latencies(),
    "zones": ZoneSettings(wake_slack_ms=20),
    "consumer": ConsumerSettings(selection="random", poll_interval_ms=100, pause_recheck_ms=100, pointer_lease_ms=100),
}  # fmt: skip

RETURNS_BY_A_WRONG_CLOCK = range(54, 130)  # A few in a hundred find it; the first of these does.
WRONG_CLOCKS: dict[str, Any] = {
    "faults": ("wrong clocks", "kills"), "items": 120, "skew_us_max": 0, "call_us": 100, "moves": False,
    "snapshots": False,
    "latencies": Latencies(read_version_us=20_000, read_us=5_000, commit_us=100_000),
    "zones": ZoneSettings(max_item_lease_ms=10_000),
    "consumer": ConsumerSettings(workers=1, managers=1, slots=4, poll_interval_ms=100),
}  # fmt: skip


def test_a_scanner_that_calls_a_dead_manager_again_at_once_is_found() -> None:
    bug = mutation(
        "a scanner calls a manager again at once after the manager has died",
        (ManagerCalls._died_lately, "return 0 <= ", "return False and 0 <= "),
        found_by=[NobodyCallsInABusyLoop.promise],
    )
    assert bug.first_catch(SEEDS, faults=("kills", "node kills"), call_us=100)


def test_an_item_that_starts_although_its_lease_expired_while_it_waited_is_found() -> None:
    bug = mutation(
        "a worker starts an item whose lease ended while it waited",
        (deadlines.lease_at_start, "if now_us >= held.lease_until_us:", "if False:"),
        (
            Worker._has_lease_for_start,
            "if (refused or now_us >= held.lease_until_us) and not held.job.cancelled:",
            "if refused and not held.job.cancelled:",
        ),
        found_by=[LeasesAreRespected.promise],
    )
    consumer = ConsumerSettings(lease_ms=500, slots=1, poll_interval_ms=100)
    assert bug.first_catch(
        LATE_STARTS, faults=("pauses", "node pauses"), moves=False, snapshots=False, consumer=consumer
    )


def test_items_that_a_draining_worker_accepted_and_dropped_are_found() -> None:
    bug = mutation(
        "a draining worker drops items that reach it",
        (Worker.place, "self._loops_of(name).lease_keeper.return_items(some)", "pass"),
        found_by=[NoLeaseExpiresWithoutCause.promise],
    )
    consumer = ConsumerSettings(lease_ms=2_000, poll_interval_ms=100, slots=4, managers=2, linger_ms=50)
    slow = Latencies(read_version_us=5_000, read_us=1_750, commit_us=10_000)
    assert bug.first_catch(SEEDS, faults=("restarts",), skew_us_max=0, call_us=100, latencies=slow, consumer=consumer)


def test_an_item_that_waits_because_no_scanner_is_woken_is_found() -> None:
    assert not run(0, **IDLE).violations
    bug = mutation(
        "a transaction that creates or wakes a pointer wakes no scanner",
        (pointers.wake_scanners, "if not location.layout.is_watched:", "if True:"),
        found_by=[NothingWaitsBesideFreeSlots.promise],
    )
    assert bug.first_catch(SEEDS, **IDLE)


def test_an_item_that_a_clock_ahead_returns_to_its_own_time_is_found() -> None:
    """A machine's only worker is killed while a dequeue of its manager, whose clock is an hour ahead, takes long."""
    assert not run(RETURNS_BY_A_WRONG_CLOCK[0], **WRONG_CLOCKS).violations
    bug = mutation(
        "an item that is returned vests at the time of the clock that returns it",
        (acknowledgement.return_items, "min(0, ref.vested_us - now_us) if ref.vested_us else 0", "0"),
        found_by=[DRAINS],
    )
    assert bug.first_catch(RETURNS_BY_A_WRONG_CLOCK, **WRONG_CLOCKS)
