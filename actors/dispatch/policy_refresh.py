"""Hearing: a manager whose workers run something hears of new rules although it visits nothing.

Visits read the rules beside their pointers. A manager that has nothing to visit, and runs long items, would hear of a
limit only much later, and its items would not be counted until then.
"""

from collections.abc import Callable, Mapping

from fairlead.actors.runtime.host import Lock
from fairlead.zones.shard import Shard

LISTEN_S = 1.0  # Between two looks, each one key of a shard.


class Hearing:
    """A manager's ear. `runs_something`: whether to listen; called with `lock` held. `hear`: looks at one shard."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        lock: Lock,
        *,
        runs_something: Callable[[], bool],
        hear: Callable[[Shard], None],
    ) -> None:
        self._shards = shards
        self._lock = lock
        self._runs_something = runs_something
        self._hear = hear

    def listen(self) -> None:
        """Look at every shard for new rules, if the workers run something."""
        with self._lock:
            listens = self._runs_something()
        for shard in self._shards.values() if listens else ():
            try:
                self._hear(shard)
            except shard.db.errors:
                continue  # Who visits it says so.
