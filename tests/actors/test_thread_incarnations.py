"""Each actor of a process lives a life of its own, by which what it has counted is kept apart."""

from __future__ import annotations

from random import SystemRandom

import pytest

from fairlead.actors.runtime.thread_host import ThreadHost, thread_supervisor
from tests.clocks import WallClock


@pytest.fixture
def host() -> ThreadHost:
    return ThreadHost(clock=WallClock(), random=SystemRandom(), supervisor=thread_supervisor(pytest.fail))


def test_workers_of_one_number_of_two_fleets_of_a_process_live_two_lives(host: ThreadHost) -> None:
    """Before, the one wrote over what the other had counted: a series said 197 of 400 completed items."""
    assert host.of_actor(0).incarnation != host.of_actor(0).incarnation
    assert host.of_actor(0).incarnation.startswith(host.incarnation)
