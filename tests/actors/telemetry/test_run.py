"""While a handler runs, its job and its span are current, and log records name them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import trace

from fairlead.actors.telemetry.run import LOG_FIELDS, Run, RunningJob, add_jobs_to_log_records
from fairlead.actors.telemetry.spans import Spans
from fairlead.actors.telemetry.tenants import tenant_hash
from tests.actors.stage import ALICE, item_ref
from tests.actors.telemetry.recorder import Recorder, ids

JOB = RunningJob(b"i" * 16, ALICE, "mail", 2)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    make = logging.getLogRecordFactory()
    add_jobs_to_log_records()
    caplog.set_level("INFO")
    yield logging.getLogger("till")
    logging.setLogRecordFactory(make)


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in LOG_FIELDS}


def test_a_record_that_is_made_while_a_job_runs_carries_its_ids(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    with Run(JOB, Spans(recorder.tracer).run(item_ref(1), 2, None)):
        log.info("charging")
    span = ids(recorder.span("run mail"))
    assert fields(caplog.records[0]) == {
        "job_item_id": JOB.item_id.hex(),
        "job_tenant_hash": tenant_hash(ALICE),
        "job_kind": "mail",
        "job_attempt": 2,
        "job_trace_id": trace.format_trace_id(span.trace_id),
        "job_span_id": trace.format_span_id(span.span_id),
    }
    assert vars(caplog.records[0])["job_ids"].startswith(f" [item_id={JOB.item_id.hex()} ")
    assert "alice" not in str(vars(caplog.records[0]))


def test_outside_of_a_job_the_fields_are_there_and_empty(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    with Run(JOB, None):
        pass
    log.info("idle")
    assert set(fields(caplog.records[0]).values()) == {""}


def test_a_program_may_use_the_same_words_for_fields_of_its_own(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """Logging refuses a record with a field twice."""
    with Run(JOB, None):
        log.info("charging", extra={"kind": "card", "trace_id": "mine", "item_id": 7, "attempt": 1})
    assert vars(caplog.records[0])["job_kind"] == "mail"


def test_the_factory_may_be_installed_twice(log: logging.Logger) -> None:
    installed = logging.getLogRecordFactory()
    add_jobs_to_log_records()
    assert logging.getLogRecordFactory() is installed


def test_a_coroutine_that_is_passed_to_a_loop_keeps_its_job(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def handler() -> None:
        await asyncio.sleep(0)
        log.info("charging")

    try:
        with Run(JOB, None):
            future = asyncio.run_coroutine_threadsafe(handler(), loop)
        future.result(5)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert vars(caplog.records[-1])["job_attempt"] == 2
