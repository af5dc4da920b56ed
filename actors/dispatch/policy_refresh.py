"""The policies that a manager knows, and how it learns of new ones while it processes no pointer.

A transaction that processes pointers reads the policies beside them. A manager that has no pointers to process, and
whose workers run long items, would learn of a new limit much later, and its items would not be counted until then. So
it reads the policies once a second while its workers run something.
"""

from collections.abc import Callable, Mapping

from fairlead.actors.runtime.host import Lock
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy.policies import NO_POLICIES, Policies, read_policies_op
from fairlead.zones.shard import Shard

REFRESH_S = 1.0  # Between two refreshes, each of which reads one key of a shard.


class PolicyRefresh:
    """The policies of each shard, as they were found last.

    Args:
      lock: the manager's.
      runs_something: returns whether a refresh is needed; called with the lock held.
      apply: called with what was found, with the lock held.
    """

    def __init__(
        self,
        shards: Mapping[str, Shard],
        lock: Lock,
        *,
        runs_something: Callable[[], bool],
        apply: Callable[[Policies], None],
    ) -> None:
        self._shards = shards
        self._lock = lock
        self._runs_something = runs_something
        self._apply = apply
        self._known = dict.fromkeys(shards, NO_POLICIES)

    def known(self, shard: Shard) -> Policies:
        """Return the policies of a shard as they were found last."""
        return self._known[shard.name]

    def observe(self, shard: Shard, found: Policies) -> None:
        """Note the policies of a shard as they are found now."""
        with self._lock:
            self._known[shard.name] = found
            self._apply(found)

    def refresh(self) -> None:
        """Read the policies of every shard, if the workers run something."""
        with self._lock:
            is_needed = self._runs_something()
        for shard in self._shards.values() if is_needed else ():
            try:
                self._refresh(shard)
            except shard.db.errors:
                continue  # Reported when a pointer of the shard is processed.

    def _refresh(self, shard: Shard) -> None:
        known = self._known[shard.name]
        found = shard.transact(lambda attempt: run_one(read_policies_op(attempt.tr, known)))
        if found is not known:
            self.observe(shard, found)
