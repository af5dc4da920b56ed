"""Quotas: what a manager may take of kinds whose rules limit them over the whole fleet.

A manager says what it runs of such a kind, and whether it met more; a loop beside it takes slots and tokens for that
from the kind's own shard (`zones.limits`), renews them while they are used, and gives the rest back. Between two of its
rounds a manager spends what it has, without asking anybody.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from actors.host import Host, Lock
from zones import limits, rules
from zones.attempt import Attempt
from zones.dequeue import UNLIMITED
from zones.layout import local_tenant
from zones.placement import home
from zones.probes import probe
from zones.records import KindRule
from zones.shard import Shard

log = logging.getLogger("fairlead.manager")

ROUND_S = 0.2  # Between two rounds. How long a kind waits that was idle, and how much of a second's tokens go at once.
IDLE_ROUNDS = 4  # So long slots are kept that nobody uses: what was met without is met again, a throttle's delay later.
GRANT_LEASES = 2  # A grant outlives the leases of the items that it stands for, by as much as their last extension.


@dataclass(slots=True)
class _Quota:
    """What there is of one kind.

    `until_us`: when the grant of the slots ends. `asked`: how many more could have been used since the last round.
    `idle`: for how many rounds none could.
    """

    rule: KindRule
    slots: int = 0
    until_us: int = 0
    tokens: int = 0
    running: int = 0
    asked: int = 0
    idle: int = 0

    @property
    def is_due(self) -> bool:
        """Whether the store must be told, or asked."""
        return self.asked > 0 or self.slots > 0 or self.tokens > 0


class Quotas:
    """The quotas of one manager, which is the `holder`. `lock`: the manager's; held by whoever calls.

    Attributes:
      limited: the kinds that rules limit.
    """

    def __init__(self, host: Host, shards: Mapping[str, Shard], lock: Lock, *, holder: bytes, lease_us: int) -> None:
        self._host = host
        self._shards = shards
        self._lock = lock
        self._due = host.condition(lock)
        self._holder = holder
        self._lease_us = GRANT_LEASES * lease_us
        self._pause = host.condition(lock)  # notified at the end
        self._quotas: dict[str, _Quota] = {}
        self.limited: frozenset[str] = frozenset()
        self._runs = False
        self._stopping = False

    def obey(self, kind_rules: Mapping[str, KindRule]) -> None:
        """Hear the rules of the kinds. The loop begins with the first limit."""
        quotas = {}
        for kind, rule in kind_rules.items():
            if rule.is_limited:
                quotas[kind] = self._quotas.get(kind) or _Quota(rule)
                quotas[kind].rule = rule
        self._quotas, self.limited = quotas, frozenset(quotas)
        if quotas and not self._runs:
            self._runs = True
            self._host.spawn("quotas", self._run)

    def left(self, kind: str, running: int | None) -> int:
        """Return how many more items of a limited kind may be taken now, if `running` are held; None: nobody knows."""
        quota = self._quotas[kind]
        if running is None:
            return 0
        quota.running = running
        granted = quota.slots if self._host.clock.now_us() < quota.until_us else 0
        slots = UNLIMITED if quota.rule.max_running is None else granted - running
        tokens = UNLIMITED if quota.rule.per_s is None else quota.tokens
        return max(0, min(slots, tokens))

    def spend(self, kind: str, count: int, *, more: bool) -> None:
        """Note that items of a limited kind were taken, and whether more were met that its quota did not allow for."""
        quota = self._quotas[kind]
        quota.tokens = max(0, quota.tokens - count)
        quota.asked += count
        if more:
            probe("a kind is met beyond its quota")
            quota.asked += 1
            self._due.notify_all()

    def stop(self) -> None:
        """End the loop; what is held lapses."""
        self._stopping = True
        self._due.notify_all()
        self._pause.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._stopping and not any(quota.is_due for quota in self._quotas.values()):
                    self._due.wait()
                if self._stopping:
                    return
                due = {kind: quota for kind, quota in self._quotas.items() if quota.is_due}
            for kind, quota in due.items():
                self._renew(kind, quota)
            with self._lock:
                if not self._stopping:
                    self._pause.wait(ROUND_S)

    def _renew(self, kind: str, quota: _Quota) -> None:
        """Take what is wanted of a kind, and give back what was not used."""
        shard = self._shards[home(local_tenant(kind), list(self._shards))]
        with self._lock:
            asked, quota.asked = quota.asked, 0
            unused, quota.tokens = quota.tokens, 0
            running = quota.running
            quota.idle = 0 if asked else quota.idle + 1
            spare = quota.slots if quota.idle < IDLE_ROUNDS else 0
        wanted = max(running + 2 * asked, spare)

        def body(attempt: Attempt) -> limits.Taken:
            nonlocal unused
            tr, now_us = attempt.tr, attempt.now_us
            returned, unused = unused, 0  # Once: an attempt of unknown result may have put them back.
            rule = rules.kind_rule(tr, kind)  # Its own shard's is the first to say so, and the last to say it no more.
            if not rule.is_limited:
                probe("a kind's own shard does not limit it any more")
                return limits.Taken(0, 0, now_us)
            slots, tokens = wanted, 2 * asked
            if rule.max_running is not None:
                slots = limits.take_slots(
                    tr, kind, rule.max_running, holder=self._holder, wanted=wanted, lease_us=self._lease_us,
                    now_us=now_us,
                )  # fmt: skip
            if rule.per_s is not None:
                block = max(1, int(rule.per_s * 2 * ROUND_S)) if asked else 0
                tokens = limits.take_tokens(tr, kind, rule, wanted=block, returned=returned, now_us=now_us)
            return limits.Taken(slots, tokens, now_us + self._lease_us)

        try:
            taken = shard.transact(body)
        except shard.db.errors as error:
            log.info("shard %s does not tell how many items of %s may run: %s", shard.name, kind, error)
            return
        with self._lock:
            quota.slots, quota.until_us = taken.slots, taken.until_us
            quota.tokens += taken.tokens
