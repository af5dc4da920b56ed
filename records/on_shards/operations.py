"""Runs operations of the protocol by the definitions that shards store, and again if a definition has changed."""

from collections.abc import Callable
from typing import TypeVar

from fairlead.records.accesses import Op, Perform, run_op
from fairlead.records.definition import SchemaChanged, TypeRecord
from fairlead.records.errors import IndexUnavailable, Interrupted
from fairlead.records.on_shards.definitions import Definitions

T = TypeVar("T")

SCHEMA_CHANGES_MAX = 8  # So often an operation begins again because an index was added or dropped meanwhile.


class Operations:
    """Runs operations on the records of one type.

    Args:
      definitions: as this process last read them.
      home_of: returns the name of the shard where the record of a key lies.
      performing: returns what makes the accesses of a writer by a definition, or of a reader (None).
    """

    def __init__(
        self,
        type_name: str,
        definitions: Definitions,
        home_of: Callable[[str], str],
        performing: Callable[[TypeRecord | None], Perform],
    ) -> None:
        self.definitions = definitions
        self._type_name = type_name
        self._home_of = home_of
        self._performing = performing

    def write(self, key: str, begin: Callable[[TypeRecord], Op[T]]) -> T:
        """Run a write by the definition of the shard where the record lies.

        Raises:
          Interrupted: the definition has changed each time.
          What the operation raises.
        """
        for _ in range(SCHEMA_CHANGES_MAX):
            definition = self.definitions.on(self._home_of(key))
            try:
                return run_op(begin(definition), self._performing(definition))
            except SchemaChanged as changed:
                self.definitions.forget(changed.shard)
        raise Interrupted(key=key, reason="indexes of this type are added and dropped all the time")

    def read(self, begin: Callable[[], Op[T]], *, nothing: T) -> T:
        """Run a read; a shard without a definition gets it. `nothing`: the result if no shard has one.

        Raises:
          IndexUnavailable: another shard had no definition each time.
          What the operation raises.
        """
        for _ in range(SCHEMA_CHANGES_MAX):
            try:
                return run_op(begin(), self._performing(None))
            except SchemaChanged as changed:
                if not self.definitions.copy_to(changed.shard):
                    return nothing
        raise IndexUnavailable(type=self._type_name, reason="shards are added all the time")

    def run(self, operation: Op[T]) -> T:
        """Run an operation that gives no record a key: a collection, or a repair. Raises what it raises."""
        return run_op(operation, self._performing(None))
