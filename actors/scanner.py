"""The scanner: finds vested pointers and hands them to managers (QuiCK section 6, Algorithm 1).

Round-robin over the shards in random order. It scans only while a manager has room, and sleeps when nothing has
vested: until the earliest pointer does, `poll_interval` at most, and some of them once nothing has happened for a
while. An idle embedded store is not even scanned: its last transaction id tells that nothing has changed. On
FoundationDB an idle scanner watches a key of each of its parts (`part_watch`).
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from fairlead.actors.dispatch.pickup_latency import bucket_bound_us, bucket_counts
from fairlead.actors.messages import UNKNOWN_SCAN, ScanInfo, ServeReply
from fairlead.actors.runtime.circuit_breaker import CircuitBreaker
from fairlead.actors.runtime.host import Host, Remote, note_failed_call
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.actors.scanning.exclusions import HandedOverPointers
from fairlead.actors.scanning.idle_policy import RESCAN_US, WATCHED_RESCAN_US, is_past, rescan_times_us, sleep_us
from fairlead.actors.scanning.part_watch import PartWatch, Watch
from fairlead.actors.scanning.partitioning import Session, has_session_changed
from fairlead.actors.scanning.saturation import Saturation
from fairlead.actors.scanning.strategies import strategy_for
from fairlead.actors.scanning.tenant_turns import EMPTY_PLAN, HandoverPlan
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import Listener
from fairlead.zones.engines.api.progress import report_loop_progress
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.policy.policies import is_shard_paused
from fairlead.zones.probes import probe
from fairlead.zones.records import Trace
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.scanner")

CALLS_MAX = 2  # Per manager: one at work, one waiting, so that no manager waits for a scan.
_COUNTED = ("items", "missed_at_read", "missed_at_commit", "conflicts", "unreadable", "dead_lettered")
DEAD_WAIT_US = 100_000  # After this a manager that was dead is asked again.
# Where the engine also tells when another process commits, the scanner is woken; then it is left alone for a while, so
# that it looks no oftener than if it asked.
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
        self._shards = shards
        self._settings = settings
        self._managers = managers
        self._strategies = {
            name: strategy_for(shard.layout, settings, host, coordinator, consumer=consumer)
            for name, shard in shards.items()
        }
        self._lock = host.lock()
        self._changed = host.condition(self._lock)
        self._calls = [0] * len(managers)
        self._died_us = [0] * len(managers)  # when a call failed last
        self._capacity = [1] * len(managers)  # as last heard; at the start it is found out by a first call
        # By shard: zones of the same name on two shards have pointers of the same id, local queues above all.
        self._handed_over = {name: HandedOverPointers() for name in shards}
        self._sessions: dict[str, Session | None] = dict.fromkeys(shards)  # until `set_session` says so
        self._seen_token: dict[str, int | None] = dict.fromkeys(shards)
        self._next_due_us: dict[str, int] = dict.fromkeys(shards, 0)
        self._watches = {
            name: PartWatch(
                self._lock,
                shard.layout.parts,
                due_us=partial(self._due_after_change_us, name),
                wake=self._wake,
                errors=shard.db.errors,
            )
            for name, shard in shards.items()
            if shard.layout.is_watched
        }
        self._saturation = Saturation(host.clock.now_us())
        self._breaker = CircuitBreaker(host.clock)
        self._idle_polls = 0
        self._refusal_log = RateLimitedLog(host.clock, log, "shard %s cannot be scanned; trying again: %s")
        self._lost_watch_log = RateLimitedLog(
            host.clock, log, "shard %s does not watch its parts; looking each second: %s"
        )
        self._counts: Counter[str] = Counter()
        self._pickup_latencies: Counter[int] = Counter()  # see `fairlead.actors.dispatch.pickup_latency`
        self._spans = host.telemetry.spans
        self._scan = UNKNOWN_SCAN  # the last one that found something
        self._stopping = False

    def run(self) -> None:
        """Scan until `stop`."""
        for shard in self._shards.values():
            listener = shard.db.listener()
            if listener is not None:
                self._host.spawn("listening", partial(self._listen, listener))
        while not self._stopping:
            report_loop_progress()
            found = 0
            names = list(self._shards)
            self._host.random.shuffle(names)
            for name in names:
                found += self._scan_shard(name)
            if found:
                self._idle_polls = 0
            else:
                self._sleep_while_idle()

    def stop(self) -> None:
        """End the loop; what was handed over goes on."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()

    def set_session(self, shard_name: str, session: Session | None) -> None:
        """Say what this consumer's session on a shard is; None: its clock is not good enough to take leases there."""
        with self._lock:
            known, self._sessions[shard_name] = self._sessions[shard_name], session
            if session is not None:
                self._strategies[shard_name].set_session(session)
            if not has_session_changed(known, session, self._host.clock.now_us()):
                return
            self._seen_token[shard_name] = None  # What has not changed may be its own now.
        if shard_name in self._watches:
            self._watches[shard_name].invalidate()
        self._wake()

    def was_full(self) -> bool:
        """Say whether it has waited for room for most of the time since this was asked last."""
        with self._lock:
            return self._saturation.since_last(self._host.clock.now_us())

    def counts(self) -> dict[str, int]:
        """Return what was scanned and served since the start, and the pointers in managers' hands now.

        How long pointers had waited when they were leased is among it; see `fairlead.actors.dispatch.pickup_latency`.
        """
        with self._lock:
            return {
                **self._counts,
                **bucket_counts(self._pickup_latencies),
                "pointers_held": sum(map(len, self._handed_over.values())),
            }

    def _scan_shard(self, name: str) -> int:
        """Algorithm 1, lines 3 to 11: scan and hand over until nothing is found or `processing_bound` is reached."""
        processed = 0
        while processed < self._settings.processing_bound and self._await_manager():
            if self._sessions[name] is None or self._breaker.is_open(name):
                self._put_off(name)
                break
            try:
                plan = self._scan_once(name)
            except self._shards[name].db.errors as error:
                self._refusal_log.note(name, error)
                self._put_off(name)
                break
            for refs in plan.calls:
                if not self._hand_over(name, refs):
                    break
            processed += sum(map(len, plan.calls))
            if not plan.calls:
                self._log_lost_watch(name)
                break
        return processed

    def _scan_once(self, name: str) -> HandoverPlan:
        """Return what is handed over now."""
        shard = self._shards[name]
        now_us = self._host.clock.now_us()
        if self._is_idle(name, token := shard.db.commit_sequence(), now_us):
            return EMPTY_PLAN
        strategy = self._strategies[name]
        strategy.begin(now_us)
        with self._lock:
            exclusions = self._handed_over[name].begin_scan(now_us)
        watch = self._watches.get(name)
        number = 0 if watch is None else watch.begin()
        parts = shard.layout.parts if watch is None or strategy.steals() else watch.due(now_us)
        due: dict[int, int | None] = {}
        watches: list[Watch] = []
        version = 0

        def body(attempt: Attempt) -> list[PointerRef]:
            nonlocal due, watches, version
            tr = attempt.tr
            shard.relax_read_version(tr)
            paused = is_shard_paused(tr)
            # A part that is watched and has not changed tells by its first entry whether there is anything to scan.
            watched = [] if watch is None else [part for part in parts if watch.is_watched(part)]
            due, watches = strategy.due_us(tr, watched, after_us=0), []
            scanned = [part for part in parts if part.part not in due or is_past(due[part.part], now_us)]
            refs = strategy.select(tr, exclusions.eligible, now_us=now_us, parts=scanned) if scanned else []
            if paused.present():
                probe("a scan finds its shard paused")
                due = {part.part: now_us + RESCAN_US for part in parts}
                return []
            if not refs:
                # What is left to others has vested, and is no reason to look again before its time.
                due |= strategy.due_us(tr, scanned, after_us=0 if exclusions.held else now_us)
                watches = [] if watch is None else watch.watch(tr, parts, now_us)
            elif watch is not None:
                version = tr.get_read_version().wait()
            return refs

        refs = self._breaker.transact(shard, body)
        self._counts["scans"] += 1
        with self._lock:
            plan = self._handed_over[name].plan(refs, self._settings.batch_pointers, exclusions, now_us=now_us)
        if plan.calls:
            self._seen_token[name] = None
            strategy.selected()
            self._scan = ScanInfo(plan.alone, version, now_us, self._trace(name, len(refs), now_us))
            return plan
        if refs:  # The calls under way end soon, which wakes the scanner.
            due = {part.part: now_us for part in parts}
        times_us = rescan_times_us(
            due, exclusions.deferred.values(), now_us,
            poll_us=self._settings.poll_interval_ms * 1000, is_watched=watch is not None, steals=strategy.steals(),
        )  # fmt: skip
        if watch is None:
            self._seen_token[name] = token
            self._next_due_us[name] = min(times_us.values())
        else:
            watch.record_scan(number, now_us, times_us, watches)
        return plan

    def _trace(self, name: str, pointers: int, began_us: int) -> Trace | None:
        """Note a scan that has found so many pointers, and return its trace context if that is recorded."""
        if self._spans is None:
            return None
        return self._spans.scan(name, pointers=pointers, began_us=began_us, ended_us=self._host.clock.now_us())

    def _rescan_waiting_parts(self) -> None:
        """Have the parts scanned in which pointers wait for their tenant's turn, though nothing has changed there."""
        for name, handed_over in self._handed_over.items():
            with self._lock:
                parts, self._seen_token[name] = handed_over.take_waiting_parts(), None
            if name in self._watches:
                self._watches[name].invalidate(parts)

    def _is_idle(self, name: str, token: int | None, now_us: int) -> bool:
        """Whether a scan of a shard could find no more than the last one did, which found nothing."""
        if name in self._watches:
            return not self._watches[name].is_due(now_us)
        return token is not None and token == self._seen_token[name] and now_us < self._next_due_us[name]

    def _log_lost_watch(self, name: str) -> None:
        lost = self._watches[name].lost() if name in self._watches else None
        if lost is not None:
            self._lost_watch_log.note(name, lost)

    def _put_off(self, name: str) -> None:
        """Leave a shard that cannot be scanned now alone for a poll."""
        if name in self._watches:
            self._watches[name].put_off(self._host.clock.now_us() + self._settings.poll_interval_ms * 1000)

    def _due_after_change_us(self, name: str, part: PartKeys) -> int:
        """Return when to scan a part that has changed: what is another's is looked at once it may be overdue."""
        return self._host.clock.now_us() + self._strategies[name].may_wait_us(part)

    def _wake(self) -> None:
        """End the sleep."""
        with self._lock:
            self._changed.notify_all()

    def _await_manager(self) -> bool:
        """Wait until a manager takes a call; False if the scanner is to stop.

        A manager whose workers were full when last heard of is asked for room, not sent pointers, and that whether or
        not others have room. One that is dead answers at once, so it is asked again only after a while. After a third
        of an in-order lease without room, however often that was said meanwhile, others may go in order.
        """
        give_way_after_us = self._settings.in_order_lease_ms * 1000 // 3
        give_way_at_us = self._host.clock.now_us() + give_way_after_us
        while not self._stopping:
            now_us = self._host.clock.now_us()
            if now_us >= give_way_at_us:
                for strategy in self._strategies.values():
                    strategy.give_way()
                give_way_at_us = now_us + give_way_after_us
            with self._lock:
                idle = [number for number, calls in enumerate(self._calls) if not calls and not self._capacity[number]]
                ask = [number for number in idle if not self._died_lately(number)]
                for number in ask:
                    self._calls[number] += 1
                opened = any(self._takes_calls(number) for number in range(len(self._managers)))
                if not ask and not opened:
                    self._saturation.wait(now_us)
                    self._changed.wait(min(DEAD_WAIT_US if idle else give_way_after_us, give_way_at_us - now_us) / 1e6)
                    self._saturation.end_wait(self._host.clock.now_us())
            for number in ask:
                self._managers[number].call("await_room", done=partial(self._capacity_reported, number))
            if opened:
                return True
        return False

    def _takes_calls(self, number: int) -> bool:
        """Whether a manager takes another call. The lock is held."""
        return self._calls[number] < CALLS_MAX and self._capacity[number] > 0

    def _died_lately(self, number: int) -> bool:
        """Whether a manager was dead so shortly ago that it is not asked again yet."""
        return 0 <= self._host.clock.now_us() - self._died_us[number] < DEAD_WAIT_US

    def _hand_over(self, name: str, refs: Sequence[PointerRef]) -> bool:
        """Send pointers to a manager once one takes a call; False if the scanner is to stop."""
        while self._await_manager():
            with self._lock:
                ready = [number for number in range(len(self._managers)) if self._takes_calls(number)]
                if not ready:
                    probe("room is gone between the look and the handing over")
                    continue  # An answer came in between, that there is no room any more.
                number = min(ready, key=self._calls.__getitem__)
                self._calls[number] += 1
                self._handed_over[name].begin(refs)
                self._counts["pointers"] += len(refs)
            done = partial(self._served, number, name, refs)
            self._managers[number].call("serve", name, refs, self._scan, done=done)
            return True
        return False

    def _served(
        self, number: int, name: str, refs: Sequence[PointerRef], served: ServeReply | None, error: Exception | None
    ) -> None:
        now_us = self._host.clock.now_us()
        with self._lock:
            self._handed_over[name].end(refs, served, now_us=now_us)
            if served is not None:
                self._counts.update({name: getattr(served, name) for name in _COUNTED})
                self._pickup_latencies.update(map(bucket_bound_us, served.waited_us))
        if name in self._watches:
            # A visit moves its pointer, and tells nobody but whom it answers.
            self._watches[name].invalidate({ref.part for ref in refs})
        self._capacity_reported(number, served.capacity if served is not None else None, error)

    def _capacity_reported(self, number: int, capacity: int | None, error: Exception | None) -> None:
        if error is not None:
            note_failed_call(log, f"manager {number}", error)
        with self._lock:
            self._calls[number] -= 1
            self._capacity[number] = capacity or 0
            if error is not None:
                self._died_us[number] = self._host.clock.now_us()
            self._changed.notify_all()

    def _sleep_while_idle(self) -> None:
        """Sleep, a poll at a time, until a pointer may have vested, or a call ends."""
        while True:
            with self._lock:
                wait_us = self._poll_us()  # What wakes the scanner takes the lock first: nothing is told in between.
                has_unblocked_parts = any(handed_over.has_unblocked_parts for handed_over in self._handed_over.values())
                if self._stopping or (not has_unblocked_parts and self._changed.wait(wait_us / 1e6)):
                    return
            if has_unblocked_parts:
                self._rescan_waiting_parts()
                return
            self._idle_polls += 1
            now_us = self._host.clock.now_us()
            for name, shard in self._shards.items():
                try:
                    idle = self._is_idle(name, shard.db.commit_sequence(), now_us)
                except shard.db.errors:  # The scan that follows says so.
                    idle = False
                if not idle:
                    return

    def _listen(self, listener: Listener) -> None:
        """End the sleep once another process has committed something."""
        with closing(listener):
            while not self._stopping:
                report_loop_progress()
                if listener.wait(LISTEN_S):
                    with self._lock:
                        self._changed.notify_all()
                    self._host.clock.sleep_us(LISTEN_PAUSE_US)

    def _poll_us(self) -> int:
        """Return how long to sleep: until the earliest pointer vests, but a poll at most."""
        now_us = self._host.clock.now_us()
        asked = [name for name in self._shards if name not in self._watches]
        dues_us = [watch.next_due_us for watch in self._watches.values()]
        return sleep_us(
            self._settings.poll_interval_ms * 1000,
            self._idle_polls,
            due_in_us=min([*dues_us, *(self._next_due_us[name] for name in asked)], default=now_us) - now_us,
            detects_changes=all(self._seen_token[name] is not None for name in asked),
            watched_sleep_us=None if asked else WATCHED_RESCAN_US,
        )
