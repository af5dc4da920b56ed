"""How much each measurement does: in full, and quickly."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of `bench.core`. The shapes are the same in every size: 2.5 items a tenant, 100 a second, 50 light tenants."""

    repetitions: int
    one_items: int
    four_items: int  # per process
    bulk_items: int
    latency_s: float
    latency_runs: int
    light_s: float


FULL = Sizes(
    repetitions=5, one_items=4_000, four_items=1_500, bulk_items=50_000, latency_s=10, latency_runs=3, light_s=30
)
QUICK = Sizes(repetitions=1, one_items=1_000, four_items=300, bulk_items=10_000, latency_s=3, latency_runs=1, light_s=4)
