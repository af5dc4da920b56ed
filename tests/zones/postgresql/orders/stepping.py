"""Processes that stop before each statement, also inside of functions in SQL, until they are told to go on.

The functions of the schema get a call of `stepping.stop` before each of their statements. It waits for a lock that the
test holds, and releases when it is the turn of the process. The lock table tells whether a process stands at a stop, or
waits for another process: then it goes on by itself, to its next stop, once that one has ended its transaction.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from psycopg.conninfo import make_conninfo

from fairlead.zones.postgresql import schema
from fairlead.zones.postgresql.connections import READ_COMMITTED, Call, Connections
from tests.zones.postgresql.database import Database

STOPS_MAX = 60  # Of one process in one order.
PROCESSES_MAX = 3
STEPPED = ("begin_step", "end_step", "raise_fence", "clean_up_run", "raise_floor")

_STATEMENT = re.compile(r"^( +)(INSERT|SELECT|UPDATE|DELETE|PERFORM|WITH|RETURN)\b")
_STOP = """
CREATE SCHEMA IF NOT EXISTS stepping;
CREATE SEQUENCE IF NOT EXISTS stepping.stops_0;
CREATE SEQUENCE IF NOT EXISTS stepping.stops_1;
CREATE SEQUENCE IF NOT EXISTS stepping.stops_2;

-- Wait at the next stop of the process that the connection is named after.
CREATE OR REPLACE FUNCTION stepping.stop() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  process text := current_setting('application_name');
BEGIN
  IF process <> '' THEN
    PERFORM pg_advisory_lock_shared(process::int, nextval('stepping.stops_' || process)::int);
  END IF;
END $$;

-- What is committed.
CREATE OR REPLACE FUNCTION stepping.read(OUT steps text[], OUT fences text[], OUT floor bigint, OUT effects text[])
LANGUAGE sql VOLATILE AS $$
SELECT ARRAY(SELECT (s.name, s.occurrence, s.segment, s.entry)::text FROM fairlead.steps s ORDER BY 1),
  ARRAY(SELECT (f.number, f.ended_under)::text FROM fairlead.fences f ORDER BY 1),
  (SELECT l.floor FROM fairlead.floor l), ARRAY(SELECT e.name FROM step_effects e ORDER BY 1)
$$;

-- Let a process go on from a stop (0: from none), until each of `pids` stands at a stop or waits for another one, and
-- one of them does not wait. Returns the stop of each, 0 for one that waits, and what is committed then.
CREATE OR REPLACE FUNCTION stepping.go(
  process int, at int, pids int[],
  OUT stops int[], OUT steps text[], OUT fences text[], OUT floor bigint, OUT effects text[]
) LANGUAGE plpgsql AS $$
DECLARE
  one int;
  blockers int[];
  stop int;
BEGIN
  IF at > 0 THEN
    PERFORM pg_advisory_unlock(process, at);
  END IF;
  LOOP
    stops := '{}';
    FOREACH one IN ARRAY pids LOOP
      blockers := pg_blocking_pids(one);
      EXIT WHEN cardinality(blockers) = 0;  -- It runs.
      stop := 0;
      IF pg_backend_pid() = ANY(blockers) THEN
        SELECT l.objid::int INTO stop FROM pg_locks l WHERE l.pid = one AND l.locktype = 'advisory' AND NOT l.granted;
      END IF;
      stops := stops || stop;
    END LOOP;
    EXIT WHEN cardinality(stops) = cardinality(pids) AND 0 < ANY(stops);
    PERFORM pg_sleep(0.0002);
  END LOOP;
  SELECT r.steps, r.fences, r.floor, r.effects INTO steps, fences, floor, effects FROM stepping.read() r;
END $$;
"""


class Contents(NamedTuple):
    """What is committed: rows of steps and fences as text, FLOOR, and the names of effects."""

    steps: tuple[str, ...] = ()
    fences: tuple[str, ...] = ()
    floor: int = 0
    effects: tuple[str, ...] = ()


def stepped_functions(edits: Sequence[tuple[str, str]] = ()) -> str:
    """Return the functions of the schema with stops. `edits`: fragments that occur once, and their replacements."""
    text = schema.functions()
    for fragment, bug in edits:
        assert text.count(fragment) == 1, f"the functions hold this {text.count(fragment)} times: {fragment!r}"
        text = text.replace(fragment, bug)
    made = []
    for part in re.split(r"(?m)^(?=CREATE OR REPLACE FUNCTION)", text):
        named = re.match(r"CREATE OR REPLACE FUNCTION fairlead\.(\w+)", part)
        made.append(_with_stops(part) if named is not None and named[1] in STEPPED else part)
    return _STOP + "".join(made)


def _with_stops(function: str) -> str:
    lines: list[str] = []
    in_body = begins = False
    for line in function.splitlines(keepends=True):
        code = line.split("--")[0].strip()
        if in_body and begins and (found := _STATEMENT.match(line)) is not None:
            lines.append(f"{found[1]}PERFORM stepping.stop();\n")
        if code == "END $$;" and ("fairlead.end_step(" in function or "fairlead.clean_up_run(" in function):
            lines.append("  PERFORM stepping.stop();\n")
        lines.append(line)
        in_body = in_body or code == "BEGIN"
        begins = code.endswith((";", "THEN", "ELSE", "BEGIN")) if code else begins
    return "".join(lines)


class Stepping:
    """What lets processes go on, on a database whose functions have stops.

    Attributes:
      contents: what is committed.
    """

    def __init__(self, database: Database, level: str) -> None:
        escaped = level.replace(" ", "\\ ")
        options = f"-c default_transaction_isolation={escaped} -c deadlock_timeout=5ms"
        dsn = make_conninfo(database.dsn, options=options)
        self.contents = Contents()
        self._processes: list[SqlProcess] = []
        self._control = database.connect()
        self._call = Call(self._control, is_committing=False)
        self._lanes = [Lane(dsn, number) for number in range(PROCESSES_MAX)]

    def begin(
        self, make: Callable[[Lane], SqlProcess], count: int, prepare: Callable[[Lane], None]
    ) -> list[SqlProcess]:
        """Begin a run with so many new processes, on a database that is empty but for what `prepare` does."""
        self._call.execute("SELECT pg_advisory_unlock_all()")
        self._call.execute(
            "SELECT pg_advisory_lock(p, k) FROM generate_series(0, %b::int) p, generate_series(1, %b::int) k",
            count - 1, STOPS_MAX,
        )  # fmt: skip
        self._control.execute("DELETE FROM fairlead.steps; DELETE FROM fairlead.fences; DELETE FROM step_effects")
        self._control.execute("UPDATE fairlead.floor SET floor = 0 WHERE floor > 0")
        prepare(self._lanes[0])
        self.contents = self.read_contents()
        self._processes = [make(lane) for lane in self._lanes[:count]]
        return self._processes

    def close(self) -> None:
        for lane in self._lanes:
            lane.connections.close()
        self._control.close()

    def turn(self, process: SqlProcess) -> None:
        """Let a process go on, and wait until all stand, or wait for each other."""
        begun = [each for each in self._processes if each.is_open]
        before, stood = self.contents, [each.at for each in begun]
        pids = [each.lane.pid for each in begun]
        found = self._call.execute(
            "SELECT * FROM stepping.go(%b::int, %b::int, %b::int[])", process.lane.number, process.at, pids
        ).fetchone()
        stops, (steps, fences, floor, effects) = found[0], found[1:]
        self.contents = Contents(tuple(steps), tuple(fences), floor, tuple(effects))
        for each, was_at, at in zip(begun, stood, stops, strict=True):
            each.at = at
            if each is process or at != was_at:
                each.seen = hash((each.seen, before, self.contents, at))

    def cancel(self, process: SqlProcess) -> None:
        """End what a process waits for. One that waits for nothing is rolling back."""
        self._call.execute(
            "SELECT pg_cancel_backend(p.pid) FROM (SELECT %b::int AS pid) p WHERE pg_blocking_pids(p.pid) <> '{}'",
            process.lane.pid,
        )

    def read_contents(self) -> Contents:
        """Return what is committed in the end, when no process runs any more."""
        steps, fences, floor, effects = self._call.execute(
            "SELECT g.steps, g.fences, g.floor, g.effects FROM stepping.read() g"
        ).fetchone()
        return Contents(tuple(steps), tuple(fences), floor, tuple(effects))


class LaneConnections(Connections):
    """One connection as the product has two: calls at READ COMMITTED, and transactions of steps at their own level."""

    @contextmanager
    def call(self, *, is_committing: bool = False) -> Iterator[Call]:
        """See `Connections`."""
        with super().call(is_committing=is_committing) as call:
            call.execute(READ_COMMITTED)
            try:
                yield call
            finally:
                call.execute("RESET default_transaction_isolation")


class Lane:
    """Where one process after the other runs: a number, and a connection."""

    def __init__(self, dsn: str, number: int) -> None:
        self.number = number
        self.connections = LaneConnections(dsn, {"store": "pg"}, reads_committed=False)
        self.pid = 0

    def begin(self) -> None:
        """Let stops of this connection be those of a new process."""
        with self.connections.lend() as connection:
            self.pid = connection.info.backend_pid
            connection.execute(
                f"SELECT setval('stepping.stops_{self.number}', 1, false); SET application_name = '{self.number}'"
            )

    def end(self) -> None:
        """Stop no more."""
        with self.connections.lend() as connection:
            connection.execute("SET application_name = ''; SELECT pg_advisory_unlock_all()")


class SqlProcess:
    """A process that stops before each statement. See `tests.workflows.orders.schedule.SteppedProcess`.

    Attributes:
      at: the stop at which it stands; 0: it waits for another process.
      seen: stands for all that it has read.
    """

    def __init__(
        self,
        name: str,
        stepping: Stepping,
        lane: Lane,
        body: Callable[[], object],
        is_enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.lane = lane
        self.at = 0
        self.is_open = False
        self.seen: Hashable = 0
        self.error: BaseException | None = None
        self._stepping = stepping
        self._is_enabled = is_enabled
        self._has_ended = False
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, args=(body,))

    def stop(self) -> None:
        """Wait for the next turn."""
        with self.lane.connections.lend() as connection:
            connection.execute("SELECT stepping.stop()")

    def goes_on(self) -> None:
        """Run to before its next statement, or to where it waits for another process, or to its end."""
        if not self.is_open:
            self.is_open = True
            self.lane.begin()
            self._thread.start()
        self._stepping.turn(self)

    def _run(self, body: Callable[[], object]) -> None:
        try:
            try:
                self.stop()
                body()
            except BaseException as error:  # noqa: BLE001 - the test raises it
                if self._is_ending:
                    return
                self.error = error
            self._has_ended = True
            self.stop()
        except BaseException:  # noqa: BLE001 - it was canceled at its last stop
            return

    @property
    def dead(self) -> bool:
        """Whether it has ended: then it stands at its last stop."""
        return self._has_ended and bool(self.at)

    @property
    def can_go_on(self) -> bool:
        """Whether it may have the next turn."""
        return not self.dead and (bool(self.at) if self.is_open else self._is_enabled())

    @property
    def state(self) -> Hashable:
        """What its future depends on, besides what is stored."""
        return (self.name, self.is_open, self.dead, self.at, self.seen)

    def end(self) -> None:
        """Unwind it, if it has begun and has not ended."""
        if self.is_open:
            self._is_ending = True
            while self._thread.is_alive():
                self._stepping.cancel(self)
                self._thread.join(0.002)
            self.lane.end()
            if self.error is not None:
                raise self.error
