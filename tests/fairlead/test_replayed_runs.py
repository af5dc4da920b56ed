"""Replays of live runs by changed code: what differs is found, and nothing is done."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead import App, AsyncWorkflowContext, PermanentError, Retry, WorkflowContext, replayed_runs
from fairlead.replayed_runs import ParticipantAway, ReplayedRun, replay_runs
from fairlead.testing import drain
from fairlead.workflows import asynchronous, own_event_loop
from fairlead.workflows.errors import BranchNotEnded
from fairlead.workflows.execution import Execution
from fairlead.workflows.read_only_replay import ReplayOutcome, StoreInReplay, _RefusingDatabase
from fairlead.workflows.replay import StepsDiffer
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.memory.engine import MemoryStore
from fairlead.zones.errors import PayloadDamaged, RunUnreadable
from fairlead.zones.records import ItemRecord, decode, encode
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.run_records import decode_entry, entries_prefix, packed_step
from fairlead.zones.workflow.run_records import encode as encode_entry
from tests.fairlead.shell import Answer
from tests.fairlead.shell import run as run_command
from tests.workflows.application import ELSEWHERE, HOME, add, two_shards

NONE = "reserve, elsewhere, pay, look, wait_for approved were not reached"


def refuse(*args: Any) -> Any:
    raise AssertionError("something was done")


class Story:
    """Workflows of one kind that wait, and new code for them. While it replays, no store may commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = two_shards()
        self._monkeypatch = monkeypatch

    def begin(self, function: Callable[..., Any], *, version: int = 1, payload: Any = None, **options: Any) -> None:
        """Start a workflow of the old code, and run it until it waits."""
        self.code(function, version=version, **options)
        self.app.tenant(HOME).enqueue("w", payload)
        drain(self.app, raise_errors=False)

    def code(self, function: Callable[..., Any], *, version: int = 1, **options: Any) -> None:
        self.app.registry.handlers.clear()
        self.app.workflow("w", version=version, **options)(function)

    def replay(self, function: Callable[..., Any], *, version: int = 1, **options: Any) -> list[ReplayedRun]:
        """Replay all runs by new code."""
        self.code(function, version=version, **options)
        return self.replay_again()

    def replay_again(self, *, dead_letters: bool = False) -> list[ReplayedRun]:
        with self._monkeypatch.context() as patched:
            patched.setattr(MemoryStore, "submit", refuse)
            shards = self.app.shards.values()
            return [run for shard in shards for run in replay_runs(self.app, "w", shard, dead_letters=dead_letters)]


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


def old(wf: WorkflowContext, order: int = 7) -> None:
    wf.step(add, "a", name="reserve")
    wf.step(add, "b", name="elsewhere", on=ELSEWHERE)
    wf.effect(lambda key: "paid", name="pay")
    wf.read(lambda tr: 1, name="look")
    wf.wait_for("approved")
    wf.step(add, "c", name="ship")


def not_done(wf: WorkflowContext, order: int = 7) -> None:
    """The same steps, of which no body may be called."""
    wf.step(refuse, "a", name="reserve")
    wf.step(refuse, "b", name="elsewhere", on=ELSEWHERE)
    wf.effect(refuse, name="pay")
    wf.read(refuse, name="look")
    wf.wait_for("approved")
    wf.step(refuse, "c", name="ship")


def test_code_that_does_the_recorded_steps_fits_and_nothing_of_it_is_done(story: Story) -> None:
    story.begin(old)
    assert [(run.outcome, run.version, run.tenant.user) for run in story.replay(not_done)] == [
        (ReplayOutcome.SAME, 1, "alice")
    ]


def test_a_new_step_is_found_and_both_lists_are_shown(story: Story) -> None:
    def new(wf: WorkflowContext) -> None:
        wf.step(refuse, name="check")
        not_done(wf)

    story.begin(old)
    (run,) = story.replay(new)
    assert run.outcome is ReplayOutcome.DIFFERENT
    assert isinstance(run.error, StepsDiffer)
    assert run.error.fields["first_difference"] == f"check is new, and {NONE}"
    assert run.error.fields["recorded"] == ["reserve", "elsewhere", "pay", "look", "wait_for approved"]
    assert run.error.fields["now"] == ["check"]


@pytest.mark.parametrize(
    ("new", "first_difference"),
    [
        (lambda wf: wf.wait_for("approved"), "the workflow has come to the end of what is recorded, and reserve"),
        (
            lambda wf: None,
            f"the workflow has ended, and {NONE}",
        ),
        (lambda wf: wf.step(refuse, "z", name="reserve"), "reserve has other arguments, or is of another kind"),
        (lambda wf: wf.effect(refuse, name="reserve"), "reserve has other arguments, or is of another kind"),
        (
            lambda wf: {"y": 1}["x"],
            f"the workflow has raised KeyError: 'x', and {NONE}",
        ),
    ],
)
def test_code_that_differs_in_other_ways_is_found(story: Story, new: Callable[..., Any], first_difference: str) -> None:
    story.begin(old)
    (run,) = story.replay(new)
    assert run.outcome is ReplayOutcome.DIFFERENT
    assert isinstance(run.error, StepsDiffer)
    assert str(run.error.fields["first_difference"]).startswith(first_difference)


def test_a_payload_that_does_not_fit_is_found(story: Story) -> None:
    story.begin(old, payload={"order": 8})
    (run,) = story.replay(lambda wf, number: None)
    assert type(run.error).__name__ == "PayloadMismatch"


def test_code_of_a_higher_version_may_add_steps_and_older_code_gives_the_run_back(story: Story) -> None:
    def new(wf: WorkflowContext) -> None:
        wf.step(refuse, name="check")
        not_done(wf)

    story.begin(old, version=2)
    assert [run.outcome for run in story.replay(new, version=3)] == [ReplayOutcome.SAME]
    assert [run.outcome for run in story.replay(new, version=1)] == [ReplayOutcome.NEWER]


def test_a_run_that_is_undone_is_replayed_up_to_its_failure(story: Story) -> None:
    def stuck(tr: TenantTransaction, *args: Any) -> None:
        raise ConnectionError

    def failing(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve", undo=stuck)
        wf.step(fail, name="ship")

    def fail(tr: TenantTransaction) -> None:
        raise PermanentError("sold out")

    story.begin(failing, retry=Retry(backoff=3600, backoff_max=3600))
    assert [run.outcome for run in story.replay(failing)] == [ReplayOutcome.SAME]
    assert [run.outcome for run in story.replay(lambda wf: wf.step(refuse, name="other"))] == [ReplayOutcome.DIFFERENT]


def test_an_async_workflow_is_replayed_with_all_its_branches(story: Story) -> None:
    async def first(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(*[wf.step(add, "a", name=f"reserve {at}") for at in range(3)])
        await wf.wait_for("go")

    async def same(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(*[wf.step(refuse, "a", name=f"reserve {at}") for at in reversed(range(3))])
        await wf.wait_for("go")

    async def other(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(*[wf.step(refuse, "a", name=f"reserve {at}") for at in range(1, 4)])

    story.begin(first)
    assert [run.outcome for run in story.replay(same)] == [ReplayOutcome.SAME]
    (run,) = story.replay(other)
    assert isinstance(run.error, StepsDiffer)
    assert run.error.fields["first_difference"] == "reserve 3 is new, and reserve 0, wait_for go were not reached"


def test_steps_behind_a_checkpoint_are_compared_with_the_state(story: Story) -> None:
    def loop(wf: WorkflowContext) -> None:
        if wf.state is None:
            wf.step(add, "a", name="first")
            wf.checkpoint(1)
        wf.step(add, "a", name="second")
        wf.wait_for("go")

    story.begin(loop)
    assert [run.outcome for run in story.replay(loop)] == [ReplayOutcome.SAME]


def test_code_that_uses_a_store_outside_of_its_steps_gets_none(story: Story) -> None:
    def outside(wf: WorkflowContext) -> None:
        with suppress(AssertionError):
            story.app.tenant(HOME).enqueue("mail")
        not_done(wf)

    story.begin(old)
    (run,) = story.replay(outside)
    assert run.error is not None
    assert "has raised StoreInReplay" in str(run.error)
    assert story.app.tenant(HOME).count() == {"w": 1}


def test_a_step_that_is_begun_all_the_same_finds_no_store(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard behind the guard: here a replay does not stop at the end of what is recorded."""
    refusals = []

    def create_transaction(db: object) -> None:
        refusals.append(db)
        raise StoreInReplay

    story.begin(old)
    monkeypatch.setattr(Execution, "stop_at_end", lambda self: None)
    monkeypatch.setattr(_RefusingDatabase, "create_transaction", create_transaction)
    story.replay(lambda wf: wf.step(refuse, name="new"), version=2)
    story.replay(lambda wf: wf.step(refuse, name="new", on=ELSEWHERE), version=2)
    story.replay(lambda wf: wf.finish(refuse), version=2)
    story.replay(lambda wf: wf.sleep(10), version=2)
    assert len(refusals) == 4


def test_runs_in_every_queue_of_every_shard_are_found_and_items_without_steps_are_not(story: Story) -> None:
    story.code(old)
    for user in range(20):
        story.app.tenant("shop", f"user{user}").enqueue("w", zone="slow" if user % 2 else "queue")
        story.app.tenant("shop", f"user{user}").enqueue("mail")
    drain(story.app)
    story.app.tenant(HOME).enqueue("w")
    assert {run.tenant.user for run in story.replay(not_done)} == {f"user{user}" for user in range(20)}


# --- Nothing is done ---


NEW_CALLS: list[Any] = [
    lambda wf, do: wf.effect(do, name="new"),
    lambda wf, do: wf.effect(do, name="new", once=True),
    lambda wf, do: wf.effect(do, name="new", undo=do),
    lambda wf, do: wf.effect(do, name="new", retry=Retry(attempts=2)),
    lambda wf, do: wf.step(do, name="new"),
    lambda wf, do: wf.step(do, name="new", on=ELSEWHERE),
    lambda wf, do: wf.read(do, name="new"),
    lambda wf, do: wf.finish(do),
]


@pytest.mark.parametrize("call", NEW_CALLS)
@pytest.mark.parametrize("version", [1, 2])
def test_what_comes_behind_the_recorded_steps_is_not_done(story: Story, call: Any, version: int) -> None:
    """An effect needs no store, so none refuses it. In newer code, the new call comes before the recorded steps."""
    done: list[object] = []

    def new(wf: WorkflowContext) -> None:
        if version == 1:
            wf.step(refuse, "a", name="reserve")
        call(wf, done.append)

    story.begin(lambda wf: (wf.step(add, "a", name="reserve"), wf.step(stuck)), retry=SLOW)
    (run,) = story.replay(new, version=version)
    assert (run.outcome, run.error, done) == (ReplayOutcome.SAME, None, [])


def test_async_effects_behind_the_recorded_steps_are_not_called(story: Story) -> None:
    done: list[str] = []

    async def pay(key: str) -> None:
        done.append(key)

    async def new(wf: AsyncWorkflowContext) -> None:
        await wf.step(refuse, "a", name="reserve")
        await asyncio.gather(*(wf.effect(pay, name=f"pay {each}") for each in range(3)))

    story.begin(lambda wf: (wf.step(add, "a", name="reserve"), wf.step(stuck)), retry=SLOW)
    assert [(run.outcome, run.error) for run in story.replay(new)] == [(ReplayOutcome.SAME, None)]
    assert done == []


SLOW = Retry(backoff=3600, backoff_max=3600)


def stuck(tr: TenantTransaction) -> None:
    raise ConnectionError


# --- Runs that cannot be read ---


@pytest.mark.parametrize("damaged", ["payload", "result", "entry"])
def test_a_run_whose_stored_data_are_damaged_is_reported_and_the_others_are_replayed(
    story: Story, damaged: str
) -> None:
    story.code(old)
    alice = story.app.tenant(HOME)
    for number in range(3):
        alice.enqueue("w", {"order": number}, item_id=f"w{number}")
    drain(story.app)
    item_id, location = alice.item("w1").item_id, alice.shard.layout.location(alice.tenant, "queue")

    def damage(attempt: Attempt) -> None:
        tr, key = attempt.tr, location.keys.item(item_id)
        record = decode(ItemRecord, tr.get(key).value or b"")
        assert record is not None
        if damaged == "payload":
            record.payload = b"\xc1"
            tr.set(key, encode(record))
        else:
            log = entries_prefix(location.keys.tenant, record.run_of(item_id), 0) + packed_step("reserve", 0)
            entry = decode_entry(tr.get(log).value or b"")
            assert entry is not None
            tr.set(
                log, encode_entry(msgspec.structs.replace(entry, result=b"\xc1")) if damaged == "result" else b"\x01"
            )

    alice.shard.transact(damage)
    found = {run.item_id: run for run in story.replay(not_done)}
    assert [run.outcome.name for run in found.values()].count("SAME") == 2
    assert found[item_id].outcome is ReplayOutcome.UNREADABLE
    assert isinstance(found[item_id].error, PayloadDamaged if damaged == "payload" else RunUnreadable)


def test_a_run_whose_participant_is_away_is_reported_and_the_others_are_replayed(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.begin(old)
    story.begin(lambda wf: (wf.step(add, "a", name="reserve"), wf.wait_for("approved")))
    shards = story.app.shards
    here, there = story.app.tenant(HOME).shard, story.app.tenant(ELSEWHERE).shard

    def away(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("no answer", remedy="wait")

    monkeypatch.setattr(there, "transact", away)
    story.code(lambda wf: (wf.step(refuse, "a", name="reserve"), wf.wait_for("approved")))
    runs = list(replay_runs(story.app, "w", shards[here.name]))
    assert {run.outcome for run in runs} == {ReplayOutcome.SAME, ReplayOutcome.UNREADABLE}
    (error,) = [run.error for run in runs if run.error is not None]
    assert isinstance(error, ParticipantAway)
    assert error.fields["tenant"] == ELSEWHERE


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_leaves_the_process_does_not_end_the_replay_of_the_others(story: Story, is_async: bool) -> None:
    """Before, the command ended at the first of them, with the exit code of the function: 0 let a deployment pass."""

    def leaves(wf: WorkflowContext) -> None:
        sys.exit(0)

    async def leaves_async(wf: AsyncWorkflowContext) -> None:
        sys.exit(0)

    story.begin(old)
    story.begin(old)
    runs = story.replay(leaves_async if is_async else leaves)
    assert [run.outcome for run in runs] == [ReplayOutcome.DIFFERENT] * 2
    assert "the workflow has raised SystemExit: 0" in str(runs[0].error)


@pytest.mark.timeout(20)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_branch_that_swallows_each_cancellation_does_not_hold_up_a_replay(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asynchronous, "BRANCH_END_S", 0.05)
    monkeypatch.setattr(own_event_loop, "TASKS_END_S", 0.05)
    kept = []

    async def stubborn() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    async def new(wf: AsyncWorkflowContext) -> None:
        kept.append(asyncio.create_task(stubborn()))
        await wf.step(refuse, "a", name="reserve")
        await wf.wait_for("approved")

    story.begin(lambda wf: (wf.step(add, "a", name="reserve"), wf.wait_for("approved")))
    (run,) = story.replay(new)
    assert (run.outcome, type(run.error)) == (ReplayOutcome.DIFFERENT, BranchNotEnded)


# --- Dead letters ---


def test_dead_letters_are_replayed_if_that_is_asked_for_and_live_runs_are_not(story: Story) -> None:
    def renamed(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="check")

    story.begin(old)
    item = story.app.tenant(HOME).enqueue("w", item_id="waits")
    drain(story.app)
    story.code(renamed)
    item.signal("approved")
    assert drain(story.app, raise_errors=False).dead_lettered == {"w": 1}
    (dead,) = story.replay_again(dead_letters=True)
    assert (dead.item_id, dead.outcome) == (item.item_id, ReplayOutcome.DIFFERENT)
    assert [run.item_id for run in story.replay(not_done)] != [item.item_id]
    (dead,) = story.replay_again(dead_letters=True)
    assert (dead.item_id, dead.outcome, dead.version) == (item.item_id, ReplayOutcome.SAME, 1)


def test_more_dead_letters_than_a_page_are_replayed_and_those_that_are_undone_are_not(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undone(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve", undo=lambda tr, name: None)
        raise PermanentError

    monkeypatch.setattr(replayed_runs, "DEAD_LETTERS_PAGE", 2)
    story.begin(undone)
    for _ in range(5):
        story.begin(lambda wf: (wf.step(add, "a", name="reserve"), wf.step(lambda tr: object(), name="bad")))
    story.code(not_done)
    assert len(story.replay_again(dead_letters=True)) == 5


# --- The command ---

OLD = """
import fairlead

app = fairlead.App("embedded:./data")


@app.workflow("checkout")
def checkout(wf):
    wf.step(note, name="reserve")
    wf.wait_for("approved")


def note(tr):
    tr.add(("notes",), 1)


@app.handler("mail")
def mail(job):
    pass
"""
APP = ("--app", "fl_new:app")


@pytest.fixture
def shop(empty_directory: Path) -> Path:
    """A directory with a store where three workflows wait, and code that fits them."""
    app = App("embedded:./data")
    app.workflow("checkout")(lambda wf: (wf.step(lambda tr: None, name="reserve"), wf.wait_for("approved")))
    for user in ("alice", "bob", "carol"):
        app.tenant("shop", user).enqueue("checkout")
    drain(app)
    app.close()
    (empty_directory / "fl_new.py").write_text(OLD)
    return empty_directory


def change(shop: Path) -> None:
    (shop / "fl_new.py").write_text(OLD.replace('    wf.step(note, name="reserve")', '    wf.step(note, name="check")'))


def test_the_command_says_that_all_runs_fit(shop: Path) -> None:
    answer = run_command("replay", "checkout", *APP)
    assert (answer.code, answer.out) == (0, "checkout, by version 1 of its code: 3 the same, 0 different\n")


def test_the_command_shows_both_lists_and_ends_with_1(shop: Path) -> None:
    change(shop)
    answer = run_command("replay", "checkout", *APP)
    assert answer.code == 1
    assert (
        answer.out.count(
            "check is new, and reserve, wait_for approved were not reached\n  recorded           this code\n> reserve"
        )
        == 3
    )
    assert answer.out.endswith("checkout, by version 1 of its code: 0 the same, 3 different\n")


def test_the_command_answers_with_json(shop: Path) -> None:
    change(shop)
    answer = run_command("replay", "checkout", *APP, "--json")
    first = answer.json["different"][0]
    assert (answer.code, answer.json["runs"], answer.json["same"], answer.json["whole"]) == (1, 3, 0, True)
    assert (first["recorded"], first["now"], first["steps_before"]) == (["reserve", "wait_for approved"], ["check"], 0)
    assert (first["error_type"], first["version"], first["zone"]) == ("StepsDiffer", 1, "queue")


def test_the_command_stops_at_its_limit_and_says_so(shop: Path) -> None:
    answer = run_command("replay", "checkout", *APP, "--limit", 2)
    assert (answer.code, "2 the same" in answer.out, "there are more runs: raise --limit" in answer.out) == (
        0,
        True,
        True,
    )


def refused(*typed: object) -> Answer:
    return run_command("replay", *typed)


def test_bad_input_is_refused_with_a_sentence(shop: Path) -> None:
    for typed, code, words in (
        (("chekcout", *APP), 2, "checkout"),
        (("mail", *APP), 2, "the kind is no workflow"),
        (("checkout", "--store", "embedded:./data"), 2, "name it by --app"),
        (("checkout", "--app", "fl_nowhere:app"), 2, "fl_nowhere"),
        (("checkout", *APP, "--limit", 0), 2, "limit"),
    ):
        answer = refused(*typed)
        assert (answer.code, words in answer.err, answer.out) == (code, True, ""), (typed, answer)
        assert "Traceback" not in answer.err


def test_the_command_replays_dead_letters_and_says_that_there_are_none(shop: Path) -> None:
    change(shop)
    answer = run_command("replay", "checkout", *APP, "--dead-letters")
    assert (answer.code, answer.out) == (
        0,
        "checkout, by version 1 of its code: 0 the same, 0 different\n"
        "nothing was compared: no dead letter of it has recorded a step\n",
    )


def test_a_store_that_is_missing_is_not_made(shop: Path) -> None:
    (shop / "fl_new.py").write_text(OLD.replace("./data", "./nowhere"))
    assert refused("checkout", *APP).code == 3
    assert not (shop / "nowhere").exists()
