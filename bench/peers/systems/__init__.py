"""The systems by name. Each has one module, whose libraries are imported in the processes of its rounds only.

So a process imports only the system that it needs, and a system that is not installed does not affect others.
"""

import importlib
from collections.abc import Mapping, Sequence

from bench.peers.system import System

SYSTEMS = {
    "fairlead-ray": "fairlead_embedded:OnRay",
    "fairlead-threads": "fairlead_embedded:OnThreads",
    "fairlead-postgres-ray": "fairlead_postgres:OnRay",
    "fairlead-postgres-threads": "fairlead_postgres:OnThreads",
    "dramatiq-always": "dramatiq_redis:Always",
    "dramatiq-everysec": "dramatiq_redis:EverySecond",
    "celery-always": "celery_redis:Always",
    "celery-everysec": "celery_redis:EverySecond",
    "procrastinate": "procrastinate_postgres:Procrastinate",
    "dbos": "dbos_postgres:Dbos",
    "dbos-partitions": "dbos_postgres:Partitions",
    "fairlead-steps": "fairlead_embedded:Steps",
    "dbos-steps": "dbos_postgres:Steps",
    "skip-locked": "skip_locked_postgres:SkipLocked",
}

# A variant takes part in the measures in which it differs. In `steps` nothing but variants does.
ONLY_IN = {"dbos-partitions": ("flood",), "fairlead-steps": ("steps",), "dbos-steps": ("steps",)}
_FAIRLEAD = ("fairlead-postgres-ray", "fairlead-postgres-threads")

# Measures of some systems only. Both runtimes of Fairlead enqueue alike.
ONLY_FOR: Mapping[str, Sequence[str]] = {
    "steps": (),
    "snapshot": (*_FAIRLEAD, "procrastinate", "dbos", "skip-locked"),
    "within": ("fairlead-postgres-threads", "dbos", "skip-locked"),
    "flush": ("fairlead-postgres-threads", "procrastinate"),
    "million": _FAIRLEAD,
}


def takes_part(system: str, measure: str) -> bool:
    """Say whether a system takes part in a measure."""
    return measure in ONLY_IN[system] if system in ONLY_IN else system in ONLY_FOR.get(measure, SYSTEMS)


def load(name: str) -> System:
    """Return a system, for a process of one of its rounds.

    Raises:
      ModuleNotFoundError: a library that it needs is not installed.
    """
    module, _, attribute = SYSTEMS[name].partition(":")
    made: System = getattr(importlib.import_module(f"bench.peers.systems.{module}"), attribute)()
    return made
