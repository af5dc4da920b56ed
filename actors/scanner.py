"""The scanner: finds vested pointers and passes them to managers (QuiCK section 6, Algorithm 1).

It scans only while a manager has capacity. When nothing has vested it sleeps: until the earliest pointer vests,
`poll_interval` at most, and longer once nothing has happened for a while.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from fairlead.actors.dispatch.pickup_latency import bucket_bound_us, bucket_counts
from fairlead.actors.messages import ScanInfo, ServeReply
from fairlead.actors.runtime.circuit_breaker import CircuitBreaker
from fairlead.actors.runtime.host import Host, Remote
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.actors.scanning.idle_policy import WATCHED_RESCAN_US, sleep_us
from fairlead.actors.scanning.manager_calls import ManagerCalls
from fairlead.actors.scanning.partitioning import Session
from fairlead.actors.scanning.shard_scan import ShardScan
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import Listener
from fairlead.zones.engines.api.progress import report_loop_progress
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef

log = logging.getLogger("fairlead.scanner")

_COUNTED = ("items", "missed_at_read", "missed_at_commit", "conflicts", "unreadable", "dead_lettered")
# An engine may notify the scanner of commits by other processes. After a notification the scanner waits for a moment:
# it must not scan more often than if it polled.
LISTEN_S = 1.0
LISTEN_PAUSE_US = 2_000


class Scanner:
    """One consumer's scanner. `run` is its loop; `stop` ends it."""

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        settings: ConsumerSettings,
        managers: Sequence[Remote],
        coordinator: Remote,
        *,
        consumer: str,
    ) -> None:
        self._host = host
        self._settings = settings
        self._lock = host.lock()
        self._changed = host.condition(self._lock)
        breaker = CircuitBreaker(host.clock)
        self._shards = {
            name: ShardScan(
                host, name, shard, settings, coordinator, self._lock, breaker, consumer=consumer, wake=self._wake
            )
            for name, shard in shards.items()
        }
        self._managers = ManagerCalls(
            managers, host.clock, self._lock, self._changed,
            give_way=self._give_way, give_way_after_us=settings.in_order_lease_ms * 1000 // 3,
        )  # fmt: skip
        self._idle_polls = 0
        self._refusal_log = RateLimitedLog(host.clock, log, "shard %s cannot be scanned; trying again: %s")
        self._lost_watch_log = RateLimitedLog(
            host.clock, log, "shard %s does not watch its parts; looking each second: %s"
        )
        self._counts: Counter[str] = Counter()
        self._pickup_latencies: Counter[int] = Counter()  # see `fairlead.actors.dispatch.pickup_latency`
        self._stopping = False

    def run(self) -> None:
        """Run Algorithm 1 until `stop`."""
        self._start_listening()
        while not self._stopping:  # Line 13
            report_loop_progress()
            found = 0
            shards = list(self._shards.values())
            self._host.random.shuffle(shards)  # Line 1
            for shard in shards:  # Line 2
                found += self._scan_shard(shard)
            if found:
                self._idle_polls = 0
            else:
                self._sleep_while_idle()

    def _scan_shard(self, shard: ShardScan) -> int:
        """Scan a shard until nothing is found or `processing_bound` is reached; return how many were passed on."""
        processed = 0  # Line 3
        while processed < self._settings.processing_bound and self._managers.await_capacity():  # Lines 4 and 5
            if not shard.can_scan():
                shard.put_off()
                break
            try:
                selected = shard.scan()  # Lines 6 to 8: peek, leave out what managers hold, select.
            except shard.shard.db.errors as error:
                self._refusal_log.note(shard.name, error)
                shard.put_off()
                break
            for refs in selected.calls:
                if not self._pass_to_manager(shard, refs, selected.info):  # Line 10
                    break
            processed += sum(map(len, selected.calls))  # Line 9
            if not selected.calls:
                self._log_lost_watch(shard)
                break
        return processed

    def _pass_to_manager(self, shard: ShardScan, refs: Sequence[PointerRef], info: ScanInfo) -> bool:
        """Send pointers to a manager once one takes a call (line 10); return False if the scanner is to stop."""
        while self._managers.await_capacity():
            with self._lock:
                number = self._managers.begin()
                if number is None:
                    continue  # A reply came in between: there is no capacity any more.
                shard.begin(refs)
                self._counts["pointers"] += len(refs)
            self._managers.serve(number, shard.name, refs, info, done=partial(self._served, number, shard, refs))
            return True
        return False

    def stop(self) -> None:
        """End the loop; calls to managers that are under way go on."""
        with self._lock:
            self._stopping = True
            self._managers.stop()

    def set_session(self, shard_name: str, session: Session | None) -> None:
        """Set this consumer's session on a shard; None: its clock is not good enough to take leases there."""
        if self._shards[shard_name].set_session(session):
            self._wake()

    def was_saturated(self) -> bool:
        """Say whether it has waited for capacity for most of the time since this was asked last."""
        with self._lock:
            return self._managers.was_saturated()

    def counts(self) -> dict[str, int]:
        """Return what was scanned and served since the start, and how many pointers managers hold now.

        It includes how long pointers had waited when they were leased; see `fairlead.actors.dispatch.pickup_latency`.
        """
        with self._lock:
            shards = self._shards.values()
            return {
                **self._counts,
                **bucket_counts(self._pickup_latencies),
                "scans": sum(shard.scans for shard in shards),
                "pointers_held": sum(shard.pointers_held for shard in shards),
            }

    def _served(
        self,
        number: int,
        shard: ShardScan,
        refs: Sequence[PointerRef],
        served: ServeReply | None,
        error: Exception | None,
    ) -> None:
        shard.end(refs, served)
        if served is not None:
            with self._lock:
                self._counts.update({name: getattr(served, name) for name in _COUNTED})
                self._pickup_latencies.update(map(bucket_bound_us, served.waited_us))
        self._managers.end(number, None if served is None else served.capacity, error)

    def _log_lost_watch(self, shard: ShardScan) -> None:
        lost = None if shard.watch is None else shard.watch.lost()
        if lost is not None:
            self._lost_watch_log.note(shard.name, lost)

    def _give_way(self) -> None:
        """Let other consumers scan in order: the managers of this one have had no capacity for a while."""
        for shard in self._shards.values():
            shard.give_way()

    def _wake(self) -> None:
        """End the sleep."""
        with self._lock:
            self._changed.notify_all()

    def _sleep_while_idle(self) -> None:
        """Sleep, a poll at a time, until a pointer may have vested, or a call ends."""
        shards = self._shards.values()
        while True:
            with self._lock:
                # No wake-up is lost: what wakes the scanner needs the lock, which is held from here to the wait.
                wait_us = self._poll_us()
                unblocked = any(shard.has_unblocked_parts for shard in shards)
                if self._stopping or (not unblocked and self._changed.wait(wait_us / 1e6)):
                    return
            if unblocked:
                for shard in shards:
                    shard.rescan_waiting_parts()
                return
            self._idle_polls += 1
            if not all(shard.is_idle() for shard in shards):
                return

    def _poll_us(self) -> int:
        """Return how long to sleep: until the earliest pointer vests, but a poll at most."""
        now_us = self._host.clock.now_us()
        shards = self._shards.values()
        polled = [shard for shard in shards if shard.watch is None]
        return sleep_us(
            self._settings.poll_interval_ms * 1000,
            self._idle_polls,
            due_in_us=min([shard.next_due_us for shard in shards], default=now_us) - now_us,
            detects_changes=all(shard.detects_changes for shard in polled),
            watched_sleep_us=None if polled else WATCHED_RESCAN_US,
        )

    def _start_listening(self) -> None:
        for shard in self._shards.values():
            listener = shard.shard.db.listener()
            if listener is not None:
                self._host.spawn("listening", partial(self._listen, listener))

    def _listen(self, listener: Listener) -> None:
        """End the sleep once another process has committed something."""
        with closing(listener):
            while not self._stopping:
                report_loop_progress()
                if listener.wait(LISTEN_S):
                    with self._lock:
                        self._changed.notify_all()
                    self._host.clock.sleep_us(LISTEN_PAUSE_US)
