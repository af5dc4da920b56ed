"""The coordinator: grants, per shard, the lease to scan in order (QuiCK section 6, "Concurrency between consumers").

Random selection alone could starve an old pointer, so one scanner per shard takes pointers in order. The lease is soft
state of one actor. If it is lost, two scanners may scan in order for one lease length, which costs some conflicts and
nothing else. A scanner that no longer hands over in-order pointers (its workers are full, or it hangs) is not renewed.
After its lease has expired, it does not get the next one while another consumer requests it, even if it asks first.
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
    """Which consumer may scan which shard in order. Time is an argument, so decisions do not depend on the host."""

    def __init__(self) -> None:
        self._grants: dict[str, _Grant] = {}
        self._refusals: dict[str, _Refusal] = {}  # the last consumer whose request was refused

    def request(
        self, shard_id: str, consumer: str, *, handed_over: bool, wanted: bool, lease_us: int, now_us: int
    ) -> bool:
        """Request the in-order lease on a shard, or its renewal; say whether it is granted for `lease_us` from now.

        Args:
          handed_over: whether the consumer handed over in-order pointers since its last request.
          wanted: false releases the lease.
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
                return False  # the former grant stands until it expires
            if self._another_waits(shard_id, consumer, now_us - lease_us):
                probe("a scanner in order has handed nothing over and another one is next")
                return False
        self._grants[shard_id] = _Grant(consumer, now_us + lease_us)
        return True

    def _another_waits(self, shard_id: str, consumer: str, since_us: int) -> bool:
        """Say whether another consumer was refused lately: one that wants the lease asks a few times per lease."""
        refusal = self._refusals.get(shard_id)
        return refusal is not None and refusal.consumer != consumer and refusal.us > since_us
