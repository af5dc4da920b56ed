"""One archivist: takes snapshots of tenants, reads, compares, drops and restores them, and writes the archives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.snapshots import LATER, SnapshotsKeepTheirState
from fairlead.simulation.snapshots.calls import SnapshotCalls
from fairlead.zones import tuples
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import Restoring, SnapshotGone, TenantBusy, TenantMoved, TooManySnapshots
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

OPERATIONS = (
    "take", "take_several", "take_within", "read", "read_keys", "compare", "list_kept", "drop", "restore",
    "restore_again", "write", "rewrite", "exchange", "look", "look_across",
)  # fmt: skip
ROW, MARK, COUNT = "row", ("mark",), ("count",)
NOTE = "note"  # The kind of the items that some writes enqueue before they write.
NOTES_MAX = 4
KEPT_US = (None, None, 200_000, 1_000_000, 4_000_000)
WRITTEN_MAX = 3
RESTORING_US = 100_000  # Between two looks whether a restore has ended.
LATEST_FRAC = 0.5  # How often the latest snapshot is the one to be dropped.
LEFT_FRAC = 0.5  # How often a dropped snapshot is not merged by the archivist that dropped it.
PAUSES_US = (1_000, 20_000, 300_000, 2_000_000)


class ArchivistHabits(NamedTuple):
    """What a world has drawn for its archivists.

    Attributes:
      rows: how many keys an archive has.
      kept_max: of one tenant; then an archivist drops a snapshot, and takes none.
      pauses_frac: how often an archivist pauses in a transaction.
      pauses_between_frac: how often it pauses between two transactions of a call, such as those of a restore.
      enqueues: whether some writes enqueue an item before. Nobody runs it.
      weights: how often each operation is drawn, by its name.
    """

    rows: int
    kept_max: int
    pauses_frac: float
    pauses_between_frac: float
    enqueues: bool
    weights: Mapping[str, int]


class Archivist:
    """One incarnation of an archivist.

    Args:
      archives: the tenants that archivists write and restore. Nobody else writes there.
      others: tenants of others, of which archivists take snapshots, too.
    """

    def __init__(
        self,
        host: SimulatedHost,
        shards: OpenShards,
        archives: Sequence[Tenant],
        others: Sequence[Tenant],
        random: Random,
        habits: ArchivistHabits,
        oracle: SnapshotsKeepTheirState,
    ) -> None:
        self._host = host
        self._shards = shards
        self._archives = archives
        self._others = others
        self._draw = random
        self._habits = habits
        self._oracle = oracle
        self._is_sure = True  # The results of all its takes are known.
        self._tokens = 0

    def call_one(self) -> None:
        """Run a drawn operation. It may give up."""
        weights = self._habits.weights
        (name,) = self._draw.choices(list(weights), list(weights.values()))
        try:
            getattr(self, name)()
        except (StoreError, TenantBusy, TenantMoved, Restoring, TooManySnapshots) as error:
            self._host.world.note(f"gives up to {name}: {error!r}")

    # --- Snapshots ---

    def take(self) -> None:
        """Take a snapshot of one tenant."""
        self._take(self._tenant(), self._draw.choice(KEPT_US))

    def take_several(self) -> None:
        """Take a snapshot of some tenants, one commit after the other, as `app.snapshot` does."""
        tenants, kept_us = [*self._archives, *self._others], self._draw.choice(KEPT_US)
        for tenant in self._draw.sample(tenants, self._draw.randint(1, len(tenants))):
            self._take(tenant, kept_us)

    def take_within(self) -> None:
        """Take a snapshot of an archive within a transaction that writes before and afterwards."""
        archive, token, kept_us = self._archive(), self._token(), self._draw.choice(KEPT_US)
        if self._has_many(archive):
            return
        clears = self._draw.random() < 0.3

        def body(tr: TenantTransaction) -> int:
            tr.set(MARK, token)
            if clears:
                tr.clear_prefix((ROW,))
            number = tr.snapshot(keep=None if kept_us is None else kept_us / 1e6)
            self._between()
            tr.set(MARK, token + LATER)
            return number

        self._note_snapshot(archive, lambda: self._on(archive, body))

    def read(self) -> None:
        """Read all pairs at a snapshot."""
        backwards = self._draw.random() < 0.3
        self._at_one(lambda calls, number: calls.pairs(number, reverse=backwards), self._oracle.note_pairs)

    def read_keys(self) -> None:
        """Read some keys of an archive at a snapshot, one by one."""
        archive = self._archive()
        for key in self._some_rows():
            packed = TenantKeys(*archive).data + tuples.pack(key)

            def note(
                tenant: Tenant, number: int, value: bytes | None, *, since_us: int, packed: bytes = packed
            ) -> None:
                self._oracle.note_value(tenant, number, packed, value, since_us=since_us)

            self._at_one(lambda calls, number, packed=packed: calls.get(number, packed), note, archive)  # type: ignore[misc]

    def compare(self) -> None:
        """Compare a tenant with one of its snapshots."""
        self._at_one(SnapshotCalls.changes, self._oracle.note_changes)

    def list_kept(self) -> None:
        """List the snapshots of a tenant."""
        tenant, since_us = self._tenant(), self._host.world.now_us()
        self._oracle.note_listed(tenant, self._calls(tenant).kept(), since_us=since_us)

    def drop(self) -> None:
        """Drop a snapshot of a tenant."""
        self._drop_one(self._tenant(), merges=self._draw.random() >= LEFT_FRAC)

    def restore(self) -> None:
        """Restore an archive to one of its snapshots."""
        archive = self._archive()
        self._restore(archive, self._known(archive))

    def restore_again(self) -> None:
        """Go on with the restore of an archive that is under way; then change the archive, and restore it anew."""
        archive = self._archive()
        under_way = self._oracle.of(archive).restore
        if under_way is not None:
            self._restore(archive, under_way.number)
            self._rewrite(archive, self._habits.rows)
        self._restore(archive, self._known(archive))

    # --- Archives ---

    def write(self) -> None:
        """Write some rows of an archive, and count; now and then, enqueue before."""
        archive, token, rows, draw = self._archive(), self._token(), self._some_rows(), self._draw
        clears, counts, reads = draw.random() < 0.3, draw.random() < 0.5, draw.random() < 0.3
        note = draw.randrange(NOTES_MAX) if self._habits.enqueues and draw.random() < 0.3 else None

        def body(tr: TenantTransaction) -> None:
            if note is not None:
                tr.enqueue(NOTE, item_id=f"note {note}")
            if reads:
                tr.get(rows[0])
                self._between()
            for row in rows:
                if clears:
                    tr.clear(row)
                else:
                    tr.set(row, token)
            self._between()
            if counts:
                tr.add(COUNT, 1)

        self._on(archive, body)

    def rewrite(self) -> None:
        """Clear the rows of an archive, and write some, or all."""
        count = self._habits.rows
        if self._draw.random() < 0.3:
            count = self._draw.randint(0, count)
        self._rewrite(self._archive(), count)

    def exchange(self) -> None:
        """Write rows of two archives by a transaction across shards, which reads one of them before."""
        archives, token, rows = self._both(), self._token(), self._some_rows()
        clears = self._draw.random() < 0.2

        def body(tx: SpanningTransaction) -> None:
            tx.on(archives[0]).get(rows[0])
            for archive in archives:
                view = tx.on(archive)
                if clears:
                    view.clear_prefix((ROW,))
                for row in rows:
                    view.set(row, token)
                self._between()

        self._across(body)

    def look(self) -> None:
        """Read a whole archive."""
        archive, since_us = self._archive(), self._host.world.now_us()
        pairs = self._on(archive, lambda tr: list(tr.get_range()))
        self._note_look(archive, pairs, since_us)

    def look_across(self) -> None:
        """Read two whole archives by a transaction across shards."""
        archives, since_us = self._both(), self._host.world.now_us()

        def body(tx: SpanningTransaction) -> list[list[tuple[Any, bytes]]]:
            return [list(tx.on(archive).get_range()) for archive in archives]

        for archive, pairs in zip(archives, self._across(body), strict=True):
            self._note_look(archive, pairs, since_us)

    # --- The end ---

    def end(self) -> list[Mapping[bytes, bytes]]:
        """Drop all snapshots. Take one of each of the others' tenants, read it, and drop it; return what they hold.

        Nobody else may write meanwhile.
        """
        for tenant in self._oracle.tenants:
            for number in self._calls(tenant).kept():
                self._drop_once_restored(tenant, number)
        taken = [(tenant, self._calls(tenant).take(None)) for tenant in self._others]
        states: list[Mapping[bytes, bytes]] = []
        for tenant, number in taken:
            calls, since_us = self._calls(tenant), self._host.world.now_us()
            rows = calls.pairs(number)
            self._oracle.note_pairs(tenant, number, rows, since_us=since_us)
            self._oracle.note_changes(tenant, number, calls.changes(number), since_us=since_us)
            self._drop(tenant, number)
            states.append(dict(rows))
        return states

    # --- What operations share ---

    def _take(self, tenant: Tenant, kept_us: int | None) -> None:
        if self._has_many(tenant):
            self._drop_one(tenant)
        else:
            self._note_snapshot(tenant, lambda: self._calls(tenant).take(kept_us))

    def _note_snapshot(self, tenant: Tenant, take: Callable[[], int]) -> None:
        since_us = self._host.world.now_us()
        try:
            number = take()
        except StoreError:
            self._is_sure = False
            raise
        by, sure_since_us = self._host.name, since_us if self._is_sure else None
        self._oracle.note_snapshot(tenant, number, by=by, since_us=sure_since_us)

    def _restore(self, archive: Tenant, number: int | None) -> None:
        if number is not None:
            try:
                self._calls(archive).restore(number)
            except SnapshotGone:
                self._oracle.note_gone(archive, number)

    def _rewrite(self, archive: Tenant, count: int) -> None:
        token = self._token()

        def body(tr: TenantTransaction) -> None:
            tr.clear_prefix((ROW,))
            self._between()
            for number in range(count):
                tr.set((ROW, number), token)

        self._on(archive, body)

    def _at_one(
        self, read: Callable[[SnapshotCalls, int], T], note: Callable[..., None], tenant: Tenant | None = None
    ) -> None:
        """Read at a snapshot of a tenant, and report the answer to `note`."""
        tenant = tenant or self._tenant()
        number, since_us = self._known(tenant), self._host.world.now_us()
        if number is None:
            return
        try:
            found = read(self._calls(tenant), number)
        except SnapshotGone:
            self._oracle.note_gone(tenant, number)
        else:
            note(tenant, number, found, since_us=since_us)

    def _drop_one(self, tenant: Tenant, *, merges: bool = True) -> None:
        number, kept = self._known(tenant), self._oracle.of(tenant).kept
        if kept and self._draw.random() < LATEST_FRAC:
            number = kept[-1]
        if number is not None:
            self._drop(tenant, number, merges=merges)

    def _drop(self, tenant: Tenant, number: int, *, merges: bool = True) -> None:
        self._oracle.note_asked(tenant, number)
        try:
            self._calls(tenant).drop(number, merges=merges)
        except SnapshotGone:
            self._oracle.note_gone(tenant, number)

    def _drop_once_restored(self, tenant: Tenant, number: int) -> None:
        """Drop a snapshot once housekeeping has ended a restore whose begin had no answer."""
        while True:
            try:
                self._drop(tenant, number)
            except Restoring:
                self._host.clock.sleep_us(RESTORING_US)
            else:
                return

    def _note_look(self, tenant: Tenant, pairs: Sequence[tuple[Any, bytes]], since_us: int) -> None:
        data = TenantKeys(*tenant).data
        packed = {data + tuples.pack(key): value for key, value in pairs}
        self._oracle.note_look(tenant, packed, since_us=since_us)

    def _has_many(self, tenant: Tenant) -> bool:
        return len(self._oracle.of(tenant).kept) >= self._habits.kept_max

    def _known(self, tenant: Tenant) -> int | None:
        """Return one of a tenant's snapshots, now and then one that is gone; None: there never was one."""
        history = self._oracle.of(tenant)
        numbers = history.kept if self._draw.random() < 0.9 else list(history.taken)
        return self._draw.choice(numbers) if numbers else None

    def _calls(self, tenant: Tenant) -> SnapshotCalls:
        return SnapshotCalls(self._shards, tenant, self._between_transactions)

    def _on(self, tenant: Tenant, body: Callable[[TenantTransaction], T]) -> T:
        def once(shard: Shard, attempt: Attempt) -> T:
            return body(ApplicationTransaction(shard, tenant, attempt))

        return self._shards.at_home(tenant, lambda shard: shard.transact(partial(once, shard)))

    def _across(self, body: Callable[[SpanningTransaction], T]) -> T:
        clock, random = self._host.clock, self._host.random
        return run_across_shards(self._shards, body, wait_us=WAIT_US, clock=clock, random=random)

    # --- Draws ---

    def _tenant(self) -> Tenant:
        use_others = self._others and self._draw.random() < 0.4
        return self._draw.choice(self._others if use_others else self._archives)

    def _archive(self) -> Tenant:
        return self._draw.choice(self._archives)

    def _both(self) -> list[Tenant]:
        return self._draw.sample(self._archives, min(2, len(self._archives)))

    def _some_rows(self) -> list[tuple[str, int]]:
        rows = self._habits.rows
        return [
            (ROW, number) for number in self._draw.sample(range(rows), self._draw.randint(1, min(rows, WRITTEN_MAX)))
        ]

    def _token(self) -> bytes:
        """Return a value that no other write has."""
        self._tokens += 1
        return f"{self._host.name}/{self._tokens}".encode()

    def _between(self) -> None:
        """Pause now and then in a transaction."""
        self._pause(self._habits.pauses_frac)

    def _between_transactions(self) -> None:
        """Pause between two transactions of a call."""
        self._pause(self._habits.pauses_between_frac)

    def _pause(self, frac: float) -> None:
        if self._host.random.random() < frac:
            self._host.clock.sleep_us(self._host.random.choice(PAUSES_US))
