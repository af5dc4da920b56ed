"""Hearing: a manager whose workers run something hears of new rules although it visits nothing.

Visits read the rules beside their pointers. A manager that has nothing to visit, and runs long items, would hear of a
limit only much later, and its items would not be counted until then.
"""

from collections.abc import Callable, Mapping

from fairlead.actors.runtime.host import Lock
from fairlead.zones.shard import Shard

REFRESH_S = 1.0  # Between two looks, each one key of a shard.


class PolicyRefresh:
    """Looks for new policies. `runs_something`: whether to look; `lock` is held. `refresh_shard`: on one shard."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        lock: Lock,
        *,
        runs_something: Callable[[], bool],
        refresh_shard: Callable[[Shard], None],
    ) -> None:
        self._shards = shards
        self._lock = lock
        self._runs_something = runs_something
        self._refresh_shard = refresh_shard

    def refresh(self) -> None:
        """Look at every shard for new rules, if the workers run something."""
        with self._lock:
            is_needed = self._runs_something()
        for shard in self._shards.values() if is_needed else ():
            try:
                self._refresh_shard(shard)
            except shard.db.errors:
                continue  # Who visits it says so.
