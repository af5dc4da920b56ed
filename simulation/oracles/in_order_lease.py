"""In-order scans: on each shard one scanner takes the pointers in order, so that none starves.

QuiCK section 6: the other scanners select at random, and might never select a pointer. The scanner in order holds a
lease that the coordinator grants. A scanner without progress must not keep it from the others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlead.simulation.network import Reply
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.world import World


class _LeaseRequest(NamedTuple):
    """A scanner that requested the in-order lease of a shard, and the end of the grant, or the time of the refusal."""

    consumer: str
    us: int


class OneScannerGoesInOrder(Oracle):
    """One consumer at a time holds the in-order lease of a shard, and loses it to others without progress.

    A request says truthfully whether its scanner has handed pointers over since its last request. A scanner that has
    not does not get the lease again while another requests it.

    Args:
      clock_us: returns the time of the coordinator's clock, which decides the end of leases.
      incarnation: returns the name of the coordinator's present host; the next one does not know the grants.
    """

    promise = "one scanner at a time scans in order, and yields to others without progress"

    def __init__(self, world: World, *, clock_us: Callable[[], int], incarnation: Callable[[], str | None]) -> None:
        super().__init__(world)
        self._clock_us = clock_us
        self._incarnation = incarnation
        self._seen_incarnation: str | None = None
        self._granted: dict[str, _LeaseRequest] = {}  # by shard
        self._refused: dict[str, _LeaseRequest] = {}
        self._handed_over: Counter[str] = Counter()  # the number of batches that a scanner has handed over
        self._handed_over_before: dict[tuple[str, str], int] = {}  # the time of its last request for a shard

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "serve":
            self._handed_over[caller] += 1
        elif method == "request":
            shard_id, _, handed_over, wanted, _ = args
            if handed_over and self._handed_over[caller] == self._handed_over_before.get((caller, shard_id), 0):
                self.report_violation(
                    f"{caller} claims to have handed pointers over since its last request, and has not"
                )
            if wanted:
                self._handed_over_before[caller, shard_id] = self._handed_over[caller]

    def on_reply(self, reply: Reply) -> None:
        """See `Oracle`. The coordinator answers in the turn in which it decides."""
        if reply.method == "request" and reply.error is None:
            if self._incarnation() != self._seen_incarnation:
                self._seen_incarnation = self._incarnation()
                self._granted.clear()
                self._refused.clear()
            self._check(*reply.args, granted=reply.result)

    def _check(
        self, shard_id: str, consumer: str, handed_over: bool, wanted: bool, lease_us: int, *, granted: bool
    ) -> None:
        now_us = self._clock_us()
        holder, waiting = self._granted.get(shard_id), self._refused.get(shard_id)
        held_by_another = holder is not None and holder.consumer != consumer and now_us < holder.us
        if granted:
            if held_by_another:
                self.report_violation(f"{consumer} may scan in order on {shard_id}, and {holder} may too")
            again = holder is not None and holder.consumer == consumer
            another = waiting is not None and waiting.consumer != consumer and waiting.us > now_us - lease_us
            if again and another and not handed_over:
                self.report_violation(
                    f"{consumer} may scan in order on {shard_id} again, hands nothing over, and {waiting} waits"
                )
            self._granted[shard_id] = _LeaseRequest(consumer, now_us + lease_us)
        elif held_by_another:
            if wanted:
                self._refused[shard_id] = _LeaseRequest(consumer, now_us)
        elif not wanted:
            self._granted.pop(shard_id, None)
