"""An integrity check while a tenant moves: it finds nothing wrong, and repairs nothing where nothing lives any more."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from fairlead.zones.engines import Transaction, transact
from fairlead.zones.errors import TenantBusy
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.maintenance.integrity import check_homes, check_integrity, checker, counts, homes
from fairlead.zones.maintenance.integrity.counts import verify_counts
from fairlead.zones.maintenance.integrity.findings import KeptRun, Report
from fairlead.zones.maintenance.integrity.homes import without_known
from fairlead.zones.maintenance.integrity.walk import confirm
from fairlead.zones.moving import clearing
from fairlead.zones.pipelining import run_one
from fairlead.zones.placement import home
from fairlead.zones.records import ItemRecord, MoveState, decode
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import claims_of_tenant
from fairlead.zones.workflow.participants import clean_up_op, raise_fence_op
from fairlead.zones.workflow.run_records import ParticipantState, RunHead, encode, head_key, participant_key
from tests.simulation.races.missing_guards import planted
from tests.zones.moving.test_claims import SESSION, claim
from tests.zones.moving.test_guards import run_until
from tests.zones.moving.town import FIRST, Killed, Town

STAGES = ["_prepare", "_copy_all", "_count_items", "_copy_changes", "_hand_over", "_own", "_say_moved", "_end_claims"]
LATE = ["_arrive", "_clear"]


@pytest.mark.parametrize("stage", [*STAGES, *LATE])
def test_a_check_at_any_stage_of_a_move_finds_nothing_wrong(stage: str) -> None:
    town = Town()
    claim(town, town.enqueue())
    town.enqueue(zone="another queue")
    found: list[Any] = []
    town.mover_that("west", **{stage: lambda: found.append(town.findings())}).run()
    assert found == [{}]
    assert town.findings() == {}


def test_without_those_that_arrive_a_depth_seems_wrong() -> None:
    town = Town()
    town.enqueue()
    found: list[Any] = []
    with planted("a recount of a shard leaves out a tenant that arrives"):
        town.mover_that("west", _arrive=lambda: found.append(town.findings())).run()
    assert found != [{}]


# --- A tenant moves between the reads of a check and its repair ---


def moves_without_being_cleared(town: Town) -> None:
    """Let Alice move, and her mover die before it clears what she has left."""
    if town.home_name() == "east":
        run_until(town, town.begin("west"), "west", "_arrive")


def keys_after_a_repair_beside_a_move(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Lose the key of a claim, and let its item's tenant move before a check repairs it; return such keys."""
    town = Town()
    item_id = town.enqueue()
    claim(town, item_id)
    east = town.shards["east"]
    key = worker_sessions.claim_key(SESSION, east.layout.location(town.alice, "queue"), item_id)
    transact(east.db, lambda tr: tr.clear(key))

    def confirm_later(*arguments: Any, **options: Any) -> None:
        moves_without_being_cleared(town)
        confirm(*arguments, **options)

    monkeypatch.setattr(checker, "confirm", confirm_later)
    check_integrity(east, repair=True)
    assert town.home_name() == "west"
    return [
        key
        for key, _, _ in transact(east.db, lambda tr: claims_of_tenant(tr, east.layout, town.alice, keys_max=10)).claims
    ]


def test_a_repair_writes_nothing_for_a_tenant_who_has_moved_away_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the key stayed for good: the mover was past it, and the session's end leaves it to the mover."""
    assert keys_after_a_repair_beside_a_move(monkeypatch) == []


def test_without_that_look_the_repair_leaves_the_key_where_nobody_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted("a repair goes on for a tenant that has moved away"):
        assert keys_after_a_repair_beside_a_move(monkeypatch) != []


def test_a_count_of_a_tenant_who_has_moved_away_meanwhile_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong count has moved along. What a repair adds here is a row of a tenant who does not live here."""
    town = Town()
    town.enqueue()
    east = town.shards["east"]
    count = east.layout.location(town.alice, "queue").keys.count("work")
    transact(east.db, lambda tr: tr.add(count, (7).to_bytes(8, "little")))

    def verify_later(*arguments: Any, **options: Any) -> Any:
        moves_without_being_cleared(town)
        return verify_counts(*arguments, **options)

    monkeypatch.setattr(checker, "verify_counts", verify_later)
    report = check_integrity(east, repair=True)
    assert town.home_name() == "west"
    assert [each.what for each in report.findings if each.zone is not None] == []


# --- A check repairs while the tenant moves ---


def findings_after_a_repair_at(stage: str) -> dict[str, list[Any]]:
    """Lose an item's entry, let a check repair that at a stage of a move, and return what is wrong after the move."""
    town = Town()
    item_id = town.enqueue()
    east = town.shards["east"]
    keys = east.layout.location(town.alice, "queue").keys

    def lose_entry(tr: Transaction) -> None:
        record = decode(ItemRecord, tr.get(keys.item(item_id)).value or b"")
        assert record is not None
        tr.clear(keys.vest(record.priority, record.vesting_us, item_id))

    transact(east.db, lose_entry)
    town.mover_that("west", **{stage: lambda: check_integrity(east, repair=True)}).run()
    return town.findings()


@pytest.mark.parametrize("stage", ["_prepare", "_count_items", "_copy_changes", "_hand_over", "_own"])
def test_what_a_check_repairs_moves_along(stage: str) -> None:
    """Before, the repair was reported and lost: the item never ran at its new home."""
    assert findings_after_a_repair_at(stage) == {}


def test_without_a_mark_the_repair_stays_behind() -> None:
    with planted("a repair of a tenant that moves writes no marks"):
        assert findings_after_a_repair_at("_copy_changes") != {}


@pytest.mark.parametrize("stage", ["_prepare", "_count_items", "_copy_changes", "_hand_over", "_own"])
def test_an_item_that_a_check_sets_aside_is_not_at_the_new_home(stage: str) -> None:
    town = Town()
    item_id = town.enqueue()
    town.enqueue()
    east = town.shards["east"]
    key = east.layout.location(town.alice, "queue").keys.item(item_id)
    transact(east.db, lambda tr: tr.set(key, b"\x01garbage"))
    town.mover_that("west", **{stage: lambda: check_integrity(east, quarantine=True)}).run()
    assert town.findings() == {}


@pytest.mark.parametrize("stage", ["_copy_changes", "_hand_over", "_own"])
def test_a_count_that_a_check_repairs_makes_no_depth_wrong(stage: str) -> None:
    town = Town()
    town.enqueue()
    east = town.shards["east"]
    count = east.layout.location(town.alice, "queue").keys.count("mail")
    transact(east.db, lambda tr: tr.add(count, (7).to_bytes(8, "little")))
    town.mover_that("west", **{stage: lambda: check_integrity(east, repair=True)}).run()
    assert town.findings() == {}


def locked_tenant_with_faults(monkeypatch: pytest.MonkeyPatch) -> tuple[Town, list[int]]:
    """Let Alice have ten items without entries, and a wrong count, and stay locked; return how often a check waits."""
    town = Town()
    east = town.shards["east"]
    keys = east.layout.location(town.alice, "queue").keys
    for _ in range(10):
        town.enqueue()
    transact(east.db, lambda tr: tr.clear_range(keys.vest_prefix, keys.vest_prefix + b"\xff"))
    transact(east.db, lambda tr: tr.add(keys.count("mail"), (7).to_bytes(8, "little")))
    waits: list[int] = []

    def refuse(*_: Any, writes: bool, **__: Any) -> bool:
        if writes:
            waits.append(1)
            raise TenantBusy(app=town.alice.app, user=town.alice.user, transaction="t", reason="another transaction")
        return True

    for module in (checker, counts):
        monkeypatch.setattr(module, "lives_here", refuse)
    return town, waits


def test_faults_of_a_tenant_that_stays_locked_are_reported_and_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, they were not reported, and the store was called healthy; and each fault waited for five seconds."""
    town, waits = locked_tenant_with_faults(monkeypatch)
    report = check_integrity(town.shards["east"], repair=True)
    assert len(waits) == 1
    assert report.unverified == 1
    assert not report.healthy
    assert len(report.findings) == 11
    assert [each.what for each in report.findings if each.resolved] == []


def test_a_wrong_count_of_a_tenant_that_stays_locked_makes_no_depth_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    town, _ = locked_tenant_with_faults(monkeypatch)
    east = town.shards["east"]
    check_integrity(east, repair=True)
    monkeypatch.undo()
    found = [each.what for each in check_integrity(east).findings]
    assert "a depth differs from the items" not in found


def test_a_locked_participant_does_not_end_the_search_for_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the whole check failed, and all its reports were lost."""
    town = Town()
    north = town.shards["north"]
    bob = next(each for number in range(100) if home(each := Tenant("shop", f"b{number}"), FIRST) == "north")
    bobs = TenantKeys(*bob)
    transact(north.db, lambda tr: run_one(raise_fence_op(tr, north.layout, bobs, b"r" * 16, 1, ParticipantState(0, 0))))
    reports = {name: check_integrity(shard) for name, shard in town.shards.items()}
    reports["north"].kept.add(KeptRun(bob, b"r" * 16))

    def refuse(*_: Any, **__: Any) -> None:
        raise TenantBusy(app=bob.app, user=bob.user, transaction="t", reason="another transaction")

    monkeypatch.setattr(homes, "check_owner", refuse)
    for all_shards in (False, True):
        check_homes(town.shards, reports, all_shards=all_shards)
    assert reports["north"].unverified == 2


# --- A mover dies between two pieces of what it clears ---


def tombstones_after_a_killed_clearing(monkeypatch: pytest.MonkeyPatch) -> Town:
    """Let runs of others end with Alice as participant, and her mover die while it clears what she has left."""
    monkeypatch.setattr(clearing, "ROWS_MAX", 2)
    town = Town()
    keys = TenantKeys(*town.alice)
    for number in range(7):
        run = number.to_bytes(16, "big")
        town.at_home(
            lambda shard: shard.transact(
                lambda attempt: run_one(
                    clean_up_op(attempt.tr, shard.layout, town.alice, keys, run, now_us=attempt.now_us)  # noqa: B023
                )
            )
        )
    mover = town.mover(town.begin("west"), "west")
    stop, pieces = mover._stop_if_asked, iter(range(1_000))

    def die_at_the_third() -> None:
        if mover._is_decided and next(pieces) == 2:
            raise Killed
        stop()

    mover._stop_if_asked = die_at_the_third  # type: ignore[method-assign]
    with suppress(Killed):
        mover.run()
    return town


def test_a_check_writes_no_tombstones_where_a_move_has_cleared_them(monkeypatch: pytest.MonkeyPatch) -> None:
    town = tombstones_after_a_killed_clearing(monkeypatch)
    before = town.rows("east")
    assert len(before) > 1
    assert check_integrity(town.shards["east"], repair=True).findings == []
    assert town.rows("east") == before


# --- The home of a run moves while a check looks for it, shard by shard ---


def reports_while_a_home_moves(monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> list[Report]:
    """Let Alice, where a run is at home, move so often from the shard read last to the one that was read first."""
    town = Town()
    bob = next(each for number in range(100) if home(each := Tenant("shop", f"b{number}"), FIRST) == "north")
    north, bobs, keys = town.shards["north"], TenantKeys(*bob), TenantKeys(*town.alice)
    run = town.enqueue(kind="checkout")  # Its run has its id.

    def begin(tr: Transaction) -> None:
        tr.set(head_key(keys, run), encode(RunHead(1, town.clock.now_us(), has_participants=True)))
        tr.set(participant_key(keys, run, bob), encode(ParticipantState(0, 0)))

    transact(town.shards["east"].db, begin)
    transact(north.db, lambda tr: run_one(raise_fence_op(tr, north.layout, bobs, run, 1, ParticipantState(0, 0))))
    assert town.move("west") is MoveState.MOVED
    looked: list[str] = []

    def look(shard: Shard, wanted: set[KeptRun]) -> set[KeptRun]:
        found = without_known(shard, wanted)
        looked.append(shard.name)
        if len(looked) <= 3 * times and shard.name == "east":
            town.alice_lives_at("west")
            assert town.move("east") is MoveState.MOVED
        if len(looked) < 3 * times and shard.name == "west":
            assert town.move("west") is MoveState.MOVED
        return found

    monkeypatch.setattr(homes, "without_known", look)
    reports = {name: check_integrity(shard) for name, shard in town.shards.items()}
    assert [*town.shards] == ["east", "north", "west"]
    check_homes(town.shards, reports, all_shards=True)
    return [*reports.values()]


def findings_while_a_home_moves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return [each.what for report in reports_while_a_home_moves(monkeypatch) for each in report.findings]


def test_a_run_whose_home_moves_meanwhile_is_not_taken_for_one_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a repair ended the participants of a run that was alive."""
    assert findings_while_a_home_moves(monkeypatch) == []


def test_without_the_count_of_moves_its_home_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted("a check takes no notice of homes of runs that move while it looks for them"):
        assert findings_while_a_home_moves(monkeypatch) == ["a tenant keeps steps of a run that no shard knows"]


@pytest.mark.parametrize("times", [3, 100])
def test_a_home_that_moves_again_and_again_is_found_later_or_said_to_be_unverified(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    reports = reports_while_a_home_moves(monkeypatch, times=times)
    assert [each.what for report in reports for each in report.findings] == []
    assert sum(report.unverified for report in reports) == (times == 100)
