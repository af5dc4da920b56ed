"""Actors in Ray: the host for production. Only this folder imports Ray.

A consumer is a tree of Ray actors on one node: a scanner, its managers, and each manager's workers. Each actor runs the
same plain class as in threads. The coordinator, if the settings need one, is a named, detached actor for the whole
cluster. Actors take no CPUs from Ray's scheduler and restart without limit. Ray repeats no call: the work of a lost
call is in the store, and is found again.

Read in this order:
    cluster       starting Ray here, or joining a cluster
    calls         another actor, called by message
    tasks         handlers that are Ray remote functions, started as Ray tasks
    actors        the actors, each around its plain class
    restarts      how a failed actor ends its process, so that Ray starts another
    consumer      a consumer of Ray actors: started, counted, drained
"""

import fairlead.actors.runtime.ray_environment  # noqa: F401 - sets what Ray reads at its import

# isort: split
from fairlead.actors.runtime.ray_host.cluster import ClusterUnreachable, connect, disconnect
from fairlead.actors.runtime.ray_host.consumer import FleetNotStarted, RayConsumer

__all__ = ["ClusterUnreachable", "FleetNotStarted", "RayConsumer", "connect", "disconnect"]
