"""A workflow on two shards, in any order of its transactions: two executors, a cleanup, and what operators do.

The workflow does a step at a participant, perhaps one at home, and another one at the participant. Then it ends, or
fails for good, and its steps are undone. The second executor takes the item over at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, PermanentError, UnfitCode
from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.step_counts import StepCounts
from fairlead.simulation.replica import RUN_KEYS
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.system_kinds import system_handlers
from fairlead.workflows.workflow_kind import WorkflowKind, workflow_handler
from fairlead.zones.errors import ItemGone, LeaseLost
from fairlead.zones.keyspace import pack_int
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.queue_zone import LATER_THAN_ANY_US
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.cancellation import cancel_op
from fairlead.zones.workflow.participants import raise_floor
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.run_records import END, FENCE_BYTES
from tests.workflows.orders.schedule import NOW_US, OrderedDatabase, OrderedStore, Process, StandingClock

HOME, DEPOT = Tenant("shop", "home"), Tenant("shop", "depot")
KIND = "checkout"
LEASE_US = 60_000_000
LEFT_MAX = 20  # Attempts at what is left in the end; more would mean that an item never ends.

_TOMBSTONE = END.to_bytes(FENCE_BYTES, "big")
_NO_RUNNERS: Any = None  # A workflow that is a plain function needs none.

Shards = dict[Tenant, Shard]


@dataclass(frozen=True)
class WorkflowScene:
    """What may happen, and one run of it; see `schedule.Scene`.

    Attributes:
      fails: the workflow fails for good behind its last step.
      cancels: an operator cancels the item at some time.
      floor_raises: how often FLOOR is raised at the participant's shard.
      has_home_step: the workflow does a step at home, between the two at the participant.
      spans: the workflow does one transaction on both shards instead, and no other step.
    """

    fails: bool = False
    cancels: bool = False
    floor_raises: int = 0
    has_home_step: bool = False
    spans: bool = False

    def begin(self) -> _Run:
        """Return a new run, in which the first executor holds the item."""
        return _Run(self)


class _Run:
    """See `schedule.Scene`."""

    def __init__(self, scene: WorkflowScene) -> None:
        self._scene = scene
        self._databases = {HOME: OrderedDatabase("home"), DEPOT: OrderedDatabase("depot")}
        self._differences: list[str] = []  # Errors of replays that did other steps.
        self._last = self._opened("last")
        home = self._last[HOME]
        home.transact(lambda attempt: TenantTransaction(home, HOME, attempt).enqueue(KIND))
        held = _take_over(self._last, KIND)
        assert held is not None
        self.processes = [
            self._process("first", lambda shards: self._execute(shards, held)),
            self._process("second", lambda shards: self._run_item(shards, KIND)),
            self._process("cleanup", lambda shards: self._run_item(shards, CLEANUP_KIND), self._has_cleanup),
            *(self._process(f"floor {number}", _raise_floor) for number in range(scene.floor_raises)),
            *([self._process("cancel", _cancel)] if scene.cancels else []),
        ]

    @property
    def stores(self) -> list[OrderedStore]:
        """See `Scene`."""
        return [database.store for database in self._databases.values()]

    def violation(self) -> str | None:
        """See `Scene`: run the items that are left, then compare what has happened with a sequential execution."""
        for _ in range(LEFT_MAX):
            if self._differences:
                return self._differences[0]
            if not self._run_item(self._last, None):
                break
        else:
            return "an item never ends"
        steps = ["first", "second", *(["at home"] if self._scene.has_home_step else [])]
        if self._scene.spans:
            steps = ["across, home", "across, depot"]
        done, undone = self._counts(steps), self._counts([f"undo {name}" for name in steps])
        ended = self._counts(["ended"])
        if max(*done, *undone, *ended) > 1:
            return f"done twice: {steps}: {done}, undone: {undone}, ended: {ended}"
        if ended == [1] and (0 in done or 1 in undone):
            return f"ended: {steps}: {done}, undone: {undone}"
        if ended == [0] and done != undone:
            return f"undone: {steps}: {done}, undone: {undone}"
        return self._left()

    # --- The workflow ---

    def _checkout(self, wf: WorkflowContext) -> Any:
        if self._scene.spans:
            wf.transact(_add_on_both, "across", undo=_undo_on_both, name="across")
        else:
            self._do_steps(wf)
        if self._scene.fails:
            raise PermanentError("as planned")
        return wf.finish(_add, "ended")

    def _do_steps(self, wf: WorkflowContext) -> None:
        wf.step(_add, "first", on=DEPOT, undo=_undo, name="first")
        if self._scene.has_home_step:
            wf.step(_add, "at home", undo=_undo, name="at home")
        wf.step(_add, "second", on=DEPOT, undo=_undo, name="second")

    def _handlers(self, shards: Shards) -> dict[str, Handler]:
        runner = WorkflowKind(self._checkout, version=1, home_of=lambda tenant: shards[tenant])
        handlers = [workflow_handler(KIND, runner, drop=True), *system_handlers(lambda tenant: shards[tenant])]
        return {handler.kind: handler for handler in handlers}

    # --- Processes ---

    def _opened(self, name: str) -> Shards:
        """Open both shards for a process, which draws ids of its own."""
        shards = {
            tenant: open_shard(user, database, clock=StandingClock(), random=Random(f"{name} {user}"), part_count=1)
            for tenant, database in self._databases.items()
            for user in [tenant.user]
        }
        by_id = {shard.layout.shard_id: shard for shard in shards.values()}
        for shard in shards.values():
            shard.find_shard = by_id.get
        return shards

    def _process(
        self, name: str, body: Callable[[Shards], object], is_enabled: Callable[[], bool] = lambda: True
    ) -> Process:
        shards = self._opened(name)
        return Process(name, lambda: body(shards), is_enabled)

    def _run_item(self, shards: Shards, kind: str | None) -> bool:
        """Run an attempt at an item of a kind, or of any; return whether there was one."""
        ref = _take_over(shards, kind)
        if ref is not None:
            self._execute(shards, ref)
        return ref is not None

    def _execute(self, shards: Shards, ref: ItemRef) -> None:
        """Run an attempt at an item, and complete the item unless the attempt has ended it."""
        home = shards[HOME]
        record = _record(ref)
        handler = self._handlers(shards)[ref.kind]
        held = HeldItem(ref, record, handler, Job(home, ref, record, record.payload), NOW_US)
        try:
            access = AttemptAccess(_NO_RUNNERS, lambda held: True, StepCounts())
            handler.function.run_attempt(held, home, access)
            if not (held.job.completed or held.job.committed_end):
                zone, lease_id = home.zone(HOME), ref.lease_id
                home.transact(lambda attempt: zone.complete(attempt.tr, ref.item_id, now_us=NOW_US, lease_id=lease_id))
        except (LeaseLost, ItemGone, PermanentError):
            return
        except UnfitCode as error:
            self._differences.append(str(error))

    def _has_cleanup(self) -> bool:
        return any(CLEANUP_KIND.encode() in value for _, value in self._databases[HOME].store.contents)

    # --- What is stored in the end ---

    def _counts(self, names: list[str]) -> list[int]:
        """Return how often bodies have committed, at either tenant."""
        return [sum(_count(shard, tenant, name) for tenant, shard in self._last.items()) for name in names]

    def _left(self) -> str | None:
        """Return keys of the run that are left. A participant may keep a tombstone."""
        for tenant, database in self._databases.items():
            keys = self._last[tenant].layout.location(tenant, DEFAULT_ZONE).keys.tenant
            prefixes = tuple(keys.prefix + pack_int(number) for number in RUN_KEYS)
            for key, value in database.store.contents:
                if key.startswith(prefixes) and value != _TOMBSTONE:
                    return f"{tenant.user} keeps {key!r}: {value!r}"
        return None


def _take_over(shards: Shards, kind: str | None) -> ItemRef | None:
    """Lease an item of a kind, or of any, though another executor may hold it; return the reference to it."""
    shard = shards[HOME]
    zone = shard.zone(HOME)

    def body(attempt: Attempt) -> ItemRef | None:
        found = zone.peek(
            attempt.tr, items_max=9, now_us=LATER_THAN_ANY_US, predicate=lambda record: kind in (None, record.kind)
        )
        for item in found:
            if item.record.lease_id:
                run_one(zone.requeue_op(attempt.tr, item.id, None, delay_us=0, now_us=NOW_US))
            lease_id = attempt.new_id()
            leased = zone.obtain_lease(attempt.tr, item.id, lease_id=lease_id, lease_us=LEASE_US, now_us=NOW_US)
            return ItemRef("home", HOME, DEFAULT_ZONE, item.id, lease_id, leased.record.kind, False, leased.stored)
        return None

    return shard.transact(body)


def _record(ref: ItemRef) -> ItemRecord:
    record = decode(ItemRecord, ref.stored)
    assert record is not None
    return record


def _raise_floor(shards: Shards) -> None:
    shards[DEPOT].transact(lambda attempt: raise_floor(attempt.tr, tombstones_max=10))


def _cancel(shards: Shards) -> None:
    zone = shards[HOME].zone(HOME)

    def body(attempt: Attempt) -> None:
        for item in zone.peek(attempt.tr, items_max=9, now_us=LATER_THAN_ANY_US):
            if item.record.kind == KIND:
                run_one(cancel_op(attempt.tr, zone, item.id, force=False, now_us=NOW_US))

    shards[HOME].transact(body)


def _add(tr: TenantTransaction, name: str) -> None:
    """Count, without a read: only the workflow's own keys can conflict."""
    tr.add((name,), 1)


def _undo(tr: TenantTransaction, name: str) -> None:
    tr.add((f"undo {name}",), 1)


def _add_on_both(tx: SpanningTransaction, name: str) -> None:
    for tenant in (HOME, DEPOT):
        tx.on(tenant).add((f"{name}, {tenant.user}",), 1)


def _undo_on_both(tx: SpanningTransaction, name: str) -> None:
    _add_on_both(tx, f"undo {name}")


def _count(shard: Shard, tenant: Tenant, name: str) -> int:
    stored = shard.transact(lambda attempt: TenantTransaction(shard, tenant, attempt).get((name,)))
    return int.from_bytes(stored or b"", "little")
