"""The promises of the locks of workflows: they exclude, whoever is next gets them, and steps are done under them."""

from __future__ import annotations

import json

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import LOCK_LINE, ParsedCommit, unpack_key
from fairlead.simulation.world import World
from fairlead.zones import keyspace
from fairlead.zones.layout import Tenant
from fairlead.zones.workflow.locks import LockRequest, pack_lock


class LocksExclude(Oracle):
    """After every commit, the first request of a line holds the lock, alone or together with others that share it.

    So no request waits at a lock that it could have, and none holds a lock that another run holds for itself.
    """

    promise = "a lock of workflows is held by who is first in its line, alone or shared"

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for tenant, lock in changed_locks(parsed):
            line = [request for _, request in sorted(parsed.shard.lock_lines[tenant, lock].items())]
            first_waits = next(
                (place for place, request in enumerate(line) if place and not (request.shared and line[0].shared)),
                len(line),
            )
            held = [request.held_us is not None for request in line]
            if held != [place < first_waits for place in range(len(line))]:
                shown = [(request.run.hex(), request.shared, request.held_us) for request in line]
                self.report_violation(f"{parsed.by} leaves {lock!r} of {tenant} with {shown}")


class StepsAreDoneUnderTheirLocks(Oracle):
    """A step in a block that holds locks is committed while its run holds all of them."""

    promise = "a step under a lock is done while its run holds the lock"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._lines: dict[tuple[Tenant, bytes], dict[int, LockRequest]] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for lock in changed_locks(parsed):
            self._lines[lock] = parsed.shard.lock_lines[lock]
        for lock, line in parsed.shard.lock_lines.items() if parsed.arrived else ():
            if lock[0] in parsed.arrived:
                self._lines[lock] = line
        for key, value in parsed.data.items():
            path = unpack_key(key)[4:]
            if path[0] == "under" and value is not None:
                for app, user, *lock in json.loads(value):
                    self._check(parsed.by, path[1], path[2], Tenant(app, user), pack_lock(tuple(lock)))

    def _check(self, by: str, run: str, label: int, tenant: Tenant, lock: bytes) -> None:
        line = self._lines.get((tenant, lock), {})
        if not any(request.run.hex() == run and request.held_us is not None for request in line.values()):
            self.report_violation(f"{by} does step {label} of run {run}, which does not hold {lock!r} of {tenant}")


def changed_locks(parsed: ParsedCommit) -> list[tuple[Tenant, bytes]]:
    """Return the locks whose lines a commit has changed, by tenant and packed key."""
    return sorted(
        {
            (each.tenant, each.path[2])
            for each in parsed.run_keys
            if each.path[0] == keyspace.LOCK and each.path[1] == LOCK_LINE
        }
    )
