"""The external stores of an application: what they hold, and how far their readers are. Each apart, as shards are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.error_text import remedy_of, sentence_of
from fairlead.queries.per_shard import query_home
from fairlead.shards import Shards
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.external.arrivals import ReaderRecord, read_reader, reader_home
from fairlead.zones.external.inspection import InspectedStore, StoreTotals
from fairlead.zones.shard import Shard


class ReaderState(NamedTuple):
    """What the shard holds of the reader of a store. Times in microseconds since the epoch.

    Attributes:
      seen: the snapshot up to which it has made pointers; None: it cannot be read.
      is_live: whether a consumer reads the store now.
      until_us: when the reader's lease ends; None: there never was a reader.
      error: why the shard cannot be read; empty: it can.
    """

    seen: str | None = None
    is_live: bool = False
    until_us: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ExternalStatus:
    """The status of one external store. `totals`: None: it cannot be read, because of `error`."""

    name: str
    reader: ReaderState
    totals: StoreTotals | None = None
    error: Exception | None = None

    @property
    def items(self) -> int:
        """How many items it holds, as far as is known."""
        return 0 if self.totals is None else self.totals.items

    @property
    def sentence(self) -> str:
        """Why the store could not be read."""
        return "" if self.error is None else sentence_of(self.error)

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return "" if self.error is None else remedy_of(self.error)


def read_reader_state(shards: Shards, name: str) -> ReaderState:
    """Return how far the reader of a store is."""

    def query(shard: Shard) -> tuple[ReaderRecord, int]:
        return shard.transact(lambda attempt: (read_reader(attempt.tr, name), attempt.now_us))

    read = query_home(shards, reader_home(name), query)
    if read.found is None:
        return ReaderState(error=f"shard {read.shard}: {read.sentence}")
    record, now_us = read.found
    return ReaderState(record.seen, record.until_us > now_us, record.until_us if record.reader else None)


def read_external(shards: Shards, name: str, store: InspectedStore) -> ExternalStatus:
    """Return the status of an external store. Reads a bounded number of rows."""
    reader = read_reader_state(shards, name)
    try:
        return ExternalStatus(name, reader, store.totals(reader.seen))
    except StoreUnavailable as error:
        return ExternalStatus(name, reader, error=error)


def read_externals(shards: Shards, stores: Mapping[str, InspectedStore]) -> list[ExternalStatus]:
    """Return the status of each external store, in the order of the configuration."""
    return [read_external(shards, name, store) for name, store in stores.items()]
