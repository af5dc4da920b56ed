"""A transaction that reads nothing, and whose commit arrives late: after the attempt that took its place.

Its receipt must conflict with the receipt of the later attempt. So the transaction has a read version, although it has
read nothing. A transaction of a tenant has read who owns the tenant; one on the shard itself asks for a version.
"""

from __future__ import annotations

from typing import Any

from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.races.director import SentCommit
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.scene import Scene
from tests.zones.world import NOBODYS

ONE = (1).to_bytes(8, "little")


def count(shard: Shard) -> None:
    """Count once, in a transaction that only writes."""

    def body(attempt: Attempt) -> None:
        attempt.needs_receipt = True
        attempt.tr.add(NOBODYS, ONE)

    shard.transact(body)


def counted_by_two_attempts(scene: Scene) -> tuple[SentCommit, Any]:
    """The first commit takes too long, and another attempt counts. Then the first commit arrives."""
    counter = scene.role("counter", count)
    late = counter.runs_until_commit()
    late.answer_arrives(COMMIT_UNKNOWN_RESULT)
    counter.runs()
    late.arrives()
    return late, scene.play(lambda: scene.shard.transact(lambda attempt: attempt.tr.get(NOBODYS).value))


def test_a_commit_that_only_writes_and_arrives_after_the_next_attempt_is_refused() -> None:
    late, counted = counted_by_two_attempts(Scene())
    assert (late.refusal, counted) == (NOT_COMMITTED, ONE)


def test_with_the_read_version_of_its_arrival_a_late_commit_counts_again() -> None:
    with planted("a commit that only writes has the read version of its arrival"):
        late, counted = counted_by_two_attempts(Scene())
    assert (late.refusal, counted) == (None, (2).to_bytes(8, "little"))
