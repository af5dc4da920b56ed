"""Bugs in actors: work that is found, handed over, kept and finished as it should not be."""

from fairlead.actors.coordinator import Coordinator
from fairlead.actors.dispatch import worker_pool
from fairlead.actors.dispatch.batch_sizing import Portioner
from fairlead.actors.dispatch.worker_pool import Member
from fairlead.actors.execution import deadlines
from fairlead.actors.execution.completer import Custody
from fairlead.actors.execution.job import Job
from fairlead.actors.manager import Manager
from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.actors.scanning import partitioning, reading
from fairlead.actors.scanning.exclusions import HandedOver
from fairlead.actors.scanning.in_order import InOrder
from fairlead.actors.scanning.partitioned import OwnParts
from fairlead.actors.worker import Worker
from fairlead.simulation.oracles.fairness import NoTenantWaitsTooLong
from fairlead.simulation.oracles.in_order_lease import OneGoesInOrder
from fairlead.simulation.oracles.item_lifecycle import NothingLapsesWithoutCause, OnlyTheTriedAreBuried
from fairlead.simulation.oracles.lease_expiries import SuspectsGoOneByOne
from fairlead.simulation.oracles.leases import LeasesAreRespected
from fairlead.simulation.oracles.limits import KindsKeepToTheirLimits, VisitsTakeTheirShare
from fairlead.simulation.oracles.work_conservation import NothingWaitsBesideFreeSlots
from fairlead.zones.queue.dequeue_plan import Room
from fairlead.zones.top_level import process_pointers
from tests.simulation.mutations.mutation import mutation

HELD_BY_ONE = LeasesAreRespected.promise
NO_LAPSE = NothingLapsesWithoutCause.promise
DRAINS = "everything drains after the faults"
GETS_OVER_IT = "the system gets over a fault that has stopped"
IN_ORDER = OneGoesInOrder.promise

CONSUMERS = (
    mutation(
        "a dequeue of unknown result is forgotten",
        (Manager._visit, "if record is not None and record.lease_id == lease_id:", "if False:"),
        found_by=[NO_LAPSE],
    ),
    mutation(
        "a scanner never lets go of pointers whose manager died",
        (
            HandedOver.end,
            "self._held.difference_update(ref.id for ref in refs)",
            "self._held.difference_update(ref.id for ref in refs if served is not None)",
        ),
        found_by=[DRAINS, NoTenantWaitsTooLong.promise, GETS_OVER_IT],
    ),
    mutation(
        "a manager counts what it sent to a worker that died as still on its way",
        (Member.arrive, "self.on_the_way -= len(refs)", "self.on_the_way -= len(refs) if report else 0"),
        found_by=[GETS_OVER_IT],
    ),
    mutation(
        "a worker takes what was sent to a life of it that has ended",
        (Worker.place, "if life != self._host.life:", "if False:"),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "the in-order lease is granted to whoever asks for it",
        (Coordinator.request, "if stands and not mine:", "if False:"),
        found_by=[IN_ORDER],
    ),
    mutation(
        "a scanner that hands nothing over is granted the in-order lease again and again",
        (Coordinator.request, "if mine and not handed_over:", "if False:"),
        found_by=[IN_ORDER],
    ),
    mutation(
        "a scanner says that it has handed pointers over whether or not it has",
        (
            InOrder.begin,
            "handed_over, self._handed_over = self._handed_over, False",
            "handed_over = True",
        ),
        found_by=[IN_ORDER],
    ),
    mutation(
        "a scan passes over the last part of the top-level queue",
        (reading.peek, "for part in parts]", "for part in list(parts)[: max(1, len(list(parts)) - 1)]]"),
        found_by=[NoTenantWaitsTooLong.promise],
    ),
    mutation(
        "what consumers divide leaves something over, and nobody looks at others' pointers",
        (
            partitioning.divide,
            "(number + 1) * whole // len(sessions)",
            "(number + 1) * whole // len(sessions) - PLACES // 4",
        ),
        (OwnParts._of_others, "for part in parts]", "for part in ()]"),
        found_by=[NoTenantWaitsTooLong.promise, DRAINS],
    ),
    mutation(
        "every fiftieth visit fails by a bug of its own",
        (
            process_pointers.visit_steps,
            "place = pointers.place_of(ref, layout)",
            "place = pointers.place_of(ref if ref.vesting_us % 50 else None, layout)",
        ),
        found_by=["no call fails by a bug"],
    ),
    mutation(
        "a visit takes as much of a zone as the workers have room for",
        (Portioner.portion_out, "min(self._dequeue_max, room // max(1, count))", "room"),
        found_by=[VisitsTakeTheirShare.promise],
    ),
    mutation(
        "a kind that has a limit is leased as if it had none",
        (
            worker_pool.room_for_kinds,
            "held = None if limit is None else held_of_kind(members, kind)",
            "limit = held = None",
        ),
        found_by=[KindsKeepToTheirLimits.promise],
    ),
    mutation(
        "what finishes while a commit is under way is forgotten",
        (
            Custody._run_settling,
            "batch, self._finished = self._finished[:SETTLE_MAX], self._finished[SETTLE_MAX:]",
            "batch = list(self._finished)",
        ),
        (Custody._run_settling, "table.note_left()", "table.note_left(); self._finished = []"),
        found_by=[NO_LAPSE],
    ),
    mutation(
        "leases are extended in their last hundredth",
        (deadlines.chores, "<= lease_us * 2 // 3", "<= lease_us // 100"),
        found_by=[NO_LAPSE],
    ),
    mutation(
        "a handler's own transaction is taken for a completion",
        (Job.transact, "self.completed or completes", "True"),
        found_by=[NO_LAPSE],
    ),
    mutation(
        "items that must run alone are sent to the worker that has most room",
        (
            worker_pool.Crew.deal,
            "together = [ref for ref in refs if not ref.alone] if suspects else refs",
            "together, suspects = refs, []",
        ),
        found_by=[OnlyTheTriedAreBuried.promise],
    ),
    mutation(
        "a loop that dies is not noticed",
        (Supervisor.supervised, 'self.fail(f"loop {name!r} died: {type(error).__name__}: {error}", error)', "pass"),
        found_by=[DRAINS, GETS_OVER_IT, NoTenantWaitsTooLong.promise, NothingWaitsBesideFreeSlots.promise],
    ),
    mutation(
        "a loop that stands still is not noticed",
        (Supervisor.look, "progress.overdue_us(passed_us) > STALL_US", "False"),
        found_by=[DRAINS, GETS_OVER_IT, NoTenantWaitsTooLong.promise, NothingWaitsBesideFreeSlots.promise],
    ),
    mutation(
        "a visit takes all items that must run alone at once",
        (Room.admit_suspect, "self.suspects -= 1", "pass"),
        found_by=[SuspectsGoOneByOne.promise],
    ),
)
