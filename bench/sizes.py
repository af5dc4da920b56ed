"""The sizes of each measurement: full and quick."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of `bench.core`. Each size has 2.5 items a tenant, 100 items a second, and 50 quiet tenants.

    `warm_s`: the time before each measurement of latency, which is not measured.
    """

    repetitions: int
    one_s: float  # Fairlead and the floor together.
    four_s: float
    bulk_items: int
    warm_s: float
    latency_s: float
    latency_runs: int
    quiet_s: float


FULL = Sizes(repetitions=5, one_s=8, four_s=4, bulk_items=50_000, warm_s=2, latency_s=10, latency_runs=3, quiet_s=30)
QUICK = Sizes(repetitions=1, one_s=2, four_s=1, bulk_items=5_000, warm_s=1, latency_s=2, latency_runs=1, quiet_s=3)
