"""Bugs in actors: work that is found, handed over, kept and finished as it should not be."""

from fairlead.actors import crew, keeping
from fairlead.actors.coordinator import Coordinator
from fairlead.actors.crew import Member
from fairlead.actors.custody import Custody
from fairlead.actors.handed_over import HandedOver
from fairlead.actors.job import Job
from fairlead.actors.manager import Manager
from fairlead.actors.portions import Portioner
from fairlead.actors.selection import reading, stretch
from fairlead.actors.selection.in_order import InOrder
from fairlead.actors.selection.own_parts import OwnParts
from fairlead.actors.supervisor import Supervisor
from fairlead.actors.worker import Worker
from fairlead.simulation.oracles.fairness import NoTenantWaitsTooLong
from fairlead.simulation.oracles.lapses import SuspectsGoOneByOne
from fairlead.simulation.oracles.leases import LeasesAreRespected
from fairlead.simulation.oracles.limits import KindsKeepToTheirLimits, VisitsTakeTheirShare
from fairlead.simulation.oracles.lives import NothingLapsesWithoutCause, OnlyTheTriedAreBuried
from fairlead.simulation.oracles.order import OneGoesInOrder
from fairlead.simulation.oracles.waits import NothingWaitsBesideFreeSlots
from fairlead.zones import visit
from fairlead.zones.dequeue import Room
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
            stretch.divide,
            "(number + 1) * whole // len(sessions)",
            "(number + 1) * whole // len(sessions) - PLACES // 4",
        ),
        (OwnParts._of_others, "for part in parts]", "for part in ()]"),
        found_by=[NoTenantWaitsTooLong.promise, DRAINS],
    ),
    mutation(
        "every fiftieth visit fails by a bug of its own",
        (
            visit.visit_steps,
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
        (crew.room_for_kinds, "held = None if limit is None else held_of_kind(members, kind)", "limit = held = None"),
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
        (keeping.chores, "<= lease_us * 2 // 3", "<= lease_us // 100"),
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
            crew.Crew.deal,
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
