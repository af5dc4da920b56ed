"""A shard that refuses is logged once, and again after a while without refusals."""

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
def refusal_log(clock: ManualClock) -> RateLimitedLog:
    return RateLimitedLog(clock, logging.getLogger("fairlead.test"), "shard %s refuses: %s")


def test_a_shard_that_refuses_is_named_once_with_the_reason(
    refusal_log: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        refusal_log.note("main", ERROR)
        clock.advance_us(LOG_AGAIN_US // 2)
    assert [record.getMessage() for record in caplog.records] == ["shard main refuses: no space"]
    assert caplog.records[0].levelno == logging.WARNING


def test_a_shard_that_refuses_again_after_a_while_is_named_again(
    refusal_log: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A successful commit does not count: an almost full disk takes some and refuses others, for minutes."""
    refusal_log.note("main", ERROR)
    clock.advance_us(LOG_AGAIN_US)
    refusal_log.note("main", ERROR)
    assert len(caplog.records) == 2


def test_each_shard_is_named_separately(refusal_log: RateLimitedLog, caplog: pytest.LogCaptureFixture) -> None:
    refusal_log.note("main", ERROR)
    refusal_log.note("other", ERROR)
    assert len(caplog.records) == 2
