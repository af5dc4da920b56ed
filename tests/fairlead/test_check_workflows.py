"""`check` and workflows: what is lost or damaged is named; what is in use, on two shards, gives no false alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Job, PermanentError
from fairlead.testing import ManualClock, drain
from fairlead.workflows.context import WorkflowContext, child
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end
from fairlead.zones.maintenance.integrity import check_homes, check_integrity, homes
from fairlead.zones.maintenance.integrity.homes import NO_HOME
from fairlead.zones.maintenance.integrity.records import DAMAGED_RECORD
from fairlead.zones.maintenance.integrity.runs import NO_CLEANUP, NO_HEAD
from fairlead.zones.records import FORMAT
from fairlead.zones.shard import Shard
from fairlead.zones.workflow.participants import raise_floor
from fairlead.zones.workflow.run_end import CLEANUP_KIND, cleanup_id
from fairlead.zones.workflow.run_records import entry_key, head_key
from tests.fairlead.shell import run
from tests.workflows.application import ELSEWHERE, HOME, NEIGHBOUR, add, subtract

STORES = {"a": "embedded:a", "b": "embedded:b"}
TYPED = ("--store", "a=embedded:a", "--store", "b=embedded:b")
DAMAGED = bytes([FORMAT]) + b"\xc1"
CONFIGURED = '[shards]\na = "embedded:a"\nb = "embedded:b"\n'


class Story:
    """Two shards on disk, and a workflow that has done a step on each, and waits."""

    def __init__(self) -> None:
        Path("fairlead.toml").write_text(CONFIGURED)
        app = App(STORES)
        app.workflow("checkout")(self.checkout)
        app.tenant(HOME).enqueue("checkout", item_id="checkout-7")
        drain(app, replays=False)
        self.run = app.tenant(HOME).steps("checkout-7").run
        self.home, self.elsewhere = app.tenant(HOME).shard.name, app.tenant(ELSEWHERE).shard.name
        app.close()

    @staticmethod
    def checkout(wf: WorkflowContext) -> None:
        wf.step(add, "reserve", name="reserve")
        wf.step(add, "pack", on=ELSEWHERE, name="pack")
        wf.wait_for("approved")

    def change(self, tenant: str, change: Callable[[Any, TenantKeys], object]) -> None:
        """Change a tenant's keys behind the back of the workflow."""
        app = App(STORES)
        transact(app.tenant(tenant).shard.db, lambda tr: change(tr, TenantKeys(*tenant.split("/"))))
        app.close()

    def lose_home(self) -> None:
        """Clear all that the home has stored of the run, and its item, as a restore of an older backup does."""

        def clear(tr: Any, keys: TenantKeys) -> None:
            tr.clear_range(range_begin(keys.prefix), range_end(keys.prefix))

        self.change(HOME, clear)


@pytest.fixture
def story(empty_directory: Path) -> Story:
    return Story()


def of_runs(answer: Any) -> list[dict[str, Any]]:
    return [each | shard for shard in answer.json["shards"] for each in shard["findings"] if each["run"]]


def test_a_waiting_workflow_on_two_shards_passes_the_check(story: Story) -> None:
    for stores in ((), TYPED):
        answer = run("check", *stores, "--json")
        assert (answer.code, of_runs(answer)) == (0, [])
        assert [shard["without_home"] for shard in answer.json["shards"]] == [[], []]


def test_a_participant_whose_home_has_lost_the_run_is_named_with_what_to_do(story: Story) -> None:
    story.lose_home()
    answer = run("check", "--json")
    (finding,) = of_runs(answer)
    assert (answer.code, finding["what"], finding["run"], finding["repairable"]) == (1, NO_HOME, story.run.hex(), True)
    assert f"{finding['app']}/{finding['user']}" == ELSEWHERE
    assert finding["shard"] == story.elsewhere
    shown = run("check").out
    assert "restored from an older backup" in shown
    assert run("check", "--repair").code == 0
    assert run("check").code == 0


def test_if_the_home_may_be_on_a_shard_that_is_not_checked_that_is_what_is_said(story: Story) -> None:
    stores = ("--store", f"{story.elsewhere}=embedded:{story.elsewhere}")
    answer = run("check", *stores, "--repair", "--json")
    app, user = ELSEWHERE.split("/")
    assert (answer.code, of_runs(answer)) == (0, [])
    assert answer.json["shards"][0]["without_home"] == [{"app": app, "user": user, "run": story.run.hex()}]
    shown = " ".join(run("check", *stores).out.split())
    assert f"shard {story.elsewhere} keeps steps of 1 workflows whose home is on no shard that was checked" in shown
    assert f"{ELSEWHERE} run {story.run.hex()}" in shown
    app_again = App(STORES)
    app_again.workflow("checkout")(story.checkout)
    app_again.tenant(HOME).transact(lambda tr: tr.signal("checkout-7", "approved"))
    assert drain(app_again, replays=False).completed["checkout"] == 1, "nothing was repaired"
    app_again.close()


def test_a_lost_cleanup_is_named_and_repaired(story: Story) -> None:
    app = App(STORES)
    home = app.tenant(HOME)
    home.cancel("checkout-7", force=True)
    shard = home.shard
    shard.transact(lambda attempt: shard.zone(home.tenant).complete(attempt.tr, cleanup_id(story.run), now_us=0))
    app.close()
    (finding,) = of_runs(run("check", "--json"))
    assert (finding["what"], finding["run"]) == (NO_CLEANUP, story.run.hex())
    assert run("check", "--repair").code == 0
    app = App(STORES)
    app.workflow("checkout")(story.checkout)
    assert drain(app).completed == {CLEANUP_KIND: 1}
    app.close()
    assert run("check").code == 0


@pytest.mark.parametrize("what", ["head", "entry", "foreign entry"])
def test_a_damaged_key_of_a_workflow_is_named_and_a_forced_cancellation_removes_it(story: Story, what: str) -> None:
    tenant, key = {
        "head": (HOME, lambda keys: head_key(keys, story.run)),
        "entry": (HOME, lambda keys: entry_key(keys, story.run, 0, "reserve", 0)),
        "foreign entry": (ELSEWHERE, lambda keys: entry_key(keys, story.run, 0, "pack", 0)),
    }[what]
    story.change(tenant, lambda tr, keys: tr.set(key(keys), DAMAGED))
    (finding,) = of_runs(run("check", "--json"))
    assert (finding["what"], finding["run"]) == (DAMAGED_RECORD, story.run.hex())
    assert finding["key"] == key(TenantKeys(*tenant.split("/"))).hex()
    assert f"{finding['app']}/{finding['user']}" == tenant
    assert "fairlead steps" in run("check").out
    app = App(STORES)
    app.workflow("checkout")(story.checkout)
    app.tenant(HOME).cancel("checkout-7", force=True)
    drain(app)
    app.close()
    assert of_runs(run("check", "--json")) == []


def test_a_lost_head_is_named(story: Story) -> None:
    story.change(HOME, lambda tr, keys: tr.clear(head_key(keys, story.run)))
    (finding,) = of_runs(run("check", "--json"))
    assert (finding["what"], finding["run"]) == (NO_HEAD, story.run.hex())
    assert "cancel it with --force" in " ".join(run("check").out.split())


# --- No false alarms ---


def everything_a_workflow_does(app: App) -> None:
    """Register workflows that use all that is stored of runs."""
    app.handler("double")(lambda job: job.payload["n"] * 2)

    @app.handler("bad", permanent=(ValueError,))
    def bad(job: Job) -> None:
        raise ValueError("no")

    @app.workflow("steps")
    def steps(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        for place in (ELSEWHERE, NEIGHBOUR, ELSEWHERE):
            wf.step(add, "b", on=place)
        wf.sleep(1)
        wf.step(add, "c", on=ELSEWHERE)
        wf.finish(add, "d")

    @app.workflow("waits")
    def waits(wf: WorkflowContext) -> None:
        wf.step(add, "a", on=ELSEWHERE)
        wf.signal("listener", "hello", on=ELSEWHERE)
        wf.wait_for("approved")
        wf.call("double", {"n": 2}, on=ELSEWHERE)
        wf.gather([child("double", {"n": n}) for n in range(3)])

    @app.workflow("listener")
    def listener(wf: WorkflowContext) -> None:
        wf.wait_for("hello", timeout=60)
        wf.step(add, "heard", on=HOME)

    @app.workflow("rows")
    def rows(wf: WorkflowContext) -> None:
        for row in range(wf.state or 0, 3):
            wf.step(add, "row", on=ELSEWHERE)
            wf.step(add, "row")
            wf.checkpoint(row + 1)
        wf.step(add, "end", on=ELSEWHERE)

    @app.workflow("undone")
    def undone(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=subtract)
        wf.step(add, "b", on=ELSEWHERE, undo=subtract)
        wf.enqueue("double", {"n": 1}, on=ELSEWHERE)
        raise PermanentError("as planned")

    @app.workflow("cancelled")
    def cancelled(wf: WorkflowContext) -> None:
        wf.step(add, "b", on=ELSEWHERE, undo=subtract)
        wf.call("double", {"n": 1}, delay=3_600)

    fails = [True, True]

    @app.workflow("fails")
    def retried(wf: WorkflowContext) -> None:
        wf.step(add, "a", on=ELSEWHERE)
        if fails:
            fails.pop()
            raise ConnectionError
        wf.step(add, "b", on=ELSEWHERE)
        wf.call("bad")


class CheckedCommits:
    """Checks both shards behind every transaction."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, app: App) -> None:
        self.checks = 0
        self._app = app
        self._is_checking = False
        transact = Shard.transact

        def transact_and_check(shard: Shard, *arguments: Any, **options: Any) -> Any:
            answer = transact(shard, *arguments, **options)
            if not self._is_checking:
                self._is_checking = True
                try:
                    self.check()
                finally:
                    self._is_checking = False
            return answer

        monkeypatch.setattr(Shard, "transact", transact_and_check)

    def check(self) -> None:
        shards = self._app.shards
        before = {name: check_integrity(shard, rest_ms=10_000) for name, shard in shards.items()}
        check_homes(shards, before, all_shards=True)
        found = [finding for report in before.values() for finding in report.findings]
        assert found == []
        assert not any(report.unknown or report.newer or report.without_home for report in before.values())
        self.checks += 1


def test_a_store_in_full_use_gives_no_false_alarm_between_any_two_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App({"a": "memory:", "b": "memory:"}, clock=ManualClock())
    everything_a_workflow_does(app)
    home, elsewhere = app.tenant(HOME), app.tenant(ELSEWHERE)
    elsewhere.enqueue("listener", item_id="listener")
    checked = CheckedCommits(monkeypatch, app)
    for kind in ("steps", "waits", "rows", "undone", "cancelled", "fails"):
        home.enqueue(kind, item_id=kind)
    drain(app, raise_errors=False, replays=False)
    home.cancel("cancelled")
    home.transact(lambda tr: tr.signal("waits", "approved"))
    drain(app, raise_errors=False, replays=False, within=600)
    for shard in app.shards.values():
        shard.transact(lambda attempt: raise_floor(attempt.tr, tombstones_max=2))
    for kind in ("steps", "waits"):
        home.enqueue(kind, item_id=kind)
    home.transact(lambda tr: tr.signal("waits", "approved"))
    drain(app, raise_errors=False, replays=False, within=600)
    assert checked.checks > 100


@pytest.mark.parametrize("seed", range(5))
def test_commits_during_a_check_of_two_shards_give_no_false_alarm(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The shards are read one after the other: meanwhile runs begin, act elsewhere, end and are cleaned up."""
    app = App({"a": "memory:", "b": "memory:"}, clock=ManualClock())
    everything_a_workflow_does(app)
    random, tenant = Random(seed), app.tenant(HOME)
    begun = iter(range(1_000))

    def meanwhile() -> None:
        if random.random() < 0.7:
            tenant.enqueue(random.choice(["steps", "rows", "undone"]), item_id=f"run {next(begun)}")
        drain(app, raise_errors=False, replays=False, within=random.choice([0, 0, 5]))

    for _ in range(10):
        shards = app.shards
        meanwhile()
        reports = {}
        for name in random.sample(list(shards), 2):
            reports[name] = check_integrity(shards[name], rest_ms=10_000)
            meanwhile()
        monkeypatch.setattr("fairlead.zones.maintenance.integrity.homes.without_known", _after(meanwhile))
        check_homes(shards, reports, all_shards=True)
        monkeypatch.undo()
        assert [finding for report in reports.values() for finding in report.findings] == []


def _after(meanwhile: Callable[[], None]) -> Any:
    known = homes.without_known

    def without_known(*arguments: Any) -> Any:
        meanwhile()
        found = known(*arguments)
        meanwhile()
        return found

    return without_known
