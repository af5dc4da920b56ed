"""The scans of one shard: a transaction peeks and selects (Algorithm 1, lines 6 to 8), unless nothing can be new.

An idle embedded store is not even read: its last transaction id tells that nothing has changed. On FoundationDB an idle
scanner watches a key of each of its parts (`part_watch`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fairlead.actors.messages import UNKNOWN_SCAN, ScanInfo, ServeReply
from fairlead.actors.runtime.circuit_breaker import CircuitBreaker
from fairlead.actors.runtime.host import Host, Lock, Remote
from fairlead.actors.scanning.at_random import RandomSelection
from fairlead.actors.scanning.exclusions import Exclusions, HandedOverPointers
from fairlead.actors.scanning.idle_policy import RESCAN_US, is_past, rescan_times_us
from fairlead.actors.scanning.in_order import InOrderSelection
from fairlead.actors.scanning.part_watch import PartWatch, Watch
from fairlead.actors.scanning.partitioned import PartitionedSelection
from fairlead.actors.scanning.partitioning import Session, has_session_changed
from fairlead.actors.scanning.strategy import SelectionStrategy
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.policy.policies import is_shard_paused
from fairlead.zones.probes import probe
from fairlead.zones.records import Trace
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.transaction_runner import Attempt


class Selected(NamedTuple):
    """What a scan found: the pointers of each call to a manager, and what the managers need to know of the scan."""

    calls: Sequence[Sequence[PointerRef]]
    info: ScanInfo


FOUND_NOTHING = Selected([], UNKNOWN_SCAN)


class _Peeked(NamedTuple):
    """What the transaction of a scan read.

    `due`: by part, when a scan may find more; see `SelectionStrategy.due_us`. `watches`: those that it set. `version`:
    the read version, where that spares a manager a round trip; 0: none.
    """

    refs: Sequence[PointerRef]
    due: dict[int, int | None]
    watches: Sequence[Watch] = ()
    version: int = 0


class ShardScan:
    """One shard as one scanner sees it. `lock`: the scanner's.

    Args:
      wake: ends the scanner's sleep.

    Attributes:
      watch: the watches of its parts; None: the engine tells of changes otherwise, or not at all.
      scans: how many scans were made.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        shard: Shard,
        settings: ConsumerSettings,
        coordinator: Remote,
        lock: Lock,
        breaker: CircuitBreaker,
        *,
        consumer: str,
        wake: Callable[[], None],
    ) -> None:
        self.name = name
        self.shard = shard
        self.scans = 0
        self._clock = host.clock
        self._spans = host.telemetry.spans
        self._settings = settings
        self._lock = lock
        self._breaker = breaker
        self._strategy = strategy_for(shard.layout, settings, host, coordinator, consumer=consumer)
        self._handed_over = HandedOverPointers()
        self._session: Session | None = None  # until `set_session` sets one
        self._seen_token: int | None = None
        self._next_due_us = 0
        self.watch: PartWatch | None = None
        if shard.layout.is_watched:
            self.watch = PartWatch(
                lock, shard.layout.parts, due_us=self._due_after_change_us, wake=wake, errors=shard.db.errors
            )

    def set_session(self, session: Session | None) -> bool:
        """Set the consumer's session; say whether a scan may find more by it. None: it may take no leases."""
        with self._lock:
            known, self._session = self._session, session
            if session is not None:
                self._strategy.set_session(session)
            if not has_session_changed(known, session, self._clock.now_us()):
                return False
            self._seen_token = None  # Pointers that were others' may be its own now.
        if self.watch is not None:
            self.watch.invalidate()
        return True

    def can_scan(self) -> bool:
        """Say whether it has a session, and the shard answers."""
        return self._session is not None and not self._breaker.is_open(self.name)

    def scan(self) -> Selected:
        """Return the pointers to pass to managers now."""
        now_us = self._clock.now_us()
        token = self.shard.db.commit_sequence()
        if self._is_idle(token, now_us):
            return FOUND_NOTHING
        self._strategy.begin(now_us)
        with self._lock:
            exclusions = self._handed_over.begin_scan(now_us)
        watch = self.watch
        number = 0 if watch is None else watch.begin()
        parts = self.shard.layout.parts if watch is None or self._strategy.steals() else watch.due(now_us)
        peeked = self._breaker.transact(self.shard, lambda attempt: self._peek(attempt, parts, exclusions, now_us))
        self.scans += 1
        with self._lock:
            plan = self._handed_over.plan(peeked.refs, self._settings.batch_pointers, exclusions, now_us=now_us)
        if plan.calls:
            self._seen_token = None
            self._strategy.selected()
            trace = self._trace(len(peeked.refs), now_us)
            return Selected(plan.calls, ScanInfo(plan.single_tenant, peeked.version, now_us, trace))
        # The calls under way with what was found end soon, which wakes the scanner.
        due = {part.part: now_us for part in parts} if peeked.refs else peeked.due
        times_us = rescan_times_us(
            due, exclusions.deferred.values(), now_us, poll_us=self._settings.poll_interval_ms * 1000,
            is_watched=watch is not None, steals=self._strategy.steals(),
        )  # fmt: skip
        if watch is None:
            self._seen_token = token
            self._next_due_us = min(times_us.values())
        else:
            watch.record_scan(number, now_us, times_us, peeked.watches)
        return FOUND_NOTHING

    def _peek(self, attempt: Attempt, parts: Sequence[PartKeys], exclusions: Exclusions, now_us: int) -> _Peeked:
        """Peek at parts and select (lines 6 to 8). Snapshot reads; conflicts with nothing."""
        tr, watch, strategy = attempt.tr, self.watch, self._strategy
        self.shard.relax_read_version(tr)
        paused = is_shard_paused(tr)
        # The first entry of a part that is watched and has not changed tells whether there is anything to scan.
        watched = [] if watch is None else [part for part in parts if watch.is_watched(part)]
        due = strategy.due_us(tr, watched, after_us=0)
        scanned = [part for part in parts if part.part not in due or is_past(due[part.part], now_us)]
        refs = strategy.select(tr, exclusions.eligible, now_us=now_us, parts=scanned) if scanned else []
        if paused.present():
            probe("a scan finds its shard paused")
            return _Peeked([], {part.part: now_us + RESCAN_US for part in parts})
        if refs:
            return _Peeked(refs, due, version=0 if watch is None else tr.get_read_version().wait())
        # Deferred pointers have vested, and are no reason to scan again before their time.
        due |= strategy.due_us(tr, scanned, after_us=0 if exclusions.held else now_us)
        return _Peeked([], due, [] if watch is None else watch.watch(tr, parts, now_us))

    def begin(self, refs: Sequence[PointerRef]) -> None:
        """Note that a call with these pointers is under way. The lock is held."""
        self._handed_over.begin(refs)

    def end(self, refs: Sequence[PointerRef], served: ServeReply | None) -> None:
        """Note that it has ended. None: it failed."""
        with self._lock:
            self._handed_over.end(refs, served, now_us=self._clock.now_us())
        if self.watch is not None:  # The manager moved the pointers, and no watch tells of that.
            self.watch.invalidate({ref.part for ref in refs})

    @property
    def pointers_held(self) -> int:
        """How many pointers managers hold."""
        return len(self._handed_over)

    @property
    def has_unblocked_parts(self) -> bool:
        """See `HandedOverPointers`."""
        return self._handed_over.has_unblocked_parts

    def rescan_waiting_parts(self) -> None:
        """Scan the parts in which pointers wait for a call of their tenant to end, though nothing has changed there."""
        with self._lock:
            parts, self._seen_token = self._handed_over.take_waiting_parts(), None
        if self.watch is not None:
            self.watch.invalidate(parts)

    def is_idle(self) -> bool:
        """Say whether a scan could find no more than the last one did, which found nothing."""
        try:
            return self._is_idle(self.shard.db.commit_sequence(), self._clock.now_us())
        except self.shard.db.errors:  # The scan that follows logs it.
            return False

    def put_off(self) -> None:
        """Leave a shard that cannot be scanned now alone for a poll."""
        if self.watch is not None:
            self.watch.put_off(self._clock.now_us() + self._settings.poll_interval_ms * 1000)

    def give_way(self) -> None:
        """See `SelectionStrategy`."""
        self._strategy.give_way()

    @property
    def next_due_us(self) -> int:
        """By when it must be scanned although nothing seems to have changed."""
        return self._next_due_us if self.watch is None else self.watch.next_due_us

    @property
    def detects_changes(self) -> bool:
        """Whether the engine tells, without a read, that nothing has changed since the last scan."""
        return self._seen_token is not None

    def _is_idle(self, token: int | None, now_us: int) -> bool:
        if self.watch is not None:
            return not self.watch.is_due(now_us)
        return token is not None and token == self._seen_token and now_us < self._next_due_us

    def _due_after_change_us(self, part: PartKeys) -> int:
        """Return when to scan a part that has changed: another consumer's part once its pointers may be stealable."""
        return self._clock.now_us() + self._strategy.may_wait_us(part)

    def _trace(self, pointers: int, began_us: int) -> Trace | None:
        """Record a scan that has found so many pointers as a span, and return its trace context, if it is sampled."""
        if self._spans is None:
            return None
        return self._spans.scan(self.name, pointers=pointers, began_us=began_us, ended_us=self._clock.now_us())


def strategy_for(
    layout: ShardLayout, settings: ConsumerSettings, host: Host, coordinator: Remote, *, consumer: str
) -> SelectionStrategy:
    """Return how a scanner of `consumer` selects on a shard, by `ConsumerSettings.selection`."""
    if settings.selection == "in_order":
        return InOrderSelection(layout, settings, host, coordinator, consumer=consumer)
    if settings.selection == "random":
        return RandomSelection(layout, settings, host.random)
    assert settings.selection == "partitioned"
    return PartitionedSelection(layout, settings, host.random)
