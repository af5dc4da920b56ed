"""The promises of locks that processes hold outside of workflows.

A process writes below the tenant of a lock, in each transaction under it:

    ("held under", hold, number)   the lock
    ("guarded", lock)              the value before, and a token; not under a shared lock
"""

from __future__ import annotations

import json
from collections import defaultdict

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, unpack_key
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant

GUARDED = "guarded"
HELD_UNDER = "held under"
_TOKENS = b"|"


def chained(before: bytes | None, token: bytes) -> bytes:
    """Return the value that comes after another one."""
    return (before or b"").rpartition(_TOKENS)[2] + _TOKENS + token


class NobodyComesBetween(Oracle):
    """A transaction under a lock commits while its process holds the lock, and finds what its own last one has left.

    So no other one has committed on what the lock guards between two transactions of a holder.
    """

    promise = "what a process commits under a lock is committed while it alone holds the lock"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._guarded: dict[bytes, bytes] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for key, value in parsed.data.items():
            what, *rest = unpack_key(key)[4:]
            if value is None:
                continue
            if what == HELD_UNDER:
                self._check_held(parsed, rest[0], value)
            if what == GUARDED:
                before, _, token = value.rpartition(_TOKENS)
                if before != self._guarded.get(key, b""):
                    self.report_violation(f"{parsed.by} goes on after {before!r}, and {self._guarded.get(key)!r} came")
                self._guarded[key] = token

    def _check_held(self, parsed: ParsedCommit, hold: str, value: bytes) -> None:
        for app, user, lock in json.loads(value):
            line = parsed.shard.lock_lines.get((Tenant(app, user), bytes.fromhex(lock)), {})
            if not any(each.run.hex() == hold and each.held_us is not None for each in line.values()):
                self.report_violation(f"{parsed.by} commits under {lock} of {app}/{user}, which {hold} does not hold")


class HoldersGoOn(Oracle):
    """A process that lives, and has not stood still, loses no lock, unless an operator deletes its hold.

    Args:
      has_causes: whether a fault of this run explains a loss, such as a store that is away.
    """

    promise = "a process that lives keeps its locks"

    def __init__(self, world: World, *, has_causes: bool) -> None:
        super().__init__(world)
        self._has_causes = has_causes
        self._paused: set[str] = set()
        self._deleted: set[bytes] = set()
        self.losses: defaultdict[str, int] = defaultdict(int)  # by cause

    def note_pause(self, host: str) -> None:
        """A process stands still."""
        self._paused.add(host)

    def note_deleted(self, hold: bytes) -> None:
        """An operator may have deleted a hold."""
        self._deleted.add(hold)

    def note_loss(self, host: str, hold: bytes) -> None:
        """A process has found that it has lost a hold."""
        if hold in self._deleted or host in self._paused or self._has_causes:
            self.losses["explained"] += 1
            return
        self.report_violation(f"{host} has lost {hold.hex()}")
