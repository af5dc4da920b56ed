"""Errors that a user of the queue can meet: a constant message, the variables in fields, the remedy in the docstring.

A class of its own exists where a caller reacts differently; anything else is a field.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from fairlead.zones.records import Lock, Move


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
    """The item is held under another lease, or under none: the caller's lease expired.

    Do: drop the result; the new holder completes the item. If this is frequent, the worker cannot extend its leases in
    time: look at its CPU and at the store's latency, or raise `lease_ms`.
    """

    message = "lease lost to another consumer"


class ItemGone(QueueError):
    """The item is not in its queue zone: completed, cancelled, a dead letter, or never enqueued.

    Do: `fairlead why ITEM` says how it ended, and finds dead letters. If it does not know the item, compare tenant,
    zone and id with what was enqueued. Do nothing if you retried a completion or a cancellation of unknown result.
    """

    message = "the item is gone: completed, cancelled, a dead letter, or never enqueued here"


class NotADeadLetter(QueueError):
    """The tenant's zone has no dead letter with this id.

    Do: look for it with `fairlead dead-letters list`. An item in its queue is no dead letter: `fairlead peek` shows it.
    """

    message = "no dead letter with this id"


class ItemFailed(QueueError):
    """The item failed for good and has no result.

    Do: see `error`; if `dead_letter` is true, mend the cause and retry the item: `fairlead dead-letters retry`.
    """

    message = "the item failed for good"


class ItemUnreadable(QueueError):
    """A newer version of Fairlead wrote the item, or its record is damaged; nothing was changed.

    Do: upgrade this program. If it is the newest version, `fairlead check` distinguishes damaged records from newer
    ones.
    """

    message = "the item's record cannot be read: written by a newer version, or damaged"


class RunUnreadable(QueueError):
    """What is stored of a workflow cannot be read: it is damaged, or a newer version wrote it; nothing was changed.

    Do: if `reason` says that it is newer, upgrade this program. Otherwise `fairlead check` names all damaged keys. A
    damaged workflow is a dead letter, and what it has done stays done: no step is done again. Look what it has
    done; then cancel the dead letter with `--force`, and enqueue anew what is still to be done.
    """

    message = "what is stored of the workflow cannot be read"
    DAMAGED: ClassVar[str] = "it is damaged"
    MISSING: ClassVar[str] = "it is missing"
    NEWER: ClassVar[str] = "a newer version wrote it"

    @property
    def is_newer(self) -> bool:
        """Whether a newer version can read it."""
        return self.fields.get("reason") == self.NEWER


class Busy(QueueError):
    """Another one holds a lock that the caller requires to be free, or could not get in time; nothing was changed.

    Do: try again later, or wait longer; in a workflow, take the lock by `wf.lock`, which waits for it. `fairlead locks`
    lists who holds what; `fairlead why ITEM` says why a workflow that holds a lock does not go on.
    """

    message = "the lock is held"

    @property
    def by(self) -> str:
        """Who holds the lock: an item, as `APP/USER ID`, or a process, as `process HOST:PID of PROGRAM`."""
        return cast(str, self.fields["by"])

    @property
    def kind(self) -> str:
        """The kind of the item that holds it."""
        return cast(str, self.fields["kind"])

    @property
    def held_for(self) -> float:
        """For how long it has held it, seconds by the clock of the process that asked."""
        return cast(float, self.fields["held_for"])


class LockLost(QueueError):
    """A lock that a process held is lost: a consumer heard nothing of the process for seconds, and released the lock.

    The transaction was not committed. Do: take the lock anew, and read again what it protects. If this is frequent, the
    process stands still for seconds, or its store does: look at its CPU and memory.
    """

    message = "the lock is lost: the process that held it was taken for dead, or the lock was released by an operator"


class NotVested(QueueError):
    """The item cannot be leased now: another consumer leases it, or it is scheduled for later.

    Do: wait for `vests_in_ms`, or cancel the item by `complete` without a lease.
    """

    message = "the item has not vested yet"


class PayloadTooLarge(QueueError):
    """The packed payload is longer than `bytes_max`.

    Do: store the data beside the item, in the same transaction, and enqueue its key.
    """

    message = "payload too large: store the data in the tenant's own keys and enqueue its key"


class PayloadNotData(QueueError):
    """The payload holds something other than None, bool, int, float, text, bytes, and lists and dicts of these.

    Do: enqueue what the handler needs to find the object, such as its key. Code never travels in a payload.
    """

    message = "the payload is not plain data: pass None, bool, int (64 bit), float, text, bytes, list or dict"


class PayloadDamaged(QueueError):
    """The stored payload cannot be unpacked: its bytes were changed outside the queue.

    Do: cancel the item, or let it fail and become a dead letter; `fairlead peek` shows it without its payload.
    """

    message = "the item's payload is damaged"


class BadArgument(QueueError):
    """An argument is outside its documented range; nothing was changed.

    Do: correct the call or the option. `argument` names it, `value` is what the caller passed, `allowed` is what it
    takes.
    """

    message = "argument outside its range"

    @property
    def remedy(self) -> str:
        """What to do, with what the argument takes."""
        allowed = self.fields.get("allowed")
        return f"give {self.fields.get('argument')} what it takes: {allowed}" if allowed else ""


class TenantMoved(QueueError):
    """The tenant's logical database is owned by another shard: it has moved, or was never here.

    Do: name all shards in the configuration, each as it calls itself. If they are named so, the tenant has just moved:
    try again. A transaction that has used `.raw` is not repeated on another shard by itself.
    """

    message = "the tenant lives on another shard"

    @property
    def tenant(self) -> tuple[str, str]:
        """The tenant's app and user."""
        return cast(str, self.fields["app"]), cast(str, self.fields["user"])

    @property
    def owner(self) -> str | None:
        """The id of the shard that the tenant's record names, in hex digits; None: there is no record."""
        return cast("str | None", self.fields.get("owner"))

    @property
    def first_home(self) -> str | None:
        """The name of the tenant's first home, if the shard has no record of the tenant."""
        return cast("str | None", self.fields.get("first_home"))


class OwnerUnreadable(TenantMoved):
    """The tenant's ownership record is damaged, or of a newer version: its shard cannot be determined.

    Do: upgrade this program. If it is the newest version, `fairlead check --quarantine` sets a damaged record aside.
    The tenant is then at home on this shard, and has lost the policy (pause, limits, weight) in that record: set it
    again.
    """

    message = "the tenant's ownership record cannot be read"


class TenantLocked(QueueError):
    """A transaction across shards has locked the tenant; nothing was changed.

    `Shard.transact` waits for the lock, or ends it, outside of the transaction, and then runs the body again. So only
    code that commits by itself meets this error.

    Do: let it pass through the body, and call `LockWait.meet` with it.
    """

    message = "a transaction across shards has locked the tenant"

    @property
    def tenant(self) -> tuple[str, str]:
        """The tenant's app and user."""
        return cast(str, self.fields["app"]), cast(str, self.fields["user"])

    @property
    def shard_id(self) -> bytes:
        """The id of the shard whose ownership record holds the lock."""
        return bytes.fromhex(cast(str, self.fields["shard"]))

    @property
    def lock(self) -> "Lock":
        """The lock: which transaction holds it, which shard decides about that, and whether it is exclusive."""
        return cast("Lock", self.fields["lock"])


class TenantFrozen(TenantLocked):
    """The tenant is in the last milliseconds of a move to another shard; nothing was changed.

    Do: as for `TenantLocked`, whose callers wait for the end of the move the same way.
    """

    message = "the tenant is in the last milliseconds of a move"

    @property
    def move(self) -> "Move":
        """The move, as the source's ownership record states it."""
        return cast("Move", self.fields["move"])


class TenantBusy(QueueError):
    """The tenant stayed locked for as long as the caller waits, by other transactions or a move; nothing was changed.

    Do: try again later. If `reason` says that the home shard of `transaction` does not answer, see to that shard: it
    alone can decide the transaction. So does the destination of a move. If many transactions lock this tenant, let them
    do less, or raise `wait`.
    """

    message = "the tenant is locked by transactions across shards, or by a move"


class Restoring(QueueError):
    """The tenant is being restored to a snapshot, and its keys are partly old and partly new; nothing was changed.

    Do: try again later. Housekeeping of any consumer finishes a restore whose process has died; without consumers, the
    same `restore` again finishes it. `fairlead snapshots list --tenant APP/USER` says so.
    """

    message = "the tenant is being restored to a snapshot"

    @property
    def tenant(self) -> tuple[str, str]:
        """The tenant's app and user."""
        return cast(str, self.fields["app"]), cast(str, self.fields["user"])


class SnapshotGone(QueueError):
    """The tenant has no snapshot of this number: it was dropped, or has expired, or was never taken.

    Do: `fairlead snapshots list --tenant APP/USER`, or `tenant.snapshots()`, lists the snapshots that there are.
    """

    message = "the tenant has no such snapshot"


class TooManySnapshots(QueueError):
    """The tenant has as many snapshots as it may have; nothing was changed.

    Do: drop one, or let snapshots expire: give `keep` when you take them.
    """

    message = "the tenant has as many snapshots as it may have"


class RangeTooLarge(QueueError):
    """The tenant has snapshots, and the range to clear holds more than one transaction can copy; nothing was changed.

    Do: clear it in several transactions, by longer prefixes or key by key; or drop the snapshots first.
    """

    message = "the range to clear is too large to be copied for the tenant's snapshots"


class RawRefused(QueueError):
    """`.raw` was used on a tenant that has snapshots, or a snapshot was taken in a transaction that has used `.raw`.

    Writes through `.raw` are not observed, so the snapshots would change with them. Nothing was changed.

    Do: use the methods of the transaction; or drop the tenant's snapshots first.
    """

    message = "the engine's transaction cannot be used on a tenant that has snapshots"


class RestoreRefused(QueueError):
    """The tenant cannot be restored now; nothing was changed. `reason` says why.

    Do: wait until its workflows have ended, or cancel them; retry, cancel or discard those that are dead letters. What
    they have recorded would not fit the restored keys.
    """

    message = "the tenant was not restored"


class PolicyUnreadable(QueueError):
    """A newer version of Fairlead wrote the policy of the kind; nothing was changed.

    Do: upgrade this program, or pause, resume and limit the kind with the newer one.
    """

    message = "the kind's policy cannot be read: written by a newer version"


class ShardRefused(QueueError):
    """The store cannot be used as a shard: it holds another program's data, or a newer format.

    Do: what `remedy` says; nothing in the store was changed.
    """

    message = "the store cannot be used as a shard"


class BackupRefused(QueueError):
    """The backup cannot be restored, or not here; nothing was written.

    Do: what `reason` suggests: another copy of the file, a newer fairlead, an empty store, an engine whose limits the
    data fits.
    """

    message = "the backup was not restored"
