"""No order of the statements of two executors, a cleanup and FLOOR does a step twice; without a guard, one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from tests.postgresql_server import TestedPostgres
from tests.workflows.orders.schedule import Exploration, explore
from tests.zones.postgresql.database import Database
from tests.zones.postgresql.orders.scene import StepScene
from tests.zones.postgresql.orders.stepping import Stepping, stepped_functions

READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE = "read committed", "repeatable read", "serializable"
LEVELS = [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE]
OVERTAKEN = StepScene(raises=False)
REPEATED = StepScene(executors=(1, 1))
CANCELLED = StepScene(cancels=True)
FIRST_CANCELLED = StepScene(has_begun=False, cancels=True)
BOTH_NEW = StepScene(executors=(2, 3), cancels=True)
DELETED = StepScene(executors=(1,), is_deleted=True, cleans_up=True)
FIRST_DELETED = replace(DELETED, has_begun=False)
CLEANED = replace(DELETED, raises_floor=True, is_late=True)
FORGOTTEN = StepScene(executors=(1,), is_deleted=True, is_clean=True, raises_floor=True)
LATE = replace(FORGOTTEN, executors=(2,))

SCENES = {
    "the second executor follows one that has suspended itself": OVERTAKEN,
    "a commit of unknown result may still be made": REPEATED,
    "the second executor undoes the step": CANCELLED,
    "the second executor undoes the first step of the run": FIRST_CANCELLED,
    "the item is deleted": DELETED,
    "the item is deleted before the first step": FIRST_DELETED,
    "FLOOR is raised while an executor acts that does not know of the end": FORGOTTEN,
    "FLOOR is raised while an attempt begins that does not know of the end": LATE,
}
OTHERS = {  # Tried at READ COMMITTED only: hundreds of orders, or no step among them.
    "two attempts begin, and the second one undoes the step": BOTH_NEW,
    "the run ends, and is cleaned up": replace(CANCELLED, cleans_up=True),
    "FLOOR is raised during a cleanup, and an executor comes after that": CLEANED,
}
TRIED = [
    *((name, scene, level) for name, scene in SCENES.items() for level in LEVELS),
    *((name, scene, READ_COMMITTED) for name, scene in OTHERS.items()),
]
SHORT = {("the item is deleted", READ_COMMITTED)}  # What a short run tries.
LONG_TIMEOUT = pytest.mark.timeout(3_600)

_INSERTED_FIRST = (
    "    INSERT INTO fairlead.steps AS s (run, segment, name, occurrence, entry) "
    "VALUES (this_run, this_segment, this_name, nth, '')\n"
    "      ON CONFLICT DO NOTHING RETURNING s.ctid INTO place;\n"
    "    IF FOUND THEN\n"
)
_LOOKED_FIRST = """    SELECT s.ctid INTO place FROM fairlead.steps s WHERE s.run = this_run AND s.name = this_name;
    IF NOT FOUND THEN
      INSERT INTO fairlead.steps AS s (run, segment, name, occurrence, entry)
        VALUES (this_run, this_segment, this_name, pg_backend_pid(), '') RETURNING s.ctid INTO place;
"""
_ENTRY_READ = (
    "SELECT s.entry INTO STRICT entry FROM fairlead.steps s\n"
    "        WHERE (s.run, s.segment, s.name, s.occurrence) = (this_run, this_segment, this_name, nth);"
)
_ANY_ENTRY_READ = (
    "SELECT s.entry INTO entry FROM fairlead.steps s WHERE s.run = this_run AND s.name = this_name LIMIT 1;"
)
_LOOKING_FIRST = ((_INSERTED_FIRST, _LOOKED_FIRST), (_ENTRY_READ, _ANY_ENTRY_READ))
_FLOOR_READ = """  IF current_setting('transaction_isolation') = 'read committed' THEN
    SELECT f.floor INTO STRICT floor_now FROM fairlead.floor f;
  ELSE
    SELECT f.floor INTO STRICT floor_now FROM fairlead.floor f FOR SHARE;
  END IF;
"""
_FENCE_FIRST = (
    "  -- The fence is locked before anything is read. A row that this transaction has inserted is locked by that.\n"
)
_FLOOR_COMPARED = "  IF floor_now <> known_floor OR fairlead.epoch() <> known_epoch THEN"
_TOMBSTONE = (
    "UPDATE fairlead.fences f SET ended_under = (SELECT l.floor FROM fairlead.floor l) "
    "WHERE f.run = this_run AND f.ended_under IS NULL;"
)


_INSERTED_FENCE = """  INSERT INTO fairlead.fences (run, number) VALUES (this_run, 0) ON CONFLICT DO NOTHING;
"""


class Guard(NamedTuple):
    """A guard that is removed: what takes the places of which fragments; the scene and the level that show it."""

    scene: StepScene
    level: str
    edits: tuple[tuple[str, str], ...] = ()


GUARDS = {
    "a step looks for its entry first": Guard(REPEATED, READ_COMMITTED, _LOOKING_FIRST),
    "a step looks for its entry first, at REPEATABLE READ": Guard(REPEATED, REPEATABLE_READ, _LOOKING_FIRST),
    "a second executor does not take the answer that is there": Guard(
        REPEATED,
        READ_COMMITTED,
        (
            (
                "ON CONFLICT DO NOTHING RETURNING",
                "ON CONFLICT ON CONSTRAINT steps_pkey DO UPDATE SET entry = '' RETURNING",
            ),
        ),
    ),
    "a step inserts no fence": Guard(
        FIRST_CANCELLED, READ_COMMITTED, ((_INSERTED_FENCE + "  IF NOT FOUND THEN", "  IF true THEN"),)
    ),
    "a step does not lock its fence": Guard(CANCELLED, READ_COMMITTED, (("this_run FOR SHARE;", "this_run;"),)),
    "a step does not compare its fence": Guard(
        CANCELLED,
        READ_COMMITTED,
        (("ELSIF fence.number > lease_number THEN\n    answer", "ELSIF false THEN\n    answer"),),
    ),
    "a step does not look for a tombstone": Guard(
        DELETED,
        READ_COMMITTED,
        (("ELSIF fence.ended_under IS NOT NULL THEN\n    answer", "ELSIF false THEN\n    answer"),),
    ),
    "a step does not compare FLOOR": Guard(
        FORGOTTEN, READ_COMMITTED, ((_FLOOR_COMPARED, "  IF fairlead.epoch() <> known_epoch THEN"),)
    ),
    "a step reads FLOOR before it locks its fence": Guard(
        FORGOTTEN,
        READ_COMMITTED,
        ((_FLOOR_READ, ""), (_FENCE_FIRST, "  SELECT f.floor INTO STRICT floor_now FROM fairlead.floor f;\n")),
    ),
    "a step at REPEATABLE READ does not lock FLOOR": Guard(
        FORGOTTEN,
        REPEATABLE_READ,
        (("IF current_setting('transaction_isolation') = 'read committed' THEN", "IF true THEN"),),
    ),
    "a new attempt does not raise the fence": Guard(replace(CANCELLED, raises=False), READ_COMMITTED),
    "who raises the fence does not compare it": Guard(
        BOTH_NEW,
        READ_COMMITTED,
        (("ELSIF fence.number > lease_number THEN\n    RETURN", "ELSIF false THEN\n    RETURN"),),
    ),
    "who raises the fence does not lock it before": Guard(
        BOTH_NEW, READ_COMMITTED, (("this_run FOR NO KEY UPDATE;", "this_run;"),)
    ),
    "a fence is raised where a tombstone may have been": Guard(
        LATE, READ_COMMITTED, (("IF is_new AND (floor_now", "IF false AND (floor_now"),)
    ),
    "a cleanup inserts no fence": Guard(
        FIRST_DELETED,
        READ_COMMITTED,
        ((_INSERTED_FENCE + "  PERFORM FROM fairlead.fences", "  PERFORM FROM fairlead.fences"),),
    ),
    "a cleanup leaves no tombstone": Guard(
        DELETED, READ_COMMITTED, ((_TOMBSTONE, "DELETE FROM fairlead.fences f WHERE f.run = this_run;"),)
    ),
    "a cleanup does not wait for steps": Guard(
        DELETED, READ_COMMITTED, (("PERFORM FROM fairlead.fences f WHERE f.run = this_run FOR UPDATE;", "PERFORM 1;"),)
    ),
    "tombstones are cleared, and FLOOR is not raised": Guard(
        FORGOTTEN, READ_COMMITTED, (("UPDATE fairlead.floor SET floor = floor_now + 1;", "NULL;"),)
    ),
}
LATE_FOUND = {  # Found after some forty orders: not in a short run.
    "a step looks for its entry first, at REPEATABLE READ",
    "a step does not lock its fence",
    "who raises the fence does not lock it before",
}


@pytest.fixture(scope="module")
def stepped(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with a table for the effects of steps."""
    made = Database(postgresql, "stepped")
    made.prepare()
    with made.connect() as connection:
        connection.execute("CREATE TABLE step_effects (name text)")
    yield made
    made.close()


def explored(database: Database, scene: StepScene, level: str, edits: tuple[tuple[str, str], ...] = ()) -> Exploration:
    """Run a scene in every order."""
    with database.connect() as connection:
        connection.execute(stepped_functions(edits))
    stepping = Stepping(database, level)
    try:
        return explore(scene.on(stepping))
    finally:
        stepping.close()


EACH_SCENE = pytest.mark.parametrize(
    ("scene", "level"),
    [
        pytest.param(
            scene,
            level,
            id=f"{name}, {level}",
            marks=() if (name, level) in SHORT else [pytest.mark.long, LONG_TIMEOUT],
        )
        for name, scene, level in TRIED
    ],
)


@EACH_SCENE
def test_no_order_of_statements_breaks_an_invariant(stepped: Database, scene: StepScene, level: str) -> None:
    found = explored(stepped, scene, level)
    assert found.violation is None, found
    assert found.orders > 20


EACH_GUARD = pytest.mark.parametrize(
    "guard",
    [
        pytest.param(guard, id=name, marks=[pytest.mark.long, LONG_TIMEOUT] if name in LATE_FOUND else ())
        for name, guard in GUARDS.items()
    ],
)


@EACH_GUARD
def test_without_a_guard_an_order_of_statements_breaks_an_invariant(stepped: Database, guard: Guard) -> None:
    assert explored(stepped, guard.scene, guard.level, guard.edits).violation is not None
