"""Stores of the common storage model on embedded shards, each with a shard of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.harness import store_url
from bench.stores import Stores
from fairlead import App
from fairlead.records.storage_model.shard import ShardStore

NewStores = Callable[[str, int], list[ShardStore]]


@contextmanager
def shard_stores(place: Stores, count: int) -> Iterator[NewStores]:
    """Yield what returns new, empty stores by a name and their number, at most `count`: each on another shard.

    Stores of other names share the shards.
    """
    names = [f"shard-{number}" for number in range(count)]
    app = App({name: store_url(place.new(name)) for name in names})
    try:
        yield lambda name, wanted: [ShardStore(app.shards[shard], f"{name}/".encode()) for shard in names[:wanted]]
    finally:
        app.close()
