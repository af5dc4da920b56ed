"""The sessions of workers in an external store last as long as their heartbeats, and their claims as long as they."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.simulation.external.items import Change, SessionRow
from fairlead.simulation.external.server import StoreCommit, StoreServer
from fairlead.simulation.external.sessions import session_key
from fairlead.simulation.oracles.claims import FREED_US_MAX, SILENT_US_MIN
from fairlead.simulation.oracles.external import ExternalOracle, rows_of, waits
from fairlead.simulation.oracles.fairness import LOOK_US
from fairlead.simulation.replica import ParsedCommit
from fairlead.simulation.world import World


class SessionsInStoreLastAsLongAsTheirHeartbeats(ExternalOracle):
    """Nobody but its own worker ends a session within the time of its last heartbeats, unless the worker is dead.

    An item is claimed only under a session that stands. Once the faults are over, the claims of a dead worker, and
    those of sessions that have ended, are released within `FREED_US_MAX`.

    Args:
      calm_us: from when on no fault delays consumers, shards and the store.
      is_dead: whether the incarnation of a worker, by its name, has ended.
    """

    promise = "a worker session in an external store lasts as long as its worker's heartbeats"

    def __init__(self, world: World, server: StoreServer, *, calm_us: int, is_dead: Callable[[str], bool]) -> None:
        super().__init__(world)
        self._server = server
        self._is_dead = is_dead
        self._beat_us: dict[bytes, int] = {}
        self._workers: dict[bytes, str] = {}
        self._free_since_us: dict[bytes, int] = {}
        self._next_look_us = calm_us

    def on_store_commit(self, commit: StoreCommit) -> None:
        """See `ExternalOracle`."""
        now_us = self.world.now_us()
        for _, before, after in commit.changes:
            if isinstance(after, SessionRow):
                self._beat_us[after.session_id] = now_us
                self._workers[after.session_id] = after.worker.decode()
            elif isinstance(before, SessionRow):
                self._check_end(before, commit.by, now_us)
        for earlier, row in rows_of(commit):
            if row is None or not waits(row) or not row.session:
                continue
            is_claimed = earlier is None or earlier.session != row.session
            if is_claimed and session_key(row.session) not in self._server.table.values:
                self.report_violation(f"{commit.by} claims {row.item_id.hex()} for a session that has ended")

    def on_lost(self, changes: Sequence[Change]) -> None:
        """See `ExternalOracle`. A heartbeat that was undone says nothing of when the last one came."""
        for change in changes:
            if isinstance(change.after, SessionRow):
                self._beat_us[change.after.session_id] = 0

    def _check_end(self, row: SessionRow, by: str, now_us: int) -> None:
        worker = row.worker.decode()
        silent_us = now_us - self._beat_us[row.session_id]
        if by != worker and not self._is_dead(worker) and silent_us < SILENT_US_MIN:
            self.report_violation(f"{by} ends the session of {worker}, {silent_us} us after a heartbeat")

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`. Consumers commit every second, so the check is frequent."""
        now_us = self.world.now_us()
        if now_us >= self._next_look_us:
            self._next_look_us = now_us + LOOK_US
            self._check_released(now_us)

    def _check_released(self, now_us: int) -> None:
        """Check that no item is claimed for long by a session that has ended, or by one whose worker is dead."""
        for row in self._server.table.rows():
            if not (waits(row) and row.session):
                continue
            worker = self._workers[row.session]
            if session_key(row.session) in self._server.table.values and not self._is_dead(worker):
                continue
            free_us = now_us - self._free_since_us.setdefault(row.session, now_us)
            if free_us > FREED_US_MAX:
                self.report_violation(
                    f"{row.item_id.hex()} is claimed, and {worker} or its session is gone: {free_us} us"
                )
