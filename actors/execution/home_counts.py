"""Counts of attempts at items of an external store: on the shards where the tenants of the items live.

An external store keeps no history. So the hourly history of a shard covers all items of its tenants, wherever they are
stored.
"""

from collections.abc import Callable, Iterable, Sequence

from fairlead.actors.execution.acknowledgement import Settled
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.shard_counts import ShardCounts


class HomeCounts:
    """See `AttemptCounts`. `counts_on`: returns the worker's counts on a shard, by its name."""

    def __init__(self, counts_on: Callable[[str], ShardCounts]) -> None:
        self._counts_on = counts_on

    def record(self, settled: Settled, ended: Iterable[HeldItem] = ()) -> None:
        """See `AttemptCounts`."""
        settled_at: dict[str, Settled] = {}
        for held, outcome in settled:
            settled_at.setdefault(held.shard_name, []).append((held, outcome))
        ended_at = _by_home(ended)
        for name in {**settled_at, **ended_at}:
            self._counts_on(name).record(settled_at.get(name, []), ended_at.get(name, []))

    def record_failures(self, items: Iterable[HeldItem]) -> None:
        """See `AttemptCounts`."""
        for name, some in _by_home(items).items():
            self._counts_on(name).record_failures(some)

    def record_event(self, name: str, items: Sequence[HeldItem]) -> None:
        """See `AttemptCounts`."""
        for home, some in _by_home(items).items():
            self._counts_on(home).record_event(name, some)


def _by_home(items: Iterable[HeldItem]) -> dict[str, list[HeldItem]]:
    groups: dict[str, list[HeldItem]] = {}
    for held in items:
        groups.setdefault(held.shard_name, []).append(held)
    return groups
