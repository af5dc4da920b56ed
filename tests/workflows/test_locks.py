"""Locks: one run holds them, or several that share; the others wait in their queues, in the order of their arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, Busy, PermanentError
from fairlead.replayed_runs import replay_runs
from fairlead.testing import ManualClock
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.errors import CheckpointUnderLock, LockOrder, OtherThread, StepInStep, TooManyLocks
from fairlead.workflows.held_locks import LockName
from fairlead.workflows.locks import LOCKS_MAX, step_name
from fairlead.workflows.read_only_replay import ReplayOutcome
from fairlead.zones.errors import BadArgument
from fairlead.zones.keyspace import LOCK, NAME_BYTES_MAX, pack_int, range_begin, range_end
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.locks import pack_lock
from tests.workflows.application import ELSEWHERE, HOME, NEIGHBOUR, append, enqueue, run, two_shards, words

KEY = ("account", 7)
pytestmark = pytest.mark.usefixtures("engine")

PLACES = [HOME, NEIGHBOUR, ELSEWHERE]


def requests(app: App, tenant: str = HOME) -> int:
    """Return how many keys the locks of a tenant have."""
    database = app.tenant(tenant)
    keys = database.shard.layout.location(database.tenant, DEFAULT_ZONE).keys.tenant
    prefix = keys.prefix + pack_int(LOCK)
    return database.shard.transact(
        lambda attempt: len(list(attempt.tr.get_range(range_begin(prefix), range_end(prefix))))
    )


def is_free(app: App, tenant: str = HOME, key: Any = KEY) -> bool:
    """Say whether a plain transaction may go on that requires a lock to be free."""
    try:
        app.tenant(tenant).transact(lambda tr: tr.require_unlocked(key))
    except Busy:
        return False
    return True


def locking(app: App, place: str = HOME, seconds: float = 10) -> None:
    """Make "w" a workflow that says at `place` when it begins and ends to hold a lock there."""

    @app.workflow("w")
    def work(wf: WorkflowContext, name: str, shared: bool = False) -> None:
        with wf.lock(KEY, on=place, shared=shared):
            wf.step(append, f"+{name}", on=place)
            wf.sleep(seconds)
            wf.step(append, f"-{name}", on=place)


# --- Exclusion ---


@pytest.mark.parametrize("place", PLACES)
def test_a_lock_excludes_workflows_of_all_tenants_and_shards_in_the_order_in_which_they_came(place: str) -> None:
    app = two_shards()
    locking(app, place)
    for number, tenant in enumerate([HOME, ELSEWHERE, NEIGHBOUR, HOME, ELSEWHERE]):
        app.tenant(tenant).enqueue("w", {"name": str(number)})
        run(app)
    drained = run(app, within=120)
    assert (drained.completed["w"], drained.errors) == (5, [])
    assert words(app, place) == " ".join(f"+{number} -{number}" for number in range(5))
    assert [requests(app, tenant) for tenant in PLACES] == [0, 0, 0]


def test_locks_of_other_keys_and_other_tenants_do_not_exclude() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext, key: int, on: str) -> None:
        with wf.lock(("account", key), on=on):
            wf.step(append, "+")
            wf.sleep(10)
            wf.step(append, "-")

    for key, on in [(7, HOME), (8, HOME), (7, NEIGHBOUR)]:
        enqueue(app, "w", {"key": key, "on": on})
    run(app, within=60)
    assert words(app) == "+ + + - - -"


def test_a_workflow_that_waits_for_a_lock_occupies_no_slot_and_goes_on_at_once_when_it_gets_it() -> None:
    app = two_shards()
    locking(app)
    enqueue(app, "w", {"name": "a"})
    run(app)
    enqueue(app, "w", {"name": "b"})
    assert run(app).suspended["w"] == 1
    assert run(app, within=10.1).completed["w"] == 1
    assert words(app) == "+a -a +b"


def test_readers_share_a_lock_and_a_writer_waits_for_them_but_is_not_overtaken() -> None:
    app = two_shards()
    locking(app)
    for name, tenant, shared in [
        ("r1", HOME, True),
        ("r2", ELSEWHERE, True),
        ("w1", HOME, False),
        ("r3", ELSEWHERE, True),
        ("r4", NEIGHBOUR, True),
        ("w2", HOME, False),
    ]:
        app.tenant(tenant).enqueue("w", {"name": name, "shared": shared})
        run(app)
    run(app, within=120)
    said = words(app).split()
    assert said[:2] + sorted(said[2:4]) + said[4:6] == ["+r1", "+r2", "-r1", "-r2", "+w1", "-w1"]
    assert sorted(said[6:8]) == ["+r3", "+r4"]
    assert said[10:] == ["+w2", "-w2"]
    assert requests(app) == 0


def test_several_locks_are_taken_in_one_order_whatever_the_order_of_the_arguments() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext, turned: bool) -> None:
        pairs = [(HOME, KEY), (app.tenant(ELSEWHERE), ("account", 9))]
        with wf.lock(*(reversed(pairs) if turned else pairs)):
            wf.step(append, "+")
            wf.sleep(1)
            wf.step(append, "-")

    for number in range(6):
        app.tenant(PLACES[number % 3]).enqueue("w", {"turned": bool(number % 2)})
    drained = run(app, within=60)
    assert (drained.completed["w"], drained.errors) == (6, [])
    assert [requests(app, tenant) for tenant in PLACES] == [0, 0, 0]


def test_every_replay_gives_the_same_answers_and_takes_no_lock_again() -> None:
    """`run` replays after each answer. Without that, it is the same."""
    for replays in (True, False):
        app = two_shards()
        locking(app, ELSEWHERE)
        for name in "abc":
            enqueue(app, "w", {"name": name})
            assert run(app, replays=replays).errors == []
        assert run(app, within=60, replays=replays).errors == []
        assert words(app, ELSEWHERE) == "+a -a +b -b +c -c"


def test_an_async_workflow_locks_likewise() -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext, name: str) -> None:
        async with wf.lock(KEY):
            await wf.step(append, f"+{name}", on=HOME)
            await wf.sleep(1)
            await wf.step(append, f"-{name}", on=HOME)

    for name in "abc":
        enqueue(app, "w", {"name": name})
        run(app)
    assert run(app, within=60).errors == []
    assert words(app) == "+a -a +b -b +c -c"


def test_branches_may_hold_locks_of_their_own() -> None:
    app = two_shards()

    async def branch(wf: AsyncWorkflowContext, key: int) -> None:
        async with wf.lock(("account", key)):
            await wf.step(append, f"{key}", name=f"step {key}")
            await wf.sleep(1, name=f"sleep {key}")

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(branch(wf, 9), branch(wf, 7))

    enqueue(app, "w")
    drained = run(app, within=60)
    assert (drained.completed["w"], drained.errors) == (1, [])
    assert requests(app) == 0


def test_runs_that_hold_a_lock_or_wait_for_one_can_be_replayed_before_a_deployment() -> None:
    app = two_shards()
    locking(app, ELSEWHERE)
    for name in "ab":
        enqueue(app, "w", {"name": name})
        run(app)
    shard = app.tenant(HOME).shard
    assert [each.outcome for each in replay_runs(app, "w", shard)] == [ReplayOutcome.SAME, ReplayOutcome.SAME]
    assert run(app, within=60).errors == []


# --- Ends, errors and undos ---


def holder(app: App, end: Callable[[WorkflowContext], object], **options: Any) -> Any:
    """Let a run take the lock at all places, and then do `end` within the block; return its handle."""

    @app.workflow("h", **options)
    def hold(wf: WorkflowContext) -> None:
        with wf.lock(*((place, KEY) for place in PLACES)):
            wf.step(append, "held", undo=lambda tr, word: append(tr, f"undone-free-{is_free_in(tr)}"))
            end(wf)

    handle = enqueue(app, "h", item_id="holder")
    run(app)
    return handle


def is_free_in(tr: TenantTransaction) -> bool:
    """Say whether nobody but the run of a step holds the lock."""
    try:
        tr.require_unlocked(KEY)
    except Busy:
        return False
    return True


def fail(error: Exception) -> None:
    raise error


def test_a_workflow_that_ends_within_its_block_gives_up_its_locks() -> None:
    app = two_shards()

    @app.workflow("h")
    def hold(wf: WorkflowContext) -> Any:
        with wf.lock(*((place, KEY) for place in PLACES)):
            return wf.finish(append, "finished")

    enqueue(app, "h")
    drained = run(app, within=1)
    assert (drained.completed["h"], drained.errors, words(app)) == (1, [], "finished")
    assert [requests(app, place) for place in PLACES] == [0, 0, 0]


@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_fails_for_good_keeps_its_locks_for_its_undos_and_then_hands_them_over(place: str) -> None:
    app = two_shards()
    locking(app, place)
    app.tenant(HOME).enqueue("w", {"name": "late"}, delay=1)
    holder(app, lambda wf: (wf.sleep(5), fail(PermanentError("no"))))
    assert not is_free(app, place)
    run(app, within=60)
    assert words(app).startswith("held undone-free-True")
    assert words(app, place).split()[-2:] == ["+late", "-late"]
    assert [requests(app, place) for place in PLACES] == [0, 0, 0]


def test_a_cancelled_run_hands_its_locks_over_once_it_is_undone() -> None:
    app = two_shards()
    locking(app)
    holding = holder(app, lambda wf: wf.sleep(1000))
    app.tenant(ELSEWHERE).enqueue("w", {"name": "next"})
    run(app)
    assert words(app) == "held"
    holding.cancel()
    run(app, within=60)
    assert words(app) == "held undone-free-True +next -next"
    assert [requests(app, place) for place in PLACES] == [0, 0, 0]


def test_a_run_that_waits_and_is_cancelled_loses_its_place() -> None:
    app = two_shards()
    locking(app)
    enqueue(app, "w", {"name": "first"})
    run(app)
    waiting = [app.tenant(tenant).enqueue("w", {"name": tenant}) for tenant in (HOME, ELSEWHERE)]
    run(app)
    enqueue(app, "w", {"name": "last"})
    run(app)
    for each in waiting:
        each.cancel()
    run(app, within=60)
    assert words(app) == "+first -first +last -last"
    assert [requests(app, place) for place in PLACES] == [0, 0, 0]


@pytest.mark.parametrize("does", ["retry", "cancel", "force", "discard"])
def test_a_dead_letter_keeps_its_locks_until_it_is_retried_cancelled_or_discarded(does: str) -> None:
    app = two_shards()
    locking(app)
    mended: list[bool] = []

    @app.workflow("h")
    def hold(wf: WorkflowContext) -> None:
        with wf.lock(*((place, KEY) for place in PLACES)):
            wf.sleep(1)
            if not mended:
                wf.lock(("a",)).__enter__()  # Out of order: the code is unfit.

    dead = enqueue(app, "h", item_id="holder")
    assert run(app, within=5).dead_lettered["h"] == 1
    app.tenant(ELSEWHERE).enqueue("w", {"name": "next"})
    run(app, within=60)
    assert (words(app), is_free(app)) == ("", False)
    mended.append(True)
    if does == "retry":
        app.tenant(HOME).retry_dead_letter(dead.item_id)
    elif does == "discard":
        app.tenant(HOME).discard_dead_letter(dead.item_id)
    else:
        dead.cancel(force=does == "force")
    run(app, within=60)
    assert words(app) == "+next -next"
    assert [requests(app, place) for place in PLACES] == [0, 0, 0]


def test_a_lock_that_an_error_leaves_behind_can_be_released() -> None:
    app = two_shards()

    @app.workflow("h", keep_result=60)
    def hold(wf: WorkflowContext) -> list[bool]:
        lock = wf.lock(KEY)
        try:
            with lock:
                wf.step(append, "held")
                raise ValueError
        except ValueError:
            wf.sleep(1)
            is_free_before = wf.effect(lambda key: is_free(app), name="look")
        lock.release()
        lock.release()
        return [is_free_before, wf.effect(lambda key: is_free(app), name="look")]

    handle = enqueue(app, "h")
    assert run(app, within=5).errors == []
    assert (words(app), handle.result(0)) == ("held", [False, True])


def test_a_lock_can_be_released_within_its_block_and_taken_again_later() -> None:
    app = two_shards()

    @app.workflow("h")
    def hold(wf: WorkflowContext) -> None:
        for _ in range(2):
            with wf.lock(KEY) as lock:
                lock.release()
                wf.step(lambda tr: append(tr, "free" if is_free_in(tr) else "held"), name="look")

    enqueue(app, "h")
    assert run(app).errors == []
    assert (words(app), requests(app)) == ("free free", 0)


# --- Required to be free ---


def test_a_transaction_that_requires_a_lock_to_be_free_is_told_who_holds_it() -> None:
    clock = ManualClock()
    app = App({"a": "memory:", "b": "memory:"}, clock=clock)
    locking(app, ELSEWHERE)
    held = enqueue(app, "w", {"name": "a"})
    run(app)
    clock.advance(3)
    with pytest.raises(Busy) as busy:
        app.tenant(ELSEWHERE).transact(lambda tr: tr.require_unlocked(KEY))
    assert (busy.value.by, busy.value.kind, busy.value.held_for) == (f"{HOME} {held.item_id.hex()}", "w", 3)
    assert str(busy.value).startswith("the lock is held, lock='(\"account\", 7)'")


def test_a_step_may_require_a_lock_that_its_own_run_holds_but_not_one_that_others_share() -> None:
    app = two_shards()
    locking(app, HOME, 1000)

    @app.workflow("h")
    def look(wf: WorkflowContext) -> None:
        with wf.lock(KEY, shared=True):
            wf.step(lambda tr: append(tr, "alone" if is_free_in(tr) else "shared"), name="look")

    enqueue(app, "h")
    run(app)
    enqueue(app, "w", {"name": "a", "shared": True})
    run(app)
    enqueue(app, "h")
    run(app)
    assert words(app) == "alone +a shared"


# --- Refused ---


def error_of(work: Any) -> Exception:
    """Run a workflow, which must become a dead letter; return its error."""
    app = two_shards()
    app.workflow("bad")(work)
    enqueue(app, "bad")
    drained = run(app, within=1)
    assert drained.dead_lettered["bad"] == 1
    return drained.errors[0]


def nested(wf: WorkflowContext, first: Any, second: Any) -> None:
    with wf.lock(first), wf.lock(second):
        pass


def test_locks_that_are_asked_for_out_of_order_are_refused() -> None:
    error = error_of(lambda wf: nested(wf, ("account", 9), ("account", 7)))
    assert isinstance(error, LockOrder)
    assert str(error) == (
        "the caller cannot take the lock, reason='it is asked for out of order: take all locks by one call, which"
        " sorts them', kind='bad', lock='(\"account\", 7) of shop/alice', held='(\"account\", 9) of shop/alice'"
    )
    assert isinstance(error_of(lambda wf: nested(wf, (ELSEWHERE, ("a",)), (HOME, ("z",)))), LockOrder)


def test_a_lock_that_is_held_already_is_refused_as_such() -> None:
    error = error_of(lambda wf: nested(wf, KEY, KEY))
    assert isinstance(error, LockOrder)
    assert error.fields["reason"] == "the caller holds it already"
    assert error.fields["lock"] == error.fields["held"]


def test_locks_that_are_asked_for_in_order_may_be_nested() -> None:
    app = two_shards()
    app.workflow("w")(lambda wf: nested(wf, ("account", 7), ("account", 9)))
    enqueue(app, "w")
    assert run(app).completed["w"] == 1


def test_two_branches_of_one_run_cannot_exclude_each_other() -> None:
    async def branch(wf: AsyncWorkflowContext, seconds: float) -> None:
        await wf.sleep(seconds, name=f"sleep {seconds}")
        async with wf.lock(KEY):
            await wf.sleep(5, name=f"hold {seconds}")

    async def work(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(branch(wf, 0.5), branch(wf, 0.6))

    assert isinstance(error_of(work), LockOrder)


def test_a_checkpoint_under_a_lock_is_refused() -> None:
    def work(wf: WorkflowContext) -> None:
        with wf.lock(KEY):
            wf.checkpoint(1)

    assert isinstance(error_of(work), CheckpointUnderLock)


def test_more_locks_than_the_end_of_a_run_can_release_are_refused() -> None:
    def work(wf: WorkflowContext) -> None:
        with wf.lock(*((number,) for number in range(LOCKS_MAX + 1))):
            pass

    assert isinstance(error_of(work), TooManyLocks)


def test_a_lock_within_a_step_is_refused() -> None:
    def work(wf: WorkflowContext) -> None:
        wf.step(lambda tr: wf.lock(KEY).__enter__(), name="outer")

    assert isinstance(error_of(work), StepInStep)


def test_a_lock_in_another_thread_is_refused() -> None:
    def work(wf: WorkflowContext) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(wf.lock(KEY).__enter__).result()

    assert isinstance(error_of(work), OtherThread)


@pytest.mark.parametrize(
    "keys",
    [
        (),
        ("account",),
        (7,),
        (None,),
        ((),),
        (["account", 7],),
        (({"account": 7},),),
        ((HOME, ()),),
        (("no tenant", KEY),),
        ((7, KEY),),
        (KEY, KEY),
        (KEY, (HOME, KEY)),
        (("x" * 240,),),
        (("\0" * 120,),),
    ],
)
def test_what_is_no_key_is_refused(keys: Any) -> None:
    app = two_shards()

    @app.workflow("bad")
    def work(wf: WorkflowContext) -> None:
        wf.lock(*keys)

    enqueue(app, "bad")
    assert isinstance(run(app).errors[0], BadArgument)


@pytest.mark.parametrize("key", ["account", None, (), ({},), ("x" * 240,)])
def test_what_is_no_key_cannot_be_required_to_be_unlocked(key: Any) -> None:
    app = two_shards()
    with pytest.raises(BadArgument):
        app.tenant(HOME).transact(lambda tr: tr.require_unlocked(key))


@pytest.mark.parametrize("key", [("a" * 200,), ("ä" * 90, 1), ("\x00",), (b"\x00" * 50,), ("a" * 100, "b" * 100)])
def test_names_of_steps_fit_and_differ_whatever_the_key(key: Any) -> None:
    lock = LockName(Tenant("a" * NAME_BYTES_MAX, "b" * NAME_BYTES_MAX), pack_lock(key))
    other = LockName(Tenant("a" * NAME_BYTES_MAX, "c" * NAME_BYTES_MAX), pack_lock(key))
    for what in ("lock", "wait for lock", "release lock"):
        assert len(step_name(what, lock).encode()) <= NAME_BYTES_MAX
        assert step_name(what, lock) != step_name(what, other)
        assert "\0" not in step_name(what, lock)


def test_the_longest_keys_of_the_tenant_with_the_longest_names_can_be_locked(tmp_path: Path) -> None:
    """On the embedded engine, whose keys end at 511 bytes."""
    app = App(f"embedded:{tmp_path}", clock=ManualClock())
    tenant = Tenant("a" * NAME_BYTES_MAX, "b" * NAME_BYTES_MAX)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        with wf.lock(("x" * 235,), (b"\0" * 58,)):
            wf.step(append, "done", on=HOME)

    app.tenant(*tenant).enqueue("w", item_id=bytes(16))
    assert run(app).errors == []
    assert (words(app), requests(app, str(tenant))) == ("done", 0)
