"""Handlers that fail are spoken of: soon, with the reason, and not a thousand times."""

from __future__ import annotations

import pytest

from actors.failures import QUIET_US
from actors.handlers import PermanentError
from actors.job import Job
from tests.actors.stage import MS, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def no_order(job: Job) -> None:
    raise KeyError("order")


def refuses(job: Job) -> None:
    raise PermanentError("no such address")


def test_the_first_failure_of_a_kind_is_told_at_once_with_its_error_and_what_becomes_of_the_item(
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


def test_a_kind_that_goes_on_failing_is_spoken_of_now_and_then_with_counts(
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
    assert "5 attempts failed since the last such line, 5 of them for good" in later
