"""The log of failed attempts, and the hooks: the first failure at once, and few lines for many failures."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from fairlead.actors.execution.failure_log import QUIET_US
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import FailureHook, PermanentError
from fairlead.actors.worker import Worker
from fairlead.zones.layout import Tenant
from tests.actors.stage import MS, SECOND, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def no_order(job: Job) -> None:
    raise KeyError("order")


def refuses(job: Job) -> None:
    raise PermanentError("no such address")


def test_the_first_failure_of_a_kind_is_logged_at_once_with_its_error_and_what_happens_next(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = stage.worker([stage.handler("mail", refuses), stage.handler("index", no_order)])
    stage.enqueue("mail")
    stage.enqueue("index")
    stage.place(worker, stage.lease(["mail", "index"]))
    stage.settled(worker)
    index, mail = sorted(record.getMessage() for record in caplog.records)
    assert index.startswith("handler of index failed: KeyError: 'order'; item ")
    assert "of shop/alice is tried again in " in index
    assert mail.startswith("handler of mail failed: PermanentError: no such address; item ")
    assert "of shop/alice is given up" in mail


@pytest.mark.parametrize(
    "tenant, printed", [(Tenant("shop/eu", "alice"), "shop//eu/alice"), (Tenant("", "mail"), "local mail")]
)
def test_the_tenant_in_a_log_line_can_be_given_to_a_command(
    stage: Stage, caplog: pytest.LogCaptureFixture, tenant: Tenant, printed: str
) -> None:
    worker = stage.worker([stage.handler("mail", no_order)])
    stage.enqueue("mail", tenant=tenant)
    stage.place(worker, stage.lease(["mail"], tenant=tenant))
    stage.settled(worker)
    (line,) = (record.getMessage() for record in caplog.records)
    assert f" of {printed} is tried again in " in line


def test_text_in_an_error_cannot_control_a_terminal_or_forge_a_log_line(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """An error often quotes its payload, which comes from outside. So may the names of kinds and tenants."""

    def quotes(job: Job) -> None:
        raise ValueError(job.payload)

    kind, tenant = "mail\x1b[2J", Tenant("shop", "eve\n\x1b]0;title\x07")
    worker = stage.worker([stage.handler(kind, quotes)])
    stage.enqueue(kind, "a\x1b]0;title\x07\n2026-01-01 00:00:00 ERROR fairlead: forged\r", tenant=tenant)
    stage.place(worker, stage.lease([kind], tenant=tenant))
    stage.settled(worker)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.isprintable()
    assert "ValueError: a\\x1b]0;title\\x07\\n2026-01-01 00:00:00 ERROR fairlead: forged; item" in line
    assert "of shop/eve\\n" in line


def fail_once(stage: Stage, worker: Worker, kind: str, payload: object = None, **how: Any) -> None:
    stage.enqueue(kind, payload, **how)
    stage.place(worker, stage.lease([kind]))
    stage.settled(worker)


def test_a_failure_for_good_is_logged_as_an_error_with_its_exception(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Sentry's logging integration needs the exception in the record. Before, there was none."""
    fail_once(stage, stage.worker([stage.handler("mail", refuses)]), "mail")
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], PermanentError)
    assert "in refuses" in caplog.text
    assert "actors/worker.py" not in caplog.text, "the traceback begins with the handler"


def raises_its_payload(job: Job) -> None:
    raise {"key": KeyError, "type": TypeError}[job.payload]("no such thing")


def test_the_first_failure_of_each_error_class_has_a_traceback_and_later_ones_are_counted(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, a TypeError was not logged at all for ten seconds after a KeyError of the same kind."""
    retry = Retry(backoff=3600)
    worker = stage.worker([stage.handler("mail", raises_its_payload, retry=retry)])
    for name in ("key", "key", "type", "type"):
        fail_once(stage, worker, "mail", name)
    assert [(each.levelname, bool(each.exc_info)) for each in caplog.records] == [("WARNING", True)] * 2
    assert ["KeyError" in caplog.records[0].getMessage(), "TypeError" in caplog.records[1].getMessage()] == [True] * 2
    caplog.clear()
    stage.pass_ms(QUIET_US / MS)
    fail_once(stage, worker, "mail", "key")
    (record, *_) = [each for each in caplog.records if "KeyError" in each.getMessage()]
    assert record.exc_info is None
    assert "2 attempts failed so since the last such line" in record.getMessage()


def test_the_given_id_of_an_item_is_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    worker = stage.worker([stage.handler("mail", no_order)])
    fail_once(stage, worker, "mail", item_id="receipt-10")
    (record,) = caplog.records
    assert "'receipt-10'" in record.getMessage()


# --- The hook ---


def run_with_hook(stage: Stage, function: Callable[[Job], None], hook: FailureHook, **how: Any) -> dict[str, int]:
    """Run one item whose failures go to a hook; return the counts."""
    worker = stage.worker([stage.handler("mail", function, **how)], on_failure=[hook])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    return stage.settled(worker)


def test_the_hook_is_called_with_the_job_and_the_error_of_each_failed_attempt(stage: Stage) -> None:
    seen: list[tuple[str, int, str]] = []
    hook = lambda job, error: seen.append((job.kind, job.attempt, repr(error)))  # noqa: E731
    assert run_with_hook(stage, no_order, hook)["retried"] == 1
    assert seen == [("mail", 1, "KeyError('order')")]


def test_the_hook_is_not_called_for_a_completed_item(stage: Stage) -> None:
    seen: list[Job] = []
    assert run_with_hook(stage, lambda job: None, lambda job, error: seen.append(job))["completed"] == 1
    assert seen == []


def test_the_hook_gets_the_timeout_of_a_handler_that_returns_when_it_is_cancelled(stage: Stage) -> None:
    """Before, no hook was called: the handler had raised nothing."""

    def returns_when_cancelled(job: Job) -> None:
        while not job.cancelled:
            stage.sleep_ms(10)

    seen: list[str] = []
    hook = lambda job, error: seen.append(type(error).__name__)  # noqa: E731
    assert (
        run_with_hook(stage, returns_when_cancelled, hook, timeout=0.5, retry=Retry(attempts=1))["dead_lettered"] == 1
    )
    stage.pass_ms(100)
    assert seen == ["JobTimeout"]


def interrupted(stage: Stage) -> Callable[[Job], None]:
    """Return a handler that raises when it is cancelled, as a coroutine's slot does."""

    def handle(job: Job) -> None:
        while not job.cancelled:
            stage.sleep_ms(10)
        raise CancelledError

    return handle


def test_the_hook_gets_the_timeout_and_not_the_cancellation_that_followed(stage: Stage) -> None:
    seen: list[str] = []
    hook = lambda job, error: seen.append(type(error).__name__)  # noqa: E731
    assert run_with_hook(stage, interrupted(stage), hook, timeout=0.5, retry=Retry(attempts=1))["dead_lettered"] == 1
    stage.pass_ms(100)
    assert seen == ["JobTimeout"]


def test_the_hook_is_not_called_for_items_that_a_drain_returns(stage: Stage) -> None:
    """Before, each restart of a fleet raised a false alarm for every coroutine that ran."""
    seen: list[BaseException] = []
    worker = stage.worker(
        [stage.handler("mail", interrupted(stage))], on_failure=[lambda job, error: seen.append(error)]
    )
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.do(lambda: worker.drain(100))
    stage.pass_ms(1_000)
    assert seen == []


def test_an_attempt_whose_hook_runs_past_the_timeout_fails_by_the_error_that_the_hook_got(
    stage: Stage,
) -> None:
    seen: list[str] = []

    def hook(job: Job, error: BaseException) -> None:
        seen.append(repr(error))
        stage.sleep_ms(2_000)

    assert run_with_hook(stage, no_order, hook, timeout=0.5, retry=Retry(attempts=1))["dead_lettered"] == 1
    stage.pass_ms(5_000)
    assert seen == ["KeyError('order')"]
    (dead_letter,) = stage.dead_letters()
    assert dead_letter.record.error == "KeyError: 'order'"


@pytest.mark.parametrize("raised", [RuntimeError("no Sentry"), SystemExit(3)])
def test_an_error_of_the_hook_is_logged_and_changes_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    def hook(job: Job, error: BaseException) -> None:
        raise raised

    assert run_with_hook(stage, no_order, hook)["retried"] == 1
    assert "on_failure" in caplog.text
    assert "handler of mail failed: KeyError: 'order'" in caplog.text


def test_failures_are_logged_although_the_clock_is_set_back(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Before, similar failures were not logged until the clock had caught up."""
    worker = stage.worker([stage.handler("mail", refuses)])
    fail_once(stage, worker, "mail")
    stage.clock.jump(-QUIET_US)
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    assert len(caplog.records) == 2


def test_a_kind_that_goes_on_failing_is_logged_every_ten_seconds_with_counts(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = stage.worker([stage.handler("mail", refuses)])

    def fail(count: int) -> None:
        for _ in range(count):
            stage.enqueue("mail")
        stage.place(worker, stage.lease(["mail"]))
        stage.settled(worker)

    fail(5)
    stage.pass_ms(QUIET_US / MS)
    fail(1)
    (_, later) = [record.getMessage() for record in caplog.records]
    assert "5 attempts failed so since the last such line" in later


def test_the_error_that_the_hook_got_counts_although_the_hook_ends_before_the_requeue(stage: Stage) -> None:
    """Before, the worker forgot the error with the item, and stored a timeout if the store was slow just then."""

    def fails(job: Job) -> None:
        stage.sleep_ms(3_000)
        raise ValueError("no such order")

    def hook(job: Job, error: BaseException) -> None:
        while not job.cancelled:
            stage.sleep_ms(10)

    worker = stage.worker(
        [stage.handler("mail", fails, timeout=3.5), stage.handler("long", lambda job: stage.sleep_ms(8_000))],
        on_failure=[hook],
    )
    item_id, _ = stage.enqueue("mail"), stage.enqueue("long")
    stage.place(worker, stage.lease(["mail", "long"]))
    stage.pass_ms(3_200)
    stage.store.answer_late_us = 1 * SECOND  # The lease keeper waits for its extension of the long item.
    stage.pass_ms(2_000)
    record = stage.record(item_id)
    assert record is not None
    assert record.last_error == "ValueError: no such order"
