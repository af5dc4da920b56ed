"""Whether the caller is the body of a transaction. What a body begins by itself would not be a part of the transaction.

A transaction on one tenant within the body of another one commits by itself, whatever becomes of the outer one: that is
allowed, and seldom meant. Within a transaction across shards it could wait for locks of its own caller. A transaction
across shards holds locks while it commits, so it begins in no body.

A context variable, because bodies of several threads, and of several greenlets of one thread, run at the same time.
"""

from contextvars import ContextVar

from fairlead.zones.errors import QueueError

ON_A_TENANT = "a transaction on a tenant"
STEP = "a step of a workflow"
ACROSS_SHARDS = "a transaction across shards"

open_body: ContextVar[str | None] = ContextVar("the transaction whose body runs", default=None)


class NestedTransaction(QueueError):
    """A transaction was begun in the body of another one; nothing was changed.

    Do: if `inside` is a transaction across shards, use its `tx.on(tenant)` for all tenants. Otherwise begin the
    transaction across shards after that transaction, or in its place.
    """

    message = "a transaction was begun in the body of another one"


def refuse_across_shards(begun: str) -> None:
    """See that the caller is no body of a transaction across shards. `begun`: what it begins.

    Raises:
      NestedTransaction: it is.
    """
    if open_body.get() is ACROSS_SHARDS:
        raise NestedTransaction(begun=begun, inside=ACROSS_SHARDS)


def refuse_any(begun: str) -> None:
    """See that the caller is no body of any transaction. `begun`: what it begins.

    Raises:
      NestedTransaction: it is.
    """
    inside = open_body.get()
    if inside is not None:
        raise NestedTransaction(begun=begun, inside=inside)
