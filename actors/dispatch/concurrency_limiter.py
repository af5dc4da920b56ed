"""The concurrency limiter: how many items of fleet-wide limited kinds a manager may take.

A manager notes how many items of such a kind it uses, and whether it met more. A loop takes slots and tokens for these
from the kind's own shard (`fairlead.zones.policy.limits`), renews them while they are used, and returns the rest.
Between two rounds the manager spends what it has, without a transaction.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.actors.runtime.circuit_breaker import CircuitBreaker
from fairlead.actors.runtime.host import Host, Lock
from fairlead.zones.engines import Reader
from fairlead.zones.policy import limits, policies
from fairlead.zones.policy.policies import Policies
from fairlead.zones.probes import probe
from fairlead.zones.queue.dequeue_plan import UNLIMITED
from fairlead.zones.records import KindPolicy
from fairlead.zones.shard import Shard, kind_home
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.manager")

ROUND_S = 0.2  # Between two rounds: how long an idle kind waits, and how much of a second's tokens is taken at once.
IDLE_ROUNDS = 4  # For so long unused slots are kept: items that were met without one are met again after a throttle.
GRANT_LEASES = 2  # A grant outlives the leases of its items, whose last extension may be as late as its end.


class Usage(NamedTuple):
    """What is used of a kind. `held`: by the workers; None: unknown. `reserved`: for calls under way, at most."""

    held: int | None
    reserved: int


class _Renewal(NamedTuple):
    """A request: how many slots are held and wanted, how many tokens are returned, and whether more items start.

    `held`: by what runs, and by what a call under way may have taken.
    """

    held: int
    wanted: int
    unused: int
    starts: bool


class _Grant(NamedTuple):
    """What was granted by a policy: `slots` to run until `until_us`, and `tokens` to start. `granted`: see `_Quota`.

    `readable`: whether the kind's own shard has a readable policy.
    """

    policy: KindPolicy
    slots: int
    granted: int
    tokens: int
    until_us: int
    readable: bool


@dataclass(slots=True)
class _Quota:
    """The slots and tokens of one kind.

    `slots`: how many items may run here. `granted`: how many the store counts, at least as many as ran here at the last
    renewal. `until_us`: when both end, see `limits.is_in_force`. `unmet`: how many more could have been used since the
    last round. `idle`: for how many rounds none could.
    """

    policy: KindPolicy
    slots: int = 0
    granted: int = 0
    until_us: int = 0
    tokens: int = 0
    unmet: int = 0
    idle: int = 0

    def apply_policies(self, policy: KindPolicy) -> None:
        """Take a policy; if it is a later one, nothing more starts by what was granted under the earlier one.

        Between the two there may have been no limit, and then the store counts no grant from before.
        """
        if policy.updated_us > self.policy.updated_us:
            self.slots = self.tokens = 0
        self.policy = policy

    def add(self, grant: _Grant) -> None:
        """Add what the store has granted. A later policy may have been observed since."""
        self.slots, self.granted, self.until_us = grant.slots, grant.granted, grant.until_us
        self.tokens += grant.tokens
        observed, self.policy = self.policy, grant.policy
        if observed.updated_us > grant.policy.updated_us:
            self.apply_policies(observed)

    @property
    def is_idle(self) -> bool:
        """Whether the unused slots are being returned, so that no more items may be taken by them."""
        return self.idle >= IDLE_ROUNDS


class ConcurrencyLimiter:
    """The limits of one manager, which is the `holder`. `lock`: the manager's; callers hold it.

    Args:
      usage: returns what is used of a kind now.

    Attributes:
      observed: the latest policy of each kind, of all shards; it is replaced, never changed.
      limited: the kinds that these policies limit.
    """

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        lock: Lock,
        usage: Callable[[str], Usage],
        *,
        holder: bytes,
        lease_us: int,
    ) -> None:
        self._host = host
        self._shards = shards
        self._lock = lock
        self._usage = usage
        self._due = host.condition(lock)
        self._holder = holder
        self._lease_us = GRANT_LEASES * lease_us
        self._pause = host.condition(lock)  # notified at the end
        self._quotas: dict[str, _Quota] = {}
        self.limited: frozenset[str] = frozenset()
        self.observed: Mapping[str, KindPolicy] = {}
        self._breaker = CircuitBreaker(host.clock)
        self._unreadable: set[str] = set()  # kinds for which that has been logged
        self._runs = False
        self._stopping = False

    def apply_policies(self, found: Policies) -> None:
        """Observe the policies of a shard: of each kind the latest counts, whichever shard has it."""
        self._observe(found.later_than(self.observed))

    def _observe(self, later: Mapping[str, KindPolicy]) -> None:
        """Take policies that are later than those observed before. The loop begins with the first limit."""
        self.observed = {**self.observed, **later}
        for kind, policy in later.items():
            if policy.is_limited:
                self._quotas.setdefault(kind, _Quota(policy)).apply_policies(policy)
            else:
                self._quotas.pop(kind, None)
        self.limited = frozenset(self._quotas)
        self._due.notify_all()  # What runs already counts.
        if self._quotas and not self._runs:
            self._runs = True
            self._host.spawn("limits", self._run)

    def available(self, kind: str) -> int:
        """Return how many more items of a limited kind may be taken now, those reserved for calls included."""
        quota, usage = self._quotas[kind], self._usage(kind)
        if usage.held is None or quota.is_idle:
            return 0
        slots = quota.slots if self._is_valid(kind, quota) else 0
        may_run = UNLIMITED if quota.policy.max_running is None else slots - usage.held
        may_start = UNLIMITED if quota.policy.per_s is None else quota.tokens
        return max(0, min(may_run, may_start))

    def spend(self, kind: str, count: int, *, more: bool) -> None:
        """Note that items of a limited kind were taken, and whether more were met than its limit allows."""
        quota = self._quotas[kind]
        quota.tokens = max(0, quota.tokens - count)
        quota.unmet += count
        if more:
            probe("a kind is met beyond its limit")
            quota.unmet += 1
            self._due.notify_all()

    def spend_all(self, kinds: Iterable[str], skipped: Sequence[Collection[str]]) -> None:
        """Note the kinds of the items that were taken, one by one, and those of which more were met."""
        if self.limited:
            taken = Counter(kinds)
            for kind in self.limited:
                self.spend(kind, taken[kind], more=any(kind in some for some in skipped))

    def stop(self) -> None:
        """End the loop; what is granted expires."""
        self._stopping = True
        self._due.notify_all()
        self._pause.notify_all()

    def _is_valid(self, kind: str, quota: _Quota) -> bool:
        """Whether other managers still count what was granted; decided as they do, since a clock may be set back."""
        return limits.is_in_force(
            quota.until_us,
            self._lease_us,
            now_us=self._host.clock.now_us(),
            clocks_apart_us=self._home(kind).layout.settings.clocks_apart_us_max,
        )

    def _is_due(self, kind: str, quota: _Quota) -> bool:
        """Whether a renewal is due."""
        if quota.unmet or quota.granted or quota.tokens:
            return True
        return quota.policy.max_running is not None and bool(self._usage(kind).held)

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._stopping:
                    due = {kind: quota for kind, quota in self._quotas.items() if self._is_due(kind, quota)}
                    if due:
                        break
                    self._due.wait()
                if self._stopping:
                    return
            for kind, quota in due.items():
                self._renew(kind, quota)
            with self._lock:
                if not self._stopping:
                    self._pause.wait(ROUND_S)

    def _home(self, kind: str) -> Shard:
        """Return a kind's own shard, where its limits are counted."""
        return self._shards[kind_home(kind, self._shards)]

    def _renew(self, kind: str, quota: _Quota) -> None:
        """Take what is wanted of a kind, and return what was not used."""
        shard = self._home(kind)
        if self._breaker.is_open(shard.name):
            return
        with self._lock:
            observed, renewal = quota.policy, self._renewal_of(kind, quota)
        if renewal is None:
            return
        try:
            grant = self._take_limits(shard, kind, observed, renewal)
        except shard.db.errors as error:
            log.info("shard %s cannot be asked how many items of %s may run: %s", shard.name, kind, error)
            return
        with self._lock:
            quota.add(grant)
            if grant.policy.updated_us > self.observed[kind].updated_us:
                self._observe({kind: grant.policy})
        if not grant.readable and kind not in self._unreadable:
            log.warning(
                "shard %s: the policy of kind %s cannot be read; the one found on another shard holds", shard.name, kind
            )
            self._unreadable.add(kind)

    def _renewal_of(self, kind: str, quota: _Quota) -> _Renewal | None:
        """Begin a round: return what to renew; None: the store knows all. The lock is held."""
        usage = self._usage(kind)
        unmet, quota.unmet = quota.unmet, 0
        quota.idle = 0 if unmet else quota.idle + 1
        unused = max(0, quota.tokens - usage.reserved)
        quota.tokens -= unused
        held, wanted = quota.granted if usage.held is None else usage.held, 0
        if quota.policy.max_running is not None:
            wanted = max(held + max(2 * unmet, usage.reserved), 0 if quota.is_idle else quota.slots)
        # A call under way may have taken items by slots that the store counts: these stay counted until it ends.
        held += min(usage.reserved, max(0, quota.granted - held))
        renew_us = quota.until_us - self._lease_us // 2
        fresh = not quota.granted or (self._is_valid(kind, quota) and self._host.clock.now_us() < renew_us)
        if fresh and wanted == quota.granted and not unmet and not unused:
            return None
        return _Renewal(held, wanted, unused, starts=unmet > 0)

    def _take_limits(self, shard: Shard, kind: str, observed: KindPolicy, renewal: _Renewal) -> _Grant:
        """Renew, and return what the store grants: nothing of a kind that is not limited. `observed`: its policy."""
        unused, apart_us = renewal.unused, shard.layout.settings.clocks_apart_us_max

        def body(attempt: Attempt) -> _Grant:
            tr, now_us = attempt.tr, attempt.now_us
            found = policies.kind_policy(tr, kind)
            # Its own shard has the latest policy, unless that is damaged, or was restored from a backup.
            policy = observed if found is None or found.updated_us < observed.updated_us else found
            if not policy.is_limited:
                probe("a kind's own shard does not limit it any more")
            slots = granted = tokens = 0
            if policy.max_running is not None:
                slots = limits.take_slots(
                    tr, kind, policy.max_running, holder=self._holder, held=renewal.held, wanted=renewal.wanted,
                    lease_us=self._lease_us, clocks_apart_us=apart_us, now_us=now_us,
                )  # fmt: skip
                granted = max(renewal.held, slots)
            if policy.per_s is not None:
                block = max(1, int(policy.per_s * 2 * ROUND_S)) if renewal.starts else 0
                tokens = limits.take_tokens(
                    tr, kind, policy, wanted=block, returned=unused, clocks_apart_us=apart_us, now_us=now_us
                )
            return _Grant(policy, slots, granted, tokens, now_us + self._lease_us, readable=found is not None)

        def applied(tr: Reader) -> bool:
            """Return False: it is unknown. An unknown result may have returned the tokens; they return only once."""
            nonlocal unused
            unused = 0
            return False

        return self._breaker.transact(shard, body, applied=applied)
