"""What a consumer does once a second on each shard, besides finding work.

It compares its clock with the shard's time (a consumer whose clock is off takes no leases) and writes its heartbeat. It
reads the other consumers' sessions and derives its own parts of the queue. It ends worker sessions that are silent. It
clears expired keys, enqueues periodic items that are due, and wakes pointers whose pause has ended. It packs the
completion log, and sums up rollups. Once a minute it looks whether the day is over after which tombstones of workflows
are cleared. It settles transactions across shards that were left prepared, and forgets old decisions. It drops
snapshots of tenants that have expired. Another loop loads submitted handlers. This takes nine small transactions per
shard and second, and one per period; only one of them writes unless there is more to do. On FoundationDB, where reads
are expensive, chores that find nothing to do rest (`chore_schedule`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from fairlead.actors.execution.submitted_handlers import SubmittedHandlers, load_submitted
from fairlead.actors.housekeeping.chore_schedule import (
    LATE_POINTERS,
    LEFTOVERS,
    LISTING,
    LOADING,
    SILENT_SESSIONS,
    SNAPSHOTS,
    WAKING,
    ChoreSchedule,
    is_tick_due,
)
from fairlead.actors.housekeeping.late_pointers import HEARTBEAT_ENTRIES_MAX, LatePointerScan
from fairlead.actors.housekeeping.silent_sessions import SilentSessions
from fairlead.actors.housekeeping.unknown_kinds import LOOK_US, WATCHED_LOOK_US, UnknownKinds, unserved_kinds
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.circuit_breaker import CircuitBreaker
from fairlead.actors.runtime.host import Host
from fairlead.actors.scanning.partitioning import Session, divide, merged
from fairlead.zones.engines import Reader
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy.policies import wake_paused_pointers
from fairlead.zones.probes import probe
from fairlead.zones.queue.id_retention import expire
from fairlead.zones.queue.periodic import Period, last_tick_us, periods_of, tick_op
from fairlead.zones.reporting import completion_log, rollups, worker_status
from fairlead.zones.shard import Shard, first_shards
from fairlead.zones.snapshots.upkeep import SnapshotUpkeep
from fairlead.zones.spanning.leftovers import Leftovers
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.clock_check import ClockStatus, ShardClock, check_clock
from fairlead.zones.top_level.pointers import OversleepScan, wake_oversleeping
from fairlead.zones.top_level.sessions import LIVE_US, ListedSession, SessionRecord, Sessions
from fairlead.zones.transaction_runner import RECEIPT_BUCKETS, Attempt, clear_receipts
from fairlead.zones.workflow import floor
from fairlead.zones.workflow.locks import HOLD_KIND

log = logging.getLogger("fairlead.housekeeping")


HEARTBEAT_S = 1.0
LOADING_END_S = 1.0  # A consumer that ends waits so long for submitted handlers that are being imported.
RETRIES_MAX = 5  # Half a second of delays: the other shards wait meanwhile, and the next heartbeat tries again.
WATCH_US = 3_000_000  # Three heartbeats of any other consumer.
CLOCK_STEP_US_MAX = 2_000_000  # A smaller correction of the clock, or a busy machine, is not worth a line.
# A consumer that has started reads the list at each of its first heartbeats: a session's lifetime.
NEWCOMER_HEARTBEATS = 5
FORGETTING_HEARTBEATS = 60  # Decisions of transactions across shards are kept for minutes.
FLOOR_HEARTBEATS = 60  # FLOOR is raised once a day: a minute later is no matter.
CLEAR_MAX = 2_000  # Keys of each sort cleared per heartbeat, which takes some 20 ms: housekeeping is never a load.


class ScannerHandle(Protocol):
    """A `Scanner`, as its housekeeping sees it."""

    def set_session(self, shard_name: str, session: Session | None) -> None:
        """Set the consumer's session on a shard; None: no leases may be taken there."""
        ...

    def was_saturated(self) -> bool:
        """Say whether it had no capacity for most of the time since the last call."""
        ...


class Housekeeping:
    """The once-a-second work of one consumer. `slots`: of all its workers."""

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        identity: Identity,
        periods: Sequence[Period],
        submitted: SubmittedHandlers,
        scanner: ScannerHandle,
        *,
        slots: int,
    ) -> None:
        self._host = host
        self._shards = shards
        self._identity = identity
        self._periods = periods
        self._submitted = submitted
        self._scanner = scanner
        self._slots = slots
        self._logged_off: set[str] = set()  # shards for which this was logged since the clock was last good there
        self._breaker = CircuitBreaker(host.clock)
        self._unknown = UnknownKinds()
        self._failing: set[tuple[str, str]] = set()  # shards, and which chore failed there the last time
        self._clocks = {
            name: ShardClock(max_skew_us=shard.layout.settings.max_skew_ms * 1000, watch_us=WATCH_US)
            for name, shard in shards.items()
        }
        self._seen = {name: Sessions() for name in shards}
        self._others: dict[str, list[ListedSession]] = {name: [] for name in shards}  # as last read
        self._live: dict[str, list[ListedSession]] = {name: [] for name in shards}
        self._schedules = {
            name: ChoreSchedule(backs_off=shard.layout.is_watched, is_alone=len(shards) == 1)
            for name, shard in shards.items()
        }
        # Of a kind of a shard: when its next tick is, and when its record was read.
        self._ticks: dict[tuple[str, str], tuple[int, int]] = {}
        self._heartbeats = 0  # How often all shards were done: lists in many parts are done part by part.
        self._late_scans = {name: LatePointerScan() for name in shards}
        self._silent_sessions = {
            name: SilentSessions(shard, self._breaker, retries_max=RETRIES_MAX) for name, shard in shards.items()
        }
        self._leftovers = {name: Leftovers(shard, partial(_find, shard)) for name, shard in shards.items()}
        self._snapshots = {name: SnapshotUpkeep(shard) for name, shard in shards.items()}
        self._lock = host.lock()
        self._stopped = host.condition(self._lock)
        self._stopping = False

    def run(self) -> None:
        """Write a heartbeat every second until `stop`, then end the consumer's sessions."""
        looked_us = self._host.clock.now_us()
        # Loading imports users' code, and no heartbeat may wait for that. Without a key nothing is loaded.
        loading = self._host.spawn("loading", self._keep_loading) if self._submitted.key else None
        while self._host.supervisor.failure is None:
            full = self._scanner.was_saturated()
            for name, shard in self._answering():
                self._run_chore(name, "heartbeat", partial(self._heartbeat, name, shard, full=full))
            self._heartbeats += 1
            if loading is None:
                self._load()
            if self._awaits_stop():
                break
            last_us, looked_us = looked_us, self._host.clock.now_us()
            stepped_us = looked_us - last_us - int(HEARTBEAT_S * 1e6)
            self._log_clock_step(stepped_us)
            if stepped_us < -CLOCK_STEP_US_MAX:
                for late in self._late_scans.values():
                    late.make_urgent()
        if loading is not None:
            loading.join(LOADING_END_S)
        for name, shard in self._answering():
            try:
                self._breaker.transact(
                    shard, lambda attempt: sessions.end_session(attempt.tr, self._identity.consumer_id)
                )
            except shard.db.errors as error:
                log.info("shard %s lists this consumer until its session expires: %s", name, error)

    def _keep_loading(self) -> None:
        while self._host.supervisor.failure is None:
            self._load()
            if self._awaits_stop():
                break

    def _load(self) -> None:
        load_submitted(self._submitted, {name: shard for name, shard in self._answering() if self._loads(name)})

    def _awaits_stop(self) -> bool:
        """Wait until the next heartbeat; True if the loops are to end."""
        with self._lock:
            return self._stopping or self._stopped.wait(HEARTBEAT_S)

    def stop(self) -> None:
        """End the loop."""
        with self._lock:
            self._stopping = True
            self._stopped.notify_all()

    def _answering(self) -> Iterator[tuple[str, Shard]]:
        """Yield the shards whose circuit breaker is closed."""
        for name, shard in self._shards.items():
            if not self._breaker.is_open(name):
                yield name, shard

    def _run_chore(self, name: str, chore: str, work: Callable[[], object]) -> bool:
        """Run a chore on a shard; False if the store refuses, or a tenant is locked or its record cannot be read.

        A failure is logged once until the chore succeeds: a disk is full for hours, and a chore is tried each second.
        """
        is_new = (name, chore) not in self._failing
        self._failing.add((name, chore))
        try:
            work()
        except self._shards[name].db.errors as error:
            if is_new:
                log.info("shard %s: housekeeping is put off (%s): %s", name, chore, error)
        except (TenantMoved, TenantBusy) as error:
            if is_new:
                log.warning("shard %s: housekeeping goes on without one chore (%s): %s", name, chore, error)
        else:
            self._failing.discard((name, chore))
            return True
        return False

    def _log_clock_step(self, stepped_us: int) -> None:
        """Log if the clock advanced by much more or less than a heartbeat."""
        if abs(stepped_us) > CLOCK_STEP_US_MAX:
            log.warning(
                "this machine's clock has stepped by %+.1f s%s; leases that ended by it run again, and what was"
                " to vest vests by the new time",
                stepped_us / 1e6,
                ", or this process stood still or waited for a store" if stepped_us > 0 else "",
            )

    def _wake_late_pointers(self, name: str, shard: Shard, session: Session, checked_us: int) -> None:
        """Search some of the consumer's own parts, or all of them if urgent; see `late_pointers`."""
        late, own = self._late_scans[name], session.partition.parts
        was_urgent, woken, entries, did = late.is_urgent, 0, 0, False
        for part in late.next_parts(own):

            def wake(attempt: Attempt, keys: PartKeys = shard.layout.parts[part], end: bytes = late.ends.get(part, b""),
                     entries_max: int = late.entries_max) -> OversleepScan:  # fmt: skip
                tr, layout = attempt.tr, shard.layout
                return wake_oversleeping(tr, layout, keys, now_us=checked_us, entries_max=entries_max, end=end)

            looked = self._breaker.transact(shard, wake, retries_max=RETRIES_MAX)
            late.note(part, looked.end, own)
            woken, entries, did = (
                woken + looked.woken,
                entries + looked.entries,
                did or bool(looked.woken or looked.end),
            )
            if entries >= HEARTBEAT_ENTRIES_MAX:
                break
        if woken:
            if not was_urgent:
                late.make_urgent()  # There may be more of them.
            log.warning(
                "shard %s: a clock that was ahead had put %d queues to sleep for longer than allowed; they are"
                " served now",
                name,
                woken,
            )
        self._schedules[name].note(LATE_POINTERS, self._heartbeats, did=did)

    def _loads(self, name: str) -> bool:
        """Say whether to read a shard's submitted handlers now, and note it."""
        schedule = self._schedules[name]
        if not schedule.is_due(LOADING, self._heartbeats):
            return False
        schedule.note(LOADING, self._heartbeats, did=False)
        return True

    def _session_record(self, now_us: int, *, full: bool) -> SessionRecord:
        identity = self._identity
        silent_us = self._host.supervisor.silent_us()
        return SessionRecord(
            identity.host,
            identity.pid,
            self._kinds(),
            identity.started_us,
            now_us,
            full,
            self._slots,
            loops={name: max(0, now_us - each_us) for name, each_us in silent_us.items()},
        )

    def _kinds(self) -> list[str]:
        """Return what users have named: holds run everywhere."""
        return sorted(handler.kind for handler in self._submitted.registry if handler.kind != HOLD_KIND)

    def _heartbeat(self, name: str, shard: Shard, *, full: bool) -> None:
        clock, mine, schedule = self._clocks[name], self._identity.consumer_id, self._schedules[name]
        lists, clears = (
            schedule.is_due(LISTING, self._heartbeats),
            schedule.is_due("clearing receipts", self._heartbeats),
        )
        bucket = schedule.times_done("clearing receipts") % RECEIPT_BUCKETS

        def list_others(tr: Reader, now_us: int) -> list[ListedSession]:
            return [each for each in sessions.listing(tr, now_us=now_us) if each.consumer_id != mine]

        def body(attempt: Attempt) -> tuple[ClockStatus, int, list[ListedSession], bool]:
            tr, now_us = attempt.tr, attempt.now_us
            others = list_others(tr, now_us) if lists else self._others[name]
            clock_status = check_clock(
                tr, clock, now_us=now_us, is_only_consumer=lambda: not (others if lists else list_others(tr, now_us))
            )
            cleared = False
            if clock_status in (ClockStatus.GOOD, ClockStatus.TAKEN_OVER):
                sessions.heartbeat(tr, mine, self._session_record(now_us, full=full))
                if lists:
                    sessions.clear_dead(tr, others, now_us=now_us, keys_max=CLEAR_MAX)
                cleared = clears and clear_receipts(tr, bucket, now_us=now_us)
            return clock_status, now_us, others, cleared

        clock_status, now_us, others, cleared = self._breaker.transact(shard, body, retries_max=RETRIES_MAX)
        fit = clock_status in (ClockStatus.GOOD, ClockStatus.TAKEN_OVER)
        if lists:
            live = self._seen[name].live(others, now_us=now_us)
            # A consumer that has just started or stopped may not be the last: then the list is read at each heartbeat.
            unsettled = _partition_inputs(live) != _partition_inputs(self._live[name]) or self._seen[name].stands_still
            is_new = schedule.times_done(LISTING) < NEWCOMER_HEARTBEATS
            schedule.note(LISTING, self._heartbeats, did=unsettled or is_new)
            self._others[name], self._live[name] = others, live
        if clears:
            schedule.note("clearing receipts", self._heartbeats, did=cleared)
        session = self._session(name, shard, now_us, full=full) if fit else None
        self._scanner.set_session(name, session)
        if session is not None:
            self._run_chores(name, shard, session.partition.parts, checked_us=now_us)
            if self._late_scans[name].is_urgent or self._schedules[name].is_due(LATE_POINTERS, self._heartbeats):
                self._run_chore(name, LATE_POINTERS, partial(self._wake_late_pointers, name, shard, session, now_us))
            self._logged_off.discard(name)
        elif clock_status is ClockStatus.OFF and name not in self._logged_off:
            self._logged_off.add(name)
            log.error(
                "this machine's clock is more than %d ms off the time of shard %s, which other machines advance:"
                " no leases are taken there until it is set right",
                shard.layout.settings.max_skew_ms,
                name,
            )

    def _run_chores(self, name: str, shard: Shard, own: range, *, checked_us: int) -> None:
        """Do the chores: those that something waits for come first.

        Each chore has a transaction of its own, after the session is known: a failing chore delays no other work.

        Args:
          own: the parts that are this consumer's.
          checked_us: when this heartbeat found the clock good. The chores cannot be undone, so they use this time: the
            clock may have stepped since.
        """
        schedule = self._schedules[name]

        def wake(attempt: Attempt) -> bool:
            return wake_paused_pointers(attempt.tr, shard.layout, now_us=checked_us) > 0

        def expire_ids(attempt: Attempt) -> bool:
            part = own[schedule.times_done("expiring ids") % len(own)] if own else None
            return part is not None and expire(attempt.tr, part, now_us=checked_us, keys_max=CLEAR_MAX) > 0

        def pack(attempt: Attempt) -> bool:
            return completion_log.compact(attempt.tr, own, now_us=checked_us)

        def sum_up(attempt: Attempt) -> bool:
            is_first = rollups.sum_up(attempt.tr, shard.layout, now_us=checked_us)
            if is_first:
                worker_status.clear_old(attempt.tr, now_us=checked_us, keys_max=CLEAR_MAX)
            return False  # There is nothing more to do before the next interval is over.

        chores: dict[str, Callable[[Attempt], bool]] = {
            WAKING: wake,
            "expiring ids": expire_ids,
            "packing": pack,
            "summing up": sum_up,
        }
        self._tick(name, shard, checked_us)
        if schedule.is_due(SILENT_SESSIONS, self._heartbeats) and not self._breaker.is_open(name):
            self._run_chore(name, SILENT_SESSIONS, partial(self._look_at_worker_sessions, name, checked_us))
        if schedule.is_due(LEFTOVERS, self._heartbeats) and not self._breaker.is_open(name):
            self._run_chore(name, LEFTOVERS, partial(self._settle_leftovers, name, checked_us))
        if schedule.is_due(SNAPSHOTS, self._heartbeats) and not self._breaker.is_open(name):
            self._run_chore(name, SNAPSHOTS, partial(self._tend_snapshots, name, checked_us))
        for chore, body in chores.items():
            if self._breaker.is_open(name):
                break
            if schedule.is_due(chore, self._heartbeats):
                self._run_chore(name, chore, partial(self._run_and_schedule, name, shard, chore, body))
        if self._heartbeats % FLOOR_HEARTBEATS == 0 and not self._breaker.is_open(name):
            self._run_chore(name, "raising the floor", partial(self._raise_floor, shard, checked_us))
        look_us = WATCHED_LOOK_US if shard.layout.is_watched else LOOK_US
        is_due = self._unknown.is_due(name, self._host.clock.now_us(), look_us=look_us)
        if is_due and not self._breaker.is_open(name):
            self._run_chore(name, "unknown kinds", partial(self._log_unknown_kinds, name, shard))

    def _look_at_worker_sessions(self, name: str, checked_us: int) -> None:
        did = self._silent_sessions[name].look(now_us=checked_us)
        self._schedules[name].note(SILENT_SESSIONS, self._heartbeats, did=did)

    def _settle_leftovers(self, name: str, checked_us: int) -> None:
        """Settle what transactions across shards have left on a shard; once a minute, forget old decisions."""
        leftovers = self._leftovers[name]
        settled = leftovers.settle_old(now_us=self._host.clock.now_us())
        if settled:
            log.warning("shard %s: settled %d transactions across shards that were left prepared", name, settled)
        if self._heartbeats % FORGETTING_HEARTBEATS == 0:
            leftovers.forget_old(now_us=checked_us)
        self._schedules[name].note(LEFTOVERS, self._heartbeats, did=leftovers.has_any)

    def _tend_snapshots(self, name: str, checked_us: int) -> None:
        did = self._snapshots[name].look(now_us=checked_us)
        self._schedules[name].note(SNAPSHOTS, self._heartbeats, did=did > 0)

    def _raise_floor(self, shard: Shard, checked_us: int) -> None:
        """Raise FLOOR if the day is over; tombstones that are left then wait for the next look."""

        def body(attempt: Attempt) -> bool:
            return floor.raise_daily(attempt.tr, now_us=checked_us, tombstones_max=CLEAR_MAX)

        self._breaker.transact(shard, body, retries_max=RETRIES_MAX)

    def _run_and_schedule(self, name: str, shard: Shard, chore: str, body: Callable[[Attempt], bool]) -> None:
        did = self._breaker.transact(shard, body, retries_max=RETRIES_MAX)
        self._schedules[name].note(chore, self._heartbeats, did=did)

    def _tick(self, name: str, shard: Shard, checked_us: int) -> None:
        """Enqueue the periodic items that are due. Where reads are expensive, a record is read when its tick is due."""
        for period in periods_of(self._periods, name, first_shards(self._shards)):
            if self._breaker.is_open(name):
                break
            known = self._ticks.get((name, period.kind))
            if known is not None and shard.layout.is_watched and not is_tick_due(*known, checked_us):
                continue
            tick = partial(
                self._breaker.transact, shard, partial(_tick, shard, period, checked_us), retries_max=RETRIES_MAX
            )
            if self._run_chore(name, f"tick of {period.kind}", tick):
                self._ticks[name, period.kind] = last_tick_us(period, checked_us) + period.every_us, checked_us

    def _log_unknown_kinds(self, name: str, shard: Shard) -> None:
        """Log the kinds that have items and no handler."""

        def look(attempt: Attempt) -> list[str]:
            return unserved_kinds(attempt.tr, shard.layout, now_us=attempt.now_us)

        kinds = self._breaker.transact(shard, look, retries_max=RETRIES_MAX)
        self._unknown.note(name, kinds, self._kinds())

    def _session(self, name: str, shard: Shard, now_us: int, *, full: bool) -> Session:
        """Return this consumer's session, after its heartbeat: the live consumers divide the queue among them.

        A consumer that is full itself need not know which others are.
        """
        mine, part_count = self._identity.consumer_id, shard.layout.part_count
        live = self._live[name]
        if len(live) < len(self._others[name]):
            probe("a session has expired, and the other consumers divide its parts")
        kinds = {each.consumer_id: each.record.kinds for each in live}
        kinds[mine] = self._kinds()
        own = divide(kinds, part_count)
        saturated = [] if full else [own[each.consumer_id] for each in live if each.record.full]
        return Session(own[mine], now_us + LIVE_US, merged(saturated))


def _partition_inputs(live: Sequence[ListedSession]) -> list[tuple[bytes, bool, list[str]]]:
    """Return the facts about the other consumers that decide how a shard is divided."""
    return [(each.consumer_id, each.record.full, each.record.kinds) for each in live]


def _find(shard: Shard, shard_id: bytes) -> OpenShard | None:
    return shard.find_shard(shard_id)


def _tick(shard: Shard, period: Period, checked_us: int, attempt: Attempt) -> None:
    run_one(tick_op(attempt.tr, shard.layout, period, run=attempt.new_id(), now_us=checked_us))
