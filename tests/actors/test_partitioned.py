"""A consumer's own parts: the oldest of its own first, and of others only what is overdue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

import pytest

from fairlead.actors.scanning.partitioned import (
    STEAL_POLLS,
    STEALABLE_PER_PART,
    PartitionedSelection,
    stealable_after_us,
)
from fairlead.actors.scanning.partitioning import HASH_SPACE, NO_PARTITION, Partition, Session
from fairlead.actors.scanning.reading import IN_ORDER_MAX
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.layout import Tenant
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import ALONE, MS, SECOND, Stage

POLL_MS = 10
OVERDUE_MS = stealable_after_us(ConsumerSettings(poll_interval_ms=POLL_MS)) // MS
HELP_MS = STEAL_POLLS * POLL_MS
FIRST, SECOND_PART = Partition(0, HASH_SPACE), Partition(HASH_SPACE, 2 * HASH_SPACE)
HALF_OF_FIRST = Partition(0, HASH_SPACE // 2)


@pytest.fixture
def stage() -> Stage:
    """A shard of two parts."""
    return Stage()


def active(stage: Stage, count: int, *, name: str = "user") -> list[bytes]:
    """Give tenants an item each, one after the other; return the ids of their pointers, the oldest first."""
    tenants = [Tenant("shop", f"{name} {number}") for number in range(count)]
    for tenant in tenants:
        stage.enqueue("mail", tenant=tenant)
    return [stage.shard.zone(tenant).location.pointer_id for tenant in tenants]


def in_part(stage: Stage, part: int) -> list[bytes]:
    """Return the ids of the pointers in a part, the oldest first."""
    return [ref.id for ref in sorted(stage.pointers(), key=lambda ref: ref.vesting_us) if ref.part == part]


class Selecting:
    """The way to select of one consumer, whose own is `partition` for the next five seconds."""

    def __init__(
        self, stage: Stage, stretch: Partition, *, seed: int = 1, full: Sequence[Partition] = (), **settings: object
    ) -> None:
        self._stage = stage
        chosen = ConsumerSettings(**{"poll_interval_ms": POLL_MS, "selection_frac": 1, **settings})  # type: ignore[arg-type]
        self._selection = PartitionedSelection(stage.shard.layout, chosen, Random(seed))
        self._selection.set_session(Session(stretch, stage.now_us + 5 * SECOND, tuple(full)))

    def refs(self, *, passed_over: Collection[bytes] = ()) -> list[PointerRef]:
        """Return what a scan selects now."""
        now_us, parts = self._stage.now_us, self._stage.shard.layout.parts

        def body(attempt: Attempt) -> list[PointerRef]:
            return self._selection.select(attempt.tr, lambda ref: ref.id not in passed_over, now_us=now_us, parts=parts)

        self._selection.begin(now_us)
        return self._stage.shard.transact(body)

    def ids(self, *, passed_over: Collection[bytes] = ()) -> list[bytes]:
        """Return the ids of what a scan selects now."""
        return [ref.id for ref in self.refs(passed_over=passed_over)]

    def due_in_us(self) -> int | None:
        """Return in how long a scan that found nothing now may find something."""
        now_us, parts = self._stage.now_us, self._stage.shard.layout.parts
        self._selection.begin(now_us)
        due = self._stage.shard.transact(lambda attempt: self._selection.due_us(attempt.tr, parts, after_us=now_us))
        return min((each - now_us for each in due.values() if each is not None), default=None)


# --- Its own ---


def test_the_only_consumer_takes_everything_in_order(stage: Stage) -> None:
    ids = active(stage, 40)
    assert Selecting(stage, ALONE.partition).ids() == ids


def test_it_takes_its_own_in_order_and_leaves_the_rest(stage: Stage) -> None:
    active(stage, 40)
    assert Selecting(stage, FIRST).ids() == in_part(stage, 0)
    assert Selecting(stage, SECOND_PART).ids() == in_part(stage, 1)


def test_it_takes_no_more_than_can_be_worked_off_soon(stage: Stage) -> None:
    active(stage, IN_ORDER_MAX + 50)
    assert len(Selecting(stage, ALONE.partition).ids()) == IN_ORDER_MAX


def test_two_that_share_a_part_take_each_pointer_of_it_once(stage: Stage) -> None:
    """With more consumers than parts."""
    active(stage, 60)
    one, other = Selecting(stage, HALF_OF_FIRST).ids(), Selecting(stage, Partition(HASH_SPACE // 2, HASH_SPACE)).ids()
    assert len(one) > 5 < len(other)
    assert sorted(one + other) == sorted(in_part(stage, 0))


def test_what_is_anothers_in_a_shared_part_never_stops_up_the_window(stage: Stage) -> None:
    active(stage, 200)
    most = Partition(0, HASH_SPACE // 20 * 19)
    theirs = set(in_part(stage, 0)) - set(Selecting(stage, most).ids())
    last = Selecting(stage, Partition(most.end, HASH_SPACE), selection_max=4)
    found: list[bytes] = []
    while more := last.ids(passed_over=found):
        found += more
    assert set(found) == theirs


# --- What is others' ---


def test_what_is_anothers_becomes_anybodys_once_it_is_overdue(stage: Stage) -> None:
    active(stage, 10)
    helping = Selecting(stage, FIRST)
    mine, theirs = in_part(stage, 0), in_part(stage, 1)
    assert helping.ids(passed_over=mine) == []
    stage.pass_ms(OVERDUE_MS + 1)
    assert helping.ids(passed_over=mine) == theirs


def test_of_what_is_overdue_it_takes_a_fraction_by_chance_and_never_nothing(stage: Stage) -> None:
    """As in random selection: others may help as well."""
    active(stage, 60)
    stage.pass_ms(OVERDUE_MS + 1)
    theirs = in_part(stage, 1)
    few = [
        Selecting(stage, FIRST, seed=seed, selection_frac=0.02).ids(passed_over=in_part(stage, 0))
        for seed in range(300)
    ]
    assert {len(ids) for ids in few} == {1}
    assert {ids[0] for ids in few} == set(theirs)


def test_of_what_is_overdue_it_chooses_among_the_youngest_since_their_owner_takes_the_oldest(stage: Stage) -> None:
    active(stage, 3 * STEALABLE_PER_PART)
    stage.pass_ms(OVERDUE_MS + 1)
    found = Selecting(stage, FIRST).ids(passed_over=in_part(stage, 0))
    assert found == in_part(stage, 1)[-STEALABLE_PER_PART:]


def test_what_it_must_not_choose_does_not_stop_up_the_window_of_what_is_overdue(stage: Stage) -> None:
    active(stage, 3 * STEALABLE_PER_PART)
    stage.pass_ms(OVERDUE_MS + 1)
    theirs = in_part(stage, 1)
    passed_over = in_part(stage, 0) + theirs[3:]
    assert Selecting(stage, FIRST).ids(passed_over=passed_over) == theirs[:3]


def test_one_that_has_enough_of_its_own_helps_only_those_who_are_further_behind(stage: Stage) -> None:
    """With all equally full, each keeps to its own, and nobody collides."""
    active(stage, 40)
    stage.pass_ms(OVERDUE_MS + 1)
    helping = Selecting(stage, FIRST, batch_pointers=8)
    mine, theirs = in_part(stage, 0), in_part(stage, 1)
    assert helping.ids() == mine
    active(stage, 40, name="late")
    assert set(theirs) < set(helping.ids(passed_over=mine))


def test_one_that_has_little_of_its_own_helps_however_long_that_has_waited(stage: Stage) -> None:
    """What it cannot run itself may stay in its parts for hours."""
    active(stage, 40)
    stage.pass_ms(OVERDUE_MS + 1)
    stuck = in_part(stage, 0)[:3]
    helping = Selecting(stage, FIRST, batch_pointers=64)
    assert set(helping.ids(passed_over=in_part(stage, 0)[3:])) == {*stuck, *in_part(stage, 1)}


def test_what_belongs_to_one_that_is_full_it_takes_however_young_it_is_now_and_then(stage: Stage) -> None:
    """A full owner takes an item whenever it can, and so its busiest tenant's pointer is always young."""
    active(stage, 10)
    helping = Selecting(stage, FIRST, full=[SECOND_PART])
    mine, theirs = in_part(stage, 0), in_part(stage, 1)
    assert helping.ids(passed_over=mine) == theirs
    stage.pass_ms(HELP_MS // 2)
    assert helping.ids(passed_over=mine) == []
    active(stage, 10, name="late")
    stage.pass_ms(HELP_MS // 2)
    late = set(in_part(stage, 1)) - set(theirs)
    assert set(helping.ids(passed_over=in_part(stage, 0))) >= late != set()


def test_it_helps_the_full_although_its_clock_is_set_back(stage: Stage) -> None:
    """Before, it helped nobody until the clock had caught up."""
    helping = Selecting(stage, FIRST, full=[SECOND_PART])
    helping.ids()
    stage.clock.jump(-600 * SECOND)
    active(stage, 20)
    assert set(helping.ids()) == {*in_part(stage, 0), *in_part(stage, 1)}


def test_of_others_than_the_full_it_takes_only_what_is_overdue(stage: Stage) -> None:
    active(stage, 40)
    helping = Selecting(stage, HALF_OF_FIRST, full=[SECOND_PART])
    assert set(helping.ids(passed_over=in_part(stage, 0))) == set(in_part(stage, 1))


def test_one_that_has_enough_of_its_own_does_not_help_the_full(stage: Stage) -> None:
    active(stage, 40)
    assert Selecting(stage, FIRST, full=[SECOND_PART], batch_pointers=8).ids() == in_part(stage, 0)


def test_while_others_are_full_it_looks_again_when_it_may_help_again(stage: Stage) -> None:
    helping = Selecting(stage, FIRST, full=[SECOND_PART])
    assert helping.ids() == []
    assert helping.due_in_us() == HELP_MS * MS


# --- When its session is over ---


def test_before_it_has_a_session_it_owns_nothing(stage: Stage) -> None:
    active(stage, 10)
    assert Selecting(stage, NO_PARTITION).ids() == []


def test_one_that_wakes_after_its_session_owns_nothing_until_it_has_beaten(stage: Stage) -> None:
    """Others have divided its parts among them, and nobody has told it."""
    waking = Selecting(stage, ALONE.partition)
    stage.pass_ms(5_000)
    ids = active(stage, 10)
    assert waking.ids() == []
    waking._selection.set_session(Session(FIRST, stage.now_us + 5 * SECOND))
    assert waking.ids() == in_part(stage, 0)
    assert set(in_part(stage, 0)) < set(ids)


# --- When to look again ---


@pytest.mark.parametrize("stretch, late_ms", [(ALONE.partition, 0), (NO_PARTITION, OVERDUE_MS), (HALF_OF_FIRST, 0)])
def test_it_looks_again_when_the_next_of_its_own_vests_or_anothers_is_overdue(
    stage: Stage, stretch: Partition, late_ms: int
) -> None:
    assert Selecting(stage, stretch).due_in_us() is None
    for number in range(20):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"), delay=0.7)
    selecting = Selecting(stage, stretch)
    assert Selecting(stage, stretch).ids() == []
    due_us = selecting.due_in_us()
    assert due_us is not None
    assert 690 * MS <= due_us - late_ms * MS <= 700 * MS


def test_what_has_vested_and_is_anothers_is_looked_for_when_it_is_overdue(stage: Stage) -> None:
    active(stage, 10)
    stage.pass_ms(40)
    due_us = Selecting(stage, NO_PARTITION).due_in_us()
    assert due_us is not None
    assert 0 < due_us <= (OVERDUE_MS - 40) * MS
