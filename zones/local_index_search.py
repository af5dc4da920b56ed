"""Finding members in the local indexes of all shards, while tenants move.

The count of moves of each shard is read with its index. Once all have answered, the counts are read again. If one has
changed, a tenant may have moved from a shard that was asked late to one that was asked early. Then all shards are asked
once more.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from fairlead.zones.engines import Database, Reader, transact
from fairlead.zones.local_index import Entry, Page, find_op, move_count_op
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe

T = TypeVar("T")

ROUNDS_MAX = 5  # A move counts twice. More rounds are needed only if tenants arrive faster than shards answer.
PAGE_ENTRIES = 1_000


class Listed(NamedTuple):
    """An entry, and the number of the store that lists it."""

    store: int
    entry: Entry


class RunsAll(Protocol):
    """Runs a call for each shard, at once or one after the other."""

    def __call__(self, calls: Sequence[Callable[[], T]], /) -> Sequence[T | None]:
        """Return what the calls return, in order; None: the shard of this call does not answer."""
        ...


def run_in_order(calls: Sequence[Callable[[], T]]) -> list[T | None]:
    """Run calls one after the other. What one raises is raised."""
    return [call() for call in calls]


class ScatterResult(NamedTuple):
    """Entries of all shards.

    An entry may be left over at a shard that its tenant has left, so the caller looks whether the tenant still holds
    the member. `is_cut`: a shard has more than were asked for. `keeps_moving`: tenants moved in each round.
    `is_partial`: a shard did not answer. With none of these, every member that was held all the time is among them.
    """

    listed: list[Listed]
    is_cut: bool
    keeps_moving: bool
    is_partial: bool = False

    @property
    def entries(self) -> list[Entry]:
        """The entries, each once."""
        return list(dict.fromkeys(each.entry for each in self.listed))

    @property
    def is_whole(self) -> bool:
        """Whether every member that was held all the time is among them."""
        return not (self.is_cut or self.keeps_moving or self.is_partial)


def search(
    stores: Sequence[Database],
    index: bytes,
    *,
    entries_max: int,
    run_all: RunsAll = run_in_order,
    check: Callable[[Reader], None] | None = None,
) -> ScatterResult:
    """Return entries of an index from all shards, up to so many from each.

    Transactions of snapshot reads: two for each shard, more if an index has more than 1,000 entries there, and again if
    a tenant has moved meanwhile.

    Args:
      check: called in each transaction that reads the index; may refuse by an error.

    Raises:
      What `check` raises.
      What a store raises that does not answer, if `run_all` lets it pass.
    """
    found: dict[Listed, None] = {}
    is_cut = False
    for _ in range(ROUNDS_MAX):
        asked = run_all([partial(_ask, store, index, entries_max=entries_max + 1, check=check) for store in stores])
        for number, answer in enumerate(asked):
            if answer is not None:
                is_cut = is_cut or len(answer[1]) > entries_max
                found.update(dict.fromkeys(Listed(number, entry) for entry in answer[1][:entries_max]))
        if None in asked:
            return ScatterResult(list(found), is_cut, keeps_moving=False, is_partial=True)
        counts = run_all([partial(transact, store, _count) for store in stores])
        if [answer[0] for answer in asked if answer is not None] == list(counts):
            return ScatterResult(list(found), is_cut, keeps_moving=False)
        probe("a tenant moves while all shards are asked")
    return ScatterResult(list(found), is_cut, keeps_moving=True)


def _ask(
    store: Database, index: bytes, *, entries_max: int, check: Callable[[Reader], None] | None
) -> tuple[int, list[Entry]]:
    """Return the count of moves of a shard, as it was with the first page, and entries of an index."""
    count: int | None = None
    entries: list[Entry] = []
    next_key: bytes | None = None
    while count is None or (next_key is not None and len(entries) < entries_max):
        size = min(PAGE_ENTRIES, entries_max - len(entries))
        page_count, page = transact(
            store, partial(_page, index=index, entries_max=size, next_key=next_key, check=check)
        )
        count = page_count if count is None else count
        entries += page.entries
        next_key = page.next_key
    return count, entries


def _page(
    tr: Reader, *, index: bytes, entries_max: int, next_key: bytes | None, check: Callable[[Reader], None] | None
) -> tuple[int, Page]:
    if check is not None:
        check(tr)
    return _count(tr), run_one(find_op(tr, index, entries_max=entries_max, next_key=next_key))


def _count(tr: Reader) -> int:
    return run_one(move_count_op(tr))
