"""Bugs in unique items: each removes a guard of how an item holds its unique key, or of how its end frees the key.

The guards of the protocol that records share with them are removed in `records`.
"""

from fairlead.records.on_shards.unique_items import ItemTransaction
from fairlead.records.protocol import Protocol
from fairlead.simulation.oracles.unique_items import KeysHaveOneHolder
from fairlead.simulation.unique_items.auditor import AT_ONCE
from fairlead.simulation.unique_items.world import CLEANED, run_unique_items
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.queue_zone import QueueZone
from tests.simulation.mutations.mutation import Mutation, in_a_race, mutation

_WRONG = (KeysHaveOneHolder.promise, AT_ONCE)

UNIQUE_ITEMS: tuple[Mutation, ...] = (
    mutation(
        "a dead letter does not hold its unique key",
        (ItemTransaction._read, "_item_of(item.value, dead_letter.value)", "_item_of(item.value, None)"),
        found_by=_WRONG,
        world=run_unique_items,
    ),
    mutation(
        "an item that is completed does not hold its unique key for its time",
        (ItemTransaction._end_writers, " or not found.keys", ""),
        found_by=_WRONG,
        world=run_unique_items,
    ),
    mutation(
        "a unique key stays taken after its time",
        (
            ItemTransaction._read,
            'retained.value is not None and int.from_bytes(retained.value[:8], "big") > ',
            "retained.value and ",
        ),
        found_by=_WRONG,
        world=run_unique_items,
    ),
    mutation(
        "the collection of a unique key leaves the reservation that has it",
        (ItemTransaction._end_writers, "self._end_reservation(entry.key, found)", "pass"),
        found_by=(*_WRONG, CLEANED),
        world=run_unique_items,
    ),
    mutation(
        "a reservation that has ended is used",
        (
            ItemTransaction.use_reservation,
            "if found is None or not found.is_as(dummy):",
            "found = found or dummy\n        if False:",
        ),
        found_by=_WRONG,
        world=run_unique_items,
    ),
    mutation(
        "the end of a reservation deletes the index record of its item",
        (
            Protocol.end_dummy_op,
            "if not record.is_dummy or not (",
            "if record.is_dummy and not (",
        ),
        found_by=_WRONG,
        world=run_unique_items,
    ),
    mutation(
        "an item that ends leaves the index record of its unique key",
        (QueueZone.complete_op, "if record.unique_key:", "if False:"),
        found_by=(CLEANED,),
        world=run_unique_items,
    ),
    mutation(
        "a dead letter that is discarded leaves the index record of its unique key",
        (dead_letters.discard, "if dead_letter.item.unique_key:", "if False:"),
        found_by=(CLEANED,),
        world=run_unique_items,
    ),
    mutation(
        "the index record of a unique key is deleted while the key stays taken",
        (QueueZone.complete_op, "releases.setdefault(kept_us, [])", "releases.setdefault(0, [])"),
        found_by=_WRONG,
        world=run_unique_items,
    ),
    mutation(
        "the end of a reservation leaves its cleanup item",
        (ItemTransaction._end_reservation, "self._cancel_cleanup(key, found)", "pass"),
        found_by=(*_WRONG, CLEANED),
        world=run_unique_items,
    ),
)
UNIQUE_ITEMS_IN_RACES = (
    in_a_race(
        "a reservation whose cleanup item is a dead letter counts as ended",
        (ItemTransaction._read, "_item_of(*(each.value for each in reserved))", "_item_of(reserved[0].value, None)"),
    ),
    in_a_race(
        "a reservation stays when it is used",
        (ItemTransaction.use_reservation, "self._cancel_cleanup(key, found)", "pass"),
    ),
    in_a_race(
        "the end of a reservation leaves its index record to nobody",
        (ItemTransaction._end_reservation, "self.leave_dropped(key, found, found.keys, None)", "pass"),
    ),
)
