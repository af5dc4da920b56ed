"""Bugs in leases and lapses: who may take, change, finish or bury an item."""

from fairlead.actors.execution import acknowledgement, deadlines
from fairlead.actors.execution.in_flight import Holdings
from fairlead.actors.worker import Worker
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.item_lifecycle import (
    ItemsRunBeforeTheyGo,
    NothingLapsesWithoutCause,
    OnlyTheTriedAreBuried,
)
from fairlead.simulation.oracles.lease_expiries import FailuresAreCounted, LapsesAreCounted
from fairlead.simulation.oracles.leases import LeasesAreRespected, LeasesRunOnce
from fairlead.zones.queue import dequeue_plan, poison_candidates
from fairlead.zones.queue.queue_zone import QueueZone
from tests.simulation.mutations.mutation import mutation

HELD_BY_ONE = LeasesAreRespected.promise
RUN_BEFORE = ItemsRunBeforeTheyGo.promise
LAPSES = LapsesAreCounted.promise
TRIED = OnlyTheTriedAreBuried.promise
NO_LAPSE = NothingLapsesWithoutCause.promise

LEASES = (
    mutation(
        "an item is completed by whoever once held it",
        (
            QueueZone.complete_steps,
            "yield from held_steps(tr, self.place, held)",
            "yield from held_steps(tr, self.place, [(item_id, None) for item_id, _ in held])",
        ),
        found_by=[HELD_BY_ONE, RUN_BEFORE],
    ),
    mutation(
        "a lease is extended although another took the item over",
        (
            QueueZone.extend_steps,
            "yield from held_steps(tr, self.place, held)",
            "yield from held_steps(tr, self.place, [(item_id, None) for item_id, _ in held])",
        ),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "an item is requeued by whoever once held it",
        (
            QueueZone.requeue_steps,
            "yield from held_steps(tr, self.place, [(item_id, lease_id)])",
            "yield from held_steps(tr, self.place, [(item_id, None)])",
        ),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "an item is leased by what a snapshot showed of it",
        (
            dequeue_plan.choose_steps,
            "reads = [tr.get(place.keys.item(entry.id))",
            "reads = [tr.snapshot.get(place.keys.item(entry.id))",
        ),
        found_by=[HELD_BY_ONE, CountsEqualItems.promise, IndexNamesEveryItem.promise],
    ),
    mutation(
        "a dequeue takes over leases two seconds before they end",
        (dequeue_plan.Search.pick_steps, "now_us=self.now_us,", "now_us=self.now_us + 2_000_000,"),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "an item that failed for good is buried or dropped although another took it over",
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
            QueueZone.requeue_steps,
            'record.lease_id, record.started, record.ran_alone = b"", False, False',
            "record.started, record.ran_alone = False, False",
        ),
        found_by=[NO_LAPSE],
    ),
    mutation(
        "a lapse is not counted, and so a poisonous item never runs alone",
        (dequeue_plan.lease, "record.lapse_count += record.started", "pass"),
        found_by=[LAPSES],
    ),
    mutation(
        "a lapse counts although its item had not started",
        (dequeue_plan.lease, "record.lapse_count += record.started", "record.lapse_count += 1"),
        found_by=[LAPSES],
    ),
    mutation(
        "an item that lapsed before starts without a word",
        (deadlines.lease_at_start, "held.ref.alone or held.record.lapsed", "held.ref.alone"),
        found_by=[LAPSES],
    ),
    mutation(
        "an item runs alone one lapse too late",
        (poison_candidates.is_suspect, ">= place.layout", "> place.layout"),
        found_by=[LAPSES],
    ),
    mutation(
        "an item that has started counts as started under its next lease, too",
        (dequeue_plan.lease, "record.started = False", "pass"),
        found_by=[LAPSES],
    ),
    mutation(
        "an item that starts beside others is marked as one that runs alone",
        (Worker._lease_for_start, "self._isolation is Isolation.PROCESS", "True"),
        found_by=[TRIED],
    ),
    mutation(
        "an item that is given back starts its errors anew",
        (
            QueueZone.requeue_steps,
            "        if error_count is not None:\n            record.error_count = error_count\n",
            "        if True:\n            record.error_count = error_count or 0\n",
        ),
        found_by=[FailuresAreCounted.promise],
    ),
    mutation(
        "a worker runs an item twice that it is sent twice",
        (Holdings.accept, "if held.ref in self._held:", "if False:"),
        found_by=[LeasesRunOnce.promise],
    ),
    mutation(
        "an item that lapsed often is buried without having run alone",
        (
            poison_candidates.proof_against,
            "if record.lease_id and record.ran_alone:",
            "if record.lease_id and is_suspect(place, record):",
        ),
        found_by=[TRIED],
    ),
)
