"""The manager: leases pointers, dequeues their items, hands them to workers (QuiCK section 6, Algorithm 2).

One transaction serves a batch of pointers, and one call carries its items to a worker. When a batch conflicts it is
halved and tried again, so one hot pointer cannot sink its neighbours; a single pointer that conflicts is leased in a
transaction of its own first. A manager never takes more than its workers have room for: what it leases starts soon.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from fairlead.actors.dispatch.batch_sizing import Portioner
from fairlead.actors.dispatch.concurrency_limiter import Quotas, Use
from fairlead.actors.dispatch.corruption_log import Unreadable
from fairlead.actors.dispatch.policy_refresh import LISTEN_S, Hearing
from fairlead.actors.dispatch.reclaim import LOOK_S, Freeing, give_back
from fairlead.actors.dispatch.serve_result import Serving
from fairlead.actors.dispatch.worker_pool import Crew, held_of_kind, room_for_kinds, share_of
from fairlead.actors.handlers import Registry
from fairlead.actors.messages import UNTOLD, Scan, Served
from fairlead.actors.runtime.host import Host, Remote
from fairlead.actors.runtime.periodic_task import Rounds
from fairlead.actors.runtime.rate_limited_log import Refusals
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.errors import error_type
from fairlead.zones.engines import Transaction
from fairlead.zones.engines.api.errors import (
    NOT_COMMITTED,
    TRANSACTION_TOO_LARGE,
    TRANSACTION_TOO_OLD,
    StoreFull,
    error_code,
)
from fairlead.zones.errors import OwnerUnreadable, TenantMoved
from fairlead.zones.pipelining import alone
from fairlead.zones.policy.policies import NO_RULES, Rules, rules_steps
from fairlead.zones.probes import probe
from fairlead.zones.queue.dequeue_plan import UNLIMITED, Room
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import Found, Visit, VisitTerms, lease, visit_all
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.manager")

STORE_RETRY_S = 0.5
CAN_BE_HALVED = (NOT_COMMITTED, TRANSACTION_TOO_OLD, TRANSACTION_TOO_LARGE)
# Of pointers that cannot run here so many are left to others, and passed over in every scan. More are sent to sleep.
LEFT_ALONE_MAX = 2_000
ROOM_WAIT_US = 1_000_000  # The longest that a call waits for a worker to have room.


class Manager:
    """One manager and its workers.

    `consumer_id`: whose manager it is. `index` of `count`: which share of the consumer's limits is this manager's.
    `isolated`: the consumer's worker for suspects, of which the first manager alone disposes; it may not live yet.
    """

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        registry: Registry,
        settings: ConsumerSettings,
        workers: Sequence[Remote],
        *,
        isolated: Remote | None = None,
        consumer_id: bytes,
        index: int = 0,
        count: int = 1,
    ) -> None:
        self._host = host
        self._shards = shards
        self._registry = registry
        self._settings = settings
        self._consumer_id = consumer_id
        self._share = (index, count)
        self._lock = host.lock()
        self._changed = host.condition(self._lock)
        self._crew = Crew(workers, self._lock, self._changed, isolated=isolated)
        self._portioner = Portioner(dequeue_max=settings.dequeue_max)
        self._granted: Counter[str] = Counter()  # how many of kinds with limits the calls under way may take
        self._granted_suspects = 0  # and how many suspects
        self._left_until_us: dict[bytes, int] = {}  # pointers that it has left to others, and until when
        self._counts: Counter[str] = Counter()
        self._rules = dict.fromkeys(shards, NO_RULES)  # as they were found last
        self._quotas = Quotas(
            host, shards, self._lock, self._use,
            holder=consumer_id + bytes([index]), lease_us=settings.lease_ms * 1000,
        )  # fmt: skip
        self._freeing = Freeing(shards, self._crew.members, self._lock, host.has_ended)
        hearing = Hearing(shards, self._lock, runs_something=self._runs_something, hear=self._hear)
        self._rounds = (
            Rounds(host, "freeing", self._lock, self._look, pause_s=LOOK_S),
            Rounds(host, "hearing", self._lock, hearing.listen, pause_s=LISTEN_S),
        )
        self._stopping = False
        self._refusals = Refusals(host.clock, log, "shard %s cannot be served; trying again: %s")
        self._unreadable = Unreadable()
        self._tally = host.telemetry.tally
        self._spans = host.telemetry.spans
        host.telemetry.read_by(self._reading)

    def serve(self, shard_name: str, refs: Sequence[PointerRef], scan: Scan = UNTOLD) -> Served:
        """Serve pointers of a shard: lease what their zones hold, as far as workers have room, and hand it over.

        Waits up to a second for room. Pointers of more zones than get a part of the room are left as they are;
        the scanner will find them again.
        While the store refuses, that is said once, and each call waits a moment, so that the scanner slows down too.
        `scan`: the one that found them.
        """
        with self._lock:
            self._await_room()
            room, limited = self._take_room()
            granted_suspects = room.suspects
            self._crew.ask_the_isolated()
            capacity = self._crew.capacity
        served = Serving()
        try:
            if room.items and not self._stopping:
                self._serve(self._shards[shard_name], refs, room, capacity, served, scan)
        finally:
            with self._lock:
                self._granted.subtract(limited)
                self._granted_suspects -= granted_suspects
                self._counts.update(served.counts)
                served.tell(self._tally, shard_name)
        if self._spans is not None and served.counts["items"]:
            self._spans.serve(
                shard_name,
                traces=served.traces,
                items=served.counts["items"],
                began_us=served.began_us,
                ended_us=served.ended_us,
                scan=scan.trace,
                failed_by=served.failed_by,
            )
        with self._lock:
            return served.answer(room=self._room_left())

    def _reading(self) -> Reading:
        """Return what telemetry counts."""
        with self._lock:
            return self._tally.read()

    def await_room(self) -> int:
        """Answer with how many items the workers can take, once it is more than none, or after a second."""
        with self._lock:
            self._await_room()
            return self._room_left()

    def counts(self) -> dict[str, int]:
        """Return what was served since the start, and the items on their way to workers now."""
        with self._lock:
            return {**self._counts, "on_the_way": self._crew.on_the_way}

    def stop(self) -> None:
        """Serve nothing any more. Further calls are answered after their second, so nobody asks again and again."""
        with self._lock:
            self._stopping = True
            self._quotas.stop()
            for rounds in self._rounds:
                rounds.stop()

    def _serve(
        self, shard: Shard, refs: Sequence[PointerRef], room: Room, capacity: int, served: Serving, scan: Scan
    ) -> None:
        chosen, tenants, portions = self._portioner.choose(
            shard.name, refs, alone=scan.alone, room=room.items, capacity=capacity
        )
        served.began_us = self._host.clock.now_us()
        try:
            self._serve_batch(shard, chosen, room, portions.items_max, served, scan.version_at(served.began_us))
            served.tenants = tenants
            visited = len(served.waited_us if scan.alone else served.visited)
            self._portioner.learn(shard.name, portions, visited=visited, items=served.counts["items"])
        except shard.db.errors as error:
            served.ended_us, served.failed_by = self._host.clock.now_us(), error_type(error)
            self._wait_for_store(shard, error)
        else:
            served.ended_us = self._host.clock.now_us()

    def _wait_for_store(self, shard: Shard, error: Exception) -> None:
        self._refusals.note(shard.name, error)
        with self._lock:
            if not self._stopping:
                self._changed.wait(STORE_RETRY_S)

    def _serve_batch(
        self, shard: Shard, refs: list[PointerRef], room: Room, items_max: int, served: Serving, version: int = 0
    ) -> None:
        """Visit pointers together, and take up to `items_max` from each tenant; in halves where that cannot be."""
        lease_id = self._host.random.randbytes(16)
        moved = False
        try:
            visits = self._visit(shard, refs, room, items_max, lease_id, version)
        except TenantMoved as error:
            moved = True
            if isinstance(error, OwnerUnreadable) and len(refs) == 1:
                self._unreadable.note_owner(shard.name, shard.layout, refs[0], error)
        except shard.db.errors as error:
            code = error_code(error)
            served.counts["conflicts"] += code == NOT_COMMITTED
            if version and code in (NOT_COMMITTED, TRANSACTION_TOO_OLD):
                probe("a visit at the read version of its scan conflicts, and is made at a new one")
                self._serve_batch(shard, refs, room, items_max, served)
                return
            full = isinstance(error, StoreFull)
            if (full or code == TRANSACTION_TOO_LARGE) and len(refs) == 1 and items_max > 1:
                self._serve_batch(shard, refs, room, items_max // 2, served)
                return
            if code not in CAN_BE_HALVED and not (full and len(refs) > 1):
                raise
        else:
            self._hand_over(shard, visits, room, served)
            return
        if len(refs) > 1:
            probe("a batch of visits conflicts and is halved")
            half = len(refs) // 2
            self._serve_batch(shard, refs[:half], room, items_max, served)
            self._serve_batch(shard, refs[half:], room, items_max, served)
        elif moved:
            self._leave(shard, refs[0], served)
        else:
            served.counts["missed_at_commit"] += 1
            self._serve_contended(shard, refs[0], room, items_max, served)

    def _serve_contended(self, shard: Shard, ref: PointerRef, room: Room, items_max: int, served: Serving) -> None:
        probe("a contended pointer is leased first")
        try:
            visits = self._visit_leased(shard, ref, room, items_max)
        except TenantMoved:
            self._leave(shard, ref, served)
        else:
            self._hand_over(shard, visits, room, served)

    def _leave(self, shard: Shard, ref: PointerRef, served: Serving) -> None:
        """Let nobody look at the pointer of a tenant that has moved before a lease on it ends."""
        served.counts["moved"] += 1
        self._lease(shard, ref)

    def _visit(
        self, shard: Shard, refs: Sequence[PointerRef], room: Room, items_max: int, lease_id: bytes, version: int = 0
    ) -> list[Visit]:
        """Visit pointers in one transaction. After an unknown result, items that carry `lease_id` are ours."""
        settings = self._settings
        visits: list[Visit] = []
        known = found = self._rules[shard.name]

        def body(attempt: Attempt) -> list[Visit]:
            nonlocal visits, found
            shard.relax(attempt.tr)
            if version:
                attempt.tr.set_read_version(version)
            terms = VisitTerms(
                now_us=attempt.now_us,
                lease_id=lease_id,
                lease_us=settings.lease_ms * 1000,
                items_max=items_max,
                throttle_delay_us=settings.throttle_delay_ms * 1000,
                pause_recheck_us=settings.pause_recheck_ms * 1000,
                may_leave=self._may_leave(attempt.now_us),
                holder=self._consumer_id,
            )
            this_room = room.fresh()
            visits, found = visit_all(attempt.tr, shard.layout, refs, this_room, terms, known)
            return visits

        def applied(tr: Transaction) -> bool:
            for visit in visits:
                for item in visit.items:
                    assert visit.place is not None
                    value = tr.get(visit.place.keys.item(item.id)).value
                    record = None if value is None else decode(ItemRecord, value)
                    if record is not None and record.lease_id == lease_id:
                        probe("a dequeue of unknown result is found applied")
                        return True
            return False

        try:
            return shard.transact(shard.in_turn(body), applied=applied, retries_max=0)
        finally:
            unheard = found.tighter_than(room.heard)  # when this call began; perhaps others have heard of it since
            for kind in unheard:
                room.close(kind)
            if unheard or found is not known:
                self._obey(shard, found)

    def _hear(self, shard: Shard) -> None:
        """Look whether the rules of a shard have changed."""
        known = self._rules[shard.name]
        found = shard.transact(lambda attempt: alone(rules_steps(attempt.tr, known)))
        if found is not known:
            self._obey(shard, found)

    def _obey(self, shard: Shard, found: Rules) -> None:
        with self._lock:
            self._rules[shard.name] = found
            self._quotas.obey(found)

    def _may_leave(self, now_us: int) -> bool:
        """Say whether it may leave more pointers to others."""
        if len(self._left_until_us) >= LEFT_ALONE_MAX:
            with self._lock:
                self._left_until_us = {each: us for each, us in self._left_until_us.items() if us > now_us}
        return len(self._left_until_us) < LEFT_ALONE_MAX

    def _lease(self, shard: Shard, ref: PointerRef) -> bytes | None:
        """Take a lease on a pointer, and return its id; None if somebody else has it."""
        lease_id = self._host.random.randbytes(16)
        lease_us = self._settings.pointer_lease_ms * 1000

        def take(attempt: Attempt) -> bool:
            return lease(attempt.tr, shard.layout, ref, lease_id=lease_id, lease_us=lease_us, now_us=attempt.now_us)

        return lease_id if shard.transact(take) else None

    def _visit_leased(self, shard: Shard, ref: PointerRef, room: Room, items_max: int) -> list[Visit]:
        """Visit one contended pointer under a lease of its own, if it can be had."""
        lease_id = self._lease(shard, ref)
        if lease_id is None:
            return [Visit(ref, Found.LEASED)]
        try:
            return self._visit(shard, [ref], room, items_max, lease_id)
        except shard.db.errors as error:
            if error_code(error) not in CAN_BE_HALVED:
                raise
            probe("a visit conflicts although its pointer is leased")
            return []  # the lease runs out by itself

    def _hand_over(self, shard: Shard, visits: Sequence[Visit], room: Room, served: Serving) -> None:
        now_us = self._host.clock.now_us()
        for visit in visits:
            if visit.unreadable:
                self._unreadable.note(shard.name, visit)
        refs = served.note(shard.name, visits, room, now_us=now_us)
        with self._lock:
            self._left_until_us.update((each.id, each.until_us) for each in served.left_alone)
            hands, undealt = self._crew.deal(refs)
            self._crew.met_suspects = self._crew.met_suspects or served.counts["suspects"] > 0
            taken = Counter(ref.kind for hand in hands for ref in hand.refs) if self._quotas.limited else Counter()
            for kind in self._quotas.limited:
                self._quotas.spend(kind, taken[kind], more=any(kind in visit.passed_kinds for visit in visits))
            for rounds in self._rounds:
                rounds.begin()
        self._crew.place(hands)
        if undealt:
            probe("items are leased for workers of which all are dead by now")
            give_back(shard, undealt)

    def _look(self) -> None:
        """Free what dead workers had, and hear which of them are back: work that one can do needs no other's room."""
        self._freeing.look()
        with self._lock:
            self._crew.ask_the_dead()

    def _await_room(self) -> None:
        """Wait up to a second until the crew has room. The lock is held."""
        limited = self._quotas.limited or any(handler.max_running is not None for handler in self._registry)
        if limited or not self._room_left():
            self._crew.ask()
        until_us = self._host.clock.now_us() + ROOM_WAIT_US
        while not self._room_left():
            left_us = min(until_us - self._host.clock.now_us(), ROOM_WAIT_US)  # A clock may be set back meanwhile.
            if left_us <= 0:
                break
            self._crew.ask_the_living()
            if not self._changed.wait(left_us / 1e6):
                break

    def _take_room(self) -> tuple[Room, dict[str, int]]:
        """Return the room of the crew, and how much of it is of kinds with limits. The lock is held.

        That much is granted to one call alone, until it has ended: two that run side by side would each use it all. Of
        other kinds too many cost a wait in the worker; of these, too many would run.
        """
        index, count = self._share
        limits = {handler.kind: share_of(handler.max_running, index=index, count=count) for handler in self._registry}
        kinds = room_for_kinds(self._crew.members, limits, UNLIMITED)
        for kind in self._quotas.limited & kinds.keys():
            kinds[kind] = min(kinds[kind], self._quotas.left(kind))
        counted = self._quotas.limited | {kind for kind, limit in limits.items() if limit is not None}
        limited = {kind: max(0, kinds[kind] - self._granted[kind]) for kind in kinds.keys() & counted}
        self._granted.update(limited)
        suspects = max(0, self._crew.suspects_room - self._granted_suspects)
        self._granted_suspects += suspects
        return Room(self._room_left(), {**kinds, **limited}, self._quotas.heard, suspects=suspects), limited

    def _use(self, kind: str) -> Use:
        """Return what is used of a kind, and ask the workers, so that what they say next is new. The lock is held."""
        self._crew.ask_the_living()
        return Use(held_of_kind(self._crew.members, kind), self._granted[kind])

    def _runs_something(self) -> bool:
        """Return whether a worker held anything when it was heard of last, and ask it. The lock is held."""
        self._crew.ask_the_living()
        return self._crew.runs_something

    def _room_left(self) -> int:
        """Return how many items the workers can take; none once the manager is stopped. The lock is held."""
        return 0 if self._stopping else self._crew.room
