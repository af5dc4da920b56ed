"""Each shard, or external store, apart: one that cannot be read has an error, and the others are still shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from fairlead.error_text import remedy_of, sentence_of
from fairlead.shards import Shards, StoreMissing, UnknownShard
from fairlead.zones.engines import StoreError, StoreUnavailable
from fairlead.zones.errors import QueueError, ShardRefused
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.steps import NoSuchStore, StepsInStore
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.layout import Tenant
from fairlead.zones.shard import Shard

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardResult(Generic[T]):
    """The result of a query on a shard, or a store; if that cannot be read, `found` is None, and `error` says why."""

    shard: str
    url: str
    found: T | None = None
    error: Exception | None = None

    @property
    def sentence(self) -> str:
        """Why the shard could not be read."""
        return "" if self.error is None else sentence_of(self.error)

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return "" if self.error is None else remedy_of(self.error)


def query_each_shard(shards: Shards, query: Callable[[Shard], T], *, only: str | None = None) -> list[ShardResult[T]]:
    """Run a query on each shard, and return the results in the order of the configuration.

    Args:
      only: the name of the one shard to query; None: all.

    Raises:
      UnknownShard: there is no shard named `only`.
    """
    if only is not None and only not in shards.urls:
        raise UnknownShard(shard=only, known=sorted(shards.urls))
    return [_query_shard(shards, name, url, query) for name, url in shards.urls.items() if only in (None, name)]


def query_home(shards: Shards, tenant: Tenant, query: Callable[[Shard], T]) -> ShardResult[T]:
    """Run a query on the shard where a tenant lives.

    Raises:
      NoShards: there are none.
    """
    name = shards.home_name(tenant)
    result = _query_shard(shards, name, shards.urls[name], query)
    home = shards.home_name(tenant)  # The first shard that is opened tells with which shards the application began.
    return result if home == name else _query_shard(shards, home, shards.urls[home], query)


def query_each_store(
    stores: Mapping[str, InspectedStore], query: Callable[[InspectedStore], T]
) -> list[ShardResult[T]]:
    """Run a query on each external store, apart; `ShardResult.shard` is the name of the store."""
    return [_query_store(name, partial(query, store)) for name, store in stores.items()]


def query_store(
    externals: Mapping[str, ExternalStore], name: str, query: Callable[[StepsInStore], T]
) -> ShardResult[T]:
    """Run a query on the steps in an external store; `ShardResult.shard` names the store."""
    shown, store = f"external store {name}", externals.get(name)
    if store is None:
        return ShardResult(shown, "", error=NoSuchStore(store=name, known=sorted(externals)))
    return _query_store(shown, partial(query, store.steps))


def _query_store(shown: str, query: Callable[[], T]) -> ShardResult[T]:
    try:
        return ShardResult(shown, "", query())
    except (StoreUnavailable, QueueError) as error:  # Away, or it refuses this role, or what it holds is unreadable.
        return ShardResult(shown, "", error=error)


def _query_shard(shards: Shards, name: str, url: str, query: Callable[[Shard], T]) -> ShardResult[T]:
    try:
        return ShardResult(name, url, query(shards[name]))
    except (StoreError, StoreMissing, ShardRefused) as error:
        return ShardResult(name, url, error=error)
    except tuple(shards.errors()) as error:
        return ShardResult(name, url, error=error)
