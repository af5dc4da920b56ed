"""A lookup on all shards, beside the real mover: it misses nothing, whenever it begins and however long it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from fairlead.zones import local_index, local_index_search, tuples
from fairlead.zones.engines import transact
from fairlead.zones.local_index import Entry
from fairlead.zones.moving import destination
from fairlead.zones.moving.mover import Mover
from tests.zones.moving.town import NAMES, Town

INDEX = tuples.pack(("item", "order", 7))
ORDERS = (NAMES, NAMES[::-1])
PAUSES = (0, 1, 2, 3, 5, 8)  # Commits of the mover between two transactions of the reader.


def filled() -> Town:
    town = Town()
    town.on_rows(lambda tr, keys: local_index.add(tr, keys, INDEX, b"member"))
    return town


def there_and_back(town: Town) -> None:
    for to in ("north", "east"):
        town.mover(town.begin(to), to).run()


def count_stages() -> int:
    """Return how many commits the moves make, undisturbed."""
    town = filled()
    town.hook = lambda *_: None
    there_and_back(town)
    return town.commits


STAGES = count_stages()


class SlowReader:
    """A reader that begins at a commit of the mover, and waits for some commits after each of its transactions."""

    def __init__(
        self, town: Town, order: Sequence[str], monkeypatch: pytest.MonkeyPatch, stage: int, pause: int
    ) -> None:
        self.found: list[local_index_search.ScatterResult] = []
        self._pause = pause
        self._next = stage
        self._mover = getcurrent()
        self._reader = greenlet(lambda: self.found.append(self._search(town, order)))
        monkeypatch.setattr(local_index_search, "transact", self._transact)
        town.hook = self._hook

    def _search(self, town: Town, order: Sequence[str]) -> local_index_search.ScatterResult:
        return local_index_search.search([town.shards[name].db for name in order], INDEX, entries_max=9)

    def _hook(self, _: str, number: int, after: bool) -> None:
        if after and number >= self._next:
            self.go_on()

    def go_on(self) -> None:
        """Let the reader make its next transactions, until it pauses."""
        self._mover = getcurrent()
        if not self._reader.dead:
            self._next += self._pause
            self._reader.switch()

    def end(self) -> local_index_search.ScatterResult:
        """Let the reader end; nothing moves any more."""
        while not self.found:
            self.go_on()
        return self.found[0]

    def _transact(self, db: Any, body: Callable[[Any], Any]) -> Any:
        result = transact(db, body)
        if self._pause and not self._mover.dead:
            self._mover.switch()
        return result


def find_beside_moves(monkeypatch: pytest.MonkeyPatch, order: Sequence[str], stage: int, pause: int) -> list[Entry]:
    town = filled()
    reader = SlowReader(town, order, monkeypatch, stage, pause)
    there_and_back(town)
    town.hook = None
    found = reader.end()
    assert not found.is_cut
    assert not found.keeps_moving
    return [each.entry for each in found.listed]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("pause", PAUSES)
def test_a_member_that_is_there_all_the_time_is_found(
    monkeypatch: pytest.MonkeyPatch, order: Sequence[str], pause: int
) -> None:
    for stage in range(1, STAGES + 1):
        found = find_beside_moves(monkeypatch, order, stage, pause)
        assert {entry.member for entry in found} == {b"member"}, stage


def some_reader_misses(monkeypatch: pytest.MonkeyPatch) -> bool:
    return any(
        not find_beside_moves(monkeypatch, order, stage, pause)
        for order in ORDERS
        for pause in PAUSES
        for stage in range(1, STAGES + 1)
    )


def test_without_the_count_of_moves_some_reader_misses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_index, "count_move", lambda tr: None)
    assert some_reader_misses(monkeypatch)


def test_if_the_source_is_cleared_before_the_tenant_arrives_some_reader_misses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrive, clear = Mover._arrive, Mover._clear

    def clear_and_arrive(mover: Mover, shard: Any, may_clear: Any, **options: Any) -> None:
        clear(mover, shard, may_clear, **options)
        if destination.owns(mover._to.layout, mover._owner_at(mover._to), epoch=mover._epoch):
            arrive(mover)

    monkeypatch.setattr(Mover, "_arrive", lambda mover: None)
    monkeypatch.setattr(Mover, "_clear", clear_and_arrive)
    assert some_reader_misses(monkeypatch)


def test_a_reader_that_meets_a_move_in_each_round_says_that_it_may_have_missed_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    town = filled()

    def count_and_transact(db: Any, body: Callable[[Any], Any]) -> Any:
        transact(town.shards["west"].db, local_index.count_move)
        return transact(db, body)

    monkeypatch.setattr(local_index_search, "transact", count_and_transact)
    stores = [town.shards[name].db for name in NAMES]
    found = local_index_search.search(stores, INDEX, entries_max=9)
    assert found.entries == [Entry(town.alice, INDEX, b"member")]
    assert (found.is_cut, found.keeps_moving, found.is_partial) == (False, True, False)


def test_a_reader_that_asks_for_too_few_says_so() -> None:
    town = filled()
    town.on_rows(lambda tr, keys: local_index.add(tr, keys, INDEX, b"other"))
    stores = [town.shards[name].db for name in NAMES]
    assert local_index_search.search(stores, INDEX, entries_max=1).is_cut
    assert not local_index_search.search(stores, INDEX, entries_max=2).is_cut
