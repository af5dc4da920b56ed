"""Bugs in leases and expiries: an item is leased, changed, completed or dead-lettered without its lease."""

from fairlead.actors.execution import acknowledgement, deadlines
from fairlead.actors.execution.in_flight import InFlight
from fairlead.actors.worker import Worker
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.item_lifecycle import (
    ItemsRunBeforeTheyGo,
    OnlyTheTriedAreDeadLettered,
)
from fairlead.simulation.oracles.lease_expiries import FailuresAreCounted, PoisonCandidatesRunIsolated
from fairlead.simulation.oracles.leases import LeasesAreRespected, LeasesRunOnce
from fairlead.simulation.oracles.zone_operations import ChangesAreOperations
from fairlead.zones.queue import dequeue, poison_candidates
from fairlead.zones.queue.queue_zone import QueueZone
from tests.simulation.mutations.mutation import mutation

HELD_BY_ONE = LeasesAreRespected.promise
RUN_BEFORE = ItemsRunBeforeTheyGo.promise
ISOLATED = PoisonCandidatesRunIsolated.promise
OPERATIONS = ChangesAreOperations.promise
TRIED = OnlyTheTriedAreDeadLettered.promise

LEASES = (
    mutation(
        "an item is completed under an earlier lease",
        (
            QueueZone.complete_op,
            "yield from check_leases_op(tr, self.location, held)",
            "yield from check_leases_op(tr, self.location, [(item_id, None) for item_id, _ in held])",
        ),
        found_by=[HELD_BY_ONE, RUN_BEFORE],
    ),
    mutation(
        "a lease is extended although another holds the item",
        (
            QueueZone.extend_op,
            "yield from check_leases_op(tr, self.location, held)",
            "yield from check_leases_op(tr, self.location, [(item_id, None) for item_id, _ in held])",
        ),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "an item is requeued under an earlier lease",
        (
            QueueZone.requeue_op,
            "yield from check_leases_op(tr, self.location, [(item_id, lease_id)])",
            "yield from check_leases_op(tr, self.location, [(item_id, None)])",
        ),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "an item is leased after a snapshot read",
        (
            dequeue.IndexScan.read_records_op,
            "tr.get(item_key(item_id))",
            "tr.snapshot.get(item_key(item_id))",
        ),
        found_by=[HELD_BY_ONE, CountsEqualItems.promise, IndexNamesEveryItem.promise],
    ),
    mutation(
        "a dequeue takes over leases two seconds before they end",
        (dequeue.IndexScan._reader, "now_us=self.now_us,", "now_us=self.now_us + 2_000_000,"),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "an item that failed for good becomes a dead letter, or is dropped, although another holds it",
        (
            acknowledgement._settle_failed,
            "if record is None or record.lease_id != held.ref.lease_id:",
            "if record is None:",
        ),
        (acknowledgement._settle_failed, "(held.ref.item_id, held.ref.lease_id)", "(held.ref.item_id, None)"),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "a requeued item keeps its lease id",
        (
            QueueZone.requeue_op,
            'record.lease_id, record.started, record.ran_isolated = b"", False, False',
            "record.started, record.ran_isolated = False, False",
        ),
        found_by=[OPERATIONS],
    ),
    mutation(
        "an expiry is not counted, and so a poisonous item never runs isolated",
        (dequeue.lease, "record.expiry_count += record.started", "pass"),
        found_by=[OPERATIONS],
    ),
    mutation(
        "an expiry counts although its item had not started",
        (dequeue.lease, "record.expiry_count += record.started", "record.expiry_count += 1"),
        found_by=[OPERATIONS],
    ),
    mutation(
        "an item whose lease expired before starts without a note in its record",
        (deadlines.lease_at_start, "held.ref.isolated or held.record.expired_count", "held.ref.isolated"),
        found_by=[ISOLATED],
    ),
    mutation(
        "an item runs isolated one expiry too late",
        (poison_candidates.is_poison_candidate, ">= settings", "> settings"),
        found_by=[ISOLATED],
    ),
    mutation(
        "an item that has started counts as started under its next lease, too",
        (dequeue.lease, "record.started = False", "pass"),
        found_by=[OPERATIONS],
    ),
    mutation(
        "an item that starts beside others is marked as isolated",
        (Worker._has_lease_for_start, "self._isolation is Isolation.PROCESS", "True"),
        found_by=[TRIED],
    ),
    mutation(
        "an item that is returned loses its error count",
        (
            QueueZone.requeue_op,
            "        if error_count is not None:\n            record.error_count = error_count\n",
            "        if True:\n            record.error_count = error_count or 0\n",
        ),
        found_by=[FailuresAreCounted.promise, OPERATIONS],
    ),
    mutation(
        "a worker runs an item twice that it is sent twice",
        (InFlight.accept, "if held.ref in self._held:", "if False:"),
        found_by=[LeasesRunOnce.promise],
    ),
    mutation(
        "an item whose leases expired often becomes a dead letter without an isolated run",
        (
            poison_candidates.poison_error,
            "if record.lease_id and record.ran_isolated:",
            "if record.lease_id and is_poison_candidate(record, settings):",
        ),
        found_by=[TRIED, OPERATIONS],
    ),
)
