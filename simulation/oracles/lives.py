"""An item's life: enqueued once, run at least once or cancelled, and gone only as it may go."""

from collections.abc import Callable, Sequence

from simulation.oracles.oracle import Oracle, Run
from simulation.shadow import ItemChange, ItemName, Meaning, ShardShadow
from simulation.world import World


class ItemsRunBeforeTheyGo(Oracle):
    """An item leaves its queue because a handler of it ran, or was cancelled; and at the end none is left."""

    promise = "every enqueued item runs or is cancelled"

    def __init__(self, world: World, is_consumer: Callable[[str], bool]) -> None:
        super().__init__(world)
        self._is_consumer = is_consumer
        self._runs: dict[ItemName, list[Run]] = {}

    def on_start(self, run: Run) -> None:
        """See `Oracle`."""
        self._runs.setdefault(run.item, []).append(run)

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            if change.after is None and self._is_consumer(meaning.commit.by) and not change.buried:
                self._check_removal(change, meaning)

    def at_end(self, shards: Sequence[ShardShadow]) -> None:
        """See `Oracle`."""
        for shard in shards:
            for item, record in shard.items():
                self.broken(f"{item} is still in its queue: {record}")

    def _check_removal(self, change: ItemChange, meaning: Meaning) -> None:
        """An item may be removed by the worker that ran it: after the handler returned, or in its transaction."""
        runs = self._runs.pop(change.item, [])
        if not any(run.actor == meaning.by and (run.returned or run.may_drop or not run.over) for run in runs):
            self.broken(f"{meaning.by} removes {change.item} without having run it")


class ItemsAreEnqueuedOnce(Oracle):
    """An item with an id of its own appears once: a repeated transaction does not bring it back.

    An item that its enqueuer named may be enqueued again after it is gone.
    """

    promise = "an item that was enqueued once does not come again"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: set[ItemName] = set()

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            after = change.after
            if change.before is None and after is not None and not change.revived and after.given_id is None:
                if change.item in self._seen:
                    self.broken(f"{meaning.by} enqueues {change.item}, which was there before")
                self._seen.add(change.item)
