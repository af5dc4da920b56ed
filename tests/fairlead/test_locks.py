"""Locks as people see them: in `why`, and by `fairlead locks`."""

from __future__ import annotations

from pathlib import Path

from fairlead import App, Cause, WorkflowContext
from fairlead.formatting import iso_time
from fairlead.testing import ManualClock, drain
from tests.fairlead.shell import run
from tests.workflows.application import ELSEWHERE, HOME, add, two_shards

KEY = ("account", 7)


def sleeping_under_locks(app: App) -> None:
    """Make "w" a workflow that sleeps under a lock of two tenants."""

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        with wf.lock((HOME, KEY), (ELSEWHERE, KEY)):
            wf.sleep(3600)


def test_a_workflow_that_waits_for_a_lock_says_who_holds_it_and_what_that_one_does() -> None:
    for place in (HOME, ELSEWHERE):
        app = two_shards()
        sleeping_under_locks(app)
        holder = app.tenant(place).enqueue("w")
        drain(app)
        waiting = app.tenant(ELSEWHERE).enqueue("w")
        drain(app, within=600)
        said = waiting.explain()
        assert (said.cause, said.sentence) == (
            Cause.WAITS_FOR_LOCK,
            f'it waits for the lock ("account", 7) of {HOME}, held by w {holder.item_id.hex()} of {place},'
            " which sleeps for another 50 min, for 10 min so far",
        )


def test_a_workflow_that_waits_for_a_lock_of_a_dead_letter_says_so() -> None:
    app = two_shards()

    @app.workflow("dead")
    def die(wf: WorkflowContext) -> None:
        with wf.lock(KEY):
            wf.sleep(1)
            wf.checkpoint(1)

    sleeping_under_locks(app)
    dead = app.tenant(HOME).enqueue("dead")
    drain(app, within=2, raise_errors=False)
    waiting = app.tenant(HOME).enqueue("w")
    drain(app)
    sentence = waiting.explain().sentence
    assert sentence.startswith(f'it waits for the lock ("account", 7) of {HOME}, held by dead {dead.item_id.hex()} of')
    assert "which failed for good: CheckpointUnderLock" in sentence


def test_a_signal_whose_name_begins_like_a_lock_is_a_signal() -> None:
    app = two_shards()
    app.workflow("w")(lambda wf: wf.wait_for("lock door"))
    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    assert handle.explain().cause is Cause.WAITS_FOR_SIGNAL


def test_the_command_lists_locks_with_their_holders(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'data'}"
    app = App(url, clock=ManualClock())

    @app.workflow("w")
    def work(wf: WorkflowContext, key: int, shared: bool) -> None:
        with wf.lock(("account", key), on=HOME, shared=shared):
            wf.step(add, "x")
            wf.sleep(3600)

    began = iso_time(app.clock.now_us())
    items = {}
    for key, shared, tenant in [(7, False, HOME), (7, False, "shop/bob"), (9, True, "shop/bob"), (9, True, HOME)]:
        items[key, tenant] = app.tenant(tenant).enqueue("w", {"key": key, "shared": shared}).item_id.hex()
        drain(app)
    app.close()
    for where in ([], ["--tenant", HOME]):
        said = run("locks", "--store", url, "--json", *where).json
        assert [(lock["tenant"], lock["lock"], lock["waiting"]) for lock in said["locks"]] == [
            (["shop", "alice"], '("account", 7)', 1),
            (["shop", "alice"], '("account", 9)', 0),
        ]
        assert [[holder["item"] for holder in lock["holders"]] for lock in said["locks"]] == [
            [items[7, HOME]],
            [items[9, "shop/bob"], items[9, HOME]],
        ]
        assert said["locks"][0]["holders"][0]["since"][:16] == began[:16]
        assert said["whole"]
    lines = run("locks", "--store", url).out
    assert f"w {items[7, HOME]} of shop/alice" in lines
    assert "nobody holds a lock" in run("locks", "--store", url, "--tenant", "shop/bob").out
