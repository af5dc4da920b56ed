"""Bugs in the stored parts of an item: records, index entries, counts, payloads, and retained ids."""

from fairlead.actors.execution import runner
from fairlead.simulation.oracles.answers import AnswersAreTrue
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.found_by_keys import KeysFindItems
from fairlead.simulation.oracles.id_retention import IdsStayTaken
from fairlead.simulation.oracles.item_lifecycle import ItemsAreEnqueuedOnce
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind
from fairlead.simulation.oracles.shop import EffectsHappenOnce, OrdersAreKept, PaymentsHappenOnce, TicksComeOnce
from fairlead.zones import transaction_runner
from fairlead.zones.queue import dead_letters, id_retention, insertion, periodic, stored_item
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.mutations.mutation import mutation

INDEX, COUNTS = IndexNamesEveryItem.promise, CountsEqualItems.promise
ANSWERS = AnswersAreTrue.promise
ONCE = (ItemsAreEnqueuedOnce.promise, OrdersAreKept.promise)

ITEMS = (
    mutation(
        "a removed item leaves its index entry behind",
        (
            stored_item.remove,
            "tr.clear(location.keys.vest(record.priority, record.vesting_us, item_id))",
            "pass",
        ),
        found_by=[INDEX],
    ),
    mutation(
        "a moved item leaves its old index entry behind if its lease has expired",
        (
            stored_item.move,
            "tr.clear(location.keys.vest(record.priority, record.vesting_us, item_id))",
            "if not record.expired_count: tr.clear(location.keys.vest(record.priority, record.vesting_us, item_id))",
        ),
        found_by=[INDEX],
    ),
    mutation(
        "an enqueue that finds its item present counts it again",
        (
            insertion.enqueue_op,
            "        if status is not EnqueueStatus.ENQUEUED:\n            continue",
            "        if status is not EnqueueStatus.ENQUEUED:\n"
            "            added[item.kind] = added.get(item.kind, 0) + 1\n            continue",
        ),
        found_by=[COUNTS],
    ),
    mutation(
        "an enqueue does not check whether its id is present",
        (id_retention.status_of_id, "present.value is not None", "False"),
        found_by=[COUNTS, INDEX],
    ),
    mutation(
        "an enqueue checks by snapshot whether its id is present",
        (
            id_retention.read_id_state,
            "tr.get(keys.item(item_id)), tr.get(keys.dead_letter(item_id))",
            "tr.snapshot.get(keys.item(item_id)), tr.get(keys.dead_letter(item_id))",
        ),
        found_by=[COUNTS, INDEX],
    ),
    mutation(
        "a dead letter stays counted as an item",
        (dead_letters.move_to_dead_letters, "stored_item.change_count(tr, location, record.kind, -1)", "pass"),
        found_by=[COUNTS],
    ),
    mutation(
        "a dead letter that is retried is not counted",
        (dead_letters.retry_dead_letter, "stored_item.change_count(tr, location, record.kind, 1)", "pass"),
        found_by=[COUNTS],
    ),
    mutation(
        "a cancel answers, but the item stays",
        (
            QueueZone.complete_op,
            "            stored_item.remove(tr, self.location, item_id, record)\n",
            "            if (item_id, None) in held:\n                continue\n"
            "            stored_item.remove(tr, self.location, item_id, record)\n",
        ),
        found_by=[ANSWERS],
    ),
    mutation(
        "a discarded dead letter stays",
        (dead_letters.discard, "remove(tr, location, item_id, dead_letter)", "pass"),
        found_by=[ANSWERS],
    ),
    mutation(
        "a dead letter that is retried stays",
        (dead_letters.retry_dead_letter, "remove(tr, location, item_id, dead_letter)", "return"),
        found_by=[ANSWERS],
    ),
    mutation(
        "a removed item leaves the traceback of its last failure behind",
        (stored_item.remove, "tr.clear(location.keys.traceback(item_id))", "pass"),
        found_by=[NothingIsLeftBehind.promise],
    ),
    mutation(
        "a completed item leaves the pieces of its payload behind",
        (stored_item.clear_what_is_kept, "if record.payload_bytes:", "if False:"),
        found_by=[NothingIsLeftBehind.promise],
    ),
    mutation(
        "a completed item leaves the entries of its keys behind",
        (stored_item.clear_what_is_kept, "if record.keys:", "if False:"),
        found_by=[KeysFindItems.promise],
    ),
    mutation(
        "a dead letter is not found by its keys any more",
        (
            dead_letters.move_to_dead_letters,
            "stored_item.remove(tr, location, item_id, record, becomes_dead_letter=True)",
            "stored_item.remove(tr, location, item_id, record, becomes_dead_letter=False)",
        ),
        found_by=[KeysFindItems.promise],
    ),
    mutation(
        "an id is free again at once, although its enqueue asked for retention",
        (QueueZone.complete_op, "if kept_us:", "if False:"),
        found_by=[IdsStayTaken.promise],
    ),
    mutation(
        "the id of a cancelled or dropped item is retained",
        (
            QueueZone.complete_op,
            "kept_us = record.unique_us if actual_reason is EndReason.COMPLETED else 0",
            "kept_us = record.unique_us",
        ),
        found_by=[IdsStayTaken.promise],
    ),
    mutation(
        "an enqueue ignores that its id is retained",
        (id_retention.status_of_id, 'int.from_bytes(retained_id.value, "big") > now_us', "False"),
        found_by=[IdsStayTaken.promise],
    ),
    mutation(
        "a tick that was enqueued is due again at once",
        (
            periodic.tick_op,
            "PeriodicRecord(period.every_us, due_us + period.every_us)))\n    probe",
            "record))\n    probe",
        ),
        found_by=[TicksComeOnce.promise, *ONCE],
    ),
    mutation(
        "an enqueue leaves no receipt",
        (transaction_runner._write_receipt, 'tr.set(receipt, number.to_bytes(RECEIPT_BYTES, "big"))', "pass"),
        found_by=ONCE,
    ),
    mutation(
        "a transaction that only writes leaves no receipt",
        (TenantTransaction._writer, "self._attempt.needs_receipt = True", "pass"),
        found_by=[PaymentsHappenOnce.promise],
    ),
    mutation(
        "a receipt is cleared while its enqueuer may still check for it",
        (transaction_runner.clear_receipts, "begin = _RECEIPT + pack_int(bucket)", "begin = _RECEIPT"),
        found_by=ONCE,
    ),
    mutation(
        "a transaction is retried without a check whether it was applied meanwhile",
        (transaction_runner.run, "if results and was_applied(tr):", "if False:"),
        found_by=[*ONCE, PaymentsHappenOnce.promise],
    ),
    mutation(
        "a commit of unknown result counts as failed",
        (transaction_runner.run, "value = tr.get(receipt_key(seed, expires_us)).value", "value = None"),
        found_by=ONCE,
    ),
    mutation(
        "a transactional handler's effect commits without its item's completion",
        (
            runner._run_transactional,
            "tr.complete(job.id, lease_id=job.lease_id, zone=job.zone, result=returned, keep_result=kept_s)",
            "pass",
        ),
        found_by=[EffectsHappenOnce.promise],
    ),
)
