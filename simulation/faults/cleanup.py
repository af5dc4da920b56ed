"""Checks of recovery: actors are up, consumers have their sessions, and no actor holds lost items.

The faults call these, in a task, until each returns None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.zones.top_level.sessions import HEARTBEAT_US, listing

if TYPE_CHECKING:
    from fairlead.simulation.cluster import Cluster


def missing_actor(cluster: Cluster) -> str | None:
    """Return a message on an actor that is dead, or does not answer yet."""
    for actor in cluster.actors.values():
        if not actor.is_up:
            return f"{actor.name} has not restarted"
    return None


def silent_consumer(cluster: Cluster) -> str | None:
    """Return a message on a consumer without a live session on a shard, although its clock is good enough."""
    if not cluster.plan.clocks_agree:
        return None  # A consumer with a wrong clock takes no leases, and needs no session.
    for name, shard in cluster.open_shards(cluster.operator.host).items():
        found = {each.consumer_id: each.record for each in shard.transact(lambda a: listing(a.tr, now_us=a.now_us))}
        for node in cluster.consumers:
            record = found.get(cluster.consumer_id(node.name))
            if record is None or node.clock.now_us() - record.heartbeat_us > 3 * HEARTBEAT_US:
                return f"{node.name} has no live session on {name}"
    return None


def leaked_in_flight(cluster: Cluster) -> str | None:
    """Return a message on an actor that still holds a pointer or an item although all queues are empty."""
    asked = [actor for actor in cluster.actors.values() if actor.name != "coordinator"]
    for actor in asked:
        counts, error = cluster.operator.ask(actor, "counts")
        if error is not None:
            return f"{actor.name} does not answer: {error}"
        held = sum(counts.get(name, 0) for name in ("held", "pointers_held", "on_the_way"))
        if held:
            return f"{actor.name} holds {held}, and all queues are empty"
    return None
