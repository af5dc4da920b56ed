"""One Ray cluster for all tests of the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A Ray cluster of this process's own, as `fairlead run` starts it."""
    from actors import ray_host

    ray_host.connect("local", show_output=False)
    try:
        yield
    finally:
        ray_host.disconnect()
