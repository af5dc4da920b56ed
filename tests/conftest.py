"""What every test runs under: repeated examples; FoundationDB where a cluster is named; long forms on demand."""

import os
import signal

import pytest
from hypothesis import settings

# The same examples on every run: a test that fails once fails again. A slow machine is not a failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Listen to Ctrl-C: a shell that starts tests in the background makes them, and all that they start, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
