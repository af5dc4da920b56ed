"""Two transactions side by side: does the second to commit lose?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import NOT_COMMITTED, error_code

Body = Callable[[Any], object]


def collides(db: Database, winner: Body, loser: Body) -> bool:
    """Run both bodies on the same version of the store, commit `winner`, then `loser`; say whether `loser` lost."""
    first, second = db.create_transaction(), db.create_transaction()
    for tr in (first, second):
        tr.get_read_version().wait()
    winner(first)
    loser(second)
    first.commit().wait()
    return not commits(db, second)


def commits(db: Database, tr: Any) -> bool:
    """Commit `tr`; False if it conflicted."""
    try:
        tr.commit().wait()
    except db.errors as error:
        if error_code(error) != NOT_COMMITTED:
            raise
        return False
    return True


def collide_either_way(db: Database, one: Body, other: Body, undo: Callable[[], object]) -> bool:
    """Say whether the two bodies conflict whoever commits first; `undo` restores the store in between.

    One that conflicts only one way round must be told with `collides`, in the order that matters.
    """
    there = collides(db, one, other)
    undo()
    back = collides(db, other, one)
    undo()
    assert there == back, "they collide only one way round"
    return there
