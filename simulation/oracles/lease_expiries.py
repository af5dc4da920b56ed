"""Expiries and failures: an item runs isolated after too many expiries, and only a failed attempt counts as a failure.

*Expiry*: an item is leased again although it was not completed or returned, because its worker died or stalled. Only
the expiry of an attempt that had started counts towards isolation. `zone_operations` checks these counts.
"""

from collections.abc import Sequence
from typing import Any

from fairlead.simulation.network import Reply
from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit, item_of
from fairlead.simulation.world import World


class PoisonCandidatesRunIsolated(Oracle):
    """A manager sends an item to run isolated if and only if it has expired too often in a row.

    An item whose lease has expired before does not start until its record says that it starts.

    Args:
      candidate_after: the number of expiries in a row that makes an item a poison candidate.
    """

    promise = "an item whose lease expired too often in a row runs isolated"

    def __init__(self, world: World, candidate_after: int) -> None:
        super().__init__(world)
        self._candidate_after = candidate_after
        self._expiries: dict[tuple[ItemName, bytes], int] = {}  # the count with which a lease was taken
        self._unmarked: set[tuple[ItemName, bytes]] = set()  # leases of items that expired, and have not started yet

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "place":
            for ref in args[0]:
                expiries = self._expiries.get((item_of(ref), ref.lease_id), 0)
                if ref.isolated != (expiries >= self._candidate_after):
                    how = "isolated" if ref.isolated else "beside others"
                    self.report_violation(f"{caller} sends {item_of(ref)} after {expiries} expiries to run {how}")

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        if (run.item, run.lease_id) in self._unmarked:
            self.report_violation(f"{run.host} starts {run.item}, which has expired, and its record does not say so")

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            after = change.after
            if change.before is not None and after is not None:
                mark = self._unmarked.discard if after.started or not after.expired_count else self._unmarked.add
                mark((change.item, after.lease_id))
                if after.lease_id != change.before.lease_id:  # A step of a workflow resets the count later.
                    self._expiries[change.item, after.lease_id] = after.expiry_count


class PoisonCandidatesGoOneByOne(Oracle):
    """A manager sends a poison candidate to the isolated worker after the answer to the call with the one before.

    A call without an answer, because it or its target is lost, is not checked: its sender may be notified at any time.
    """

    promise = "a manager sends one poison candidate at a time to the isolated worker"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # By sender and target: candidates whose call has not been answered, and the next one that was sent, if any.
        self._sent: dict[tuple[str, str], dict[tuple[ItemName, bytes], ItemName | None]] = {}

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        poison_candidates = _poison_candidates(method, args)
        if len(poison_candidates) > 1:
            self.report_violation(
                f"{caller} sends {len(poison_candidates)} items to {target}, each of which must run isolated"
            )
        for poison_candidate in poison_candidates:
            sent = self._sent.setdefault((caller, target), {})
            for earlier in sent:
                sent[earlier] = poison_candidate[0]
            sent[poison_candidate] = None

    def on_reply(self, reply: Reply) -> None:
        """See `Oracle`."""
        for poison_candidate in _poison_candidates(reply.method, reply.args):
            later = self._sent.get((reply.caller, reply.target), {}).pop(poison_candidate, None)
            if later is not None:
                self.report_violation(
                    f"{reply.caller} sends {later} to {reply.target} before the answer for {poison_candidate[0]}"
                )


def _poison_candidates(method: str, args: Sequence[Any]) -> list[tuple[ItemName, bytes]]:
    """Return the items of a call to a worker that must run isolated, and their leases."""
    return [(item_of(ref), ref.lease_id) for ref in args[0] if ref.isolated] if method == "place" else []


class FailuresAreCounted(Oracle):
    """The error count of an item grows by one for each failed attempt. It falls only when a workflow does a step."""

    promise = "the errors of an item are those of its attempts"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._attempts: set[tuple[ItemName, bytes]] = set()

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._attempts.add((run.item, run.lease_id))

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            before, after = change.before, change.after
            if before is None or after is None or (after.keeps_run and not after.error_count):
                continue
            if after.error_count != before.error_count:
                tried = (change.item, before.lease_id) in self._attempts
                if after.error_count != before.error_count + 1 or not tried:
                    self.report_violation(
                        f"{parsed.by} counts {after.error_count} errors of {change.item} after {before}"
                    )
