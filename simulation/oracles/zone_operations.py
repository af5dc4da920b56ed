"""Operations: each change of a stored item is the change by an operation of the zone model."""

from __future__ import annotations

from collections.abc import Hashable

from fairlead.simulation import zone_model as model
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemChange, ParsedCommit
from fairlead.simulation.world import World
from fairlead.simulation.zone_model import Item, Zone, ZoneOperation, item_of
from fairlead.zones.records import ItemRecord
from fairlead.zones.workflow.locks import HOLD_KIND

EXPIRED = "lapsed"  # The stored reason of a dead letter whose lease expired. Other reasons come from a failed attempt.


class ChangesAreOperations(Oracle):
    """A commit changes an item as one operation of the model would, and changes no other part of it.

    So every expiry and every failure is counted once, a second enqueue changes nothing, and a return keeps all counts.
    Other oracles check the clock and the author of a change.

    Args:
      candidate_after: the number of expiries in a row that makes an item a poison candidate.
    """

    promise = "an item changes as an operation of its queue zone changes it"

    def __init__(self, world: World, candidate_after: int) -> None:
        super().__init__(world)
        self._candidate_after = candidate_after

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            before, after = _zone_before(change), _zone_after(change)
            operation = self._operation(change)
            if operation is None or before == after:
                continue
            answer, expected = operation.on(before)
            if expected != after:
                self.report_violation(
                    f"{parsed.by} makes {after} of {before}; {operation} answers {answer} and makes {expected}"
                )

    def _operation(self, change: ItemChange) -> ZoneOperation | None:
        """Return the operation that a change must be. The result of the change shows its kind and its arguments.

        None: the item was removed, so there is no result to compare.
        """
        item_id = change.item.item_id
        before, after = change.before, change.after
        if before is None:
            assert after is not None
            if after.kind == HOLD_KIND and after.lease_id:  # It is leased from the beginning.
                began_us = after.vesting_us - after.lease_us
                leased = model.ObtainLease(item_id, after.lease_id, after.lease_us, began_us)
                return model.InOneTransaction((_enqueue(item_id, after)._replace(now_us=began_us), leased))
            return model.RetryDeadLetter(item_id, after.vesting_us) if change.retried else _enqueue(item_id, after)
        if change.dead_lettered is not None:
            return self._move_to_dead_letters(change, before)
        if after is None:
            return None
        if after.enqueued_us != before.enqueued_us:  # One delivery ends, and the next one of its id is enqueued.
            ended = model.Complete(item_id, before.lease_id, after.vesting_us)
            return model.InOneTransaction((ended, _enqueue(item_id, after)))
        if after.suspended_at != before.suspended_at:
            return model.Suspend(item_id, before.lease_id, after.vesting_us)
        if not after.lease_id and not before.lease_id and after.vesting_us < before.vesting_us:
            return model.Wake(item_id, after.vesting_us)
        if not after.lease_id:
            errors = None if after.return_count > before.return_count else after.error_count
            return model.Requeue(item_id, None, 0, errors, after.vesting_us)
        if after.lease_id != before.lease_id:
            lease_us = after.vesting_us - before.vesting_us
            return model.ObtainLease(item_id, after.lease_id, lease_us, before.vesting_us)
        if after.keeps_run and after.vesting_us == before.vesting_us and after.started == before.started:
            return model.NoteStep(item_id, before.lease_id)
        return model.ExtendLease(item_id, before.lease_id, 0, after.started, after.ran_isolated, after.vesting_us)

    def _move_to_dead_letters(self, change: ItemChange, before: ItemRecord) -> ZoneOperation:
        dead_letter = change.dead_lettered
        assert dead_letter is not None
        expired = dead_letter.reason == EXPIRED
        if expired and not _item(change, before).is_poison(self._candidate_after):
            self.report_violation(f"{change.item} becomes a dead letter without proof: {before}")
        return model.MoveToDeadLetters(change.item.item_id, None, before.error_count + (not expired))


def _enqueue(item_id: bytes, after: ItemRecord) -> model.Enqueue:
    return model.Enqueue(
        item_id, True, after.kind, _content(after), after.priority, 0, after.unique_us, after.vesting_us
    )


def _zone_before(change: ItemChange) -> Zone:
    items = () if change.before is None else (_item(change, change.before),)
    dead_letter = change.dead_letter_before
    return Zone(items, () if dead_letter is None else (_item(change, dead_letter.item),))


def _zone_after(change: ItemChange) -> Zone:
    items = () if change.after is None else (_item(change, change.after),)
    dead_letter = change.dead_lettered or (None if change.retried else change.dead_letter_before)
    return Zone(items, () if dead_letter is None else (_item(change, dead_letter.item),))


def _item(change: ItemChange, record: ItemRecord) -> Item:
    return item_of(change.item.item_id, record, _content(record))


def _content(record: ItemRecord) -> Hashable:
    """Return the parts of an item that never change and that the model does not have."""
    return (record.payload, record.payload_bytes, record.given_id, record.enqueued_us)
