"""The reader of an external store, forced: who it must not wait for, and what it must do anew."""

from __future__ import annotations

from functools import partial

from fairlead.actors import external_reader
from fairlead.actors.external_reader import LEASE_US, RENEW_US, Doorbell, ExternalReader
from fairlead.simulation.external.items import DOORBELL
from fairlead.simulation.store import Latencies
from fairlead.zones.external.store import Look
from fairlead.zones.layout import Tenant
from tests.simulation.mutations.mutation import in_a_race
from tests.simulation.races.external_scene import SECOND, SHARDS, Readers, living_on, reader_home
from tests.simulation.races.missing_guards import Patch, planted


def test_a_shard_that_is_away_does_not_hold_up_the_queues_of_others() -> None:
    here = reader_home()
    (away,) = set(SHARDS) - {here}
    readers = Readers()
    readers.start("a#1")
    readers.passes(2 * SECOND)
    readers.stores[away].refuses.append(lambda: readers.world.elapsed_us < 20 * SECOND)
    readers.enqueue(living_on(away, 0))
    readers.enqueue(living_on(here, 0))
    readers.passes(3 * SECOND)
    assert readers.has_pointer(living_on(here, 0))
    assert not readers.has_pointer(living_on(away, 0))
    readers.passes(20 * SECOND)
    assert readers.has_pointer(living_on(away, 0))


def test_what_a_shard_has_refused_is_found_by_the_next_reader() -> None:
    """Nothing is saved before it is noted."""
    here = reader_home()
    (away,) = set(SHARDS) - {here}
    readers = Readers()
    first = readers.start("a#1")
    readers.start("b#1")
    readers.passes(2 * SECOND)
    readers.stores[away].refuses.append(lambda: readers.world.elapsed_us < 20 * SECOND)
    readers.enqueue(living_on(away, 0))
    readers.passes(3 * SECOND)
    first.stop()
    readers.passes(20 * SECOND)
    assert readers.has_pointer(living_on(away, 0))


def looks_alone() -> bool:
    """Whether one of two processes looks at very many queues, on slow shards, to the end, and the other one waits."""
    readers = Readers(Latencies(read_version_us=20_000, read_us=5_000, commit_us=500_000))
    for number in range(1_500):
        readers.enqueue(Tenant("shop", f"t{number}"))
    started = [readers.start(name) for name in ("a#1", "b#1")]
    while not readers.server.table.values.get(DOORBELL):
        readers.passes(SECOND)
        if all(reader.is_reading for reader in started):
            return False
    return True


def test_a_look_at_all_queues_that_takes_longer_than_a_lease_keeps_the_lease() -> None:
    assert looks_alone()
    bug = "a reader does not extend its lease while it looks at all queues"
    with in_a_race(bug, (ExternalReader._goes_on, " and self._keeps_lease()", "")).planted():
        assert not looks_alone()


def found_without_a_bell() -> int:
    """How many of five items a reader finds within a fifth of a second, though no notification arrives."""
    readers = Readers()
    readers.server.loses_ring.append(lambda: True)
    readers.start("a#1")
    readers.passes(5 * SECOND)
    found = 0
    for number in range(5):
        readers.enqueue(Tenant("shop", f"t{number}"))
        readers.passes(SECOND // 5)
        found += readers.has_pointer(Tenant("shop", f"t{number}"))
        readers.passes(2 * SECOND)
    return found


def test_a_reader_that_does_not_hear_the_doorbell_looks_often() -> None:
    assert found_without_a_bell() == 5
    bug = "a reader waits for a doorbell that it does not hear"
    with in_a_race(bug, (ExternalReader._set_doorbell, "self._doorbell.silence()", "pass")).planted():
        assert found_without_a_bell() < 5


def rings_after_a_promotion() -> bool:
    """Whether the doorbell is on after a promotion that has lost it."""
    readers = Readers()
    readers.start("a#1")
    readers.passes(5 * SECOND)
    assert readers.server.table.values[DOORBELL]
    readers.server.promote(60 * SECOND)
    assert not readers.server.table.values.get(DOORBELL)
    readers.passes(5 * SECOND)
    return bool(readers.server.table.values.get(DOORBELL))


def test_the_doorbell_is_set_anew_after_a_promotion_that_lost_it() -> None:
    assert rings_after_a_promotion()
    bug = "a reader takes the doorbell for set that a promotion has lost"
    edits = (
        (ExternalReader._give_up, "self._doorbell.forget(may_ring=self._store.notifies)", "pass"),
        (Doorbell.see, "self.is_set and rings is self.rings", "self.is_set"),
    )
    with in_a_race(bug, *edits).planted():
        assert not rings_after_a_promotion()


def finds_what_comes_after_a_promotion() -> bool:
    """Whether an item is found whose transaction has the number of one that a promotion has lost."""
    readers = Readers()
    readers.start("a#1")
    readers.passes(2 * SECOND)
    for _ in range(20):
        readers.enqueue(living_on("s0", 0))
    readers.passes(2 * SECOND)
    readers.server.promote(3 * SECOND)
    readers.enqueue(living_on("s0", 1))
    readers.passes(5 * SECOND)
    return readers.has_pointer(living_on("s0", 1))


def test_after_a_promotion_all_queues_are_looked_at() -> None:
    assert finds_what_comes_after_a_promotion()
    bug = "a reader does not notice another history of the store"
    with in_a_race(bug, (ExternalReader._read_once, "look.history != before.history or ", "")).planted():
        assert not finds_what_comes_after_a_promotion()


def test_a_reader_that_takes_over_in_a_flood_takes_the_doorbell_back() -> None:
    """Each commit of the store's users would wait for all others."""
    readers = Readers()
    first = readers.start("a#1")
    readers.passes(5 * SECOND)
    first.stop()
    readers.passes(2 * SECOND)
    tenants = [Tenant("shop", f"t{number}") for number in range(20)]
    for number in range(6_000):
        readers.world.after(500 * number, partial(readers.enqueue, tenants[number % len(tenants)]))
    readers.start("b#1")
    readers.passes(2 * SECOND)
    assert not readers.server.table.values[DOORBELL]


def saves_a_full_look_before_it_looks_again(patch: Patch) -> bool:
    """A full look is due while items come all the time, so the reader has saved just before. It dies after the look."""
    patch.setattr(external_reader, "FULL_LOOK_US", 3 * SECOND)
    readers = Readers()
    reader = readers.start("a#1")
    looked_us, arrivals_of = readers.saved.looked_us, reader._store.arrivals
    for number in range(400):
        readers.world.after(10_000 * number, partial(readers.enqueue, living_on("s0", 0)))

    def dies_after_the_full_look(seen: str, history: str) -> Look:
        if reader._record is not None and reader._record.looked_us != looked_us:
            readers.world.after(0, readers.host_of(reader).kill)
        return arrivals_of(seen, history)

    reader._store.arrivals = dies_after_the_full_look  # type: ignore[method-assign]
    readers.passes(4 * SECOND)
    assert readers.host_of(reader).dead
    return readers.saved.looked_us != looked_us


def test_a_reader_that_dies_after_a_full_look_leaves_none_to_the_next_one(monkeypatch: Patch) -> None:
    """A full look may read a million queues."""
    assert saves_a_full_look_before_it_looks_again(monkeypatch)


def test_without_a_save_at_once_the_next_reader_looks_at_all_queues_again(monkeypatch: Patch) -> None:
    with planted("a full look is saved only if the last save was long ago"):
        assert not saves_a_full_look_before_it_looks_again(monkeypatch)


def finds_what_was_refused_before_the_lease_was_lost() -> bool:
    """A reader keeps a queue that a shard has refused. It stands still, and another process reads meanwhile.

    It goes on, and tries the refused queue again: so it learns that it has lost the lease. Just then the other process
    stops. What the look has found beside the refused queue could be noted under the next lease.
    """
    here = reader_home()
    (away,) = set(SHARDS) - {here}
    readers = Readers()
    first = readers.start("a#1")
    second = readers.start("b#1")
    readers.stores[away].refuses.append(lambda: readers.world.elapsed_us < 30 * SECOND)
    readers.enqueue(living_on(away, 0))
    readers.passes(2 * SECOND)
    assert first._waker.refused
    host, arrivals_of, forget = readers.host_of(first), first._store.arrivals, first._waker.forget

    def stands_still_before_it_tries_again(seen: str, history: str) -> Look:
        now_us = readers.world.now_us()
        if now_us >= first._tried_us + RENEW_US:
            first._store.arrivals = arrivals_of  # type: ignore[method-assign]
            readers.enqueue(living_on(here, 0))
            host.paused_until_us = now_us + LEASE_US + 3 * SECOND
        return arrivals_of(seen, history)

    def stands_still_until_the_other_has_stopped() -> None:
        forget()
        first._waker.forget = forget  # type: ignore[method-assign]
        assert second.is_reading
        readers.world.after(0, second.stop)
        readers.world.sleep_us(SECOND)

    first._store.arrivals = stands_still_before_it_tries_again  # type: ignore[method-assign]
    first._waker.forget = stands_still_until_the_other_has_stopped  # type: ignore[method-assign]
    readers.passes(40 * SECOND)
    assert first.is_reading
    assert first._waker.forget == forget
    return readers.has_pointer(living_on(away, 0))


def test_a_reader_that_loses_its_lease_by_refused_queues_leaves_them_to_the_next_look() -> None:
    assert finds_what_was_refused_before_the_lease_was_lost()


def test_without_the_end_of_that_look_a_refused_queue_is_forgotten() -> None:
    with planted("a look goes on although refused queues have cost the lease"):
        assert not finds_what_was_refused_before_the_lease_was_lost()
