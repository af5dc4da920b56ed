"""Reading a vesting index: the entries that have vested, in (priority, vesting time) order, and what vests next.

The index is ordered by priority first, so the vested entries are not one range but one range per priority. Both readers
skip: at the first key of a priority that has not vested they seek to the next priority, and so on to the end. A damaged
key is passed over; the store check reports it.
"""

from collections.abc import Sequence
from typing import Any

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import IndexEntry, QueueKeys
from fairlead.zones.pipelining import Operation

WANT_ALL = -2  # StreamingMode.want_all: a batch is read whole; the default fetches in small steps.
FIRST_LOOK = 2  # Keys that tell whether anything has vested, and whether there is more.


class VestedReader:
    """Reads the vested entries of an index in order, piece by piece. Snapshot reads; conflicts with nothing.

    Attributes:
      entries: the entries read so far, and their values; at most `keys_max`.
      unvested: the first entry that has not vested, of each priority that was passed, and perhaps of later ones.
      next_key: where the next piece begins; None: the end of the index was reached.
    """

    __slots__ = (
        "_bound",
        "_end",
        "_first_read",
        "_keys",
        "_keys_max",
        "_now_us",
        "_sent",
        "_size",
        "_then_read",
        "entries",
        "next_key",
        "unvested",
    )  # fmt: skip

    def __init__(
        self,
        keys: QueueKeys,
        *,
        now_us: int,
        keys_max: int,
        first_read: int,
        then_read: int,
        begin: bytes = b"",
        end: bytes = b"",
    ) -> None:
        """Read from `begin`, or from the front, to `end`, if it is given.

        Args:
          keys_max: 1 or more; after so many entries it stops.
          first_read: how many keys the first piece has, as most queues are short.
          then_read: how many keys each later piece has, as long as they have vested.
        """
        self._keys = keys
        self._now_us = now_us
        self._keys_max = keys_max
        self._first_read, self._then_read = first_read, then_read
        self.next_key: bytes | None = begin or keys.vest_priority(0)
        self._bound = self._end = end or keys.vest_end()
        self._size = first_read
        self._sent: Any = None
        self.entries: list[tuple[IndexEntry, bytes]] = []
        self.unvested: list[IndexEntry] = []

    @property
    def is_done(self) -> bool:
        """Whether it has read `keys_max` entries, or has come to the end."""
        return self.next_key is None or len(self.entries) >= self._keys_max

    def send(self, tr: Reader) -> None:
        """Send the read of the next piece. `read_op` takes it in, once the caller has let others send theirs."""
        assert self.next_key is not None
        self._sent = tr.snapshot.get_range(self.next_key, self._bound, limit=self._size, streaming_mode=WANT_ALL)

    def read_op(self, tr: Reader) -> Operation[None]:
        """Read the next piece: in the round of `send` if that came before, else in one of its own."""
        if self._sent is None:
            self.send(tr)
            yield
        rows, self._sent = list(self._sent), None
        entry: IndexEntry | None = None
        skipping = -1  # the priority of which the rest has not vested
        for row in rows:
            entry = self._keys.entry(row.key)
            if entry is None or entry.priority == skipping:
                continue
            if entry.vesting_us > self._now_us:
                skipping = entry.priority
                self.unvested.append(entry)
            elif len(self.entries) == self._keys_max:
                self.next_key = row.key
                return
            else:
                self.entries.append((entry, row.value))
                skipping = -1
        if len(rows) < self._size:
            self._seek_behind_bound()
        elif skipping >= 0:
            begin = self._keys.vest_priority(skipping + 1)
            self.next_key = begin if begin < self._end else None
        else:
            self.next_key = rows[-1].key + b"\x00"
            # A damaged key does not tell of which priority the next key is.
            self._bound = self._end if entry is None else self._keys.vest_after(entry.priority, self._now_us)
            self._size = self._then_read

    def _seek_behind_bound(self) -> None:
        """Go on behind all vested entries of a priority, or end at the end of the index."""
        at_end = self._bound == self._end
        self.next_key = None if at_end else self._bound
        self._bound, self._size = self._end, self._first_read


def collect_vested(
    tr: Reader,
    keys: QueueKeys,
    *,
    now_us: int,
    keys_max: int,
    first_read: int = FIRST_LOOK,
    begin: bytes = b"",
    end: bytes = b"",
) -> Operation[tuple[list[IndexEntry], bytes | None]]:
    """Read up to `keys_max` vested entries in order, and where to go on (None: that was all). Snapshot reads."""
    reader = VestedReader(
        keys, now_us=now_us, keys_max=keys_max, first_read=first_read, then_read=keys_max, begin=begin, end=end
    )
    while not reader.is_done:
        yield from reader.read_op(tr)
    return [entry for entry, _ in reader.entries], reader.next_key


def read_first_of_each_priority(tr: Transaction, keys: QueueKeys) -> Operation[list[IndexEntry]]:
    """Read the first entry of every priority that has one; see `conflict_before_first` for the conflicts."""
    first = yield from look_at_first_of_each_priority(tr, keys)
    conflict_before_first(tr, keys, first)
    return first


def look_at_first_of_each_priority(tr: Reader, keys: QueueKeys) -> Operation[list[IndexEntry]]:
    """Return the first entry of every priority that has one. Snapshot reads: conflicts with nothing."""
    first: list[IndexEntry] = []
    begin, end = keys.vest_priority(0), keys.vest_end()
    while begin < end:
        rows = tr.snapshot.get_range(begin, end, limit=1, streaming_mode=WANT_ALL)
        yield
        row = next(iter(rows), None)
        if row is None:
            break
        entry = keys.entry(row.key)
        if entry is None:
            begin = row.key + b"\x00"
        else:
            first.append(entry)
            begin = keys.vest_priority(entry.priority + 1)
    return first


def conflict_before_first(tr: Transaction, keys: QueueKeys, first: Sequence[IndexEntry]) -> None:
    """Declare read conflicts around `first`, the first entry of every priority that has one, by priority.

    The ranges are the point: per priority the range up to its first key, the gaps between priorities, and the tail.
    A transaction that inserts an entry as the first of its priority conflicts. One that removes an entry of `first`
    does not, since nothing has to happen earlier because of that.
    """
    begin = keys.vest_priority(0)
    for entry in first:
        tr.add_read_conflict_range(begin, keys.vest(*entry))
        begin = keys.vest_priority(entry.priority + 1)
    tr.add_read_conflict_range(begin, keys.vest_end())
