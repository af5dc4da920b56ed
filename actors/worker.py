"""The worker: runs leased items in slots, keeps their leases alive, and settles them in batches (QuiCK Algorithm 3).

Three kinds of loops run beside each other, all around one table (`Holdings`) under one lock:
    a slot     takes the next item, runs its handler, puts it among the finished
    settling   commits the ends of all that finished while the last commit was under way
    keeping    extends leases, interrupts what ran past its timeout or lost its lease, gives back what waits too long
A worker whose leases cannot be extended stops its handlers and takes nothing new: liveness is progress through the
store, not a running process.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from actors import settlement
from actors.handlers import Handler, describe
from actors.holdings import Held, Holdings, Phase
from actors.host import Host
from actors.job import Job
from actors.keeping import TICK_US, chores, lease_at_start
from actors.messages import ItemRef, Report
from actors.running import JobTimeout, Runners, run_handler
from actors.settings import ConsumerSettings
from actors.submitted import SubmittedHandlers, load_submitted
from zones import stored_item
from zones.attempt import Attempt
from zones.items import Outcome
from zones.layout import Tenant
from zones.queue_zone import QueueZone
from zones.records import ItemRecord, decode
from zones.shard import Shard
from zones.steps import alone, in_step

T = TypeVar("T")
P = TypeVar("P", ItemRef, Held)

log = logging.getLogger("fairlead.worker")

SETTLE_MAX = 512  # Items in one settling transaction.
PROGRESS_WAIT_S = 1.0  # The longest that a manager's question for progress is held.
STORE_RETRY_S = 0.5
EXTEND_MAX = 256  # Items in one extending transaction.


class Worker:
    """One worker. `place` and `await_progress` are called by its manager, the rest by its consumer."""

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        submitted: SubmittedHandlers,
        settings: ConsumerSettings,
        runners: Runners,
    ) -> None:
        self._host = host
        self._clock = host.clock
        self._shards = shards
        self._submitted = submitted
        self._settings = settings
        self._lease_us = settings.lease_ms * 1000
        self._runners = runners
        self._holdings = Holdings(slots=settings.slots, incarnation=host.random.randbytes(8))
        self._finished: list[Held] = []
        self._stopping = False
        self._store_down = False
        self._given_up = 0
        self._counts: Counter[str] = Counter()
        self._lock = host.lock()
        self._arrived = host.condition(self._lock)  # items came: for the slots
        self._ended = host.condition(self._lock)  # handlers ended: for settling
        self._left = host.condition(self._lock)  # items left: for the manager, and a drain
        self._busy = host.condition(self._lock)  # there is something to keep

    def start(self) -> None:
        """Start the loops."""
        for _ in range(self._settings.slots):
            self._host.spawn("slot", self._run_slot)
        self._host.spawn("settling", self._run_settling)
        self._host.spawn("keeping", self._run_keeping)

    def place(self, refs: Sequence[ItemRef]) -> Report:
        """Take items to run, after checking that their leases still stand (Algorithm 3: "double-checks").

        A lease that has not ended, by a clock that is good, can be nobody else's. What is not held any more is left
        out. Records that did not come with the call are read by snapshot; conflicts with nothing.
        """
        arrived = []
        for name, some in by_shard(refs).items():
            shard = self._shards[name]
            carried = [(ref, decode(ItemRecord, ref.stored)) for ref in some if ref.stored]
            arrived += self._held(shard, [(ref, record, record.payload) for ref, record in carried if record])
            arrived += self._held(shard, self._read(shard, [ref for ref in some if not ref.stored]))
        with self._lock:
            if self._holdings.accepting:
                count = sum(self._holdings.accept(held) for held in arrived)
                self._arrived.notify(count)
                self._busy.notify_all()
                return self._holdings.report()
        self._give_back(arrived)  # They were on their way when the worker began to drain.
        with self._lock:
            return self._holdings.report()

    def await_progress(self, seen: int) -> Report:
        """Answer once items have left since `progress` was `seen`, or after a second."""
        with self._lock:
            if self._holdings.progress == seen:
                self._left.wait(PROGRESS_WAIT_S)
            return self._holdings.report()

    def counts(self) -> dict[str, int]:
        """Return what became of the items so far, and `held`: how many there are now."""
        with self._lock:
            return {**self._counts, "held": len(self._holdings)}

    def drain(self, drain_ms: int) -> dict[str, int]:
        """Take nothing new, give back what waits, let what runs finish within `drain_ms`, give back the rest, stop.

        What is given back vests at once and counts neither as an error nor as a lapse.
        """
        with self._lock:
            self._holdings.accepting = False
            waiting = list(self._holdings.waiting)
        self._give_back(waiting)
        until_us = self._clock.now_us() + drain_ms * 1000
        with self._lock:
            while len(self._holdings) and (left_us := until_us - self._clock.now_us()) > 0:
                self._left.wait(left_us / 1e6)
            rest = [held for held in self._holdings if held.phase is Phase.RUNNING]
        self._give_back(rest)
        with self._lock:
            self._stopping = True
            for condition in (self._arrived, self._ended, self._left, self._busy):
                condition.notify_all()
        return self.counts()

    def _held(self, shard: Shard, found: Iterable[tuple[ItemRef, ItemRecord, bytes]]) -> list[Held]:
        now_us = self._clock.now_us()
        arrived = []
        for ref, record, payload in found:
            if record.lease_id == ref.lease_id and record.vesting_us > now_us:
                handler = self._handler_of(record.kind)
                if handler is not None:
                    arrived.append(Held(ref, record, handler, Job(shard, ref, record, payload), now_us))
        return arrived

    def _read(self, shard: Shard, refs: Sequence[ItemRef]) -> list[tuple[ItemRef, ItemRecord, bytes]]:
        """Read the records and payloads of items that are too long to come with the call."""

        def body(attempt: Attempt) -> list[tuple[ItemRef, ItemRecord, bytes]]:
            tr = attempt.tr
            places = [shard.layout.place(ref.tenant, ref.zone) for ref in refs]
            reads = [tr.snapshot.get(place.keys.item(ref.item_id)) for place, ref in zip(places, refs, strict=True)]
            found = []
            for place, ref, read in zip(places, refs, reads, strict=True):
                record = None if read.value is None else decode(ItemRecord, read.value)
                if record is not None:
                    found.append((ref, record, stored_item.read_payload(tr, place, ref.item_id, record)))
            return found

        return shard.transact(body) if refs else []

    def _handler_of(self, kind: str) -> Handler | None:
        """Return the handler of a kind; its manager may have heard of one just submitted a moment earlier."""
        handlers = self._submitted.registry.handlers
        if kind not in handlers:
            load_submitted(self._submitted, self._shards)
        return handlers.get(kind)

    def _run_slot(self) -> None:
        while True:
            with self._lock:
                while (held := self._holdings.next_to_run(self._clock.now_us())) is None:
                    if self._stopping:
                        return
                    self._arrived.wait()
            try:
                if self._lease_for_start(held):
                    run_handler(held, self._shards[held.ref.shard], self._runners)
            except BaseException as error:  # noqa: BLE001 - a slot survives whatever a handler raises, exit() too
                held.error = error
            with self._lock:
                if held.phase is Phase.GIVEN_UP:
                    return  # another slot took this one's place
                self._holdings.finish(held, self._clock.now_us())
                self._finished.append(held)
                self._ended.notify()
                if held.ref.alone:
                    self._arrived.notify_all()

    def _lease_for_start(self, held: Held) -> bool:
        """Give an item the lease that its handler must start with; False if it turned out to be lost."""
        lease_us = lease_at_start(held, now_us=self._clock.now_us(), lease_us=self._lease_us)
        if lease_us is not None:
            self._extend(self._shards[held.ref.shard], [held], lease_us, ran_alone=held.ref.alone)
        now_us = self._clock.now_us()
        if now_us >= held.lease_until_us and not held.job.cancelled:
            with self._lock:
                held.cancel(now_us)
                self._counts["lost"] += 1
        return not held.job.cancelled

    def _run_settling(self) -> None:
        while True:
            with self._lock:
                while not self._finished:
                    if self._stopping:
                        return
                    self._ended.wait()
                if len(self._finished) < SETTLE_MAX and self._holdings.waiting:
                    self._left.wait(self._settings.linger_ms / 1000)
                batch, self._finished = self._finished[:SETTLE_MAX], self._finished[SETTLE_MAX:]
            for name, some in by_shard(batch).items():
                self._settle(self._shards[name], some)
            with self._lock:
                for held in batch:
                    self._holdings.drop(held)
                self._left.notify_all()

    def _settle(self, shard: Shard, batch: Sequence[Held]) -> None:
        """Commit the ends of items of one shard; try as long as a lease stands, then let them lapse."""
        mine = [held for held in batch if not held.job.cancelled]
        by_themselves = Counter(completed=sum(held.job.completed for held in batch))
        completed = [held for held in mine if held.error is None and not held.job.completed]
        now_us, random = self._clock.now_us(), self._host.random
        failed = [
            settlement.judge(held, held.error, now_us=now_us, random=random)
            for held in mine
            if held.error is not None and not held.job.completed
        ]
        settled = self._with_store(shard, mine, lambda: settlement.settle(shard, completed, failed))
        with self._lock:
            self._counts.update(by_themselves)
            self._counts.update(settled or {"lost": len(completed) + len(failed)})

    def _with_store(self, shard: Shard, items: Sequence[Held], work: Callable[[], T]) -> T | None:
        """Return what `work` returns. While the store refuses, say so once, and try again until the leases end."""
        until_us = max((held.lease_until_us for held in items), default=0)
        while True:
            try:
                result = work()
            except shard.db.errors as error:
                if not self._store_down:
                    log.warning("shard %s refuses commits; trying again until the leases end: %s", shard.name, error)
                    self._store_down = True
                if self._clock.now_us() >= until_us:
                    return None
                with self._lock:
                    self._left.wait(STORE_RETRY_S)
            else:
                self._store_down = False
                return result

    def _run_keeping(self) -> None:
        while True:
            with self._lock:
                while not len(self._holdings) and not self._stopping:
                    self._busy.wait()
                if self._stopping:
                    return  # what a handler that does not listen still holds was given back
                now_us = self._clock.now_us()
                work = chores(self._holdings, now_us=now_us, lease_us=self._lease_us)
                for held in (*work.time_out, *work.lost):
                    held.cancel(now_us)
                    if held.phase is Phase.WAITING:
                        self._holdings.drop(held)
                for held in work.stuck:
                    self._holdings.give_up(held)
                    self._given_up += 1
                self._counts.update({"lost": len(work.lost), "timed_out": len(work.time_out)})
            for name, some in by_shard(work.time_out).items():
                self._time_out(self._shards[name], some)
            self._give_back(work.give_back)
            for name, due in by_shard(work.extend).items():
                for begin in range(0, len(due), EXTEND_MAX):
                    self._try_to_extend(self._shards[name], due[begin : begin + EXTEND_MAX])
            self._replace_slots(work.stuck)
            with self._lock:
                if not self._stopping:
                    self._busy.wait(min(TICK_US, self._lease_us // 6) / 1e6)

    def _time_out(self, shard: Shard, items: Sequence[Held]) -> None:
        """Requeue items whose handlers ran past their timeout; the handlers' own ends no longer count."""
        now_us, random = self._clock.now_us(), self._host.random
        verdicts = []
        for held in items:
            error = JobTimeout(
                kind=held.ref.kind, item=held.ref.item_id.hex(), timeout_s=held.handler.timeout_ms / 1000
            )
            verdicts.append(settlement.judge(held, error, now_us=now_us, random=random))
        settled = self._with_store(shard, items, lambda: settlement.settle(shard, [], verdicts))
        with self._lock:
            self._counts.update(settled or {"lost": len(items)})

    def _try_to_extend(self, shard: Shard, items: Sequence[Held]) -> None:
        try:
            self._extend(shard, items, self._lease_us)
        except shard.db.errors as error:
            log.warning("shard %s refuses to extend %d leases: %s", shard.name, len(items), error)

    def _extend(self, shard: Shard, items: Sequence[Held], lease_us: int, *, ran_alone: bool = False) -> None:
        """Extend leases in one transaction; cancel the items that are lost."""
        zones: dict[tuple[Tenant, str], list[Held]] = {}
        for held in items:
            zones.setdefault((held.ref.tenant, held.ref.zone), []).append(held)

        def body(attempt: Attempt) -> tuple[int, list[list[Outcome]]]:
            operations = [
                shard.zone(tenant, zone).extend_steps(
                    attempt.tr,
                    [(held.ref.item_id, held.ref.lease_id) for held in some],
                    lease_us=lease_us,
                    now_us=attempt.now_us,
                    ran_alone=ran_alone,
                )
                for (tenant, zone), some in zones.items()
            ]
            return attempt.now_us + lease_us, in_step(operations)

        until_us, outcomes = shard.transact(body)
        with self._lock:
            for some, answers in zip(zones.values(), outcomes, strict=True):
                for held, outcome in zip(some, answers, strict=True):
                    if outcome is Outcome.DONE:
                        held.lease_until_us = until_us
                    elif outcome is Outcome.GONE and held.job.may_be_completed:
                        held.lease_until_us = until_us  # there is nothing left to lose
                    elif held.phase is not Phase.FINISHED:
                        held.cancel(self._clock.now_us())
                        self._counts["lost"] += 1

    def _give_back(self, items: Sequence[Held]) -> None:
        """Requeue held items at once, neither as errors nor as lapses; interrupt those that run."""
        for held in items:
            shard = self._shards[held.ref.shard]
            zone = shard.zone(held.ref.tenant, held.ref.zone)

            def body(attempt: Attempt, zone: QueueZone = zone, held: Held = held) -> Outcome:
                ref = held.ref
                return alone(
                    zone.requeue_steps(attempt.tr, ref.item_id, ref.lease_id, delay_us=0, now_us=attempt.now_us)
                )

            with self._lock:
                if held.phase is Phase.WAITING:
                    self._holdings.drop(held)
                elif held.phase is not Phase.RUNNING:
                    continue
                held.cancel(self._clock.now_us())
                self._counts["given_back"] += 1
            try:
                shard.transact(body)
            except shard.db.errors as error:
                log.warning("shard %s refuses to take an item back; it will lapse: %s", shard.name, error)

    def _replace_slots(self, stuck: Sequence[Held]) -> None:
        for held in stuck:
            log.error(
                "handler %s ignores job.cancelled; its slot is replaced, kind=%s item=%s",
                describe(held.handler.function), held.ref.kind, held.ref.item_id.hex(),
            )  # fmt: skip
            self._host.spawn("slot", self._run_slot)
        if stuck and self._given_up >= self._settings.slots:
            self._host.recycle(f"{self._given_up} handlers ignored job.cancelled")


def by_shard(items: Iterable[P]) -> dict[str, list[P]]:
    """Group references or held items by the name of their shard."""
    groups: dict[str, list[P]] = {}
    for item in items:
        ref = item.ref if isinstance(item, Held) else item
        groups.setdefault(ref.shard, []).append(item)
    return groups
