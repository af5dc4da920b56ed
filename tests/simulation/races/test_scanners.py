"""Two scanners, one with the in-order lease; and pointers that fill the window of a scan.

Only one consumer takes the oldest pointers first, so a scanner that cannot go on must give up the in-order lease. A
scan skips pointers that managers hold, and pointers of items that no consumer can run. They never fill its window.
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
PATIENCE_US = SECOND  # A third of `in_order_lease_ms`: a full scanner gives the in-order lease up after this time.


def enqueue_for_all(scene: Scene, kind: str = "mail") -> None:
    """Let many tenants have one item each."""

    def enqueue(attempt: Attempt) -> None:
        for number in range(POINTERS):
            TenantTransaction(scene.shard, Tenant("shop", f"t{number:02}"), attempt).enqueue(kind)

    scene.play(lambda: scene.shard.transact(enqueue))


# --- The in-order lease ---


def never(refs: Sequence[PointerRef]) -> None:
    """Answer for a manager that never ends its call."""


def at_once(refs: Sequence[PointerRef]) -> ServeReply:
    """Answer for a manager that ends its call at once. The pointers stay as they are."""
    return ServeReply(len(refs), 0, 0, 0, capacity=100)


def scans_in_order(role: ScannerRole) -> bool:
    """Whether a scanner has the in-order lease. It then hands over all vested pointers, otherwise a few at random."""
    return bool(role.handed) and len(role.handed[-1]) > POINTERS // 2


def another_waits_for_the_in_order_lease(scene: Scene, managers: int) -> int:
    """Return how long another scanner waits for the in-order lease while its holder cannot go on; 8 s at most."""
    enqueue_for_all(scene)
    coordinator = ClockedCoordinator(scene.host.clock)
    stuck = scene.scanner("stuck", coordinator, never, managers=managers)
    stuck.runs_until(lambda: scans_in_order(stuck))
    begun_us = scene.now_us
    waiting = scene.scanner("waiting", coordinator, at_once)
    while not scans_in_order(waiting) and scene.now_us < begun_us + 8 * SECOND:
        waiting.goes_on(SECOND // 10)
    return scene.now_us - begun_us


def test_a_scanner_whose_managers_are_full_gives_up_the_in_order_lease() -> None:
    assert PATIENCE_US <= another_waits_for_the_in_order_lease(Scene(), managers=1) <= 2 * PATIENCE_US + SECOND // 5


def test_without_giving_up_the_in_order_lease_another_scanner_waits_for_its_expiry(monkeypatch: Patch) -> None:
    monkeypatch.setattr(InOrderSelection, "give_way", lambda self: None)
    assert another_waits_for_the_in_order_lease(Scene(), managers=1) > 2 * PATIENCE_US + SECOND // 5


def test_the_in_order_lease_of_a_scanner_that_hands_nothing_over_is_not_renewed() -> None:
    """The scanner has capacity, but one of its managers holds all pointers and never ends its call."""
    assert another_waits_for_the_in_order_lease(Scene(), managers=2) <= 5 * SECOND


def test_with_renewal_in_any_case_the_other_scanner_does_not_get_the_in_order_lease(monkeypatch: Patch) -> None:
    request = Coordinator.request

    def renewing(self: Coordinator, *args: Any, **how: Any) -> bool:
        return request(self, *args, **{**how, "handed_over": True})

    monkeypatch.setattr(Coordinator, "request", renewing)
    assert another_waits_for_the_in_order_lease(Scene(), managers=2) >= 8 * SECOND


# --- Windows ---


def handed_while_managers_are_busy(scene: Scene) -> int:
    """Return how many pointers are handed over, eight at a time, while no manager has ended a call."""
    enqueue_for_all(scene)
    coordinator = ClockedCoordinator(scene.host.clock)
    role = scene.scanner("scanner", coordinator, never, managers=5, workers=5, selection_max=8, batch_pointers=8)
    role.goes_on(2 * SECOND)
    return len({ref.id for refs in role.handed for ref in refs})


def test_pointers_that_managers_hold_do_not_fill_the_window() -> None:
    assert handed_while_managers_are_busy(Scene()) == POINTERS


def test_without_skipping_held_pointers_the_same_pointers_are_handed_over_again_and_again(monkeypatch: Patch) -> None:
    select = InOrderSelection.select

    def forgetting(self: InOrderSelection, tr: Any, eligible: Eligible, **how: Any) -> list[PointerRef]:
        return select(self, tr, lambda ref: True, **how)

    monkeypatch.setattr(InOrderSelection, "select", forgetting)
    assert handed_while_managers_are_busy(Scene()) < POINTERS // 2


def handed_behind_pointers_of_another_kind(scene: Scene) -> list[ItemRef]:
    """Many zones hold only items that no consumer can run. All of them vested before the one item that can run."""
    enqueue_for_all(scene, "fax")
    scene.has(lambda alice: alice.enqueue("mail"))
    handed: list[ItemRef] = []

    def serve(refs: Sequence[PointerRef]) -> ServeReply:
        return manager_in(role.host, scene.shard, ["mail"], handed).serve("s0", refs)

    coordinator = ClockedCoordinator(scene.host.clock)
    role = scene.scanner("scanner", coordinator, serve, selection_max=8, batch_pointers=8)
    role.goes_on(2 * SECOND)
    return handed


def test_pointers_of_items_that_no_consumer_can_run_do_not_fill_the_window() -> None:
    assert [ref.kind for ref in handed_behind_pointers_of_another_kind(Scene())] == ["mail"]


def test_without_a_later_vesting_time_these_pointers_fill_the_window(monkeypatch: Patch) -> None:
    move = pointers.move

    def staying(tr: Any, location: ZoneLocation, pointer: PointerRecord, _: int, **how: Any) -> None:
        move(tr, location, pointer, pointer.vesting_us, **how)

    monkeypatch.setattr(pointers, "move", staying)
    assert handed_behind_pointers_of_another_kind(Scene()) == []


# --- A pointer whose items another consumer can run ---


def a_mail_comes_after_the_mailer_left_the_pointer(scene: Scene) -> list[ItemRef]:
    """One consumer knows mail, another fax. Return the items that the first gets within a second.

    The mailer has just requeued the pointer for the faxer when a mail comes. The faxer takes the fax and requeues the
    pointer for the mailer.
    """
    consumers = [scene.housekeeper("mailer", kinds=["mail"]), scene.housekeeper("faxer", kinds=["fax"])]
    for consumer in consumers:
        consumer.goes_on(SECOND // 10)
    scene.has(lambda alice: alice.enqueue("fax"))
    handed: list[ItemRef] = []
    coordinator = ClockedCoordinator(scene.host.clock)
    calls = 0

    def serve(refs: Sequence[PointerRef]) -> ServeReply:
        nonlocal calls
        calls += 1
        return manager_in(mailer.host, scene.shard, ["mail"], handed).serve("s0", refs)

    mailer = scene.scanner("mailer", coordinator, serve)
    mailer.runs_until(lambda: calls)
    mailer.goes_on(SECOND // 5)
    scene.has(lambda alice: alice.enqueue("mail"))
    faxer = scene.manager("faxer", kinds=["fax"])
    faxer.runs()
    assert [ref.kind for ref in faxer.handed] == ["fax"]
    mailer.goes_on(SECOND)
    return handed


def test_a_consumer_that_left_a_pointer_to_another_processes_it_again_after_the_other() -> None:
    assert [ref.kind for ref in a_mail_comes_after_the_mailer_left_the_pointer(Scene())] == ["mail"]


def test_without_a_new_vesting_time_the_first_consumer_waits_for_its_recheck(monkeypatch: Patch) -> None:
    move = pointers.move

    def staying(tr: Any, location: ZoneLocation, pointer: PointerRecord, vesting_us: int, **how: Any) -> None:
        move(tr, location, pointer, min(vesting_us, pointer.vesting_us), **how)

    monkeypatch.setattr(pointers, "move", staying)
    assert a_mail_comes_after_the_mailer_left_the_pointer(Scene()) == []
