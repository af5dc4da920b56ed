"""Order: on each shard one scanner takes the pointers in order, so that none that has vested is passed by for ever.

QuiCK section 6: the others select at random, and alone might never select a pointer. Who goes in order holds a lease
that the coordinator grants; a scanner that cannot get on must not keep it from the others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlead.simulation.network import Reply
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.world import World


class _LeaseRequest(NamedTuple):
    """Who asked for the in-order lease of a shard, and until when it was granted, or when it was refused."""

    consumer: str
    us: int


class OneScannerGoesInOrder(Oracle):
    """The in-order lease of a shard is one consumer's at a time, and goes on to others if that does not get on.

    Whoever asks for it says whether it has handed pointers over since it asked last. One that has not is not granted it
    again as long as another asks in vain; one that says it has, has.

    Args:
      clock_us: answers what the coordinator's clock shows: leases end by it.
      life: answers the name of the coordinator's present life; the next one remembers nothing of what it granted.
    """

    promise = "one scanner at a time goes in order, and one that does not get on lets others"

    def __init__(self, world: World, *, clock_us: Callable[[], int], incarnation: Callable[[], str | None]) -> None:
        super().__init__(world)
        self._clock_us = clock_us
        self._incarnation = incarnation
        self._seen_incarnation: str | None = None
        self._granted: dict[str, _LeaseRequest] = {}  # by shard
        self._refused: dict[str, _LeaseRequest] = {}
        self._handed_over: Counter[str] = Counter()  # how many batches a scanner has handed over
        self._handed_over_before: dict[tuple[str, str], int] = {}  # when it asked last for a shard

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "serve":
            self._handed_over[caller] += 1
        elif method == "request":
            shard_id, _, handed_over, wanted, _ = args
            if handed_over and self._handed_over[caller] == self._handed_over_before.get((caller, shard_id), 0):
                self.report_violation(
                    f"{caller} says that it has handed pointers over since it asked last, and has not"
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
                self.report_violation(f"{consumer} may go in order on {shard_id}, and {holder} may too")
            again = holder is not None and holder.consumer == consumer
            another = waiting is not None and waiting.consumer != consumer and waiting.us > now_us - lease_us
            if again and another and not handed_over:
                self.report_violation(
                    f"{consumer} may go in order on {shard_id} again, hands nothing over, and {waiting} waits"
                )
            self._granted[shard_id] = _LeaseRequest(consumer, now_us + lease_us)
        elif held_by_another:
            if wanted:
                self._refused[shard_id] = _LeaseRequest(consumer, now_us)
        elif not wanted:
            self._granted.pop(shard_id, None)
