"""What the log says of a shard that refuses."""

from __future__ import annotations

import logging

import pytest

from fairlead.actors.runtime.rate_limited_log import LOG_AGAIN_US, RateLimitedLog
from tests.clocks import ManualClock

ERROR = OSError("no space")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def refusals(clock: ManualClock) -> RateLimitedLog:
    return RateLimitedLog(clock, logging.getLogger("fairlead.test"), "shard %s refuses: %s")


def test_a_shard_that_refuses_is_named_once_with_the_reason(
    refusals: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        refusals.note("main", ERROR)
        clock.advance_us(LOG_AGAIN_US // 2)
    assert [record.getMessage() for record in caplog.records] == ["shard main refuses: no space"]
    assert caplog.records[0].levelno == logging.WARNING


def test_one_that_refuses_again_after_a_while_is_named_again(
    refusals: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Not after the first commit that it takes: an almost full disk takes some and refuses others, for minutes."""
    refusals.note("main", ERROR)
    clock.advance_us(LOG_AGAIN_US)
    refusals.note("main", ERROR)
    assert len(caplog.records) == 2


def test_each_shard_is_named_for_itself(refusals: RateLimitedLog, caplog: pytest.LogCaptureFixture) -> None:
    refusals.note("main", ERROR)
    refusals.note("other", ERROR)
    assert len(caplog.records) == 2
