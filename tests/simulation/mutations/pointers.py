"""Bugs in pointers: a zone with work whose pointer is missing or vests too late."""

from fairlead.actors.housekeeping.housekeeping import Housekeeping
from fairlead.simulation.oracles.consistency import IndexNamesEveryItem
from fairlead.simulation.oracles.fairness import NoTenantWaitsTooLong
from fairlead.simulation.oracles.leases import LeasesAreRespected, LeasesRunOnce
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind
from fairlead.simulation.oracles.pointers import PointersLeadToWork
from fairlead.simulation.oracles.work_conservation import NothingWaitsBesideFreeSlots
from fairlead.zones.queue import index_scan
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.top_level import pointers, process_pointers
from tests.simulation.mutations.mutation import mutation

IN_TIME = PointersLeadToWork.promise
DRAINS = "everything drains after the faults"

POINTERS = (
    mutation(
        "a sleep declares no write conflict on the guard",
        (process_pointers.requeue_pointer_op, "tr.add_write_conflict_key(location.keys.pointer_guard)", "pass"),
        found_by=[IN_TIME],
    ),
    mutation(
        "an enqueue declares no read conflict on the guard",
        (pointers.read_for_insert, "tr.add_read_conflict_key(location.keys.pointer_guard)", "pass"),
        found_by=[IN_TIME],
    ),
    mutation(
        "the creation of a pointer declares no write conflict on the guard",
        (pointers.create, "tr.add_write_conflict_key(location.keys.pointer_guard)", "pass"),
        found_by=[IN_TIME, IndexNamesEveryItem.promise],
    ),
    mutation(
        "the deletion of a pointer declares no write conflict on the guard",
        (pointers.delete, "tr.add_write_conflict_key(location.keys.pointer_guard)", "pass"),
        found_by=[IN_TIME],
    ),
    mutation(
        "a manager follows an entry that lies in another part than its pointer",
        (pointers.location_of, " and location.part.part == ref.part", ""),
        found_by=[LeasesRunOnce.promise, LeasesAreRespected.promise, IndexNamesEveryItem.promise],
    ),
    mutation(
        "a pointer sleeps until the item vests that was first, although another came before it",
        (process_pointers.requeue_pointer_op, "conflict_before_first(tr, location.keys, plan.first)", "pass"),
        found_by=[IN_TIME],
    ),
    mutation(
        "a requeue under a pointer lease sends the pointer to sleep",
        (process_pointers._requeue_awake, "min(delay_us, slack_us)", "delay_us"),
        found_by=[IN_TIME],
    ),
    mutation(
        "a sleep reads the first priority only",
        (index_scan.conflict_before_first, "for entry in first:", "for entry in first[:1]:"),
        (
            index_scan.conflict_before_first,
            "tr.add_read_conflict_range(begin, keys.vest_end())",
            "if not first: tr.add_read_conflict_range(begin, keys.vest_end())",
        ),
        found_by=[IN_TIME],
    ),
    mutation(
        "a pointer is deleted because a snapshot showed its zone empty",
        (
            process_pointers.requeue_pointer_op,
            "rows = tr.get_range(begin, end, limit=1 + len(dead_letters))",
            "rows = tr.snapshot.get_range(begin, end, limit=1 + len(dead_letters))",
        ),
        (
            process_pointers.requeue_pointer_op,
            "    if plan.remaining is None:\n",
            "    if plan.remaining is None and plan.first:\n",
        ),
        found_by=[IN_TIME],
    ),
    mutation(
        "a requeue leaves the pointer as if it were still leased",
        (process_pointers._update_pointer, 'pointer.lease_id, pointer.lease_us = b"", 0', "pass"),
        found_by=[IN_TIME],
    ),
    mutation(
        "a zone at the limits of its kinds sleeps as if nothing had vested",
        (process_pointers.delay_after, "if plan.remaining is Admission.FULL:", "if False:"),
        found_by=[IN_TIME],
    ),
    mutation(
        "a pointer sleeps as long as it may, not until the first item vests",
        (process_pointers.delay_after, "return min(next_us, sleep_us_max)", "return max(next_us, sleep_us_max)"),
        found_by=[IN_TIME],
    ),
    mutation(
        "an enqueue takes the slack of a pointer for seconds",
        (pointers.must_wake, "settings.wake_slack_ms * 1000", "settings.wake_slack_ms * 1_000_000"),
        found_by=[IN_TIME],
    ),
    mutation(
        "an item that is returned wakes no pointer",
        (QueueZone.requeue_op, "if earlier:", "if False:"),
        found_by=[IN_TIME],
    ),
    mutation(
        "a pointer is woken after a snapshot read",
        (pointers.wake, "tr.add_read_conflict_key(location.keys.pointer)", "pass"),
        found_by=[IN_TIME, IndexNamesEveryItem.promise],
    ),
    mutation(
        "the pointer of an empty zone sleeps again and again",
        (process_pointers.delay_after, "return None", "return sleep_us_max"),
        found_by=[NothingIsLeftBehind.promise],
    ),
    mutation(
        "a scan of the index ends after the vested entries of one priority",
        (index_scan.VestedReader._seek_behind_bound, "None if at_end else self._bound", "None"),
        found_by=[IN_TIME],
    ),
    mutation(
        "no consumer wakes pointers that a clock ahead has requeued far in the future",
        (
            Housekeeping._heartbeat,
            "if self._late_scans[name].is_urgent or self._schedules[name].is_due(LATE_POINTERS, self._heartbeats):",
            "if False:",
        ),
        found_by=[DRAINS, NoTenantWaitsTooLong.promise, NothingWaitsBesideFreeSlots.promise],
    ),
    mutation(
        "the pointer of an empty zone stays until a time that a clock ahead has written",
        (process_pointers.delay_after, " or by_wrong_clock", ""),
        found_by=[NothingIsLeftBehind.promise],
    ),
)
