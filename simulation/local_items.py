"""Ends local items of shards, in worlds without consumers: processes of the simulation carry their work out."""

from __future__ import annotations

from contextlib import suppress

from fairlead.zones.errors import ItemGone
from fairlead.zones.layout import local_tenant
from fairlead.zones.shard import Shard


def complete_local_item(shard: Shard, kind: str, item_id: bytes) -> None:
    """Complete a local item of a kind, unless it is gone."""
    queue = shard.zone(local_tenant(kind))
    with suppress(ItemGone):
        shard.transact(lambda attempt: queue.complete(attempt.tr, item_id, now_us=attempt.now_us))
