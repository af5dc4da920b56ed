"""What every test runs under: repeated examples; FoundationDB where a cluster is named; long forms on demand.

`make test` deals the tests out to as many processes as there are cores, file by file. Those of `tests/acceptance` share
a Ray cluster, so they run one after the other in one of these.
"""

import os
import signal
from random import SystemRandom
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# The same examples on every run: a test that fails once fails again. A slow machine is not a failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")

SEEDS = "SIMULATED_SEEDS"  # The environment's name for the seeds to simulate, such as "17,4711", instead of fresh ones.
FRESH = 60


def pytest_configure(config: pytest.Config) -> None:
    """Listen to Ctrl-C: a shell that starts tests in the background makes them, and all that they start, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Drawn once: all processes of a run must agree on the tests that there are.
    os.environ.setdefault(SEEDS, ",".join(map(str, SystemRandom().sample(range(10**6), FRESH))))


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Deals the tests out file by file; the whole of `tests/acceptance` is one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/acceptance" if file.startswith("tests/acceptance/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Say which tests must be in one process; asked where there are several."""
    return ByFile(config, log)


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
