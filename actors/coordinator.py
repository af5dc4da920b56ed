"""The coordinator: grants, per shard, the lease to scan in order (QuiCK section 6, "Concurrency between consumers").

Random selection alone could starve an old pointer; so one scanner per shard takes pointers in order. The lease is
soft state of one actor: losing it may let two scanners go in order for one lease length, which costs some conflicts
and nothing else. A scanner that no longer hands over in-order pointers (its workers are full, it hangs) is not renewed.
"""

from typing import NamedTuple

from zones.probes import probe


class _Grant(NamedTuple):
    consumer: str
    until_us: int


class Coordinator:
    """Who may scan which shard in order. Time is an argument: decisions are the same wherever it lives."""

    def __init__(self) -> None:
        self._grants: dict[str, _Grant] = {}

    def request(
        self, shard_id: str, consumer: str, *, handed_over: bool, wanted: bool, lease_us: int, now_us: int
    ) -> bool:
        """Ask for the in-order lease on a shard, or for its renewal; say whether it is held for `lease_us` from now.

        Args:
          handed_over: whether the consumer handed over in-order pointers since its last request.
          wanted: false gives the lease up.
        """
        grant = self._grants.get(shard_id)
        if grant is not None and now_us >= grant.until_us:
            grant = None
        if grant is not None and grant.consumer != consumer:
            return False
        if not wanted:
            self._grants.pop(shard_id, None)
            return False
        if grant is not None and not handed_over:
            probe("a scanner in order has handed nothing over and is not renewed")
            return False  # what was granted before stands until it runs out; then whoever asks first has it
        self._grants[shard_id] = _Grant(consumer, now_us + lease_us)
        return True
