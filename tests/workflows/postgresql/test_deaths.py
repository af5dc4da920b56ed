"""A workflow with steps on both shards and in SQL, whose worker dies before or after each statement and commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlead.actors.handlers import PermanentError
from fairlead.testing import drain
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.database import Future
from fairlead.zones.engines.optimistic.transaction import Transaction
from tests.workflows.application import ELSEWHERE, HOME, add, count
from tests.workflows.postgresql.shop import Shop, insert, remove

LEASE_S = 700.0  # Longer than the lease of a drain.
DEATHS_MAX = 200


class Died(BaseException):
    """The worker died here: nothing of it goes on."""


class Deaths:
    """Lets a worker die at one of its moments: before or after a commit on a shard, or a statement in SQL."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.moments = 0

    def moment(self) -> None:
        self.moments += 1
        if self.moments == self.at:
            raise Died

    @contextmanager
    def planted(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Count the moments inside the block."""
        from fairlead.zones.postgresql.connections import Call

        execute, commit = Call.execute, Transaction.commit

        def dying_execute(call: Any, *arguments: Any) -> Any:
            self.moment()
            found = execute(call, *arguments)
            self.moment()
            return found

        def dying_commit(tr: Transaction) -> Future:
            self.moment()
            done = commit(tr)
            self.moment()
            return done

        with monkeypatch.context() as patched:
            patched.setattr(Call, "execute", dying_execute)
            patched.setattr(Transaction, "commit", dying_commit)
            yield


@pytest.mark.parametrize("fails", [False, True], ids=["it ends", "it is undone"])
def test_a_workflow_whose_worker_dies_at_any_moment_does_each_step_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def undo(tr: Any, name: str) -> None:
        tr.add((name,), -1)

    @shop.app.workflow("w", drop=True)
    def work(wf: WorkflowContext) -> None:
        wf.step(insert, "a", store="pg", undo=remove)
        wf.step(add, "home", undo=undo)
        wf.step(insert, "b", store="pg", undo=remove)
        wf.step(add, "there", on=ELSEWHERE, undo=undo)
        if fails:
            raise PermanentError

    survived, at = False, 0
    while not survived:
        at += 1
        assert at < DEATHS_MAX
        shop.forget_effects()
        shop.enqueue()
        deaths = Deaths(at)
        with deaths.planted(monkeypatch):
            try:
                drain(shop.app, raise_errors=False, replays=False)
                survived = True
            except Died:
                pass
        drain(shop.app, raise_errors=False, replays=False, within=LEASE_S)
        undone = ["undo a", "undo b"] if fails else []
        assert (at, shop.effects()) == (at, ["a", "b", *undone])
        steps = 0 if fails else at
        assert (count(shop.app, HOME, "home"), count(shop.app, ELSEWHERE, "there")) == (steps, steps)
        assert (at, shop.kept()) == (at, (0, 0, at))
    assert at > 30
