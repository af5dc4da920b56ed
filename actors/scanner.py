"""The scanner: finds vested pointers and hands them to managers (QuiCK section 6, Algorithm 1).

Round-robin over the shards in random order. It scans only while a manager has room, and sleeps when nothing has
vested: until the earliest pointer does, `poll_interval` at most, and some of them once nothing has happened for a
while. An idle embedded store is not even scanned: its last transaction id tells that nothing has changed.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from actors.fullness import Fullness
from actors.host import Host, Remote, note_failed_call
from actors.messages import Served
from actors.patience import Patience
from actors.refusals import Refusals
from actors.selection.reading import batches
from actors.selection.stretch import Session
from actors.selection.ways import selection_for
from actors.settings import ConsumerSettings
from actors.waits import counts_of, within_us
from zones.attempt import Attempt
from zones.engines import Listener
from zones.pointers import PointerRef
from zones.probes import probe
from zones.records import Trace
from zones.rules import is_shard_paused
from zones.shard import Shard

log = logging.getLogger("fairlead.scanner")

CALLS_MAX = 2  # Per manager: one at work, one waiting, so that no manager waits for a scan.
RESCAN_US = 1_000_000  # An idle shard is scanned this often even if nothing seems to have changed.
SLEEP_US_MIN = 500
_COUNTED = ("items", "missed_at_read", "missed_at_commit", "conflicts", "unreadable")
DEAD_WAIT_US = 100_000  # After this a manager that was dead is asked again.
# Where the engine tells whether anything changed, a scanner asks five times as often for a while after it has found
# something: what comes next often comes soon, and the question costs next to nothing.
EAGER_POLLS = 25
EAGER_PART = 5
# Where the engine also tells when another process commits, the scanner is woken; then it is left alone for a while, so
# that it looks no oftener than if it asked.
LISTEN_S = 1.0
DEAF_US = 2_000
# How far an idle scanner stretches its polls. Where the engine tells, after a hundred of them: to wake a sleeping
# processor costs ten times what the question does, and 1 % of a core is what idleness may cost.
STRETCH_MAX = 4
STRETCH_AFTER_POLLS = 100
# Where it does not, and a poll is a read of every part, from the first.
SCAN_STRETCH_MAX = 5


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
        self._selections = {
            name: selection_for(shard.layout, settings, host, coordinator, consumer=consumer)
            for name, shard in shards.items()
        }
        self._lock = host.lock()
        self._changed = host.condition(self._lock)
        self._calls = [0] * len(managers)
        self._died_us = [0] * len(managers)  # when a call failed last
        self._room = [1] * len(managers)  # as last heard; at the start it is found out by a first call
        self._held: set[bytes] = set()
        self._left_alone: dict[tuple[bytes, int], int] = {}  # id and vesting time, and until when: see `LeftAlone`
        self._sessions: dict[str, Session | None] = dict.fromkeys(shards)  # until `set_session` says so
        self._seen_token: dict[str, int | None] = dict.fromkeys(shards)
        self._next_due_us: dict[str, int] = dict.fromkeys(shards, 0)
        self._fullness = Fullness(host.clock.now_us())
        self._patience = Patience(host.clock)
        self._idle_polls = 0
        self._refusals = Refusals(host.clock, log, "shard %s cannot be scanned; trying again: %s")
        self._counts: Counter[str] = Counter()
        self._waits: Counter[int] = Counter()  # see `actors.waits`
        self._spans = host.telemetry.spans
        self._scan_trace: Trace | None = None  # of the last scan that found something, if that is recorded
        self._stopping = False

    def run(self) -> None:
        """Scan until `stop`."""
        for shard in self._shards.values():
            listener = shard.db.listener()
            if listener is not None:
                self._host.spawn("listening", partial(self._listen, listener))
        while not self._stopping:
            found = 0
            names = list(self._shards)
            self._host.random.shuffle(names)
            for name in names:
                found += self._visit_shard(name)
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
                self._selections[shard_name].hear(session)
            if known is None or session is None or known.stretch != session.stretch:
                self._seen_token[shard_name] = None  # What has not changed may be its own now.
                self._changed.notify_all()

    def was_full(self) -> bool:
        """Say whether it has waited for room for most of the time since this was asked last."""
        with self._lock:
            return self._fullness.since_last(self._host.clock.now_us())

    def counts(self) -> dict[str, int]:
        """Return what was scanned and served since the start, and the pointers in managers' hands now.

        How long pointers had waited when they were leased is among it; see `actors.waits`.
        """
        with self._lock:
            return {**self._counts, **counts_of(self._waits), "pointers_held": len(self._held)}

    def _visit_shard(self, name: str) -> int:
        """Algorithm 1, lines 3 to 11: scan and hand over until nothing is found or `processing_bound` is reached."""
        processed = 0
        while processed < self._settings.processing_bound and self._await_manager():
            if self._sessions[name] is None or self._patience.leaves_alone(name):
                break
            try:
                refs = self._scan(name)
            except self._shards[name].db.errors as error:
                self._refusals.note(name, error)
                break
            for batch in batches(refs, self._settings.batch_pointers):
                if not self._hand_over(name, batch):
                    break
            processed += len(refs)
            if not refs:
                break
        return processed

    def _scan(self, name: str) -> list[PointerRef]:
        shard = self._shards[name]
        now_us = self._host.clock.now_us()
        token = shard.db.change_token()
        if self._is_idle(name, token, now_us):
            return []
        selection = self._selections[name]
        selection.begin(now_us)
        held, left_alone = self._passed_over(now_us)
        # What is left to others has vested, and is no reason to look again before its time.
        after_us = 0 if held else now_us
        again_us = min(left_alone.values(), default=now_us + RESCAN_US)

        def eligible(ref: PointerRef) -> bool:
            return ref.id not in held and (ref.id, ref.vesting_us) not in left_alone

        def body(attempt: Attempt) -> tuple[list[PointerRef], int]:
            paused = is_shard_paused(attempt.tr)
            refs = selection.select(attempt.tr, eligible, now_us=now_us)
            if paused.present():
                probe("a scan finds its shard paused")
                return [], now_us + RESCAN_US
            if refs:
                return refs, now_us
            due_us = selection.next_due_us(attempt.tr, after_us=after_us)
            return refs, again_us if due_us is None else min(again_us, due_us)

        refs, due_us = self._patience.transact(shard, body)
        self._counts["scans"] += 1
        if refs:
            self._seen_token[name] = None
            selection.selected()
            if self._spans is not None:
                ended_us = self._host.clock.now_us()
                self._scan_trace = self._spans.scan(name, pointers=len(refs), began_us=now_us, ended_us=ended_us)
        else:
            self._seen_token[name] = token
            self._next_due_us[name] = self._rescan_us(due_us, now_us)
        return refs

    def _passed_over(self, now_us: int) -> tuple[frozenset[bytes], dict[tuple[bytes, int], int]]:
        """Return which pointers may not be chosen: what managers hold, and what was left to others, until when."""
        with self._lock:
            if self._left_alone:
                self._left_alone = {each: until_us for each, until_us in self._left_alone.items() if until_us > now_us}
            return frozenset(self._held), self._left_alone.copy()

    def _is_idle(self, name: str, token: int | None, now_us: int) -> bool:
        """Whether a scan of a shard could find no more than the last one did, which found nothing."""
        return token is not None and token == self._seen_token[name] and now_us < self._next_due_us[name]

    def _rescan_us(self, due_us: int, now_us: int) -> int:
        """Return when to scan again, although nothing was committed, after a scan that found nothing."""
        if due_us <= now_us:  # a pointer that a manager holds
            return now_us + self._settings.poll_interval_ms * 1000
        return min(due_us, now_us + RESCAN_US)

    def _await_manager(self) -> bool:
        """Wait until a manager takes a call; False if the scanner is to stop.

        A manager whose workers were full when last heard of is asked for room, not sent pointers, and that whether or
        not others have room. One that is dead answers at once, so it is asked again only after a while. After a third
        of an in-order lease without room, however often that was said meanwhile, others may go in order.
        """
        patience_us = self._settings.in_order_lease_ms * 1000 // 3
        patient_until_us = self._host.clock.now_us() + patience_us
        while not self._stopping:
            now_us = self._host.clock.now_us()
            if now_us >= patient_until_us:
                for selection in self._selections.values():
                    selection.give_way()
                patient_until_us = now_us + patience_us
            with self._lock:
                idle = [number for number, calls in enumerate(self._calls) if not calls and not self._room[number]]
                ask = [number for number in idle if not self._died_lately(number)]
                for number in ask:
                    self._calls[number] += 1
                opened = any(self._open(number) for number in range(len(self._managers)))
                if not ask and not opened:
                    self._fullness.wait(now_us)
                    self._changed.wait(min(DEAD_WAIT_US if idle else patience_us, patient_until_us - now_us) / 1e6)
                    self._fullness.go_on(self._host.clock.now_us())
            for number in ask:
                self._managers[number].call("await_room", done=partial(self._room_heard, number))
            if opened:
                return True
        return False

    def _open(self, number: int) -> bool:
        """Whether a manager takes another call. The lock is held."""
        return self._calls[number] < CALLS_MAX and self._room[number] > 0

    def _died_lately(self, number: int) -> bool:
        """Whether a manager was dead so shortly ago that it is not asked again yet."""
        return 0 <= self._host.clock.now_us() - self._died_us[number] < DEAD_WAIT_US

    def _hand_over(self, name: str, refs: Sequence[PointerRef]) -> bool:
        """Send pointers to a manager once one takes a call; False if the scanner is to stop."""
        while self._await_manager():
            with self._lock:
                ready = [number for number in range(len(self._managers)) if self._open(number)]
                if not ready:
                    probe("room is gone between the look and the handing over")
                    continue  # An answer came in between, that there is no room any more.
                number = min(ready, key=self._calls.__getitem__)
                self._calls[number] += 1
                self._held.update(ref.id for ref in refs)
                self._counts["pointers"] += len(refs)
            done = partial(self._served, number, refs)
            self._managers[number].call("serve", name, refs, self._scan_trace, done=done)
            return True
        return False

    def _served(self, number: int, refs: Sequence[PointerRef], served: Served | None, error: Exception | None) -> None:
        with self._lock:
            self._held.difference_update(ref.id for ref in refs)
            if served is not None:
                self._counts.update({name: getattr(served, name) for name in _COUNTED})
                self._waits.update(map(within_us, served.waited_us))
                self._left_alone.update({(each.id, each.vesting_us): each.until_us for each in served.left_alone})
        self._room_heard(number, served.room if served is not None else None, error)

    def _room_heard(self, number: int, room: int | None, error: Exception | None) -> None:
        if error is not None:
            note_failed_call(log, f"manager {number}", error)
        with self._lock:
            self._calls[number] -= 1
            self._room[number] = room or 0
            if error is not None:
                self._died_us[number] = self._host.clock.now_us()
            self._changed.notify_all()

    def _sleep_while_idle(self) -> None:
        """Sleep, a poll at a time, until a pointer may have vested, or a call ends."""
        while True:
            wait_us = self._poll_us()
            with self._lock:
                if self._stopping or self._changed.wait(wait_us / 1e6):
                    return
            self._idle_polls += 1
            now_us = self._host.clock.now_us()
            for name, shard in self._shards.items():
                try:
                    idle = self._is_idle(name, shard.db.change_token(), now_us)
                except shard.db.errors:  # The scan that follows says so.
                    idle = False
                if not idle:
                    return

    def _listen(self, listener: Listener) -> None:
        """End the sleep once another process has committed something."""
        with closing(listener):
            while not self._stopping:
                if listener.wait(LISTEN_S):
                    with self._lock:
                        self._changed.notify_all()
                    self._host.clock.sleep_us(DEAF_US)

    def _poll_us(self) -> int:
        """Return how long to sleep: until the earliest pointer vests, but a poll at most."""
        poll_us = self._settings.poll_interval_ms * 1000
        if None in self._seen_token.values():
            poll_us *= min(1 + self._idle_polls, SCAN_STRETCH_MAX)
        elif self._idle_polls < EAGER_POLLS:
            poll_us //= EAGER_PART
        elif self._idle_polls >= STRETCH_AFTER_POLLS:
            poll_us *= STRETCH_MAX
        now_us = self._host.clock.now_us()
        due_us = min(self._next_due_us.values(), default=now_us)
        return min(max(due_us - now_us, SLEEP_US_MIN), poll_us) if due_us > now_us else poll_us
