"""A shard, as far as the protocols between shards use it."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from fairlead.zones.engines import Clock, Database
from fairlead.zones.layout import ShardLayout


class OpenShard(Protocol):
    """A shard that is open in this process."""

    @property
    def db(self) -> Database:
        """Its store."""
        ...

    @property
    def layout(self) -> ShardLayout:
        """Its id and its layout."""
        ...

    @property
    def clock(self) -> Clock:
        """The time."""
        ...

    @property
    def random(self) -> Random:
        """The source of randomness."""
        ...


FindShard = Callable[[bytes], OpenShard | None]  # the open shard that has an id; None: none that is configured and open
