"""An integrity check while a tenant moves: it finds nothing wrong, and repairs nothing where nothing lives any more."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.maintenance.integrity import check_integrity, checker
from fairlead.zones.maintenance.integrity.counts import verify_counts
from fairlead.zones.maintenance.integrity.walk import confirm
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import claims_of_tenant
from tests.simulation.races.missing_guards import planted
from tests.zones.moving.test_claims import SESSION, claim
from tests.zones.moving.test_guards import run_until
from tests.zones.moving.town import Town

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
