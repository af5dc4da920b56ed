"""A local Ray cluster for the fleets of one command, and empty actors to compare with."""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# A spawned process imports the main module of its parent, and so this module; only a fleet's actors need Ray there.
if multiprocessing.parent_process() is None:
    from fairlead.actors.runtime import ray_host

    # isort: split
    import ray


@contextmanager
def cluster(address: str = "local") -> Iterator[str]:
    """Start a Ray cluster, as `fairlead run` would, or join one. Yield its address, then end or leave the cluster."""
    ray_host.connect(address)
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray_host.disconnect()


class Empty:
    """An actor without a program: the minimal cost of a Ray actor."""

    def pid(self) -> int:
        return os.getpid()


@contextmanager
def empty_actors(count: int) -> Iterator[list[int]]:
    """Run empty actors while the caller measures, and yield their process ids."""
    kind: Any = ray.remote(Empty)
    actors = [kind.options(num_cpus=0).remote() for _ in range(count)]
    try:
        yield ray.get([actor.pid.remote() for actor in actors])
    finally:
        for actor in actors:
            ray.kill(actor)
