"""Where the items are that a workflow has enqueued."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from fairlead.queries.per_shard import query_home
from fairlead.recorded_steps import RunView, StepView
from fairlead.shards import Shards
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt


class ItemPlace(NamedTuple):
    """Where an item is."""

    shard: str
    tenant: Tenant
    zone: str


def places_of_items(shards: Shards, run: RunView, steps: Iterable[StepView]) -> Mapping[bytes, ItemPlace]:
    """Return where those items that some steps have enqueued are that have not ended, by their ids.

    The log of a run names no queue. So those queues are read in which such items mostly are: of the tenant that keeps
    the step, the default one, and at home also the one of the run. Items elsewhere are left out, and a search finds
    them. Two snapshot reads for each item and queue.

    Raises:
      One of the errors of the run's shard: it cannot be read.
    """
    of_tenant: dict[Tenant, list[bytes]] = {}
    for step in steps:
        if step.enqueued_id is not None:
            of_tenant.setdefault(step.tenant, []).append(step.enqueued_id)
    found: dict[bytes, ItemPlace] = {}
    for tenant, ids in of_tenant.items():
        zones = {DEFAULT_ZONE, run.zone} if tenant == run.tenant else {DEFAULT_ZONE}
        if tenant == run.tenant:  # Local items of a kind may lie on any shard.
            found |= _places(shards[run.shard], tenant, zones, ids)
        else:
            read = query_home(shards, tenant, partial(_places, tenant=tenant, zones=zones, ids=ids))
            found |= read.found or {}
    return found


def _places(shard: Shard, tenant: Tenant, zones: Iterable[str], ids: Iterable[bytes]) -> dict[bytes, ItemPlace]:
    def body(attempt: Attempt) -> dict[bytes, ItemPlace]:
        snapshot = attempt.tr.snapshot
        keys = {zone: shard.layout.location(tenant, zone).keys for zone in zones}
        reads = [
            (item_id, zone, snapshot.get(of.item(item_id)), snapshot.get(of.dead_letter(item_id)))
            for zone, of in keys.items()
            for item_id in ids
        ]
        return {
            item_id: ItemPlace(shard.name, tenant, zone)
            for item_id, zone, queued, dead in reads
            if queued.present() or dead.present()
        }

    return shard.transact(body)
