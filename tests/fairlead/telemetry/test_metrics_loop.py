"""The loop that exports metrics does not end unnoticed.

Before, an error ended its thread, and the collector got no metrics, while the fleet continued.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from fairlead import App
from fairlead.actors.consumer import Consumer
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.supervisor import ActorFailed
from fairlead.fleet import open_for_actors
from fairlead.telemetry import otel_sdk
from fairlead.telemetry.exports import ProcessExports
from fairlead.telemetry.fleet_metrics import export_fleet_metrics
from fairlead.telemetry.otel_environment import RequestedExporters

PATIENCE_S = 30.0
DIED = "loop 'metrics' died: ZeroDivisionError: a bug"


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug")


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are exported every millisecond, into nothing, and their producer has a bug. No provider is installed."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "console")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    monkeypatch.setattr(otel_sdk, "install", lambda asked: None)
    monkeypatch.setattr(otel_sdk, "metrics_data", broken)


def raised_by(check: Callable[[], None]) -> ActorFailed:
    """Return the error that `check` raises."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        try:
            check()
        except ActorFailed as error:
            return error
        time.sleep(0.01)
    raise AssertionError("nothing failed")


def test_an_error_is_given_to_the_owner_of_the_loop(dying: None) -> None:
    failed: SimpleQueue[tuple[str, BaseException]] = SimpleQueue()
    loop = otel_sdk.MetricsLoop(RequestedExporters((), ()), dict, lambda reason, error: failed.put((reason, error)))
    reason, error = failed.get(timeout=PATIENCE_S)
    assert (reason, type(error)) == (DIED, ZeroDivisionError)
    loop.close()


def test_a_consumer_fails_with_its_metrics(dying: None, caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory:")
    identity = Identity(os.urandom(8), "test", os.getpid(), app.clock.now_us())
    consumer = Consumer(open_for_actors(app, ProcessExports()), identity)
    try:
        assert raised_by(consumer.check).fields["reason"] == DIED
        (record,) = [each for each in caplog.records if each.getMessage() == DIED]
        assert record.exc_info
        assert record.exc_info[0] is ZeroDivisionError
    finally:
        consumer.stop(drain=0)
        app.close()


def test_the_process_that_starts_a_fleet_fails_with_its_metrics(dying: None, caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory:")
    with export_fleet_metrics(app) as fleet_metrics:
        assert raised_by(fleet_metrics.check).fields["reason"] == DIED
    app.close()
    (record,) = [each for each in caplog.records if each.getMessage() == DIED]
    assert (record.levelname, bool(record.exc_info)) == ("CRITICAL", True)
