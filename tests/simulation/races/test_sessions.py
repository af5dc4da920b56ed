"""Consumers divide the top-level queue among their live sessions; what happens while it changes hands.

Here nobody serves what is handed over, so a pointer stays vested, and is handed over again and again: to whom it
belongs, and once it is overdue to others too.
"""

import pytest

from fairlead.actors.scanning.partitioned import PartitionedSelection
from fairlead.actors.scanning.partitioning import Partition
from fairlead.zones.layout import Tenant
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.sessions import LIVE_US
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.races.missing_guards import Patch
from tests.simulation.races.scene import ConsumerRole, Scene, manager_in
from tests.simulation.stage import SECOND

POINTERS = 60
POLL_MS = 10
STEALABLE_US = 300_000  # `overdue_us` by these polls.
AT_ONCE_US = 60_000  # Five polls, for which an idle scanner may sleep, and a scan.


def enqueue_for_all(scene: Scene, name: str = "t") -> set[bytes]:
    """Let many tenants have one item each; return the ids of their pointers."""
    tenants = [Tenant("shop", f"{name}{number:02}") for number in range(POINTERS)]

    def enqueue(attempt: Attempt) -> None:
        for tenant in tenants:
            TenantTransaction(scene.shard, tenant, attempt).enqueue("mail")

    scene.play(lambda: scene.shard.transact(enqueue))
    return {scene.shard.zone(tenant).location.pointer_id for tenant in tenants}


def two_that_know_each_other(scene: Scene) -> tuple[ConsumerRole, ConsumerRole]:
    """Return two consumers that have divided the queue among them, and have nothing to do."""
    first, second = (
        scene.consumer("first", poll_interval_ms=POLL_MS),
        scene.consumer("second", poll_interval_ms=POLL_MS),
    )
    for consumer in (first, second):
        consumer.goes_on(3 * SECOND)
    return first, second


# --- Two that live ---


def taken_at_once(scene: Scene) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """Return all pointers, and what each of two consumers takes before anything is overdue."""
    first, second = two_that_know_each_other(scene)
    ids = enqueue_for_all(scene)
    scene.pass_us(AT_ONCE_US)
    return ids, first.taken(), second.taken()


def test_two_consumers_take_everything_and_nothing_both() -> None:
    ids, first, second = taken_at_once(Scene())
    assert first | second == ids
    assert not first & second


def test_without_a_right_of_way_both_take_the_same(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Partition, "contains", lambda self, ref: True)
    ids, first, second = taken_at_once(Scene())
    assert first & second == ids


# --- A newcomer ---


def test_while_a_newcomer_is_not_known_yet_both_take_its_part_and_leases_decide() -> None:
    """It has divided the queue already, and the other will when it beats next, within a second."""
    scene = Scene()
    first = scene.consumer("first", poll_interval_ms=POLL_MS)
    first.goes_on(2 * SECOND + SECOND // 10)  # It has just beaten.
    newcomer = scene.consumer("newcomer", poll_interval_ms=POLL_MS)
    newcomer.goes_on(SECOND // 10)
    ids = enqueue_for_all(scene)
    scene.pass_us(AT_ONCE_US)
    both = ids & first.taken()
    refs = [ref for ref in newcomer.handed if ref.id in both]
    assert len(refs) > POINTERS // 4
    served = [serve(scene, name, refs[0]) for name in ("first", "newcomer")]
    assert [len(handed) for handed in served] == [1, 0]

    scene.pass_us(SECOND)
    late = enqueue_for_all(scene, "late ")
    first.taken()
    newcomer.taken()
    scene.pass_us(AT_ONCE_US)
    assert not first.taken() & newcomer.taken() & late


def serve(scene: Scene, name: str, ref: PointerRef) -> list[object]:
    """Let a manager of a consumer serve a pointer; return the items that it hands to its worker."""
    handed: list[object] = []
    host = scene.new_host(f"{name}'s manager")
    manager = manager_in(host, scene.open_in(host), ["mail"], handed)  # type: ignore[arg-type]
    scene.play(lambda: manager.serve("s0", [ref]), host=host)
    return handed


# --- One that stands still ---


def until_all_is_taken_us(scene: Scene) -> int:
    """Return for how long it takes a consumer to take everything, half of which is one's that has just stood still."""
    first, second = two_that_know_each_other(scene)
    first.stands_still(60 * SECOND)
    begun_us, left = scene.now_us, enqueue_for_all(scene)
    while left and scene.now_us < begun_us + 20 * SECOND:
        scene.pass_us(STEALABLE_US)
        left -= second.taken()
    return scene.now_us - begun_us


def test_what_belongs_to_one_that_stands_still_is_anothers_within_the_life_of_its_session(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PartitionedSelection, "_steal", lambda *_, **__: [])
    assert LIVE_US - SECOND <= until_all_is_taken_us(Scene()) <= LIVE_US + 2 * SECOND


def test_and_long_before_that_it_is_taken_because_it_is_overdue() -> None:
    """A few at a time, by chance: others may be about the same."""
    scene = Scene()
    first, second = two_that_know_each_other(scene)
    first.stands_still(60 * SECOND)
    ids = enqueue_for_all(scene)
    scene.pass_us(AT_ONCE_US)
    mine = second.taken()
    scene.pass_us(SECOND)
    assert len(second.taken() - mine) >= 5
    assert mine < ids


def test_one_that_goes_on_while_it_cannot_beat_takes_nothing_that_is_not_overdue(monkeypatch: Patch) -> None:
    """Its session is over, and the other has all: they would collide at each pointer."""
    assert not taken_without_beating(Scene())


def test_counting_on_its_last_session_it_takes_what_is_anothers_by_now(monkeypatch: Patch) -> None:
    begin = PartitionedSelection.begin

    def trusting(self: PartitionedSelection, now_us: int) -> None:
        begin(self, min(now_us, self._session.until_us - 1))

    monkeypatch.setattr(PartitionedSelection, "begin", trusting)
    assert len(taken_without_beating(Scene())) > POINTERS // 4


def taken_without_beating(scene: Scene) -> set[bytes]:
    """Return what a consumer takes at once whose beat has not reached the shard for longer than a session lives."""
    first, second = two_that_know_each_other(scene)
    first.runs_until_commit(of="housekeeping")
    scene.pass_us(LIVE_US + 2 * SECOND)
    ids = enqueue_for_all(scene)
    first.taken()
    second.taken()
    scene.pass_us(AT_ONCE_US)
    assert second.taken() == ids
    return first.taken()


@pytest.mark.parametrize("late_us", [0, SECOND])
def test_one_that_beats_again_has_its_part_again(late_us: int) -> None:
    scene = Scene()
    first, second = two_that_know_each_other(scene)
    first.stands_still(LIVE_US + 3 * SECOND)
    scene.pass_us(LIVE_US + 5 * SECOND + late_us)
    ids = enqueue_for_all(scene)
    scene.pass_us(AT_ONCE_US)
    taken = first.taken(), second.taken()
    assert taken[0] | taken[1] == ids
    assert not taken[0] & taken[1]
