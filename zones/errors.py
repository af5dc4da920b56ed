"""Errors that a user of the queue can meet: a constant message, the variables in fields, the remedy in the docstring.

A class of its own exists where a caller reacts differently; anything else is a field.
"""

from functools import partial
from typing import Any, ClassVar


class QueueError(Exception):
    """Base of every error raised on purpose: a constant `message`, the variables in `fields`."""

    message: ClassVar[str] = "the queue refused"

    def __init__(self, **fields: object) -> None:
        super().__init__(self.message)
        self.fields = fields

    def __str__(self) -> str:
        return ", ".join([self.message, *(f"{name}={value!r}" for name, value in self.fields.items())])

    def __reduce__(self) -> tuple[Any, ...]:  # Errors cross actor borders; keyword fields must survive pickle.
        return partial(type(self), **self.fields), ()


class LeaseLost(QueueError):
    """The item is held under another lease, or under none: the caller's lease ran out and was taken over.

    Do: drop the result; the new holder completes the item. If this is frequent, the worker cannot extend its leases
    in time: look at its CPU and at the store's latency, or raise `lease_ms`.
    """

    message = "lease lost to another consumer"


class ItemGone(QueueError):
    """The item is not in its queue zone: completed, cancelled, buried, or never enqueued.

    Do: nothing, if you retried a completion or a cancellation whose result you did not learn. Otherwise compare the
    tenant, the zone and the id with what `enqueue` returned; a buried item is found with `fairlead buried`.
    """

    message = "the item is gone: completed, cancelled, buried, or never enqueued here"


class ItemUnreadable(QueueError):
    """A newer version of Fairlead wrote the item, or its record is damaged; nothing was changed.

    Do: upgrade this program. If it is the newest already, `fairlead check` tells damaged records from newer ones.
    """

    message = "the item's record cannot be read: written by a newer version, or damaged"


class NotVested(QueueError):
    """The item cannot be leased now: it is leased by another consumer, or scheduled for later.

    Do: wait for `vests_in_ms`, or cancel the item by `complete` without a lease.
    """

    message = "the item has not vested yet"


class PayloadTooLarge(QueueError):
    """The packed payload is longer than `bytes_max`.

    Do: store the data beside the item, in the same transaction, and enqueue its key.
    """

    message = "payload too large: store the data in the tenant's own keys and enqueue its key"


class PayloadNotData(QueueError):
    """The payload holds something that is not data: None, bool, int, float, text, bytes, and lists and dicts of such.

    Do: enqueue what the handler needs to find the object, such as its key. Code never travels in a payload.
    """

    message = "the payload is not plain data: pass None, bool, int (64 bit), float, text, bytes, list or dict"


class PayloadDamaged(QueueError):
    """The stored payload is no plain data any more: its bytes were changed behind the queue's back.

    Do: cancel the item, or let it fail and be buried; `fairlead peek` shows it without its payload.
    """

    message = "the item's payload is damaged"


class BadArgument(QueueError):
    """An argument is outside its documented range; nothing was changed.

    Do: correct the call or the option: `argument` says which, `value` what it was given, `allowed` what it takes.
    """

    message = "argument outside its range"

    @property
    def remedy(self) -> str:
        """What to do, with what the argument takes."""
        allowed = self.fields.get("allowed")
        return f"give {self.fields.get('argument')} what it takes: {allowed}" if allowed else ""


class TenantMoved(QueueError):
    """The tenant's logical database is owned by another shard now.

    Do: look up the tenant's shard again and retry there; `App.tenant` does both.
    """

    message = "the tenant moved to another shard"


class OwnerUnreadable(TenantMoved):
    """Nobody can tell which shard owns the tenant's logical database: its record is damaged, or of a newer version.

    Do: upgrade this program. If it is the newest already, `fairlead check --quarantine` sets a damaged record aside;
    the tenant is at home then, without the rules (pauses, limits, weight) that the record held: say them again.
    """

    message = "the tenant's ownership record cannot be read"


class PolicyUnreadable(QueueError):
    """A newer version of Fairlead wrote what operators have decided about the kind; nothing was changed.

    Do: upgrade this program, or pause, resume and limit the kind with the newer one.
    """

    message = "the kind's rule cannot be read: written by a newer version"


class ShardRefused(QueueError):
    """The store cannot be used as a shard: another program's data, or a newer format than this version reads.

    Do: what `remedy` says; nothing in the store was changed.
    """

    message = "the store cannot be used as a shard"


class BackupRefused(QueueError):
    """The backup cannot be restored, or not here; nothing was written.

    Do: what `reason` suggests: another copy of the file, a newer fairlead, an empty store, an engine whose limits the
    data fits.
    """

    message = "the backup was not restored"
