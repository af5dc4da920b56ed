"""One Ray cluster for all tests of the session, and the long forms only when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark of tests that take minutes."""
    config.addinivalue_line("markers", "long: the long form of a test; runs with `-m long`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long forms out unless the mark is chosen."""
    if "long" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: make soak"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A Ray cluster of this process's own, as `fairlead run` starts it."""
    from actors import ray_host

    ray_host.connect("local", show_output=False)
    try:
        yield
    finally:
        ray_host.disconnect()
