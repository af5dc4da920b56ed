"""Bugs in actors: in scanning, dispatch, execution, and completion."""

from fairlead.actors.coordinator import Coordinator
from fairlead.actors.dispatch import pointer_batches, worker_pool
from fairlead.actors.dispatch.batch_sizing import BatchSizer
from fairlead.actors.dispatch.pool_member import Member
from fairlead.actors.execution import deadlines
from fairlead.actors.execution.completer import Completer
from fairlead.actors.execution.job import Job
from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.actors.scanning import partitioning, reading
from fairlead.actors.scanning.exclusions import HandedOverPointers
from fairlead.actors.scanning.in_order import InOrderSelection
from fairlead.actors.scanning.partitioned import PartitionedSelection
from fairlead.actors.worker import Worker
from fairlead.simulation.oracles.fairness import NoTenantWaitsTooLong
from fairlead.simulation.oracles.in_order_lease import OneScannerGoesInOrder
from fairlead.simulation.oracles.item_lifecycle import NoLeaseExpiresWithoutCause, OnlyTheTriedAreDeadLettered
from fairlead.simulation.oracles.lease_expiries import PoisonCandidatesGoOneByOne
from fairlead.simulation.oracles.leases import LeasesAreRespected
from fairlead.simulation.oracles.limits import DequeuesTakeTheirShare, KindsKeepToTheirLimits
from fairlead.simulation.oracles.work_conservation import NothingWaitsBesideFreeSlots
from fairlead.zones.queue import dequeue_plan
from fairlead.zones.top_level import process_pointers
from tests.simulation.mutations.mutation import mutation

HELD_BY_ONE = LeasesAreRespected.promise
NO_EXPIRY = NoLeaseExpiresWithoutCause.promise
DRAINS = "everything drains after the faults"
RECOVERS = "the system gets over a fault that has stopped"
IN_ORDER = OneScannerGoesInOrder.promise

CONSUMERS = (
    mutation(
        "a dequeue of unknown result is forgotten",
        (pointer_batches._has_lease, "if record is not None and record.lease_id == lease_id:", "if False:"),
        found_by=[NO_EXPIRY],
    ),
    mutation(
        "a scanner never releases pointers whose manager died",
        (
            HandedOverPointers.end,
            "self._held.difference_update(ref.id for ref in refs)",
            "self._held.difference_update(ref.id for ref in refs if served is not None)",
        ),
        found_by=[DRAINS, NoTenantWaitsTooLong.promise, RECOVERS],
    ),
    mutation(
        "a manager counts what it sent to a worker that died as still on its way",
        (Member.arrive, "self.on_the_way -= len(refs)", "self.on_the_way -= len(refs) if report else 0"),
        found_by=[RECOVERS],
    ),
    mutation(
        "a worker accepts items that were sent to an earlier incarnation",
        (Worker.place, "if incarnation != self._host.incarnation:", "if False:"),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "the in-order lease is granted to each scanner that asks for it",
        (Coordinator.request, "if stands and not mine:", "if False:"),
        found_by=[IN_ORDER],
    ),
    mutation(
        "a scanner that hands nothing over is granted the in-order lease again and again",
        (Coordinator.request, "if mine and not handed_over:", "if False:"),
        found_by=[IN_ORDER],
    ),
    mutation(
        "a scanner always reports that it has handed pointers over",
        (
            InOrderSelection.begin,
            "handed_over, self._handed_over = self._handed_over, False",
            "handed_over = True",
        ),
        found_by=[IN_ORDER],
    ),
    mutation(
        "a scan skips the last part of the top-level queue",
        (reading.peek, "for part in parts]", "for part in list(parts)[: max(1, len(list(parts)) - 1)]]"),
        found_by=[NoTenantWaitsTooLong.promise],
    ),
    mutation(
        "the partitions of consumers leave a gap, and no consumer steals pointers",
        (
            partitioning.divide,
            "(number + 1) * whole // len(sessions)",
            "(number + 1) * whole // len(sessions) - HASH_SPACE // 4",
        ),
        (PartitionedSelection._steal, "for part in parts]", "for part in ()]"),
        found_by=[NoTenantWaitsTooLong.promise, DRAINS],
    ),
    mutation(
        "every fiftieth pointer raises an error of a bug",
        (
            process_pointers.process_op,
            "location = pointers.location_of(ref, layout)",
            "location = pointers.location_of(ref if ref.vesting_us % 50 else None, layout)",
        ),
        found_by=["no call fails by a bug"],
    ),
    mutation(
        "a dequeue takes as much of a zone as the workers have capacity for",
        (BatchSizer.size_batch, "min(self._dequeue_max, capacity // max(1, count))", "capacity"),
        found_by=[DequeuesTakeTheirShare.promise],
    ),
    mutation(
        "a kind that has a limit is leased as if it had none",
        (
            worker_pool.capacity_for_kinds,
            "held = None if limit is None else held_of_kind(members, kind)",
            "limit = held = None",
        ),
        found_by=[KindsKeepToTheirLimits.promise],
    ),
    mutation(
        "items that finish during a commit are forgotten",
        (
            Completer._next_work,
            "batch, self._finished = self._finished[:COMPLETE_MAX], self._finished[COMPLETE_MAX:]",
            "batch = list(self._finished)",
        ),
        (Completer._run, "self._slots.drop(ended)", "self._slots.drop(ended); self._finished = []"),
        found_by=[NO_EXPIRY],
    ),
    mutation(
        "leases become claims in their last hundredth",
        (deadlines.due_work, "- lease_us * 2 // 3", "- lease_us // 100"),
        found_by=[NO_EXPIRY],
    ),
    mutation(
        "a handler's own transaction counts as a completion",
        (Job.transact, "self.completed or completes", "True"),
        found_by=[NO_EXPIRY],
    ),
    mutation(
        "items that must run isolated are sent to the worker with the most capacity",
        (
            worker_pool.WorkerPool.assign,
            "together = [ref for ref in refs if not ref.isolated] if poison_candidates else refs",
            "together, poison_candidates = refs, []",
        ),
        found_by=[OnlyTheTriedAreDeadLettered.promise],
    ),
    mutation(
        "a loop that dies is not noticed",
        (Supervisor.supervised, 'self.fail(f"loop {name!r} died: {type(error).__name__}: {error}", error)', "pass"),
        found_by=[DRAINS, RECOVERS, NoTenantWaitsTooLong.promise, NothingWaitsBesideFreeSlots.promise],
    ),
    mutation(
        "a stalled loop is not noticed",
        (Supervisor.check_loops, "progress.overdue_us(passed_us) > STALL_US", "False"),
        found_by=[DRAINS, RECOVERS, NoTenantWaitsTooLong.promise, NothingWaitsBesideFreeSlots.promise],
    ),
    mutation(
        "a dequeue takes all poison candidates at once",
        (dequeue_plan._Draft._can_isolate, "self._isolated += 1", "pass"),
        found_by=[PoisonCandidatesGoOneByOne.promise],
    ),
)
