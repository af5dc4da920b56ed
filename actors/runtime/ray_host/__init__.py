"""Actors in Ray: the host of production. Only this folder imports Ray.

A consumer is a tree of Ray actors on one node: a scanner, its managers, and each manager's workers; inside each lives
the same plain class as in threads. The coordinator, if the consumers ask for one, is a named, detached actor for the
whole cluster. Actors take no CPUs from Ray's scheduler, restart for ever, and are never asked to repeat a call: what a
call was to do is in the store, and comes back by itself.

Read in this order:
    cluster       starting Ray here, or joining a cluster
    calls         another actor, called by message
    tasks         handlers that are Ray remote functions, started as Ray tasks
    tree          the actors, each around its plain class
    restarts      how an actor that has failed ends its process, so that Ray starts another
    consumer      a consumer of them: started, counted, drained
"""

import fairlead.actors.runtime.ray_environment  # noqa: F401 - what Ray reads when it is imported, so before it

# isort: split
from fairlead.actors.runtime.ray_host.cluster import ClusterUnreachable, connect, disconnect
from fairlead.actors.runtime.ray_host.consumer import FleetNotStarted, RayConsumer

__all__ = ["ClusterUnreachable", "FleetNotStarted", "RayConsumer", "connect", "disconnect"]
