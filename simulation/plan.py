"""The plan of a run, drawn from its seed: sizes, settings, latencies, clocks, and faults.

Every run draws other extremes (swarm testing, FoundationDB section 3). A fault in every run would hide bugs that need
its absence. Code could depend on a setting that never changes.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from fairlead.actors.settings import SELECTIONS, ConsumerSettings
from fairlead.simulation.faults.names import FAULT_NAMES, HARMLESS_TO_LEASES, WRONG_CLOCK_US
from fairlead.simulation.store import Latencies
from fairlead.zones.settings import ZoneSettings

# Faults that a seed draws after all others, in this order, with their probability. So the other draws do not change.
DRAWN_LAST = {"weights by policy": 1 / 2, "exiting handlers": 1 / 2, "dying loops": 1 / 8, "stalled loops": 1 / 8}
# Faults that a seed draws after the choice of payments.
DRAWN_AT_THE_END = {
    "wrong clocks": 1 / 4, "killing handlers": 1 / 8, "lost watches": 1 / 4, "refused watches": 1 / 4
}  # fmt: skip

MOVES_FRAC = 1 / 3  # How often tenants move, in worlds of several shards.
SNAPSHOTS_FRAC = 1 / 3  # How often there are snapshots of tenants.
# A stray entry of an empty zone moves with its tenant. No pointer leads to it there, so nobody clears it.
UNFIT_FOR_MOVES = frozenset({"stray entries"})


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run: counts, and times in microseconds of the true time."""

    part_count: int
    zones: ZoneSettings
    consumer: ConsumerSettings
    latencies: Latencies
    call_us: int
    skew_us_max: int
    yield_frac: float  # how often a task yields before it takes a lock
    has_commit_sequence: bool  # whether shards answer `commit_sequence`
    faults: tuple[str, ...]
    has_listener: bool = False  # whether they also wake listeners after commits
    consumers: int = 3
    shards: int = 2
    producers: int = 2
    tenants: int = 20
    items: int = 200
    pays: bool = False  # whether there is a process whose requests only write
    moves: bool = False  # whether an operator moves tenants between the shards
    snapshots: bool = False  # whether clients take snapshots of tenants
    trouble_us: int = 4_000_000  # how long the fault phase lasts, in which items are enqueued
    drain_us_max: int = 120_000_000  # how long the work may take afterwards

    @property
    def clocks_agree(self) -> bool:
        """Whether every clock of this run is good enough to take leases."""
        heartbeat_us_max = 2_000_000  # The age of a shard's time, without faults.
        return 2 * self.skew_us_max + heartbeat_us_max <= self.zones.max_skew_ms * 1000

    @property
    def ahead_us_max(self) -> int:
        """The most by which the clock of a machine may be ahead of the true time."""
        return self.skew_us_max + ("wrong clocks" in self.faults) * WRONG_CLOCK_US

    @property
    def is_calm(self) -> bool:
        """Whether all consumers work from the start, and no fault stops or delays them."""
        return self.clocks_agree and set(self.faults) <= HARMLESS_TO_LEASES - {"restarts"}

    @property
    def leases_may_run_out(self) -> bool:
        """Whether a fault of this run, or the skew of its clocks, explains that a lease expires."""
        short = self.consumer.lease_ms < 10_000
        tried_for_long = "unknown results" in self.faults and short  # This fault may hit all attempts of an extension.
        return tried_for_long or not set(self.faults) <= HARMLESS_TO_LEASES or not self.clocks_fit_leases

    @property
    def clocks_fit_leases(self) -> bool:
        """Whether an extension in time by one clock of this run is in time by all its clocks."""
        return 2 * self.skew_us_max <= self.consumer.lease_ms * 1000 // 3


def draw_plan(random: Random, **chosen: Any) -> Plan:
    """Return a plan drawn by `random`; `chosen` fields are as given."""
    latency_factor = random.choice([0.2, 1.0, 1.0, 5.0])
    has_commit_sequence = random.random() < 0.5
    drawn = Plan(
        part_count=random.choice([1, 2, 4]),
        zones=_draw_zones(random),
        consumer=_draw_consumer(random, has_commit_sequence=has_commit_sequence),
        latencies=Latencies(*(int(mean_us * latency_factor) for mean_us in Latencies())),
        call_us=random.choice([100, 1_000, 5_000]),
        skew_us_max=random.choice([0, 5_000, 200_000, 2_000_000]),
        yield_frac=random.choice([0.0, 0.0, 0.02, 0.3]),
        has_commit_sequence=has_commit_sequence,
        faults=_draw_faults(random),
    )
    # Drawn last, so that the other draws of a seed do not change.
    selecting = replace(drawn.consumer, selection=random.choice(SELECTIONS))
    has_listener = has_commit_sequence and random.random() < 0.5
    faults = (*drawn.faults, *(name for name, frac in DRAWN_LAST.items() if random.random() < frac))
    pays = random.random() < 1 / 4
    faults = (*faults, *(name for name, frac in DRAWN_AT_THE_END.items() if random.random() < frac))
    moves = random.random() < MOVES_FRAC and chosen.get("shards", drawn.shards) > 1
    snapshots = random.random() < SNAPSHOTS_FRAC
    if moves:
        faults = tuple(name for name in faults if name not in UNFIT_FOR_MOVES)
    if set(drawn.faults) <= HARMLESS_TO_LEASES:  # These runs show the promises that need runs without failures.
        faults = tuple(name for name in faults if name in HARMLESS_TO_LEASES)
    return replace(
        drawn,
        **{
            "consumer": selecting,
            "has_listener": has_listener,
            "faults": faults,
            "pays": pays,
            "moves": moves,
            "snapshots": snapshots,
            **chosen,
        },
    )


def _draw_faults(random: Random) -> tuple[str, ...]:
    """Draw a few faults, half of them, or nearly all; in a quarter of the runs none that could cost a lease.

    Half of these have fleet-wide limits and no restarts: only then are the limits never exceeded.
    """
    frac = random.choice([0.15, 0.5, 0.8])
    late = {*DRAWN_LAST, *DRAWN_AT_THE_END}
    drawn = [name for name in FAULT_NAMES if name not in late and random.random() < frac]
    if random.random() < 1 / 4:
        drawn = [name for name in drawn if name in HARMLESS_TO_LEASES]
        if random.random() < 1 / 2:
            drawn = [*(name for name in drawn if name not in ("restarts", "limits by policy")), "limits by policy"]
    return tuple(drawn)


def _draw_zones(random: Random) -> ZoneSettings:
    return ZoneSettings(
        wake_slack_ms=random.choice([1, 20, 200]),
        min_inactive_ms=random.choice([0, 300, 2_000]),
        max_sleep_ms=random.choice([200, 5_000, 300_000]),
        max_pointer_lease_ms=random.choice([1_000, 10_000]),
        max_item_lease_ms=random.choice([10_000, 600_000]),
        max_skew_ms=random.choice([3_000, 5_000]),
        expiries_before_isolation=random.choice([1, 3, 3]),
    )


def _draw_consumer(random: Random, *, has_commit_sequence: bool) -> ConsumerSettings:
    """Draw settings. Without a commit sequence every poll is a scan, and frequent polls only make runs slow."""
    workers = random.choice([1, 2, 3])
    return ConsumerSettings(
        managers=random.randint(1, workers),
        workers=workers,
        slots=random.choice([1, 4, 16]),
        peek_max=random.choice([2, 20_000]),
        selection_frac=random.choice([0.02, 0.5, 1.0]),
        selection_max=random.choice([1, 2_000]),
        processing_bound=random.choice([1, 10_000]),
        batch_pointers=random.choice([1, 4, 64]),
        dequeue_max=random.choice([1, 16]),
        lease_ms=random.choice([500, 2_000, 10_000]),
        pointer_lease_ms=random.choice([10, 1_000]),
        throttle_delay_ms=random.choice([10, 100]),
        pause_recheck_ms=random.choice([100, 5_000]),
        poll_interval_ms=random.choice([20, 100, 500] if has_commit_sequence else [100, 500]),
        linger_ms=random.choice([0, 2, 50]),
        in_order_lease_ms=random.choice([200, 3_000]),
    )
