"""Lapses and failures: each is counted once, and an item that lapsed too often runs alone from then on.

*Lapse*: an item is leased although its last lease was never given back: its worker died or stalled. One counts if the
item had started, as its record says.
"""

from collections.abc import Sequence
from typing import Any

from fairlead.simulation.network import Reply
from fairlead.simulation.oracles.oracle import Oracle, Run
from fairlead.simulation.replica import ItemChange, ItemName, Meaning, item_of
from fairlead.simulation.world import World


class LapsesAreCounted(Oracle):
    """Whoever takes over an item that had started counts its lapse, its end ends the count, and nobody else changes it.

    Args:
      before_alone: after how many lapses in a row an item must run alone.
    """

    promise = "every lapse is counted, and an item that lapsed too often runs alone"

    def __init__(self, world: World, before_alone: int) -> None:
        super().__init__(world)
        self._before_alone = before_alone
        self._lapses: dict[tuple[ItemName, bytes], int] = {}  # with which count a lease was taken
        self._unmarked: set[tuple[ItemName, bytes]] = set()  # leases of items that lapsed, and have not started yet

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "place":
            for ref in args[0]:
                lapses = self._lapses.get((item_of(ref), ref.lease_id), 0)
                if ref.alone != (lapses >= self._before_alone):
                    how = "alone" if ref.alone else "as one of many"
                    self.broken(f"{caller} sends {item_of(ref)} after {lapses} lapses to run {how}")

    def on_start(self, run: Run) -> None:
        """See `Oracle`."""
        if (run.item, run.lease_id) in self._unmarked:
            self.broken(f"{run.host} starts {run.item}, which has lapsed before, and has not written that it starts")

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            before, after = change.before, change.after
            if before is None or after is None:
                continue
            if after.started and before.lease_id != after.lease_id:
                self.broken(f"{meaning.by} leases {change.item}, and its record says that it has started")
            mark = self._unmarked.discard if after.started or not after.lapsed else self._unmarked.add
            mark((change.item, after.lease_id))
            if after.lapse_count != self._due(change):
                self.broken(
                    f"{meaning.by} counts {after.lapse_count} lapses of {change.item}, and not {self._due(change)}"
                )
            self._lapses[change.item, after.lease_id] = after.lapse_count

    def _due(self, change: ItemChange) -> int:
        before, after = change.before, change.after
        assert before is not None
        assert after is not None
        if not after.lease_id:
            goes_back_as_it_came = after.given_back > before.given_back and not before.started
            return before.lapse_count if goes_back_as_it_came else 0
        taken_over = before.lease_id not in (b"", after.lease_id)
        return before.lapse_count + (taken_over and before.started)


class SuspectsGoOneByOne(Oracle):
    """A manager sends a suspect to the isolated worker only when the call with the one before it has been answered.

    A call that nobody answers, because it or its target is lost, is not looked at: its sender may hear so at any time.
    """

    promise = "a manager sends one suspect at a time to the isolated worker"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # By sender and target: suspects whose call has not been answered, and the next one that was sent, if any.
        self._sent: dict[tuple[str, str], dict[tuple[ItemName, bytes], ItemName | None]] = {}

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        suspects = _suspects(method, args)
        if len(suspects) > 1:
            self.broken(f"{caller} sends {len(suspects)} items to {target}, each of which must run alone")
        for suspect in suspects:
            sent = self._sent.setdefault((caller, target), {})
            for earlier in sent:
                sent[earlier] = suspect[0]
            sent[suspect] = None

    def on_reply(self, reply: Reply) -> None:
        """See `Oracle`."""
        for suspect in _suspects(reply.method, reply.args):
            later = self._sent.get((reply.caller, reply.target), {}).pop(suspect, None)
            if later is not None:
                self.broken(f"{reply.caller} sends {later} to {reply.target} before it hears of {suspect[0]}")


def _suspects(method: str, args: Sequence[Any]) -> list[tuple[ItemName, bytes]]:
    """Return the items that must run alone of those that a call sends to a worker, and their leases."""
    return [(item_of(ref), ref.lease_id) for ref in args[0] if ref.alone] if method == "place" else []


class FailuresAreCounted(Oracle):
    """An item's errors are counted one by one, and never fall: only an attempt that failed adds one."""

    promise = "the errors of an item are those of its attempts"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._attempts: set[tuple[ItemName, bytes]] = set()

    def on_start(self, run: Run) -> None:
        """See `Oracle`."""
        self._attempts.add((run.item, run.lease_id))

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            before, after = change.before, change.after
            if before is not None and after is not None and after.error_count != before.error_count:
                tried = (change.item, before.lease_id) in self._attempts
                if after.error_count != before.error_count + 1 or not tried:
                    self.broken(f"{meaning.by} counts {after.error_count} errors of {change.item} after {before}")
