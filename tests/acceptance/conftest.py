"""A Ray cluster for all of these tests that a process runs, and the application of those that configure it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlead import App
from fairlead.config import Config
from tests.acceptance.fleets import opened


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """A Ray cluster of this process's own, as `fairlead run` starts it. It ends before tests of other folders run."""
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
