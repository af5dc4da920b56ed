"""External stores: what users commit there runs; leases and effects hold; what the reader has seen has a pointer.

A promotion loses commits: these have not happened then, and oracles look at what the store holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.actors.messages import ItemRef
from fairlead.simulation.external.items import DOORBELL, Change, State, StoredItem, Transaction, sees
from fairlead.simulation.external.server import StoreCommit, StoreServer
from fairlead.simulation.external.sessions import session_key
from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.oracles.zone_operations import EXPIRED
from fairlead.simulation.replica import ParsedCommit, ShardReplica, ZoneName
from fairlead.simulation.world import World
from fairlead.zones.external.arrivals import ReaderRecord, decode_reader, reader_key
from fairlead.zones.external.names import external_zone, pointer_zone
from fairlead.zones.external.store import Queue, Start

EFFECT = "effect of "  # What the key of an item's effect begins with; then its id.
STATEMENT_US = 1_000_000  # From a statement to its commit at most, but for a client that stands still.
EXACTLY_ONCE_KINDS = frozenset({"effect", "chain"})


class ExternalOracle(Oracle):
    """A promise about what is committed in an external store."""

    def attach(self, server: StoreServer) -> None:
        """Observe the commits of a store."""
        server.on_commit.append(self.on_store_commit)
        server.on_lost.append(self.on_lost)

    def on_store_commit(self, commit: StoreCommit) -> None:
        """A commit was made in the store."""

    def on_lost(self, changes: Sequence[Change]) -> None:
        """A promotion has undone these changes, the last first."""


def rows_of(commit: StoreCommit) -> Iterator[tuple[StoredItem | None, StoredItem | None]]:
    """Yield the rows of a commit, before and after."""
    for _, before, after in commit.changes:
        if isinstance(before, StoredItem | None) and isinstance(after, StoredItem | None):
            yield before, after


def waits(row: StoredItem | None) -> bool:
    """Whether a row is an item that waits or runs."""
    return row is not None and row.state is State.WAITS


class CommittedItemsRun(ExternalOracle):
    """An item leaves its queue because its handler ran, or a user cancelled it; at the end all queues are empty.

    It becomes a dead letter because an attempt failed, or because its lease expired in an isolated run: an isolated
    worker that is killed then looks as if the handler had killed it.
    """

    promise = "what users commit in an external store runs, or is cancelled"

    def __init__(self, world: World, server: StoreServer, is_consumer: Callable[[str], bool]) -> None:
        super().__init__(world)
        self._server = server
        self._is_consumer = is_consumer
        self._runs: dict[bytes, list[HandlerRun]] = {}
        self._ran_isolated: set[bytes] = set()  # Items; the mark is set when the handler is about to start.

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._runs.setdefault(run.item.item_id, []).append(run)

    def on_store_commit(self, commit: StoreCommit) -> None:
        """See `ExternalOracle`."""
        for before, after in rows_of(commit):
            if after is not None and after.started == Start.ISOLATED:
                self._ran_isolated.add(after.item_id)
            if before is None or not waits(before) or waits(after) or not self._is_consumer(commit.by):
                continue
            runs = self._runs.get(before.item_id, [])
            if after is not None and after.state is State.DEAD:
                if not self._may_be_dead(after, runs):
                    self.report_violation(f"{commit.by} makes {_name(before)} a dead letter, and no attempt failed")
            elif not any(run.actor == commit.by.partition("#")[0] and _may_have_ended(run) for run in runs):
                self.report_violation(f"{commit.by} ends {_name(before)} without having run it")

    def _may_be_dead(self, row: StoredItem, runs: Sequence[HandlerRun]) -> bool:
        if row.dead_letter is not None and row.dead_letter.reason == EXPIRED:
            return row.item_id in self._ran_isolated
        return any(run.job.cancelled or (run.over and not run.returned) for run in runs)

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for row in self._server.table.rows():
            if waits(row):
                self.report_violation(f"{_name(row)} is still in its queue: {row}")


class EffectsInStoreHappenOnce(ExternalOracle):
    """An effect commits together with the end of its item, and once; such an item does not end without it."""

    promise = "the effects of a handler in an external store happen exactly once"

    def __init__(self, world: World, is_consumer: Callable[[str], bool]) -> None:
        super().__init__(world)
        self._is_consumer = is_consumer

    def on_store_commit(self, commit: StoreCommit) -> None:
        """See `ExternalOracle`."""
        effects = {key: value for key, _, value in commit.changes if isinstance(key, str) and key.startswith(EFFECT)}
        ended = {
            f"{EFFECT}{before.item_id.hex()}"
            for before, after in rows_of(commit)
            if before is not None and before.record.kind in EXACTLY_ONCE_KINDS and after is None
        }
        for key, count in effects.items():
            if count != 1 or key not in ended:
                self.report_violation(f"{commit.by} commits {key}: {count} times, its item ends: {key in ended}")
        if self._is_consumer(commit.by) and ended - set(effects):
            self.report_violation(f"{commit.by} ends an item without the {min(ended - set(effects))}")


class LeasesInStoreAreRespected(ExternalOracle):
    """A lease is taken only when the last one has ended, and once the item vests. Only its holder changes an item.

    There are two exceptions. A lease may be shortened when the worker incarnation that it was sent to has ended, and a
    claim when its session has.

    A handler starts before its lease has ended, by its own clock. If the store's clock steps forward between the
    statement that leases and its commit, nobody but the store knows that the lease is shorter by so much. One in a
    transaction of the store may start later: that transaction has locked the row under the lease, so nobody else leases
    the item while it is open. Once it is not, nothing that the handler does there can be committed.

    Args:
      clock_of: returns the latest time that the clock of a host's node has shown.
      is_consumer: whether a host belongs to a consumer; users may cancel any item.
    """

    promise = "no item of an external store is held by two live leases"

    def __init__(
        self, world: World, server: StoreServer, clock_of: Callable[[str], int], is_consumer: Callable[[str], bool]
    ) -> None:
        super().__init__(world)
        self._server = server
        self._clock_of = clock_of
        self._is_consumer = is_consumer
        self._holders: dict[tuple[bytes, bytes], str] = {}  # by item and lease: the worker; before that, the manager
        self._incarnations: dict[tuple[bytes, bytes], str] = {}
        self._ends_us: dict[tuple[bytes, bytes], int] = {}  # by the holder's clock, at the latest

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "place":
            refs: Sequence[ItemRef]
            refs, incarnation = args
            for ref in refs:
                self._holders[ref.item_id, ref.lease_id] = target
                self._incarnations[ref.item_id, ref.lease_id] = incarnation.decode()

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        if external_zone(run.item.zone) is None:
            return
        lease = run.item.item_id, run.lease_id
        ends_us = self._ends_us.get(lease)
        if ends_us is None:
            self.report_violation(f"{run.host} runs {run.item} under a lease that was never committed")
        elif run.connection is not None:
            self._check_lock(run, run.connection.transaction)
        elif ends_us <= run.clock_us:
            self.report_violation(f"{run.host} starts {run.item} {run.clock_us - ends_us} us after its lease ended")
        if self._incarnations.get(lease, run.host) != run.host:
            self.report_violation(f"{run.host} runs {run.item}, which was sent to {self._incarnations[lease]}")

    def on_store_commit(self, commit: StoreCommit) -> None:
        """See `ExternalOracle`."""
        for before, after in rows_of(commit):
            if before is not None and waits(before) and before.lease_id and self._is_consumer(commit.by):
                self._check(before, after, commit.by)
            if after is not None and after.lease_id:
                is_taken = before is None or before.lease_id != after.lease_id
                if is_taken and after.vesting_us > self._server.clock.highest_us():
                    self.report_violation(f"{commit.by} leases {_name(after)}, which vests later")
                leased_us = after.leased_until_us - self._server.clock.unstepped_us(STATEMENT_US)
                ends_us = self._clock_of(commit.by) + leased_us
                self._ends_us[after.item_id, after.lease_id] = ends_us
                self._holders.setdefault((after.item_id, after.lease_id), commit.by.partition("#")[0])

    def _check_lock(self, run: HandlerRun, transaction: Transaction) -> None:
        row = transaction.item(run.item.item_id)
        is_held = row is not None and row.lease_id == run.lease_id and row.item_id in transaction.locked
        if transaction in self._server.table.open and not is_held:
            self.report_violation(f"{run.host} starts {run.item}, which its transaction has not locked under its lease")

    def _check(self, before: StoredItem, after: StoredItem | None, by: str) -> None:
        lease = before.item_id, before.lease_id
        if self._holders.get(lease) == by.partition("#")[0]:
            return
        is_shortened = after is not None and after.lease_id == before.lease_id
        if is_shortened and self._incarnations.get(lease) in self.world.ended_incarnations:
            return
        if is_shortened and before.session and session_key(before.session) not in self._server.table.values:
            return
        left_us = before.leased_until_us - self._server.clock.highest_us()
        if left_us > 0:
            self.report_violation(f"{by} changes {_name(before)}, held by another for {left_us} us more")


@dataclass(frozen=True, slots=True)
class SleepBound:
    """How much later than its first item the pointer of an external queue may vest.

    Attributes:
      late_us: by settings and clocks; None: this run pauses or limits something, or has a wrong clock.
      punctual_kinds: the kinds that every consumer runs, without limits.
    """

    late_us: int | None
    punctual_kinds: frozenset[str]


class WhatIsSeenHasAPointer(ExternalOracle):
    """An item that waits or runs, and that the saved snapshot of the reader sees, has a pointer that vests in time.

    It is checked when a snapshot is saved, and when a pointer of an external queue is changed. Nothing is known of
    snapshots of another history.
    """

    promise = "what the reader of an external store has seen has a pointer"

    def __init__(
        self, world: World, server: StoreServer, store: str, shards: Mapping[str, ShardReplica], bound: SleepBound
    ) -> None:
        super().__init__(world)
        self._server = server
        self._store = store
        self._shards = shards
        self._bound = bound
        self._saved = ReaderRecord()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        key, before = reader_key(self._store), self._saved
        for change in parsed.changes:
            if change.key == key and change.after is not None:
                saved = decode_reader(change.after)
                assert saved is not None
                self._saved = saved
        if self._saved.seen != before.seen:
            self._check(None, parsed.by)
        for name in parsed.zones:
            if external_zone(name.zone) is not None:
                self._check(name, parsed.by)

    def _check(self, of: ZoneName | None, by: str) -> None:
        """Check what is seen of a queue; None: of all."""
        if self._saved.history != str(self._server.table.timeline):
            return
        for row in self._server.table.rows():
            name = ZoneName(row.queue.tenant, pointer_zone(self._store, row.queue.zone))
            if (of is None or of == name) and waits(row) and sees(self._saved.seen, row.number):
                zones = [shard.zones.get(name) for shard in self._shards.values()]
                vests_us = [zone.pointer.vesting_us for zone in zones if zone is not None and zone.pointer is not None]
                late_us = self._bound.late_us
                if not vests_us:
                    self.report_violation(f"{_name(row)} has no pointer after a commit by {by}")
                elif late_us is not None and row.record.kind in self._bound.punctual_kinds:
                    due_us = max(row.vesting_us, row.leased_until_us) - self._server.clock.now_us()
                    sleeps_us = min(vests_us) - self.world.now_us() - max(0, due_us)
                    if sleeps_us > late_us:
                        self.report_violation(f"the pointer of {_name(row)} vests {sleeps_us} us late, after {by}")


class TheDoorbellRings(ExternalOracle):
    """Once the store is quiet, its doorbell is on: else the reader looks twenty times a second.

    Where notifications are lost, the reader may have found that it does not hear the bell, and turned it off.
    """

    promise = "the doorbell of a quiet store is on"

    def __init__(self, world: World, server: StoreServer) -> None:
        super().__init__(world)
        self._server = server

    @property
    def is_on(self) -> bool:
        """Whether it is on."""
        return bool(self._server.table.values.get(DOORBELL))

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        if not self.is_on and not self._server.loses_ring:
            self.report_violation("it is off, and nothing has come for seconds")


class QueuesGiveTheirShare(ExternalOracle):
    """One visit takes at most `dequeue_max` items of a queue."""

    promise = "one visit takes at most `dequeue_max` items of an external queue"

    def __init__(self, world: World, dequeue_max: int) -> None:
        super().__init__(world)
        self._dequeue_max = dequeue_max

    def on_store_commit(self, commit: StoreCommit) -> None:
        """See `ExternalOracle`."""
        taken: Counter[Queue] = Counter()
        for before, after in rows_of(commit):
            if before is not None and after is not None and after.lease_id not in (b"", before.lease_id):
                taken[after.queue] += 1
        for queue, count in taken.items():
            if count > self._dequeue_max:
                self.report_violation(f"{commit.by} takes {count} items of {queue}")


def _may_have_ended(run: HandlerRun) -> bool:
    return run.returned or run.may_drop or not run.over or run.job.may_be_completed


def _name(row: StoredItem) -> str:
    return f"{'/'.join(row.queue.tenant)}/{row.queue.zone}/{row.item_id.hex()} ({row.record.kind})"
