"""What a consumer does once a second on each shard, besides finding work.

It judges its clock against the shard's time (one that is off takes no leases), shows that it is alive, sees who else
is and what part of the queue is its own, clears what has expired; enqueues the periodic items that are due, wakes what
was paused and goes on, packs what has ended, sums up what was done; and loads handlers that were submitted. Five small
transactions per shard and second, and one per period, of which one writes unless there is more to do.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from actors.host import Host
from actors.identity import Identity
from actors.patience import Patience
from actors.selection.stretch import Session, divide, joined
from actors.submitted import SubmittedHandlers, load_submitted
from zones import completions, presence, series, timesheets
from zones.attempt import Attempt, clear_receipts
from zones.history import forget
from zones.periodic import Period, periods_of, tick_steps
from zones.presence import LIVE_US, Presence, Present, Sessions
from zones.probes import probe
from zones.rules import wake_parked
from zones.shard import Shard
from zones.shard_time import ShardClock, Standing, beat
from zones.steps import alone

log = logging.getLogger("fairlead.housekeeping")


BEAT_S = 1.0
RETRIES_MAX = 5  # Half a second of delays: the other shards wait meanwhile, and the next beat tries again.
WATCH_US = 3_000_000  # Three beats of anybody else.
STEP_US_MAX = 2_000_000  # A clock that is set right by less, or a busy machine, is not worth a line.
CLEAR_MAX = 2_000  # Keys of each sort cleared per beat, which takes some 20 ms: housekeeping never is a load.


class Finder(Protocol):
    """Who finds the work: a `Scanner`, as its housekeeping sees it."""

    def set_session(self, shard_name: str, session: Session | None) -> None:
        """Hear what the consumer's session on a shard is; None: no leases may be taken there."""
        ...

    def was_full(self) -> bool:
        """Say whether it had no room for most of the time since this was asked last."""
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
        finder: Finder,
        *,
        slots: int,
    ) -> None:
        self._host = host
        self._shards = shards
        self._identity = identity
        self._periods = periods
        self._submitted = submitted
        self._finder = finder
        self._slots = slots
        self._said_off: set[str] = set()  # shards that it was said of since this clock was good there
        self._patience = Patience(host.clock)
        self._failing: set[tuple[str, str]] = set()  # shards, and which chore broke off there the last time
        self._clocks = {
            name: ShardClock(max_skew_us=shard.layout.settings.max_skew_ms * 1000, watch_us=WATCH_US)
            for name, shard in shards.items()
        }
        self._seen = {name: Sessions() for name in shards}
        self._lock = host.lock()
        self._stopped = host.condition(self._lock)
        self._stopping = False

    def run(self) -> None:
        """Beat once a second until `stop`, then take the consumer off the list."""
        looked_us = self._host.clock.now_us()
        while True:
            full = self._finder.was_full()
            for name, shard in self._answering():
                self._survive(name, "beat", partial(self._beat, name, shard, full=full))
            load_submitted(self._submitted, dict(self._answering()))
            with self._lock:
                if self._stopping or self._stopped.wait(BEAT_S):
                    break
            last_us, looked_us = looked_us, self._host.clock.now_us()
            self._tell_of_step(looked_us - last_us - int(BEAT_S * 1e6))
        for name, shard in self._answering():
            try:
                self._patience.transact(shard, lambda attempt: presence.leave(attempt.tr, self._identity.consumer_id))
            except shard.db.errors as error:
                log.info("shard %s keeps this consumer on its list for a while: %s", name, error)

    def stop(self) -> None:
        """End the loop."""
        with self._lock:
            self._stopping = True
            self._stopped.notify_all()

    def _answering(self) -> Iterator[tuple[str, Shard]]:
        """Yield the shards, but those that do not answer: they are left alone for a while."""
        for name, shard in self._shards.items():
            if not self._patience.leaves_alone(name):
                yield name, shard

    def _survive(self, name: str, chore: str, work: Callable[[], object]) -> None:
        """Do a chore on a shard; what no store answers is a record that nobody foresaw, and all else goes on.

        Said once, until it is done again: a disk is full for hours, and a chore is tried each second.
        """
        is_new = (name, chore) not in self._failing
        self._failing.add((name, chore))
        try:
            work()
        except self._shards[name].db.errors as error:
            if is_new:
                log.info("shard %s: housekeeping is put off (%s): %s", name, chore, error)
        except Exception:
            if is_new:
                log.exception("shard %s: housekeeping broke off (%s); it is tried again each second", name, chore)
        else:
            self._failing.discard((name, chore))

    def _tell_of_step(self, stepped_us: int) -> None:
        """Say that the clock went on by something else than a beat, if that is worth saying."""
        if abs(stepped_us) > STEP_US_MAX:
            log.warning(
                "this machine's clock has stepped by %+.1f s%s; leases that ended by it run again, and what was"
                " to vest vests by the new time",
                stepped_us / 1e6,
                ", or this process stood still or waited for a store" if stepped_us > 0 else "",
            )

    def _sign_of_life(self, now_us: int, *, full: bool) -> Presence:
        identity = self._identity
        return Presence(identity.host, identity.pid, self._kinds(), identity.started_us, now_us, full, self._slots)

    def _kinds(self) -> list[str]:
        return sorted(handler.kind for handler in self._submitted.registry)

    def _beat(self, name: str, shard: Shard, *, full: bool) -> None:
        clock, mine = self._clocks[name], self._identity.consumer_id

        def body(attempt: Attempt) -> tuple[Standing, int, list[Present]]:
            tr, now_us = attempt.tr, attempt.now_us
            others = [each for each in presence.listing(tr, now_us=now_us) if each.consumer_id != mine]
            standing = beat(tr, clock, now_us=now_us, alone=not others)
            if standing in (Standing.GOOD, Standing.TAKEN_OVER):
                presence.beat(tr, mine, self._sign_of_life(now_us, full=full))
                presence.clear_dead(tr, now_us=now_us, keys_max=CLEAR_MAX)
                clear_receipts(tr, now_us=now_us)
                forget(tr, now_us=now_us, keys_max=CLEAR_MAX)
            return standing, now_us, others

        standing, now_us, others = self._patience.transact(shard, body, retries_max=RETRIES_MAX)
        fit = standing in (Standing.GOOD, Standing.TAKEN_OVER)
        self._finder.set_session(name, self._session(name, shard, others, now_us, full=full) if fit else None)
        if fit:
            self._tidy(name, shard)
            self._said_off.discard(name)
        elif standing is Standing.OFF and name not in self._said_off:
            self._said_off.add(name)
            log.error(
                "this machine's clock is more than %d ms off the time of shard %s, which other machines advance:"
                " no leases are taken there until it is set right",
                shard.layout.settings.max_skew_ms,
                name,
            )

    def _tidy(self, name: str, shard: Shard) -> None:
        """Enqueue what is due, wake what goes on where whoever ended a pause has not, pack and sum up what was done.

        Each apart, and after the session is known: what cannot be done keeps no other work waiting.
        """

        def wake(attempt: Attempt) -> None:
            wake_parked(attempt.tr, shard.layout, now_us=attempt.now_us)

        def pack(attempt: Attempt) -> None:
            completions.tidy(attempt.tr, now_us=attempt.now_us)

        def sum_up(attempt: Attempt) -> None:
            if series.sum_up(attempt.tr, shard.layout, now_us=attempt.now_us):
                timesheets.clear_old(attempt.tr, now_us=attempt.now_us, keys_max=CLEAR_MAX)

        periods = periods_of(self._periods, name, list(self._shards))
        chores: dict[str, Callable[[Attempt], object]] = {
            **{f"tick of {period.kind}": partial(_tick, shard, period) for period in periods},
            "waking": wake,
            "packing": pack,
            "summing up": sum_up,
        }
        for chore, body in chores.items():
            if self._patience.leaves_alone(name):
                break
            self._survive(name, chore, partial(self._patience.transact, shard, body, retries_max=RETRIES_MAX))

    def _session(self, name: str, shard: Shard, others: Sequence[Present], now_us: int, *, full: bool) -> Session:
        """Return this consumer's session, which has just beaten: the live ones divide the queue among them.

        One that is full itself need not know who else is.
        """
        mine, part_count = self._identity.consumer_id, shard.layout.part_count
        live = self._seen[name].live(others, now_us=now_us)
        if len(live) < len(others):
            probe("a session is over, and the others divide its parts among them")
        kinds = {each.consumer_id: each.presence.kinds for each in live}
        kinds[mine] = self._kinds()
        own = divide(kinds, part_count)
        to_help = [] if full else [own[each.consumer_id] for each in live if each.presence.full]
        return Session(own[mine], now_us + LIVE_US, joined(to_help))


def _tick(shard: Shard, period: Period, attempt: Attempt) -> None:
    alone(tick_steps(attempt.tr, shard.layout, period, now_us=attempt.now_us))
