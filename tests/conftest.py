"""What every test runs under: examples that repeat, and FoundationDB only where a cluster is named."""

import os

import pytest
from hypothesis import settings

# The same examples on every run: a test that fails once fails again. A slow machine is not a failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a FoundationDB cluster unless FDB_CLUSTER_FILE names one."""
    if os.environ.get("FDB_CLUSTER_FILE"):
        return
    for item in items:
        if item.get_closest_marker("foundationdb"):
            item.add_marker(pytest.mark.skip(reason="set FDB_CLUSTER_FILE to run this on a FoundationDB cluster"))
