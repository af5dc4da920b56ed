"""What every test runs under: repeated examples; FoundationDB where a cluster is named; long forms on demand.

`make test` spreads the tests over several processes, group by group. See `ByGroup`.
"""

import os
import signal
import sys
from collections.abc import Iterator
from random import SystemRandom
from typing import Any

import fdb.six
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.postgresql_server import TestedPostgres, missing, started

# fdb's copy of six puts an importer there that serves nobody and knows no specs, and pytest asks all of them for specs.
# So some folders could not be collected after one that imports fdb.
sys.meta_path.remove(next(each for each in sys.meta_path if type(each).__module__ == fdb.six.__name__))

# The same examples on every run: a test that fails once fails again. A slow machine is not a failure.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

SEEDS = "SIMULATED_SEEDS"  # The environment's name for the seeds to simulate, such as "17,4711", instead of fresh ones.
FRESH = 3  # Ten to forty seconds of a processor each.


def pytest_configure(config: pytest.Config) -> None:
    """Listen to Ctrl-C: a shell that starts tests in the background makes them, and all that they start, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Drawn once: all processes of a run must agree on the tests that there are.
    os.environ.setdefault(SEEDS, ",".join(map(str, SystemRandom().sample(range(10**6), FRESH))))


# Groups of several files. The tests of `tests/style` share the parsed sources, and those of `tests/acceptance` share a
# Ray cluster. `tests/acceptance` is three groups: what starts fleets of its own, what kills and stops processes under
# load, and the rest.
FOLDERS = ("tests/acceptance", "tests/style")
FLEETS = ("claims", "clock_steps", "nodes", "outage", "stopping", "tokens", "wheel")
FAULTS = ("kills", "pauses", "postgresql", "soak")
GROUPS = {
    **{f"tests/acceptance/test_{name}.py": "tests/acceptance, fleets" for name in FLEETS},
    **{f"tests/acceptance/test_{name}.py": "tests/acceptance, faults" for name in FAULTS},
}

# The groups that take longest, in the order in which they start. Groups of `tests/acceptance` mostly wait, and those of
# simulations compute. So the third group of `tests/acceptance` starts when two groups of simulations have started.
START_FIRST = (
    "tests/acceptance, fleets",
    "tests/acceptance, faults",
    "tests/simulation/test_seeds.py",
    "tests/simulation/test_faults.py",
    "tests/acceptance",
    "tests/fairlead/test_simulated_app.py",
    "tests/simulation/test_mutations.py",
    "tests/documents/test_pages.py",
    "tests/simulation/test_determinism.py",
    "tests/contract/test_embedded_interruptions.py",
    "tests/fairlead/test_simulate.py",
    "tests/fairlead/test_run.py",
    "tests/fairlead/dashboard/test_fuzzed_requests.py",
    "tests/simulation/test_shrink.py",
    "tests/style",
)


def group_of(nodeid: str) -> str:
    """Return the group of a test: its file, except in `FOLDERS`."""
    file = nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    return GROUPS.get(file, folder if folder in FOLDERS else file)


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process that is free the next group: first those of `START_FIRST`, then those with the most tests.

    A long group that starts late would run alone in the end, while the other processes have nothing to do.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        first = next((group for group in START_FIRST if group in self.workqueue), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    """Return the scheduler; called where there are several processes."""
    return ByGroup(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the fresh seeds, so that a run can be repeated whatever became of it, and what tests have noted."""
    terminalreporter.write_line(f"simulated fresh seeds: {SEEDS}={os.environ[SEEDS]}")
    for report in terminalreporter.stats.get("passed", []):
        for name, note in report.user_properties:
            terminalreporter.write_line(f"{name}: {note}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a FoundationDB cluster unless one is named, and the long forms unless their mark is chosen."""
    if not os.environ.get("FDB_CLUSTER_FILE"):
        _skip(items, "foundationdb", "set FDB_CLUSTER_FILE to run this on a FoundationDB cluster")
    if "long" not in config.option.markexpr:
        _skip(items, "long", "takes minutes: make test-all")


def _skip(items: list[pytest.Item], mark: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(mark):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[TestedPostgres]:
    """A running PostgreSQL for all tests of a process, started by the first that wants it."""
    if reason := missing():
        pytest.skip(reason)
    with started() as server:
        yield server
