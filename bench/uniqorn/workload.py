"""The workload of Uniqorn's section 4: random operations on records, with keys from pools.

A record has 2,000 to 3,000 bytes. There is a pool of primary keys, and one for each alternate key, all of one size. An
update reads a record by its primary key, and gives it new alternate keys and a new value. A read or a delete names one
alternate key. Table 1 also has creates without alternate keys, and updates that change none: the former have a pool of
primary keys of their own, and are deleted at once, so that the pool stays empty.
"""

from enum import Enum
from random import Random
from typing import NamedTuple

VALUE_BYTES = (2_000, 3_000)
GENERATION_BYTES = 16


class Kind(Enum):
    """What a request does, in the words of the paper's table 1."""

    CREATE = "create with AKs"
    CREATE_BARE = "create with no AKs"
    READ = "read by AK"
    UPDATE = "update with changed AKs"
    UPDATE_VALUE = "update without AK changes"
    DELETE = "delete by AK"


FOUR = (Kind.CREATE, Kind.READ, Kind.UPDATE, Kind.DELETE)


class Request(NamedTuple):
    """One operation.

    Attributes:
      kind: what it does.
      key: the primary key, of creates and updates.
      names: a value of each alternate key; of reads and deletes, `field` says which one counts.
      generation: random bytes that a creation may use.
    """

    kind: Kind
    key: str
    names: tuple[str, ...]
    field: int
    value: bytes
    generation: bytes


class Workload:
    """Draws requests.

    Args:
      pool: keys in each pool.
      fields: alternate keys of a record.
      kinds: what requests do, with equal probability.
    """

    def __init__(self, random: Random, *, pool: int, fields: int = 2, kinds: tuple[Kind, ...] = FOUR) -> None:
        self._random = random
        self._pool = pool
        self._fields = fields
        self._kinds = kinds
        self._values = random.randbytes(2 * VALUE_BYTES[1])

    def next(self, kind: Kind | None = None) -> Request:
        """Return the next request; `kind`: of this kind."""
        random = self._random
        drawn = kind or random.choice(self._kinds)
        key = f"{'bare' if drawn is Kind.CREATE_BARE else 'record'} {random.randrange(self._pool)}"
        fields = 0 if drawn is Kind.CREATE_BARE else self._fields
        names = tuple(f"name {random.randrange(self._pool)}" for _ in range(fields))
        begin = random.randrange(VALUE_BYTES[1])
        value = self._values[begin : begin + random.randint(*VALUE_BYTES)]
        field = random.randrange(fields) if fields else 0
        return Request(drawn, key, names, field, value, random.randbytes(GENERATION_BYTES))
