"""Transactions: one API, that of the FoundationDB binding, over three engines.

    memory:            versions in memory, this process only; for tests and simulation
    embedded:PATH      an LMDB directory, any number of processes on one machine; the default
    fdb:CLUSTER_FILE   FoundationDB through the official binding (`fdb:` is the default cluster file)

Read in this order:
    api/           what every engine offers: databases, transactions, errors, `transact`
    optimistic/    the optimistic transaction that the memory and the embedded engine share
    memory/        versions in memory
    embedded/      LMDB; its cross_process/ combines the commits of several processes
    foundationdb/  the official binding

Where the memory and embedded engines differ from FoundationDB, on purpose:
    - They offer the part of the binding's transaction that `api/database.py` lists: no key selectors, no tr[key].
    - The embedded engine accepts keys of at most 511 bytes (else 2102), and only the present read version (else 1007).
    - A commit without a call of `wait` or `is_ready` waits for the next commit of its process.
    - A watch calls back at once for commits of its own process, and for other commits when its state is asked for.

May import: nothing of the project. Time and randomness arrive as arguments.
"""

from __future__ import annotations

import random as random_module

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.database import (
    Database,
    Future,
    KeyValue,
    Limits,
    Listener,
    Reader,
    Reads,
    StreamingMode,
    Transaction,
)
from fairlead.zones.engines.api.errors import StoreError, StoreUnavailable
from fairlead.zones.engines.api.retry import RETRIES_MAX, transact
from fairlead.zones.engines.embedded.engine import EmbeddedDatabase
from fairlead.zones.engines.embedded.write_lock import Stall
from fairlead.zones.engines.memory.engine import MemoryDatabase

__all__ = [
    "open",
    "transact",
    "write_stall",
    "RETRIES_MAX",
    "Clock",
    "Database",
    "Future",
    "KeyValue",
    "Limits",
    "Listener",
    "Reader",
    "Reads",
    "Stall",
    "StoreError",
    "StoreUnavailable",
    "StreamingMode",
    "Transaction",
]


def open(url: str, *, clock: Clock, random: random_module.Random) -> Database:
    """Return the database that `url` names, opened.

    Args:
      url: `memory:` (a new, empty one each time), `embedded:PATH` (created if missing; opened once per process and
        shared), or `fdb:CLUSTER_FILE`.
      clock: the time for the 5 s window, timeouts and versions of the memory and embedded engines, and for delays.
      random: for the delays between attempts.

    Raises:
      StoreUnavailable: the store cannot be opened; the error says why and what to do.
      ValueError: the url names no engine.
    """
    engine, colon, place = url.partition(":")
    if engine == "memory" and colon and not place:
        return MemoryDatabase(url, clock, random)
    if engine == "embedded" and place:
        return EmbeddedDatabase(url, place, clock, random)
    if engine != "fdb" or not colon:
        raise ValueError(f"not a store: {url!r}; write memory:, embedded:PATH, or fdb:CLUSTER_FILE")
    # Imported on use: it needs a client library that the other engines do not need.
    from fairlead.zones.engines.foundationdb.engine import open_cluster

    return open_cluster(url, place)


def write_stall(db: Database) -> Stall | None:
    """Return the process that has blocked all writers of an embedded store for a second; None if there is none.

    Takes a second only if there is one. Other engines have no lock that a process could hold.
    """
    return db.write_stall() if isinstance(db, EmbeddedDatabase) else None
