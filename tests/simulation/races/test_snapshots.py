"""Snapshots, and what others commit meanwhile: writers, readers, movers, and processes that drop or restore.

Alice has the key "key", with the value 1. After every commit the oracles of snapshots and of moves look at both shards.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.snapshots import SnapshotsKeepTheirState
from fairlead.simulation.snapshots.calls import SnapshotCalls
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.errors import RestoreRefused, Restoring, SnapshotGone
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.records import MovePhase, MoveState
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots import reading
from fairlead.zones.snapshots.restoring import begin_restore
from fairlead.zones.snapshots.taking import take
from fairlead.zones.snapshots.upkeep import SnapshotUpkeep
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import Patch, leave_no_receipts, planted
from tests.simulation.races.move_scene import MoveScene, on
from tests.simulation.races.workflow_scene import WorkflowScene, do
from tests.simulation.stage import ALICE, SECOND

LATER_US = 60 * SECOND
NAMES = "abcd"


class SnapshotScene(MoveScene):
    """Alice, whom processes of the story read, write, snapshot and move."""

    def __init__(self) -> None:
        super().__init__()
        self.oracle = SnapshotsKeepTheirState(self.world, ahead_us_max=LATER_US)
        self.suite.oracles.append(self.oracle)
        for value in (b"0", b"1"):  # The oracle has not seen the commit before, which gave the key its first value.
            self.sets(key=value)

    def sets(self, **values: bytes) -> None:
        """Let another process set keys in one transaction."""
        self.does(setting(**values))

    def takes(self) -> int:
        """Let another process take a snapshot."""
        return self.does(lambda shards: calls(shards).take(None))

    def then(self, number: int) -> dict[str, bytes]:
        """Return what another process reads at a snapshot."""
        pairs = self.does(lambda shards: calls(shards).pairs(number))
        return {name: value for name in (*NAMES, "key") for key, value in pairs if key == packed(name)}

    def now(self) -> dict[str, bytes]:
        """Return what another process reads at present."""
        return self.does(lambda shards: on(shards, ALICE, lambda tr: {key[0]: value for key, value in tr.get_range()}))

    def drops_half(self, number: int) -> None:
        """Let a process drop a snapshot, and die before it merges the copies."""
        self.oracle.note_asked(ALICE, number)
        self.does(lambda shards: calls(shards).drop(number, merges=False))

    def tends(self) -> None:
        """Let housekeeping of a new process look, by a clock that is ahead."""
        self.does(
            lambda shards: [
                SnapshotUpkeep(shard).look(now_us=self.world.now_us() + LATER_US) for shard in shards.values()
            ]
        )

    @property
    def is_well(self) -> bool:
        """Whether no oracle has found anything."""
        return self.world.violation is None


def calls(shards: OpenShards) -> SnapshotCalls:
    return SnapshotCalls(shards, ALICE, lambda: None)


def packed(name: str) -> bytes:
    return TenantKeys(*ALICE).data + b"\x02" + name.encode() + b"\x00"


def setting(**values: bytes) -> Callable[[OpenShards], None]:
    """Return what sets keys of Alice's, in one transaction, after it has read one of them."""

    def body(shards: OpenShards) -> None:
        def write(tr: object) -> None:
            for name, value in values.items():
                tr.set((name,), value)  # type: ignore[attr-defined]

        on(shards, ALICE, write)

    return body


def taking(shards: OpenShards) -> int:
    return calls(shards).take(None)


# --- An update and a snapshot ---


def update_beside_a_take(scene: SnapshotScene) -> tuple[list[int], dict[str, bytes]]:
    """The commit of an update is on its way when a snapshot is taken."""
    writer = scene.role("writer", setting(key=b"2"))
    writer.runs_until_commit()
    taken = scene.takes()
    writer.runs()
    return writer.refused, scene.then(taken)


def test_an_update_that_began_before_a_snapshot_is_repeated_and_copies_the_value_of_then() -> None:
    scene = SnapshotScene()
    assert update_beside_a_take(scene) == ([NOT_COMMITTED], {"key": b"1"})
    assert scene.now() == {"key": b"2"}
    assert scene.is_well


def test_without_the_conflict_on_the_owner_an_update_changes_the_snapshot() -> None:
    with planted("a user's transaction reads by snapshot which snapshots its tenant has"):
        assert update_beside_a_take(SnapshotScene()) == ([], {"key": b"2"})


def test_a_snapshot_whose_commit_arrives_after_an_update_has_the_new_value() -> None:
    scene = SnapshotScene()
    taker = scene.role("taker", taking)
    taker.runs_until_commit()
    scene.sets(key=b"2")
    assert scene.then(taker.runs()) == {"key": b"2"}
    assert (taker.refused, scene.is_well) == ([], True)


def test_two_snapshots_at_once_get_two_numbers() -> None:
    scene = SnapshotScene()
    taker = scene.role("taker", taking)
    taker.runs_until_commit()
    other = scene.takes()
    assert taker.runs() != other
    assert (taker.refused, scene.is_well) == ([NOT_COMMITTED], True)


def test_of_two_first_updates_at_once_one_is_repeated_and_finds_the_copy() -> None:
    scene = SnapshotScene()
    taken = scene.takes()
    writer = scene.role("writer", setting(key=b"2"))
    writer.runs_until_commit()
    scene.sets(key=b"3")
    writer.runs()
    assert (writer.refused, scene.then(taken), scene.now()) == ([NOT_COMMITTED], {"key": b"1"}, {"key": b"2"})
    assert scene.is_well


# --- A snapshot of unknown result ---


def take_of_unknown_result(scene: SnapshotScene, *, is_applied: bool) -> list[int]:
    """Return the numbers of the snapshots that there are afterwards."""
    taker = scene.role("taker", taking)
    commit = taker.runs_until_commit()
    if is_applied:
        commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    number = taker.runs()
    if not is_applied:
        commit.arrives()
        assert commit.refusal == NOT_COMMITTED
    kept: list[int] = scene.does(lambda shards: calls(shards).kept())
    assert number in kept
    return kept


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_snapshot_of_unknown_result_is_taken_once(is_applied: bool) -> None:
    scene = SnapshotScene()
    assert len(take_of_unknown_result(scene, is_applied=is_applied)) == 1
    assert scene.is_well


def test_without_receipts_a_snapshot_of_unknown_result_is_taken_twice(monkeypatch: Patch) -> None:
    leave_no_receipts(monkeypatch)
    assert len(take_of_unknown_result(SnapshotScene(), is_applied=True)) == 2


# --- A move ---


def test_a_snapshot_that_is_taken_while_its_tenant_is_frozen_is_taken_at_the_new_home() -> None:
    scene = SnapshotScene()
    taker = scene.role("taker", taking)
    taker.runs_until_commit()
    mover, _ = scene.frozen()
    assert mover.runs() is MoveState.MOVED
    taken = taker.runs()
    assert taker.refused == [NOT_COMMITTED]
    scene.sets(key=b"2")
    assert scene.then(taken) == {"key": b"1"}
    assert scene.is_well


def test_a_copy_that_is_made_while_the_tenant_moves_is_there_at_the_new_home() -> None:
    scene = SnapshotScene()
    taken = scene.takes()
    scene.begins()
    mover = scene.mover()
    stores = list(scene.stores.values())
    while scene.phase is not MovePhase.MOVING:
        assert mover.runs_until_any_commit(stores, ["mover#1"], lambda: mover.is_over) is not None
    scene.sets(key=b"2")
    assert mover.runs() is MoveState.MOVED
    assert (scene.then(taken), scene.now()) == ({"key": b"1"}, {"key": b"2"})
    assert scene.is_well


def test_a_drop_that_was_left_is_finished_at_the_new_home() -> None:
    scene = SnapshotScene()
    first, second = scene.takes(), scene.takes()
    scene.sets(key=b"2")
    scene.drops_half(second)
    assert scene.moves() is MoveState.MOVED
    scene.tends()
    assert scene.then(first) == {"key": b"1"}
    assert (scene.oracle.is_settled, scene.is_well) == (True, True)


def test_a_restore_that_was_left_is_finished_at_the_new_home() -> None:
    scene = SnapshotScene()
    taken = scene.takes()
    scene.sets(key=b"2")
    restorer = restoring(scene, taken)
    restorer.host.kill()
    assert scene.moves() is MoveState.MOVED
    with pytest.raises(Restoring):
        scene.now()
    scene.tends()
    assert (scene.now(), scene.is_well) == ({"key": b"1"}, True)


# --- A restore ---


def restoring(scene: SnapshotScene, number: int, name: str = "restorer") -> Role[None]:
    """Return a process that has begun a restore, and whose first piece is on its way."""
    restorer = scene.role(name, lambda shards: calls(shards).restore(number))
    restorer.runs_until_commit()
    restorer.runs_until_commit()
    assert scene.oracle.of(ALICE).restore is not None
    return restorer


def update_during_a_restore(scene: SnapshotScene) -> dict[str, bytes]:
    taken = scene.takes()
    scene.sets(key=b"2")
    restorer = restoring(scene, taken)
    scene.sets(other=b"3")
    restorer.runs()
    return scene.now()


def test_an_update_during_a_restore_is_refused() -> None:
    scene = SnapshotScene()
    with pytest.raises(Restoring):
        update_during_a_restore(scene)
    assert scene.is_well


def test_without_the_refusal_an_update_comes_between_the_pieces_of_a_restore() -> None:
    scene = SnapshotScene()
    with planted("a tenant can be read and written while it is restored"), pytest.raises(AssertionError):
        update_during_a_restore(scene)
    assert not scene.is_well


def test_an_update_that_began_before_a_restore_is_refused_and_does_nothing() -> None:
    scene = SnapshotScene()
    taken = scene.takes()
    scene.sets(key=b"2")
    writer = scene.role("writer", setting(key=b"3"))
    writer.runs_until_commit()
    restorer = restoring(scene, taken)
    with pytest.raises(Restoring):
        writer.runs()
    restorer.runs()
    assert (writer.refused, scene.now(), scene.is_well) == ([NOT_COMMITTED], {"key": b"1"}, True)


def slow_process_of_an_earlier_restore(scene: SnapshotScene) -> None:
    """A process stands still before the last piece of a restore, and goes on in the middle of the next one."""
    scene.sets(**dict.fromkeys(NAMES, b"1"))
    taken = scene.takes()
    scene.sets(**dict.fromkeys(NAMES, b"2"))
    slow = restoring(scene, taken, "slow")
    slow.runs_until_commit()
    slow.goes_on(0)
    last = slow.runs_until_commit()
    scene.tends()
    scene.sets(**dict.fromkeys(NAMES, b"3"))
    restorer = restoring(scene, taken)
    last.goes_its_way()
    slow.runs()
    restorer.runs()


def test_a_slow_process_does_not_end_a_later_restore(monkeypatch: Patch) -> None:
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)
    scene = SnapshotScene()
    slow_process_of_an_earlier_restore(scene)
    assert (scene.now(), scene.is_well) == (dict.fromkeys(NAMES, b"1") | {"key": b"1"}, True)


def test_without_the_id_of_its_restore_a_slow_process_ends_a_later_one(monkeypatch: Patch) -> None:
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)
    scene = SnapshotScene()
    with planted("a process goes on with a later restore in the place of its own"), pytest.raises(AssertionError):
        slow_process_of_an_earlier_restore(scene)
    assert not scene.is_well


# --- A drop ---


def test_a_reader_of_a_snapshot_that_is_dropped_meanwhile_is_told_so() -> None:
    scene = SnapshotScene()
    taken = scene.takes()
    scene.sets(key=b"2")
    read: list[bytes | None] = []

    def read_twice(shards: OpenShards) -> None:
        read.append(calls(shards).get(taken, packed("key")))
        scene.world.sleep_us(SECOND)
        read.append(calls(shards).get(taken, packed("key")))

    reader = scene.role("reader", read_twice)
    reader.runs_until(lambda: read)
    scene.oracle.note_asked(ALICE, taken)
    scene.does(lambda shards: calls(shards).drop(taken))
    with pytest.raises(SnapshotGone):
        reader.runs()
    assert (read, scene.is_well) == ([b"1"], True)


def read_beside_a_drop(scene: SnapshotScene) -> list[dict[str, bytes]]:
    """The later of two snapshots is dropped. Return what the first one shows before, between and after its pieces."""
    first, second = scene.takes(), scene.takes()
    scene.sets(key=b"2")
    scene.drops_half(second)
    shown = [scene.then(first)]
    merger = scene.role("merger", lambda shards: calls(shards).merge())
    merger.runs_until_commit()
    shown.append(scene.then(first))
    merger.runs()
    return [*shown, scene.then(first)]


def test_a_snapshot_shows_the_same_while_a_later_one_is_dropped() -> None:
    scene = SnapshotScene()
    assert read_beside_a_drop(scene) == [{"key": b"1"}] * 3
    assert scene.is_well


def test_without_a_look_through_the_dropped_snapshot_a_reader_sees_the_present_value() -> None:
    with planted("a read at a snapshot does not look through dropped ones"):
        assert read_beside_a_drop(SnapshotScene())[0] == {"key": b"2"}


def update_beside_a_drop(scene: SnapshotScene) -> dict[str, bytes]:
    """The later of two snapshots is dropped, and a key is updated before its copy is merged. Return the first one."""
    first, second = scene.takes(), scene.takes()
    scene.sets(key=b"2")
    scene.drops_half(second)
    scene.sets(key=b"3")
    scene.tends()
    return scene.then(first)


def test_an_update_finds_the_copy_of_a_dropped_snapshot_that_an_older_one_needs() -> None:
    scene = SnapshotScene()
    assert (update_beside_a_drop(scene), scene.is_well) == ({"key": b"1"}, True)


def test_without_a_look_at_the_dropped_snapshot_an_update_replaces_what_an_older_one_shows() -> None:
    with planted("a write does not look for copies at a dropped snapshot"):
        assert update_beside_a_drop(SnapshotScene()) == {"key": b"2"}


def test_an_update_beside_the_merge_of_a_dropped_snapshot_is_repeated_and_copies_nothing() -> None:
    scene = SnapshotScene()
    first, second = scene.takes(), scene.takes()
    scene.sets(key=b"2")
    scene.drops_half(second)
    writer = scene.role("writer", setting(key=b"3"))
    writer.runs_until_commit()
    scene.does(lambda shards: calls(shards).merge())
    writer.runs()
    assert (writer.refused, scene.then(first), scene.is_well) == ([NOT_COMMITTED], {"key": b"1"}, True)


# --- A workflow ---


def step_beside_the_begin_of_a_restore(scene: WorkflowScene) -> tuple[list[int], bool]:
    """The first step of Alice's run is committed while a restore of Alice is about to begin.

    Return by which codes the begin was refused, and whether the restore has begun.
    """
    keys, begun = TenantKeys(*ALICE), []

    def body(shard: Shard, attempt: Attempt) -> int:
        return take(attempt.tr, shard.layout, keys, now_us=attempt.now_us, kept_us=None)[0]

    taken = scene.play(lambda: scene.shard.transact(lambda attempt: body(scene.shard, attempt)))

    def restore(shard: Shard) -> None:
        shard.transact(lambda attempt: begin_restore(attempt.tr, shard.layout, keys, taken, now_us=attempt.now_us))
        begun.append(taken)

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done")
        wf.sleep(60)

    restorer = scene.role("restorer", restore)
    restorer.runs_until_commit()
    scene.enqueued()
    scene.executor(work).runs_until_idle()
    try:
        restorer.runs()
    except RestoreRefused:
        assert not begun
    return restorer.refused, bool(begun)


def test_a_restore_beside_the_first_step_of_a_workflow_is_refused() -> None:
    assert step_beside_the_begin_of_a_restore(WorkflowScene()) == ([NOT_COMMITTED], False)


def test_without_the_conflict_on_logs_and_fences_a_restore_begins_under_a_workflow() -> None:
    with planted("a restore looks by snapshot for workflows that are under way"):
        assert step_beside_the_begin_of_a_restore(WorkflowScene()) == ([], True)
