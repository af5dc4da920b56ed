"""One Ray cluster for all tests of the session, and the application of the stories that choose how it is configured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlead import App
from fairlead.config import Config
from tests.acceptance.fleets import opened


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A Ray cluster of this process's own, as `fairlead run` starts it."""
    from fairlead.actors.runtime import ray_host

    ray_host.connect("local", show_output=False)
    try:
        yield
    finally:
        ray_host.disconnect()


@pytest.fixture
def app(chosen: Config) -> Iterator[App]:
    """The shop, on the stores and with the settings that a test file has `chosen`."""
    with opened(chosen) as app:
        yield app
