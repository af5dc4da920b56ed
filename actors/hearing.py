"""Hearing: a manager whose workers run something hears of new rules although it visits nothing.

Visits read the rules beside their pointers. A manager that has nothing to visit, and runs long items, would hear of a
limit only much later, and its items would not be counted until then.
"""

from collections.abc import Callable, Mapping

from actors.host import Host, Lock
from zones.shard import Shard

LISTEN_S = 1.0  # Between two looks, each one key of a shard.


class Hearing:
    """A manager's ear. `runs_something`: whether to listen; called with `lock` held. `hear`: looks at one shard."""

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        lock: Lock,
        *,
        runs_something: Callable[[], bool],
        hear: Callable[[Shard], None],
    ) -> None:
        self._host = host
        self._shards = shards
        self._lock = lock
        self._runs_something = runs_something
        self._hear = hear
        self._pause = host.condition(lock)
        self._runs = False
        self._stopping = False

    def begin(self) -> None:
        """Listen from now on, if it does not yet. The lock is held."""
        if not self._runs:
            self._runs = True
            self._host.spawn("hearing", self._run)

    def stop(self) -> None:
        """Listen no more. The lock is held."""
        self._stopping = True
        self._pause.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._stopping:
                    self._pause.wait(LISTEN_S)
                if self._stopping:
                    return
                listens = self._runs_something()
            for shard in self._shards.values() if listens else ():
                try:
                    self._hear(shard)
                except shard.db.errors:
                    continue  # Who visits it says so.
