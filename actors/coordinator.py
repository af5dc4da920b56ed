"""The coordinator: grants, per shard, the lease to scan in order (QuiCK section 6, "Concurrency between consumers").

Random selection alone could starve an old pointer; so one scanner per shard takes pointers in order. The lease is
soft state of one actor: losing it may let two scanners go in order for one lease length, which costs some conflicts
and nothing else. A scanner that no longer hands over in-order pointers (its workers are full, it hangs) is not renewed,
and once its lease has run out it does not get the next one either while another asks: it may ask at that very instant.
"""

from typing import NamedTuple

from fairlead.zones.probes import probe


class _Grant(NamedTuple):
    consumer: str
    until_us: int


class _Refusal(NamedTuple):
    consumer: str
    us: int


class Coordinator:
    """Who may scan which shard in order. Time is an argument: decisions are the same wherever it lives."""

    def __init__(self) -> None:
        self._grants: dict[str, _Grant] = {}
        self._refusals: dict[str, _Refusal] = {}  # who asked last for what another had

    def request(
        self, shard_id: str, consumer: str, *, handed_over: bool, wanted: bool, lease_us: int, now_us: int
    ) -> bool:
        """Ask for the in-order lease on a shard, or for its renewal; say whether it is held for `lease_us` from now.

        Args:
          handed_over: whether the consumer handed over in-order pointers since its last request.
          wanted: false gives the lease up.
        """
        grant = self._grants.get(shard_id)
        stands = grant is not None and now_us < grant.until_us
        mine = grant is not None and grant.consumer == consumer
        if stands and not mine:
            if wanted:
                self._refusals[shard_id] = _Refusal(consumer, now_us)
            return False
        if not wanted:
            self._grants.pop(shard_id, None)
            return False
        if mine and not handed_over:
            if stands:
                probe("a scanner in order has handed nothing over and is not renewed")
                return False  # what was granted before stands until it runs out
            if self._another_waits(shard_id, consumer, now_us - lease_us):
                probe("a scanner in order has handed nothing over and lets another go first")
                return False
        self._grants[shard_id] = _Grant(consumer, now_us + lease_us)
        return True

    def _another_waits(self, shard_id: str, consumer: str, since_us: int) -> bool:
        """Whether somebody else was refused lately: who is alive and wants it asks a few times per lease."""
        refusal = self._refusals.get(shard_id)
        return refusal is not None and refusal.consumer != consumer and refusal.us > since_us
