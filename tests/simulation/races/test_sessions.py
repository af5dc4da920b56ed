"""Consumers divide the top-level queue among their live sessions; these tests force each change of ownership.

The managers here do not process pointers, so a pointer stays vested. Its owner hands it over again and again, and
other consumers do so, too, once it is overdue.
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
AT_ONCE_US = 60_000  # Five polls, which is the longest sleep of an idle scanner, and a scan.


def enqueue_for_all(scene: Scene, name: str = "t") -> set[bytes]:
    """Let many tenants have one item each; return the ids of their pointers."""
    tenants = [Tenant("shop", f"{name}{number:02}") for number in range(POINTERS)]

    def enqueue(attempt: Attempt) -> None:
        for tenant in tenants:
            TenantTransaction(scene.shard, tenant, attempt).enqueue("mail")

    scene.play(lambda: scene.shard.transact(enqueue))
    return {scene.shard.zone(tenant).location.pointer_id for tenant in tenants}


def two_that_have_divided_the_queue(scene: Scene) -> tuple[ConsumerRole, ConsumerRole]:
    """Return two idle consumers that know each other and have divided the queue."""
    first, second = (
        scene.consumer("first", poll_interval_ms=POLL_MS),
        scene.consumer("second", poll_interval_ms=POLL_MS),
    )
    for consumer in (first, second):
        consumer.goes_on(3 * SECOND)
    return first, second


# --- Two live consumers ---


def taken_at_once(scene: Scene) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """Return all pointers, and those that each of two consumers takes before any is overdue."""
    first, second = two_that_have_divided_the_queue(scene)
    ids = enqueue_for_all(scene)
    scene.pass_us(AT_ONCE_US)
    return ids, first.taken(), second.taken()


def test_two_consumers_take_all_pointers_and_none_both() -> None:
    ids, first, second = taken_at_once(Scene())
    assert first | second == ids
    assert not first & second


def test_without_partitions_both_take_the_same_pointers(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Partition, "contains", lambda self, ref: True)
    ids, first, second = taken_at_once(Scene())
    assert first & second == ids


# --- A new consumer ---


def test_until_the_heartbeat_that_shows_a_new_consumer_both_take_its_part_and_leases_decide() -> None:
    """The new consumer has divided the queue already. The other does so with its next heartbeat, within a second."""
    scene = Scene()
    first = scene.consumer("first", poll_interval_ms=POLL_MS)
    first.goes_on(2 * SECOND + SECOND // 10)  # It has just written a heartbeat.
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


# --- A paused consumer ---


def until_all_are_taken_us(scene: Scene) -> int:
    """Return how long one consumer needs to take all pointers when the other, which owns half, has just been paused."""
    first, second = two_that_have_divided_the_queue(scene)
    first.is_paused_for(60 * SECOND)
    begun_us, not_taken = scene.now_us, enqueue_for_all(scene)
    while not_taken and scene.now_us < begun_us + 20 * SECOND:
        scene.pass_us(STEALABLE_US)
        not_taken -= second.taken()
    return scene.now_us - begun_us


def test_the_part_of_a_paused_consumer_belongs_to_the_other_when_its_session_has_expired(monkeypatch: Patch) -> None:
    monkeypatch.setattr(PartitionedSelection, "_steal", lambda *_, **__: [])
    assert LIVE_US - SECOND <= until_all_are_taken_us(Scene()) <= LIVE_US + 2 * SECOND


def test_overdue_pointers_of_a_paused_consumer_are_stolen_long_before_its_session_expires() -> None:
    """A consumer steals a few at a time, chosen at random, because other consumers may steal, too."""
    scene = Scene()
    first, second = two_that_have_divided_the_queue(scene)
    first.is_paused_for(60 * SECOND)
    ids = enqueue_for_all(scene)
    scene.pass_us(AT_ONCE_US)
    mine = second.taken()
    scene.pass_us(SECOND)
    assert len(second.taken() - mine) >= 5
    assert mine < ids


def test_a_consumer_whose_heartbeats_do_not_arrive_takes_no_pointer_that_is_not_overdue(monkeypatch: Patch) -> None:
    """Its session has expired, and the other owns all: the two would conflict at each pointer."""
    assert not taken_without_heartbeats(Scene())


def test_without_the_check_of_its_session_it_takes_pointers_that_belong_to_the_other(monkeypatch: Patch) -> None:
    begin = PartitionedSelection.begin

    def trusting(self: PartitionedSelection, now_us: int) -> None:
        begin(self, min(now_us, self._session.until_us - 1))

    monkeypatch.setattr(PartitionedSelection, "begin", trusting)
    assert len(taken_without_heartbeats(Scene())) > POINTERS // 4


def taken_without_heartbeats(scene: Scene) -> set[bytes]:
    """Return the pointers that a consumer takes at once after its session has expired without a heartbeat."""
    first, second = two_that_have_divided_the_queue(scene)
    first.runs_until_commit(of="housekeeping")
    scene.pass_us(LIVE_US + 2 * SECOND)
    ids = enqueue_for_all(scene)
    first.taken()
    second.taken()
    scene.pass_us(AT_ONCE_US)
    assert second.taken() == ids
    return first.taken()


@pytest.mark.parametrize("late_us", [0, SECOND])
def test_a_consumer_whose_heartbeats_arrive_again_owns_its_part_again(late_us: int) -> None:
    scene = Scene()
    first, second = two_that_have_divided_the_queue(scene)
    first.is_paused_for(LIVE_US + 3 * SECOND)
    scene.pass_us(LIVE_US + 5 * SECOND + late_us)
    ids = enqueue_for_all(scene)
    scene.pass_us(AT_ONCE_US)
    taken = first.taken(), second.taken()
    assert taken[0] | taken[1] == ids
    assert not taken[0] & taken[1]
