"""A handle waits for the handler's result, raises its failure, or cancels the item."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fairlead import (
    App,
    BadArgument,
    Cause,
    EnqueueStatus,
    ItemFailed,
    ItemGone,
    Job,
    NoResult,
    PermanentError,
    Progress,
    ResultPending,
    Retry,
    Tenant,
    TenantDatabase,
    TenantTransaction,
)
from fairlead.queries.items import read_item
from fairlead.testing import ManualClock, drain
from fairlead.zones.errors import QueueError
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.id_retention import expire
from fairlead.zones.queue.progress import progress_op
from fairlead.zones.queue.results import RESULT_BYTES_MAX, Pending, ending
from fairlead.zones.transaction_runner import Attempt
from tests.fairlead.shell import run


def clock_of(app: App) -> ManualClock:
    assert isinstance(app.clock, ManualClock)
    return app.clock


# --- Results ---


def test_a_handle_says_what_the_enqueue_found_and_what_the_handler_returned(app: App, alice: TenantDatabase) -> None:
    @app.handler("square", keep_result=60)
    def square(job: Job) -> int:
        return int(job.payload) ** 2

    handle = alice.enqueue("square", 7, item_id="seven")
    assert handle.status is EnqueueStatus.ENQUEUED
    drain(app)
    assert handle.result() == 49
    assert alice.item("seven").result() == 49
    assert alice.item(handle.item_id).result() == 49


def test_a_result_of_none_is_a_result(app: App, alice: TenantDatabase) -> None:
    app.handler("mail", keep_result=60)(lambda job: None)
    handle = alice.enqueue("mail")
    drain(app)
    assert handle.result() is None


def test_a_wait_for_an_item_that_does_not_end_takes_its_timeout(app: App, alice: TenantDatabase) -> None:
    app.handler("mail", keep_result=60)(lambda job: None)
    handle = alice.enqueue("mail")
    with pytest.raises(ResultPending):
        handle.result(timeout=0)
    before_us = app.clock.now_us()
    with pytest.raises(TimeoutError):
        handle.result(timeout=2.5)
    assert app.clock.now_us() - before_us == 2_500_000


class SteppingClock(ManualClock):
    """A clock that is set once during a sleep. `slept_us`: the true duration of all sleeps."""

    def __init__(self, step_us: int) -> None:
        super().__init__()
        self.slept_us = 0
        self._step_us = step_us

    def sleep_us(self, duration_us: int) -> None:
        """See `ManualClock`."""
        super().sleep_us(duration_us)
        self.slept_us += duration_us
        if self.slept_us > 1_000_000:
            self.advance(self._step_us / 1e6)
            self._step_us = 0


@pytest.mark.parametrize("step_us", [-20_000_000, 20_000_000])
def test_a_wait_takes_its_timeout_although_the_clock_is_set(step_us: int) -> None:
    """Before, a wait for two seconds lasted 22 when the clock was set back by 20 meanwhile."""
    clock = SteppingClock(step_us)
    app = App("memory:", clock=clock)
    app.handler("mail", keep_result=60)(lambda job: None)
    handle = app.tenant("shop", "alice").enqueue("mail")
    with pytest.raises(ResultPending):
        handle.result(timeout=2)
    assert clock.slept_us == 2_000_000
    app.close()


def test_a_result_that_comes_while_one_waits_is_returned(tmp_path: Path) -> None:
    app = App(f"embedded:{tmp_path / 'store'}")
    app.handler("mail", keep_result=60)(lambda job: "sent")
    handle = app.tenant("shop", "alice").enqueue("mail")
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(handle.result(timeout=60)))
    waiting.start()
    drain(app)
    waiting.join(60)
    assert results == ["sent"]
    app.close()


def test_the_result_of_a_retried_item_is_that_of_its_last_attempt(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail", keep_result=600, retry=Retry(attempts=3))
    def mail(job: Job) -> int:
        if job.attempt < 2:
            raise RuntimeError("again")
        return job.attempt

    handle = alice.enqueue("mail")
    drain(app, raise_errors=False)
    with pytest.raises(ResultPending):
        handle.result(timeout=0)
    drain(app, within=600)
    assert handle.result() == 2


def test_a_result_is_kept_as_long_as_its_kind_says(app: App, alice: TenantDatabase) -> None:
    app.handler("mail", keep_result=60)(lambda job: "sent")
    handle = alice.enqueue("mail")
    drain(app)
    clock_of(app).advance(61)
    shard = alice.shard

    def housekeeping(attempt: Attempt) -> int:
        part = shard.zone(alice.tenant).location.part.part
        return expire(attempt.tr, part, now_us=attempt.now_us, keys_max=10)

    assert shard.transact(housekeeping) == 1
    with pytest.raises(NoResult, match="completed"):
        handle.result()


def test_a_kind_that_keeps_nothing_has_no_result_and_says_so(app: App, alice: TenantDatabase) -> None:
    app.handler("mail")(lambda job: "sent")
    handle = alice.enqueue("mail")
    drain(app)
    with pytest.raises(NoResult, match="completed"):
        handle.result()


def test_a_transactional_handlers_result_commits_with_its_effects(app: App, alice: TenantDatabase) -> None:
    @app.handler("count", keep_result=60, transactional=True)
    def count(job: Job, tr: TenantTransaction) -> int:
        counted = int(tr.get(("count",)) or b"0") + 1
        tr.set(("count",), b"%d" % counted)
        return counted

    first, second = alice.enqueue("count"), alice.enqueue("count")
    drain(app)
    assert sorted([first.result(), second.result()]) == [1, 2]


def test_a_handler_that_completes_its_item_itself_gives_the_result_with_it(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail", keep_result=60)
    def mail(job: Job) -> str:
        job.transact(lambda tr: job.complete_in(tr, result="mine"))
        return "not this"

    handle = alice.enqueue("mail")
    drain(app)
    assert handle.result() == "mine"


@pytest.mark.parametrize("returned", [object(), {1, 2}, b"x" * (RESULT_BYTES_MAX + 1)])
def test_an_item_whose_result_cannot_be_kept_becomes_a_dead_letter_and_not_run_again(
    app: App, alice: TenantDatabase, returned: Any
) -> None:
    runs: list[int] = []

    @app.handler("mail", keep_result=60, retry=Retry(attempts=5, in_line=2))
    def mail(job: Job) -> Any:
        runs.append(job.attempt)
        return returned

    handle = alice.enqueue("mail")
    drained = drain(app, raise_errors=False)
    assert drained.dead_lettered == {"mail": 1}
    assert runs == [1]
    with pytest.raises(ItemFailed, match="cannot be kept"):
        handle.result()


def test_a_wait_for_a_failed_item_raises_its_error(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail", keep_result=60)
    def mail(job: Job) -> None:
        raise PermanentError("no such address")

    handle = alice.enqueue("mail")
    drain(app, raise_errors=False)
    with pytest.raises(ItemFailed, match="no such address") as failed:
        handle.result()
    assert failed.value.fields["dead_letter"] is True


def test_a_wait_for_a_dropped_item_raises_its_error(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail", keep_result=60, drop=True)
    def mail(job: Job) -> None:
        raise PermanentError("no such address")

    handle = alice.enqueue("mail")
    drain(app, raise_errors=False)
    with pytest.raises(ItemFailed) as failed:
        handle.result()
    assert failed.value.fields["dead_letter"] is False


def test_a_second_item_of_a_name_is_waited_for_although_the_first_has_a_result(app: App, alice: TenantDatabase) -> None:
    numbers = iter(range(10))
    app.handler("mail", keep_result=60)(lambda job: next(numbers))
    alice.enqueue("mail", item_id="daily")
    drain(app)
    again = alice.enqueue("mail", item_id="daily")
    with pytest.raises(ResultPending):
        again.result(timeout=0)
    drain(app)
    assert again.result() == 1


def fail(job: Job) -> None:
    raise PermanentError("no")


@pytest.mark.parametrize(
    "kind, raised", [("mail", NoResult), ("quiet", NoResult), ("fails", NoResult), ("dropped", ItemFailed)]
)
def test_a_second_item_of_a_name_never_returns_what_the_first_did(
    app: App, alice: TenantDatabase, kind: str, raised: type[QueueError]
) -> None:
    """Whether it is cancelled, keeps nothing, is a discarded dead letter, or is dropped."""
    app.handler("mail", keep_result=3600)(lambda job: "of the first")
    app.handler("quiet")(lambda job: None)
    for failing, drop in (("fails", False), ("dropped", True)):
        app.handler(failing, keep_result=3600, drop=drop)(fail)
    first = alice.enqueue("mail", item_id="daily")
    drain(app)
    assert first.result(timeout=0) == "of the first"
    again = alice.enqueue(kind, item_id="daily")
    if kind == "mail":
        again.cancel()
    drain(app, raise_errors=False)
    if kind == "fails":
        alice.discard_dead_letter("daily")
    with pytest.raises(raised):
        again.result(timeout=0)
    seen = read_item(alice.shard, alice.tenant, again.zone, again.item_id)
    assert seen.returned is None


def test_an_item_that_never_was_has_no_result(alice: TenantDatabase) -> None:
    with pytest.raises(NoResult):
        alice.item("nothing").result()


@pytest.mark.parametrize("timeout", [-1, "1", True, float("inf"), float("nan")])
def test_a_wait_that_is_none_is_refused(alice: TenantDatabase, timeout: Any) -> None:
    with pytest.raises(BadArgument, match="timeout"):
        alice.item("order-7").result(timeout)


@pytest.mark.parametrize("seconds", [0, -1, "1", True, 31 * 24 * 3600, float("nan")])
def test_a_time_to_keep_results_that_is_none_is_refused(app: App, seconds: Any) -> None:
    with pytest.raises(BadArgument, match="keep_result"):
        app.handler("mail", keep_result=seconds)(lambda job: None)


# --- Cancel and explain ---


def test_a_cancelled_item_does_not_run_and_has_no_result(app: App, alice: TenantDatabase) -> None:
    ran: list[bytes] = []
    app.handler("mail", keep_result=60)(lambda job: ran.append(job.id))
    handle = alice.enqueue("mail")
    handle.cancel()
    drain(app)
    assert ran == []
    with pytest.raises(NoResult, match="cancelled"):
        handle.result()
    with pytest.raises(ItemGone):
        handle.cancel()


def test_a_handle_explains_its_item(app: App, alice: TenantDatabase) -> None:
    handle = alice.enqueue("mail", delay=60)
    assert handle.explain().cause is Cause.DELAYED


def test_progress_is_shown_wherever_the_item_is_shown(tmp_path: Path) -> None:
    store = f"embedded:{tmp_path / 'store'}"
    app = App(store)
    alice = app.tenant("shop", "alice")
    handle = alice.enqueue("resize", item_id="picture")
    queue = alice.shard.zone(Tenant("shop", "alice"))
    told = Progress(40, 100, "resizing", app.clock.now_us())

    def lease_and_tell(attempt: Attempt) -> None:
        item_id, now_us = handle.item_id, attempt.now_us
        queue.obtain_lease(attempt.tr, item_id, lease_id=b"1" * 16, lease_us=5_000_000, now_us=now_us)
        run_one(progress_op(attempt.tr, queue.location, [((item_id, b"1" * 16), told)]))

    alice.shard.transact(lease_and_tell)
    (item,) = alice.peek()
    assert item.progress == told
    assert handle.explain().progress == told
    app.close()
    where = ("--tenant", "shop", "alice", "--store", store)
    assert "progress: 40 of 100, resizing" in run("why", "picture", *where).out
    assert "at 40 of 100, resizing" in run("peek", *where).out
    assert run("why", "picture", *where, "--json").json["progress"]["done"] == 40


# --- On the command line ---


def test_the_command_shows_a_result(tmp_path: Path) -> None:
    store = f"embedded:{tmp_path / 'store'}"
    app = App(store)
    app.handler("square", keep_result=3600)(lambda job: {"square": job.payload**2})
    app.tenant("shop", "alice").enqueue("square", 7, item_id="seven")
    asked = ("result", "seven", "--tenant", "shop", "alice", "--store", store)
    assert run(*asked).code == 1, "it has not ended"
    drain(app)
    app.close()
    assert run(*asked).out == '{"square": 49}\n'
    assert run(*asked, "--json").json == {"item": "seven", "result": {"square": 49}}
    missing = run("result", "eight", "--tenant", "shop", "alice", "--store", store)
    assert missing.code == 4
    assert "no result" in missing.err


class RefusedWatch:
    """A watch of a client that has 10,000 already: ready at once, with error 1032 of the engine."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def is_ready(self) -> bool:
        return True

    def wait(self) -> None:
        raise self._error

    def cancel(self) -> None:
        """There is nothing to cancel."""


def test_a_wait_without_a_watch_polls_and_does_not_spin(
    app: App, alice: TenantDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FoundationDB's client has at most 10,000 watches. Before, the 10,001st wait polled the store without a pause."""
    looks = 0
    refusal = alice.shard.db.errors[0]

    def refusing(tr: Any, location: ZoneLocation, item_id: bytes) -> Any:
        nonlocal looks
        looks += 1
        if looks > 1_000:
            raise AssertionError("it spins")
        if looks == 5:
            drain(app)
        found = ending(tr, location, item_id)
        return Pending(RefusedWatch(refusal(1032))) if isinstance(found, Pending) else found

    monkeypatch.setattr("fairlead.zones.queue.results.ending", refusing)
    begun_us = clock_of(app).now_us()
    with pytest.raises(ResultPending):
        alice.enqueue("nobody's").result(timeout=1)
    assert looks < 5
    assert clock_of(app).now_us() - begun_us >= 1_000_000

    app.handler("square", keep_result=60)(lambda job: job.payload**2)
    assert alice.enqueue("square", 7).result(timeout=60) == 49
