"""Changing items whose tenants may be locked, or have moved: their neighbours in the batch do not wait for them."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.zone_by_zone import Refusal
from fairlead.actors.messages import ItemRef
from fairlead.zones.errors import TenantLocked, TenantMoved
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.ownership import check_owner
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard

# Changes items in one transaction, and returns those whose tenants refuse it, and why.
ChangeItems = Callable[[Shard, Sequence[ItemRef]], list[tuple[ItemRef, Refusal]]]

log = logging.getLogger("fairlead.worker")

NOT_RETURNED = "shard %s refuses; the leases of %d items that were to be returned there will expire: %s"
TRIES_MAX = 8  # Tenants may move, or be locked, again and again: then the leases expire.


def return_where_they_live(shard: Shard, refs: Sequence[ItemRef]) -> None:
    """Let items vest now, see `acknowledgement.return_items`, on the shards where their tenants live.

    Raises:
      TenantBusy, what the store of `shard` raises: see `change_where_they_live`.
    """
    change_where_they_live(shard, refs, acknowledgement.return_items)


def change_where_they_live(shard: Shard, refs: Sequence[ItemRef], change: ChangeItems) -> None:
    """Change items on the shards where their tenants live. `shard`: where to begin.

    Each transaction changes all items whose tenants allow it. Then the ends of locks are waited for. If another shard
    refuses, whose engine may be another one, that is logged, and the leases of the items there expire.

    Raises:
      TenantBusy: a tenant stays locked; the others' items are changed.
      What the store of `shard` raises.
    """
    pending: list[tuple[Shard, Sequence[ItemRef]]] = [(shard, refs)]
    for _ in range(TRIES_MAX):
        refused = [
            (at, ref, refusal)
            for at, some in pending
            for ref, refusal in (change(at, some) if at is shard else _change_elsewhere(at, some, change))
        ]
        if not refused:
            return
        probe("items are returned or reclaimed once their tenant is unlocked, or where it has moved to")
        homes: dict[str, tuple[Shard, list[ItemRef]]] = {}
        for at, ref, refusal in refused:
            if isinstance(refusal, TenantLocked):
                _wait_for_lock(at, ref, passed_over=() if at is shard else at.db.errors)
                home: Shard | None = at
            else:
                home = at.follow(refusal)
            if home is not None:
                homes.setdefault(home.name, (home, []))[1].append(ref)
        pending = list(homes.values())


def _change_elsewhere(shard: Shard, refs: Sequence[ItemRef], change: ChangeItems) -> list[tuple[ItemRef, Refusal]]:
    """Change items where their tenants have moved to; if that shard refuses, leave them to their leases."""
    try:
        return change(shard, refs)
    except shard.db.errors as error:
        log.warning(NOT_RETURNED, shard.name, len(refs), error)
        return []


def _wait_for_lock(shard: Shard, ref: ItemRef, *, passed_over: tuple[type[Exception], ...]) -> None:
    """Return once the tenant of an item may be written to, or has moved, or the shard refuses with such an error."""
    keys = shard.layout.location(ref.tenant, DEFAULT_ZONE).keys.tenant
    with suppress(TenantMoved, *passed_over):
        shard.transact(lambda attempt: check_owner(attempt.tr, shard.layout, keys, attempt.tr.get(keys.owner).value))
