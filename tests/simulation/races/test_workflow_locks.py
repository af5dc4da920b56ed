"""Locks: runs that take, release and wait at the same moment, that end meanwhile, or whose commits are unknown or late.

`line` shows a lock's requests in their order: `mine+` holds the lock, `yours-` waits. A lock is stuck if its first
request waits, or belongs to a run that has ended.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.keyspace import LOCK, TenantKeys
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.workflow.locks import all_requests
from tests.simulation.races.director import SentCommit
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.scene import WorkerRole
from tests.simulation.races.workflow_scene import BOB, CAROL, FAR, HOME, KIND, MINE, NAME, WorkflowScene, do
from tests.simulation.stage import ALICE, SECOND

KEY = ("account", 7)
NAMES = {item_id_of(name): name for name in (NAME, "yours", "third")}

on_each = pytest.mark.parametrize("tenant", [ALICE, BOB, CAROL])


def takes(tenant: Tenant) -> Callable[[WorkflowContext], None]:
    """Return a workflow that takes a lock, does a step under it, and releases it. Another step comes first."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        with wf.lock(KEY, on=tenant):
            wf.step(do, "held")

    return work


def keeps(tenant: Tenant) -> Callable[[WorkflowContext], None]:
    """Return a workflow that takes a lock, and ends without releasing it."""

    def work(wf: WorkflowContext) -> None:
        wf.lock(KEY, on=tenant).__enter__()
        wf.step(do, "held")

    return work


def sleeps(tenant: Tenant) -> Callable[[WorkflowContext], None]:
    """Return a workflow that takes a lock, and sleeps under it."""

    def work(wf: WorkflowContext) -> None:
        with wf.lock(KEY, on=tenant):
            wf.sleep(3600)

    return work


def line(scene: WorkflowScene, tenant: Tenant) -> list[str]:
    """Return the requests of the lock: of which item, and whether it holds the lock."""
    shard = scene.homes[tenant]
    found = scene.at(
        shard, lambda attempt: [each.request for each in all_requests(attempt.tr, TenantKeys(*tenant), requests_max=10)]
    )
    return [
        f"{NAMES[request.item_id]}{'-' if request.held_us is None else '+'}" for request in found if request is not None
    ]


def starts(scene: WorkflowScene, name: str, work: Callable[[WorkflowContext], None]) -> WorkerRole:
    """Enqueue an item; return a worker that has leased it."""
    scene.has(lambda alice: alice.enqueue(KIND, item_id=name))
    return scene.executor(work)


def next_commit(scene: WorkflowScene, worker: WorkerRole, *, of: str = "slot") -> SentCommit:
    """Run until the next commit of a worker's task is on its way, to whichever shard."""
    commit = worker.runs_until_any_commit([scene.directed, scene.far], {of}, lambda: worker.is_idle)
    assert commit is not None
    return commit


def holding(scene: WorkflowScene, tenant: Tenant) -> WorkerRole:
    """Return a worker that has taken the lock by `takes`, and whose commit of the step under it is on its way."""
    worker = starts(scene, NAME, takes(tenant))
    for _ in range(3 if tenant == ALICE else 4):  # Another tenant is recorded as a participant first.
        next_commit(scene, worker)
    assert line(scene, tenant) == [f"{NAME}+"]
    return worker


# --- The end of a holder, and a request that comes ---


def request_as_the_lock_is_released(scene: WorkflowScene, tenant: Tenant) -> tuple[int | None, list[str]]:
    """The request has found that the lock is held. Its commit comes after the release."""
    holder = holding(scene, tenant)
    other = starts(scene, "yours", sleeps(tenant))
    commit = commit_of_request(scene, other, tenant)
    holder.runs_until_idle()
    commit.goes_its_way()
    refusal = commit.refusal
    other.runs_until_idle()
    return refusal, line(scene, tenant)


def commit_of_request(scene: WorkflowScene, worker: WorkerRole, tenant: Tenant) -> SentCommit:
    """Run until the commit of a request is on its way: the first, but for that which records a participant."""
    if tenant != ALICE:
        next_commit(scene, worker)
    return next_commit(scene, worker)


@on_each
def test_a_request_that_comes_as_the_lock_is_released_gets_it(tenant: Tenant) -> None:
    assert request_as_the_lock_is_released(WorkflowScene(), tenant) == (NOT_COMMITTED, ["yours+"])


@on_each
def test_without_the_conflict_on_the_last_request_one_waits_at_a_lock_that_nobody_holds(tenant: Tenant) -> None:
    with planted("a request reads the end of its line by snapshot"):
        assert request_as_the_lock_is_released(WorkflowScene(), tenant) == (None, ["yours-"])


def release_as_a_request_comes(scene: WorkflowScene, tenant: Tenant) -> tuple[int | None, list[str]]:
    """The release has found that nobody waits. Its commit comes after the request."""
    holder = holding(scene, tenant)
    return request_before(scene, holder, next_commit(scene, holder), tenant)


def end_as_a_request_comes(scene: WorkflowScene) -> tuple[int | None, list[str]]:
    """The end of the holder's run has found that nobody waits. Its commit comes after the request."""
    holder = starts(scene, NAME, keeps(ALICE))
    return request_before(scene, holder, next_commit(scene, holder, of="completer"), ALICE)


def request_before(
    scene: WorkflowScene, holder: WorkerRole, commit: SentCommit, tenant: Tenant
) -> tuple[int | None, list[str]]:
    """Let a request come before a commit that has been sent."""
    starts(scene, "yours", sleeps(tenant)).runs_until_idle()
    assert line(scene, tenant) == [f"{NAME}+", "yours-"]
    commit.goes_its_way()
    refusal = commit.refusal
    holder.runs_until_idle()
    return refusal, line(scene, tenant)


@on_each
def test_a_lock_is_handed_to_a_request_that_comes_as_it_is_released(tenant: Tenant) -> None:
    assert release_as_a_request_comes(WorkflowScene(), tenant) == (NOT_COMMITTED, ["yours+"])


def test_a_lock_is_handed_to_a_request_that_comes_as_the_run_of_its_holder_ends() -> None:
    assert end_as_a_request_comes(WorkflowScene()) == (NOT_COMMITTED, ["yours+"])


@on_each
def test_without_the_conflict_on_the_line_a_release_leaves_a_lock_to_nobody(tenant: Tenant) -> None:
    with planted("a lock is handed over after a read by snapshot"):
        assert release_as_a_request_comes(WorkflowScene(), tenant) == (None, ["yours-"])


def test_without_the_conflict_on_the_line_the_end_of_a_run_leaves_a_lock_to_nobody() -> None:
    with planted("a lock is handed over after a read by snapshot"):
        assert end_as_a_request_comes(WorkflowScene()) == (None, ["yours-"])


# --- Two that wait ---


def two_requests(scene: WorkflowScene, tenant: Tenant) -> tuple[int | None, list[str]]:
    """Both have found the holder's request at the end of the line."""
    starts(scene, NAME, sleeps(tenant)).runs_until_idle()
    first = starts(scene, "yours", sleeps(tenant))
    commit = commit_of_request(scene, first, tenant)
    starts(scene, "third", sleeps(tenant)).runs_until_idle()
    commit.goes_its_way()
    refusal = commit.refusal
    first.runs_until_idle()
    return refusal, line(scene, tenant)


@on_each
def test_two_requests_that_come_at_once_have_two_places(tenant: Tenant) -> None:
    assert two_requests(WorkflowScene(), tenant) == (NOT_COMMITTED, [f"{NAME}+", "third-", "yours-"])


@on_each
def test_without_the_conflict_on_the_last_request_one_takes_the_place_of_another(tenant: Tenant) -> None:
    with planted("a request reads the end of its line by snapshot"):
        assert two_requests(WorkflowScene(), tenant) == (None, [f"{NAME}+", "yours-"])


# --- The end of one that waits ---


def handed_to_a_run_that_ends(scene: WorkflowScene) -> tuple[int | None, list[str]]:
    """The release has found the request of a run that is then cancelled, and ends before the commit."""
    holder = holding(scene, ALICE)
    starts(scene, "yours", sleeps(ALICE)).runs_until_idle()
    commit = next_commit(scene, holder)
    scene.has(lambda alice: alice.cancel("yours"))
    scene.executor(sleeps(ALICE)).runs_until_idle()
    assert line(scene, ALICE) == [f"{NAME}+"]
    commit.goes_its_way()
    refusal = commit.refusal
    holder.runs_until_idle()
    return refusal, line(scene, ALICE)


def test_a_lock_is_not_handed_to_a_run_that_ends_meanwhile() -> None:
    scene = WorkflowScene()
    assert handed_to_a_run_that_ends(scene) == (NOT_COMMITTED, [])
    assert scene.kept(HOME) == []


def test_without_conflicts_a_lock_is_handed_to_a_run_that_has_ended() -> None:
    with planted("a lock is handed over by snapshot, to whatever item"):
        assert handed_to_a_run_that_ends(WorkflowScene()) == (None, ["yours+"])


def end_of_a_run_that_gets_the_lock(scene: WorkflowScene) -> tuple[int | None, list[str]]:
    """A run is cancelled while it waits, and its end is on its way as the lock is handed over to it."""
    holder = holding(scene, ALICE)
    for name in ("yours", "third"):
        starts(scene, name, sleeps(ALICE)).runs_until_idle()
    scene.has(lambda alice: alice.cancel("yours"))
    ending = scene.executor(sleeps(ALICE))
    next_commit(scene, ending)  # That the run is undone is recorded.
    commit = next_commit(scene, ending)
    holder.runs_until_idle()
    assert line(scene, ALICE) == ["yours+", "third-"]
    commit.goes_its_way()
    refusal = commit.refusal
    ending.runs_until_idle()
    return refusal, line(scene, ALICE)


def test_a_run_that_gets_a_lock_as_it_ends_hands_it_on() -> None:
    assert end_of_a_run_that_gets_the_lock(WorkflowScene()) == (NOT_COMMITTED, ["third+"])


def test_without_the_conflict_on_the_line_a_run_that_ends_takes_the_lock_with_it() -> None:
    with planted("a lock is handed over after a read by snapshot"):
        assert end_of_a_run_that_gets_the_lock(WorkflowScene()) == (None, ["third-"])


# --- Signalled once, and not missed ---


def handed_over_before_the_suspension(scene: WorkflowScene) -> tuple[int | None, list[int]]:
    """A run has found the lock taken, and its suspension is on its way."""
    holder = holding(scene, ALICE)
    other = starts(scene, "yours", takes(ALICE))
    for _ in range(2):  # The step before, and the request.
        next_commit(scene, other)
    commit = next_commit(scene, other)
    holder.runs_until_idle()
    commit.goes_its_way()
    refusal = commit.refusal
    other.runs_until_idle()
    return refusal, scene.counts(ALICE, "held")


def test_a_lock_that_is_handed_over_before_the_suspension_is_not_missed() -> None:
    assert handed_over_before_the_suspension(WorkflowScene()) == (NOT_COMMITTED, [2])


def test_without_the_conflict_on_signals_a_run_sleeps_under_the_lock_that_it_waits_for() -> None:
    with planted("a suspension reads the signals by snapshot"):
        assert handed_over_before_the_suspension(WorkflowScene()) == (None, [1])


# --- Unknown results ---


def is_applied(commit: SentCommit) -> None:
    commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)


def is_lost(commit: SentCommit) -> None:
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)


on_each_answer = pytest.mark.parametrize("answer", [is_applied, is_lost])


def request_of_unknown_result(
    scene: WorkflowScene, tenant: Tenant, answer: Callable[[SentCommit], None]
) -> tuple[dict[str, int], list[str]]:
    worker = starts(scene, NAME, sleeps(tenant))
    answer(commit_of_request(scene, worker, tenant))
    worker.runs_until_idle()
    return worker.counts, line(scene, tenant)


@on_each
@on_each_answer
def test_a_lock_of_unknown_result_is_taken_once(tenant: Tenant, answer: Callable[[SentCommit], None]) -> None:
    assert request_of_unknown_result(WorkflowScene(), tenant, answer) == ({"suspended": 1}, [f"{NAME}+"])


@on_each
def test_without_looks_at_what_is_stored_a_run_waits_behind_its_own_request(tenant: Tenant) -> None:
    with planted("a request looks neither for its entry nor for itself"):
        found = request_of_unknown_result(WorkflowScene(), tenant, is_applied)
    assert found == ({"suspended": 1}, [f"{NAME}+", f"{NAME}-"])


def release_of_unknown_result(
    scene: WorkflowScene, tenant: Tenant, answer: Callable[[SentCommit], None]
) -> tuple[dict[str, int], list[str]]:
    """Another run gets the lock by it."""
    worker = holding(scene, tenant)
    starts(scene, "yours", sleeps(tenant)).runs_until_idle()
    starts(scene, "third", sleeps(tenant)).runs_until_idle()
    answer(next_commit(scene, worker))
    worker.runs_until_idle()
    return worker.counts, line(scene, tenant)


@on_each
@on_each_answer
def test_a_lock_of_unknown_result_is_released_once(tenant: Tenant, answer: Callable[[SentCommit], None]) -> None:
    expected = ({"completed": 1}, ["yours+", "third-"])
    assert release_of_unknown_result(WorkflowScene(), tenant, answer) == expected


@pytest.mark.parametrize("tenant", [ALICE, BOB])
def test_without_the_number_of_its_own_request_a_release_that_is_repeated_is_that_of_another_run(
    tenant: Tenant,
) -> None:
    with planted("a release looks neither for its entry nor for its own request"):
        found = release_of_unknown_result(WorkflowScene(), tenant, is_applied)
    assert found == ({"completed": 1}, ["third+"])


# --- Late executors ---


def late_request(scene: WorkflowScene) -> list[str]:
    """Its run was cancelled meanwhile, without having taken the lock, and is cleaned up. Then the request arrives."""
    scene.enqueued()
    paused = scene.executor(keeps(BOB))
    paused.runs_until_commit(of="slot", at=scene.far)
    scene.has(lambda alice: alice.cancel(NAME))
    scene.overtaken_by(keeps(BOB)).runs_until_idle()
    assert MINE not in scene.zone.items
    scene.cleans_up()
    paused.runs_until_idle()
    return line(scene, BOB)


def test_a_late_executor_takes_no_lock() -> None:
    assert late_request(WorkflowScene()) == []


def test_without_the_conflict_on_the_fence_a_late_executor_takes_a_lock_for_ever() -> None:
    with planted("a step on another shard reads its entry and its fence by snapshot"):
        assert late_request(WorkflowScene()) == [f"{NAME}+"]


def late_release(scene: WorkflowScene) -> list[str]:
    """The run has released the lock, and taken it again, when the commit of the first release arrives."""

    def takes_twice(wf: WorkflowContext) -> None:
        with wf.lock(KEY, on=BOB):
            pass
        with wf.lock(KEY, on=BOB):
            wf.sleep(3600)

    scene.enqueued()
    paused = scene.executor(takes_twice)
    paused.runs_until_commit(of="slot", at=scene.far)
    paused.runs_until_commit(of="slot", at=scene.far)
    scene.overtaken_by(takes_twice).runs_until_idle()
    starts(scene, "yours", sleeps(BOB)).runs_until_idle()
    paused.runs_until_idle()
    return line(scene, BOB)


def test_a_late_executor_releases_no_lock_that_was_taken_since() -> None:
    assert late_release(WorkflowScene()) == [f"{NAME}+", "yours-"]


def test_without_fence_and_entry_a_late_executor_releases_a_lock_that_was_taken_since() -> None:
    with planted("a step on another shard looks neither at its fence nor for its entry"):
        assert late_release(WorkflowScene()) == ["yours+", f"{NAME}-"]


# --- The end of a run, and its locks elsewhere ---


@pytest.mark.parametrize(("tenant", "shard"), [(ALICE, HOME), (CAROL, HOME), (BOB, FAR)])
def test_the_end_of_a_run_leaves_no_lock(tenant: Tenant, shard: str) -> None:
    scene = WorkflowScene()
    starts(scene, NAME, keeps(tenant)).runs_until_idle()
    if tenant != ALICE:
        scene.cleans_up()
    assert (line(scene, tenant), LOCK in scene.kept(shard)) == ([], False)


@pytest.mark.parametrize(
    ("tenant", "bug"),
    [
        (ALICE, "the end of a run leaves its locks"),
        (CAROL, "a tenant of the home's shard whose lock is taken is no participant"),
        (BOB, "a cleanup leaves the locks of its run"),
    ],
)
def test_without_a_look_for_its_locks_the_end_of_a_run_leaves_one_for_ever(tenant: Tenant, bug: str) -> None:
    scene = WorkflowScene()
    with planted(bug):
        starts(scene, NAME, keeps(tenant)).runs_until_idle()
        if scene.zone.items:
            scene.cleans_up()
    assert MINE not in scene.zone.items
    assert line(scene, tenant) == [f"{NAME}+"]


def lock_that_moves(scene: WorkflowScene, work: Callable[[WorkflowContext], None]) -> list[str]:
    """Carol moves to the other shard while the run holds her lock."""
    starts(scene, NAME, work).runs_until_idle()
    scene.moves(CAROL, FAR)
    assert line(scene, CAROL) == [f"{NAME}+"]
    scene.pass_us(3601 * SECOND)
    scene.executor(work).runs_until_idle()
    if scene.zone.items:
        scene.cleans_up()
    return line(scene, CAROL)


def test_a_lock_is_released_where_its_tenant_lives_by_then() -> None:
    assert lock_that_moves(WorkflowScene(), sleeps(CAROL)) == []


def test_the_end_of_a_run_releases_a_lock_where_its_tenant_lives_by_then() -> None:
    def keeps_and_sleeps(wf: WorkflowContext) -> None:
        wf.lock(KEY, on=CAROL).__enter__()
        wf.sleep(3600)

    assert lock_that_moves(WorkflowScene(), keeps_and_sleeps) == []
