"""Leases: no actor leases, changes, removes or starts an item that another holds, or starts its own twice."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from fairlead.actors.messages import ItemRef
from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.replica import ItemChange, ItemName, ParsedCommit, item_of
from fairlead.simulation.world import World
from fairlead.zones.top_level.worker_sessions import ALIVE
from fairlead.zones.workflow.locks import HOLD_KIND

Holding = tuple[ItemName, bytes]  # under which lease


class LeasesAreRespected(Oracle):
    """A new lease is taken only when the last one has ended, by the taker's clock. Only the holder changes an item.

    There are five exceptions. A lease may be shortened when the worker incarnation that it was sent to has ended; no
    other incarnation runs the item under it. So may a claim whose worker session has ended. And a lease that ends later
    than allowed, by a clock that was ahead, may be shortened; its holder need not know that when it starts. Anyone may
    note that something has arrived for a workflow, or that it is to be undone. And a workflow that is undone cancels
    its children.

    Args:
      clock_of: returns the latest time that the clock of a host's node has shown: it may have stepped back since.
      is_consumer: whether a host belongs to a consumer; other hosts may cancel any item.
      longest_us: the longest lease by the clock that is off most.
    """

    promise = "no item is held by two live leases"

    def __init__(
        self, world: World, clock_of: Callable[[str], int], is_consumer: Callable[[str], bool], *, longest_us: int
    ) -> None:
        super().__init__(world)
        self._longest_us = longest_us
        self._clock_of = clock_of
        self._is_consumer = is_consumer
        self._holders: dict[Holding, str] = {}  # the worker that a lease was sent to; before that, its manager
        self._incarnations: dict[Holding, str] = {}  # the worker incarnation that it was sent to
        self._ends_us: dict[Holding, int] = {}

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "place":
            refs: Sequence[ItemRef]
            refs, incarnation = args
            for ref in refs:
                self._holders[item_of(ref), ref.lease_id] = target
                self._incarnations[item_of(ref), ref.lease_id] = incarnation.decode()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            before, after = change.before, change.after
            if before is not None and before.lease_id and self._is_consumer(parsed.commit.by):
                self._check(change, parsed)
            if after is not None and after.lease_id and not self._is_revoked(change):
                self._ends_us[change.item, after.lease_id] = after.vesting_us
                self._holders.setdefault((change.item, after.lease_id), parsed.by)

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        ended_us = self._ends_us.get((run.item, run.lease_id))
        if ended_us is None:
            self.report_violation(f"{run.host} runs {run.item} under a lease that was never committed")
        elif ended_us <= run.clock_us:
            late_us = run.clock_us - ended_us
            self.report_violation(f"{run.host} starts {run.item} {late_us} us after its lease ended by its own clock")
        incarnation = self._incarnations.get((run.item, run.lease_id), run.host)
        if incarnation != run.host:
            self.report_violation(f"{run.host} runs {run.item}, which was sent to {incarnation}")

    def _check(self, change: ItemChange, parsed: ParsedCommit) -> None:
        before, after = change.before, change.after
        assert before is not None
        if self._holders.get((change.item, before.lease_id)) == parsed.by:
            return
        cut_short = after is not None and after.lease_id == before.lease_id
        has_ended = self._incarnations.get((change.item, before.lease_id)) in self.world.ended_incarnations
        if (cut_short and has_ended) or self._is_revoked(change) or is_release(change, parsed):
            return
        if is_note(change) or is_cancelled_child(change):
            return
        left_us = before.vesting_us - self._clock_of(parsed.commit.by)
        if left_us > 0:
            done = "removes" if after is None else "changes"
            self.report_violation(f"{parsed.by} {done} {change.item}, held by another for {left_us} us more")

    def _is_revoked(self, change: ItemChange) -> bool:
        """Return whether a lease that ends later than allowed is shortened to the time of the transaction.

        The clock of the committing actor may be off by another hour by then, so this does not compare it.
        """
        before, after = change.before, change.after
        if before is None or after is None or after.lease_id != before.lease_id:
            return False
        return before.vesting_us - after.vesting_us > self._longest_us


def is_release(change: ItemChange, parsed: ParsedCommit) -> bool:
    """Return whether a commit released the claim of a session that had ended; a hold ends with its claim."""
    before, after = change.before, change.after
    if is_hold(change) and before is not None and before.claim and after is None:
        return (before.claim,) not in parsed.shard.worker_sessions.get(ALIVE, {})
    if before is None or after is None or after.lease_id != before.lease_id or not before.claim or after.claim:
        return False
    return (before.claim,) not in parsed.shard.worker_sessions.get(ALIVE, {})


def is_hold(change: ItemChange) -> bool:
    """Return whether a commit changed the item by which a process holds locks outside of workflows."""
    return change.before is not None and change.before.kind == HOLD_KIND


def is_note(change: ItemChange) -> bool:
    """Return whether a commit only noted that keys of a workflow's run are stored, or that it is to be undone."""
    before, after = change.before, change.after
    if before is None or after is None:
        return False
    return replace(before, keeps_run=after.keeps_run, cancelling=after.cancelling) == after


def is_cancelled_child(change: ItemChange) -> bool:
    """Return whether a commit deleted a child of a workflow: the workflow, which is undone, may cancel it."""
    return (
        change.before is not None
        and change.before.parent is not None
        and change.after is None
        and change.dead_lettered is None
    )


class LeasesRunOnce(Oracle):
    """A handler does not start under a lease while the same worker runs it under that lease, even after two calls."""

    promise = "an item does not run twice at once under one lease"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._running: dict[tuple[ItemName, bytes], HandlerRun] = {}

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        other = self._running.get((run.item, run.lease_id))
        if other is not None and not other.over and other.host == run.host:
            self.report_violation(f"{run.host} runs {run.item} beside itself")
        self._running[run.item, run.lease_id] = run
