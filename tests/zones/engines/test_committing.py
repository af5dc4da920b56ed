"""Who waits for a commit, and who does something else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fairlead.clock import SystemClock
from fairlead.zones.engines import transact
from fairlead.zones.engines.api.committing import CommitTracker
from fairlead.zones.engines.memory.engine import MemoryDatabase
from tests.zones.faults import Fault, FaultyDatabase


def test_a_commit_is_under_way_from_the_end_of_a_body_until_its_result_is_known() -> None:
    db = FaultyDatabase(MemoryDatabase("memory:here", SystemClock(), Random(1)))
    work = CommitTracker()
    seen: list[tuple[str, bool]] = []

    def note(what: str) -> None:
        seen.append((what, work.in_progress))

    def body(tr: Any) -> None:
        note("body")
        tr.set(b"key", b"value")

    def applied(tr: Any) -> bool:
        note("asks")
        return False

    db.faults.append(Fault(applied=False, then=lambda: note("commits")))
    with work:
        transact(db, body, applied=applied)
        note("goes on")
    assert seen == [("body", False), ("commits", True), ("asks", True), ("body", False), ("goes on", False)]


def test_no_commit_is_under_way_after_a_body_that_fails() -> None:
    work = CommitTracker()

    def fails(tr: Any) -> None:
        raise KeyError

    with work, pytest.raises(KeyError):
        transact(MemoryDatabase("memory:here", SystemClock(), Random(1)), fails)
    assert not work.in_progress
