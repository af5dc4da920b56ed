"""Each actor of a process has an incarnation of its own, so their counts are kept apart."""

from __future__ import annotations

from random import SystemRandom

import pytest

from fairlead.actors.runtime.thread_host import ThreadHost, thread_supervisor
from tests.clocks import WallClock


@pytest.fixture
def host() -> ThreadHost:
    return ThreadHost(clock=WallClock(), random=SystemRandom(), supervisor=thread_supervisor(pytest.fail))


def test_workers_of_two_fleets_in_one_process_have_different_incarnations(host: ThreadHost) -> None:
    """Before, one overwrote the counts of the other: a series showed 197 of 400 completed items."""
    assert host.of_actor(0).incarnation != host.of_actor(0).incarnation
    assert host.of_actor(0).incarnation.startswith(host.incarnation)
