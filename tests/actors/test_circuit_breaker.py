"""The circuit breaker of a shard opens after a timeout, and closes after a while."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.runtime.circuit_breaker import ANSWER_TIMEOUT_MS, OPEN_US, CircuitBreaker
from fairlead.zones.engines.api.errors import NOT_COMMITTED, TRANSACTION_TIMED_OUT, StoreError
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import MS, SECOND, Stage
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


def read(attempt: Attempt) -> Any:
    return attempt.tr.get(b"key").value


def write(attempt: Attempt) -> None:
    attempt.tr.set(b"key", b"value")


def timed_out(stage: Stage, breaker: CircuitBreaker) -> None:
    stage.store.silent = True
    with pytest.raises(StoreError) as caught:
        stage.do(lambda: breaker.transact(stage.shard, read))
    assert caught.value.code == TRANSACTION_TIMED_OUT


def test_a_shard_that_does_not_answer_is_skipped_for_a_while(stage: Stage) -> None:
    breaker = CircuitBreaker(stage.clock)
    assert not breaker.is_open("main")
    begun_us = stage.now_us
    timed_out(stage, breaker)
    assert stage.now_us - begun_us < (ANSWER_TIMEOUT_MS + 10) * MS
    assert breaker.is_open("main")
    assert not breaker.is_open("other")
    stage.pass_ms(OPEN_US / MS)
    assert not breaker.is_open("main")


def test_a_shard_that_refuses_is_asked_again_at_once(stage: Stage) -> None:
    breaker = CircuitBreaker(stage.clock)
    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    with pytest.raises(stage.store.errors):
        stage.do(lambda: breaker.transact(stage.shard, write, retries_max=0))
    assert not breaker.is_open("main")


def test_a_clock_that_is_set_back_keeps_no_breaker_open_for_longer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = CircuitBreaker(stage.clock)
    timed_out(stage, breaker)
    now_us = stage.now_us
    monkeypatch.setattr(stage.clock, "now_us", lambda: now_us - 3_600 * SECOND)
    assert not breaker.is_open("main")
