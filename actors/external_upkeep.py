"""The upkeep of an external store, by the consumer whose reader reads it: one consumer at a time does this.

Once a second it looks at the sessions of workers, ends those that are silent (`zones.top_level.silence`), and releases
what ended sessions claim. It deletes ended items whose ids and results are kept no longer. Every ten seconds it notes
for the charts how much the store holds (`zones.reporting.rollups`). Another loop looks every ten seconds whether many
rows are dead, and vacuums: the server's own vacuum comes once a minute, which is late for a busy queue. Beside an open
transaction that is older than the dead rows a vacuum frees nothing. So the next one waits until as many have died
again.
"""

import logging
from collections.abc import Callable

from fairlead.actors.external_reader import ExternalReader
from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.api.progress import report_loop_progress, unsupervised
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.probes import probe
from fairlead.zones.reporting.rollups import StoreDepth, interval_of, write_depth
from fairlead.zones.top_level.silence import Silence

log = logging.getLogger("fairlead.upkeep")

LOOK_S = 1.0
VACUUM_LOOK_S = 10.0
DEAD_ROWS_MAX = 100_000
BATCH = 1_000  # Items that one statement deletes or releases.
BATCHES_MAX = 5  # Of one look: some 100 ms.
LARGE_INTERVALS = 6  # To count in a store with a million items took the server 22 ms: there it counts once a minute.
ANSWER_US = 20_000_000  # How long a call may take, and the wait before it.


class ExternalUpkeep:
    """The upkeep of one store in one consumer. `run` and `run_vacuum` are its loops."""

    def __init__(self, host: Host, name: str, store: ExternalStore, reader: ExternalReader) -> None:
        self._name = name
        self._store = store
        self._reader = reader
        self._clock = host.clock
        self._silence = Silence()
        self._dead_rows_left = 0  # By the last vacuum.
        self._noted: int | None = None  # Of which interval the depth is noted.
        self._large: tuple[int, StoreDepth] | None = None  # What was counted last, and when, of very many items.
        self._lock = host.lock()
        self._stopped = host.condition(self._lock)
        self._stopping = False
        self._refusals = RateLimitedLog(host.clock, log, "external store %s refuses its upkeep; trying again: %s")
        self._not_noted = RateLimitedLog(
            host.clock, log, "shard %s refuses; its charts lack what waits in external stores: %s"
        )

    def stop(self) -> None:
        """Let the loops end."""
        with self._lock:
            self._stopping = True
            self._stopped.notify_all()

    def run(self) -> None:
        """Look once a second until `stop`."""
        while not self._awaits_stop(LOOK_S):
            report_loop_progress(ANSWER_US)
            self.look_if_reading()

    def run_vacuum(self) -> None:
        """Vacuum when that is due, until `stop`."""
        while not self._awaits_stop(VACUUM_LOOK_S):
            report_loop_progress(ANSWER_US)
            with unsupervised():
                self.vacuum_if_reading()

    def look_if_reading(self) -> None:
        """Look, if this consumer reads the store. A look without an answer begins the looks at sessions anew."""
        if not self._reader.is_reading:
            self._silence.note_failure()
            return
        try:
            self.look()
            self._note_depth()
        except StoreUnavailable as error:
            self._silence.note_failure()
            self._refusals.note(self._name, error)

    def vacuum_if_reading(self) -> None:
        """Vacuum, if this consumer reads the store and so many rows have died since the last time."""
        if not self._reader.is_reading:
            return
        try:
            self._vacuum_if_due()
        except StoreUnavailable as error:
            self._refusals.note(self._name, error)

    def look(self) -> None:
        """End silent sessions, release what ended ones claim, and delete what is kept no longer.

        Raises:
          StoreUnavailable: the store does not answer.
        """
        sessions = self._store.sessions
        beats = sessions.beats()
        for session_id in self._silence.note(beats, now_us=self._clock.now_us()):
            if sessions.end(session_id, silent_since=beats[session_id]):
                probe("the silent session of a worker in an external store is ended")
                log.warning(
                    "a worker sends no heartbeat to external store %s; the items that it claims run again", self._name
                )
        if _in_batches(sessions.release_ended):
            probe("what an ended session claims in an external store is released")
        _in_batches(self._store.upkeep.expire)

    def _note_depth(self) -> None:
        """Note for the charts how much the store holds, once in each of their intervals.

        A store with more items than are counted is counted once a minute.
        """
        now_us, home = self._clock.now_us(), self._reader.home
        interval = interval_of(now_us)
        if interval == self._noted:
            return
        if self._large is not None and 0 <= interval - self._large[0] < LARGE_INTERVALS:
            _, counted = self._large
        else:
            depth = self._store.upkeep.depth()
            oldest_us = None if depth.waits_us is None else max(0, now_us - depth.waits_us)
            counted = StoreDepth(dict(depth.kinds), oldest_us)
            self._large = None if depth.whole else (interval, counted)
        try:
            home.transact(lambda attempt: write_depth(attempt.tr, self._name, interval, counted))
        except home.db.errors as error:
            self._not_noted.note(home.name, error)
        else:
            self._noted = interval

    def _vacuum_if_due(self) -> None:
        upkeep = self._store.upkeep
        rows = upkeep.dead_rows()
        self._dead_rows_left = min(self._dead_rows_left, rows)  # The server's own vacuum has freed more.
        if rows - self._dead_rows_left >= DEAD_ROWS_MAX:
            upkeep.vacuum()
            self._dead_rows_left = upkeep.dead_rows()

    def _awaits_stop(self, pause_s: float) -> bool:
        with self._lock:
            return self._stopping or self._stopped.wait(pause_s)


def _in_batches(work: Callable[[int], int]) -> int:
    """Do some batches of work; return how many items were changed."""
    done = 0
    for _ in range(BATCHES_MAX):
        report_loop_progress(ANSWER_US)
        changed = work(BATCH)
        done += changed
        if changed < BATCH:
            break
    return done
