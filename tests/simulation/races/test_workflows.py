"""A workflow that is cancelled while the result of one of its commits is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.workflow_kind import WorkflowKind, workflow_handler
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.scene import Scene

STEP, CHECKPOINT = 0, 1  # Which commit of the workflow has an unknown result.


def do(tr: TenantTransaction, name: str) -> None:
    tr.add((name,), 1)


def undo(tr: TenantTransaction, name: str) -> None:
    tr.add((f"undo {name}",), 1)


def work(wf: WorkflowContext) -> None:
    if not wf.state:
        wf.step(do, "first", undo=undo)
        wf.checkpoint({"first": True})
    wf.step(do, "second", undo=undo)


def counts(scene: Scene, *names: str) -> list[int]:
    """Return how often bodies have committed."""
    stored = [scene.has(lambda alice, name=name: alice.transact(lambda tr: tr.get((name,)))) for name in names]  # type: ignore[misc]
    return [int.from_bytes(value or b"", "little") for value in stored]


@pytest.mark.parametrize(("held", "undone"), [(STEP, 1), (CHECKPOINT, 0)])
def test_a_commit_of_unknown_result_counts_though_its_run_is_cancelled_meanwhile(held: int, undone: int) -> None:
    """The step is undone, unless the checkpoint that forgets it was made."""
    scene = Scene()
    item = scene.has(lambda alice: alice.enqueue("checkout"))

    def home_of(_: Any) -> Shard:
        return scene.shard

    handler = workflow_handler("checkout", WorkflowKind(work, version=1, home_of=home_of))
    worker = scene.worker([handler], scene.leased(kinds=["checkout"]))
    commit = worker.runs_until_commit(of="slot")
    for _ in range(held):
        commit.goes_its_way()
        commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    assert commit.refusal is None
    scene.has(lambda alice: alice.cancel(item.item_id))
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    assert counts(scene, "first", "undo first", "second") == [1, undone, 0]
    assert list(scene.replica.items()) == []
