"""What the stories of steps in SQL have in common: an application, a table of effects, and what is kept of runs."""

from __future__ import annotations

from typing import Any

from fairlead import App
from fairlead.testing import DrainResult, ManualClock, drain
from tests.workflows.application import HOME
from tests.zones.postgresql.database import Database


class Shop:
    """An application on two shards, whose external store is `pg`. A test's steps leave effects in a table."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.app = App({"a": "memory:", "b": "memory:"}, external={"pg": database.dsn}, clock=ManualClock())
        with database.connect() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS step_effects (name text)")
            connection.execute("TRUNCATE step_effects, fairlead.steps, fairlead.fences")

    def enqueue(self, kind: str = "w", payload: Any = None, **options: Any) -> Any:
        return self.app.tenant(HOME).enqueue(kind, payload, **options)

    def run(self, *, within: float = 0, replays: bool = True) -> DrainResult:
        """Drain; errors of handlers are in the result."""
        return drain(self.app, within=within, raise_errors=False, replays=replays)

    def effects(self) -> list[str]:
        """Return what steps have left, in the order of the names."""
        return [name for (name,) in self._all("SELECT name FROM step_effects ORDER BY name")]

    def forget_effects(self) -> None:
        """Delete what steps have left."""
        with self.database.connections.call() as call:
            call.execute("DELETE FROM step_effects")

    def kept(self) -> tuple[int, int, int]:
        """Return how many entries, fences and tombstones there are."""
        ((entries,),) = self._all("SELECT count(*) FROM fairlead.steps")
        ((fences, tombstones),) = self._all("SELECT count(*), count(ended_under) FROM fairlead.fences")
        return entries, fences - tombstones, tombstones

    def _all(self, statement: str) -> list[Any]:
        with self.database.connections.call() as call:
            return call.execute(statement).fetchall()  # type: ignore[no-any-return]

    def close(self) -> None:
        self.app.close()


def insert(connection: Any, name: str) -> str:
    """Leave an effect; return what a replay must get again."""
    connection.execute("INSERT INTO step_effects VALUES (%s)", [name])
    return f"{name} done"


def remove(connection: Any, name: str) -> None:
    """Leave word that an effect was undone."""
    connection.execute("INSERT INTO step_effects VALUES (%s)", [f"undo {name}"])
