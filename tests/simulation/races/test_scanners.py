"""Two scanners, of which one has leave to go in order; and what stands in front of what.

Only one consumer takes the oldest pointers first, so one that cannot go on must not keep the others from it. What its
managers hold, and what nobody can run, is passed over: it never stops up the window that a look goes through.
"""

from collections.abc import Sequence
from typing import Any

from fairlead.actors.consumer import ClockedCoordinator
from fairlead.actors.coordinator import Coordinator
from fairlead.actors.messages import ItemRef, ServeReply
from fairlead.actors.scanning.in_order import InOrderSelection
from fairlead.actors.scanning.reading import Eligible
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.records import PointerRecord
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.races.missing_guards import Patch
from tests.simulation.races.scene import ScannerRole, Scene, manager_in
from tests.simulation.stage import SECOND

POINTERS = 60
PATIENCE_US = SECOND  # A third of `in_order_lease_ms`: so long a full scanner waits before it gives its leave up.


def enqueue_for_all(scene: Scene, kind: str = "mail") -> None:
    """Let many tenants have one item each."""

    def enqueue(attempt: Attempt) -> None:
        for number in range(POINTERS):
            TenantTransaction(scene.shard, Tenant("shop", f"t{number:02}"), attempt).enqueue(kind)

    scene.play(lambda: scene.shard.transact(enqueue))


# --- Leave to go in order ---


def never(refs: Sequence[PointerRef]) -> None:
    """Answer for a manager that does not get on with its work."""


def at_once(refs: Sequence[PointerRef]) -> ServeReply:
    """Answer for a manager that has done its work, though the pointers stay where they are."""
    return ServeReply(len(refs), 0, 0, 0, capacity=100)


def goes_in_order(role: ScannerRole) -> bool:
    """Whether a scanner has leave to: it then hands over all that has vested, and a few at random otherwise."""
    return bool(role.handed) and len(role.handed[-1]) > POINTERS // 2


def another_waits_for_its_leave(scene: Scene, managers: int) -> int:
    """Return for how long another scanner waits after one with leave to go in order has got stuck; 8 s at most."""
    enqueue_for_all(scene)
    coordinator = ClockedCoordinator(scene.host.clock)
    stuck = scene.scanner("stuck", coordinator, never, managers=managers)
    stuck.runs_until(lambda: goes_in_order(stuck))
    begun_us = scene.now_us
    waiting = scene.scanner("waiting", coordinator, at_once)
    while not goes_in_order(waiting) and scene.now_us < begun_us + 8 * SECOND:
        waiting.goes_on(SECOND // 10)
    return scene.now_us - begun_us


def test_a_scanner_whose_managers_are_full_gives_up_its_leave_to_go_in_order() -> None:
    assert PATIENCE_US <= another_waits_for_its_leave(Scene(), managers=1) <= 2 * PATIENCE_US + SECOND // 5


def test_without_giving_it_up_another_waits_until_the_leave_has_run_out(monkeypatch: Patch) -> None:
    monkeypatch.setattr(InOrderSelection, "give_way", lambda self: None)
    assert another_waits_for_its_leave(Scene(), managers=1) > 2 * PATIENCE_US + SECOND // 5


def test_a_scanner_that_hands_nothing_over_in_order_is_not_renewed() -> None:
    """It has room, but its one manager that is at work holds all there is, and does not get on with it."""
    assert another_waits_for_its_leave(Scene(), managers=2) <= 5 * SECOND


def test_renewed_all_the_same_it_keeps_the_others_from_what_is_oldest(monkeypatch: Patch) -> None:
    request = Coordinator.request

    def renewing(self: Coordinator, *args: Any, **how: Any) -> bool:
        return request(self, *args, **{**how, "handed_over": True})

    monkeypatch.setattr(Coordinator, "request", renewing)
    assert another_waits_for_its_leave(Scene(), managers=2) >= 8 * SECOND


# --- Windows ---


def handed_while_managers_are_busy(scene: Scene) -> int:
    """Return how many pointers are handed over, eight at a time, while none of those before has been served."""
    enqueue_for_all(scene)
    coordinator = ClockedCoordinator(scene.host.clock)
    role = scene.scanner("scanner", coordinator, never, managers=5, workers=5, selection_max=8, batch_pointers=8)
    role.goes_on(2 * SECOND)
    return len({ref.id for refs in role.handed for ref in refs})


def test_pointers_that_managers_hold_do_not_stand_in_front_of_the_others() -> None:
    assert handed_while_managers_are_busy(Scene()) == POINTERS


def test_without_passing_them_over_the_same_pointers_are_handed_over_again_and_again(monkeypatch: Patch) -> None:
    select = InOrderSelection.select

    def forgetting(self: InOrderSelection, tr: Any, eligible: Eligible, **how: Any) -> list[PointerRef]:
        return select(self, tr, lambda ref: True, **how)

    monkeypatch.setattr(InOrderSelection, "select", forgetting)
    assert handed_while_managers_are_busy(Scene()) < POINTERS // 2


def handed_behind_paused_pointers(scene: Scene) -> list[ItemRef]:
    """Many zones hold only what nobody here can run, and all of them vested before the one that can."""
    enqueue_for_all(scene, "fax")
    scene.has(lambda alice: alice.enqueue("mail"))
    handed: list[ItemRef] = []

    def serve(refs: Sequence[PointerRef]) -> ServeReply:
        return manager_in(role.host, scene.shard, ["mail"], handed).serve("s0", refs)

    coordinator = ClockedCoordinator(scene.host.clock)
    role = scene.scanner("scanner", coordinator, serve, selection_max=8, batch_pointers=8)
    role.goes_on(2 * SECOND)
    return handed


def test_pointers_of_what_nobody_can_run_do_not_stand_in_front_of_what_can() -> None:
    assert [ref.kind for ref in handed_behind_paused_pointers(Scene())] == ["mail"]


def test_left_where_they_are_they_stand_in_front_of_what_can(monkeypatch: Patch) -> None:
    move = pointers.move

    def staying(tr: Any, location: ZoneLocation, pointer: PointerRecord, _: int, **how: Any) -> None:
        move(tr, location, pointer, pointer.vesting_us, **how)

    monkeypatch.setattr(pointers, "move", staying)
    assert handed_behind_paused_pointers(Scene()) == []


# --- A pointer that is left to another consumer ---


def something_comes_for_who_has_left_the_pointer(scene: Scene) -> list[ItemRef]:
    """One consumer knows mail, another fax; return what the first is handed within a second.

    It has just left the pointer to the other when a mail comes, and the other, which takes the fax, leaves that to it.
    """
    consumers = [scene.housekeeper("mailer", kinds=["mail"]), scene.housekeeper("faxer", kinds=["fax"])]
    for consumer in consumers:
        consumer.goes_on(SECOND // 10)
    scene.has(lambda alice: alice.enqueue("fax"))
    handed: list[ItemRef] = []
    coordinator = ClockedCoordinator(scene.host.clock)
    visits = 0

    def serve(refs: Sequence[PointerRef]) -> ServeReply:
        nonlocal visits
        visits += 1
        return manager_in(mailer.host, scene.shard, ["mail"], handed).serve("s0", refs)

    mailer = scene.scanner("mailer", coordinator, serve)
    mailer.runs_until(lambda: visits)
    mailer.goes_on(SECOND // 5)
    scene.has(lambda alice: alice.enqueue("mail"))
    faxer = scene.manager("faxer", kinds=["fax"])
    faxer.runs()
    assert [ref.kind for ref in faxer.handed] == ["fax"]
    mailer.goes_on(SECOND)
    return handed


def test_who_left_a_pointer_to_another_consumer_looks_again_once_that_has_taken_its_part() -> None:
    assert [ref.kind for ref in something_comes_for_who_has_left_the_pointer(Scene())] == ["mail"]


def test_without_a_new_vesting_time_it_waits_for_its_recheck(monkeypatch: Patch) -> None:
    move = pointers.move

    def staying(tr: Any, location: ZoneLocation, pointer: PointerRecord, vesting_us: int, **how: Any) -> None:
        move(tr, location, pointer, min(vesting_us, pointer.vesting_us), **how)

    monkeypatch.setattr(pointers, "move", staying)
    assert something_comes_for_who_has_left_the_pointer(Scene()) == []
