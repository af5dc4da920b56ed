"""One tenant floods the queue, and fifty others add one item each per second: their waits and their shares of slots.

    python -m bench.fairness [--json] [--quick] [--store fdb:CLUSTER_FILE]

See `bench.quiet_tenants` for the load. It runs on the embedded engine or FoundationDB, on both runtimes.
"""

from pathlib import Path
from typing import Any

from bench import harness, quiet_tenants, ray_cluster
from bench.fleets import running
from bench.report import plain, say, show
from bench.stores import Stores, options_with_store, prepared_stores

FULL_S = 30.0
QUICK_S = 8.0
WARM_S = 2.0


def measure(stores: Stores, seconds: float) -> dict[str, Any]:
    """Return the shares, by runtime."""
    machine = stores.describe()
    with ray_cluster.cluster() as address:
        shares = {runtime: _shares(stores.new(runtime), seconds, runtime, address) for runtime in ("threads", "ray")}
    return {**shares, "machine": machine}


def _shares(store: Path, seconds: float, runtime: str, address: str) -> dict[str, Any]:
    say(f"a flood beside {quiet_tenants.QUIET_TENANTS} quiet tenants, {runtime}")
    config = harness.config_of(store, **quiet_tenants.SETTINGS)
    with running(config, runtime=runtime, address=address if runtime == "ray" else None) as fleet:
        shares = quiet_tenants.flood(store, seconds, warm_s=WARM_S)
        counts = fleet.counts()
    shown = ("scans", "pointers", "items", "missed_at_read", "missed_at_commit", "completed", "lost")
    return {**plain(shares), "counts": {name: counts.get(name, 0) for name in shown}}


def main() -> None:
    """Measure and print."""
    opts, cluster_file = options_with_store(__doc__)
    with prepared_stores(cluster_file) as stores:
        result = measure(stores, QUICK_S if opts.quick else FULL_S)
    show(result, opts, f"One heavy tenant, {quiet_tenants.QUIET_TENANTS} quiet ones, {quiet_tenants.SLOTS} slots")


if __name__ == "__main__":
    main()
