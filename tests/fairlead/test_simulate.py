"""`fairlead simulate`: a campaign ends with what it found, and a seed with the same world again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fairlead.shell import run
from zones import stored_item
from zones.layout import Place

FEW = ("simulate", "--seeds", 3, "--first", 7)
SAME = ("seeds", "violations", "probes", "virtual_s")


def forget_the_index_entry(tr: Any, place: Place, item_id: bytes, record: Any, **_: Any) -> None:
    tr.clear(place.keys.item(item_id))


def test_a_campaign_says_how_many_worlds_held() -> None:
    answer = run(*FEW, "--processes", 1, "--json")
    assert (answer.code, answer.json["seeds"], answer.json["violations"]) == (0, 3, [])
    assert answer.json["virtual_s"] > 0
    assert answer.json["probes"]["a sleeping pointer is woken"] > 0
    assert "3 seeds" in run(*FEW, "--processes", 1).out


def test_side_by_side_the_worlds_are_the_same() -> None:
    alone, beside = (run(*FEW, "--processes", count, "--json").json for count in (1, 2))
    assert [alone[name] for name in SAME] == [beside[name] for name in SAME]


def test_a_seed_replays_event_by_event() -> None:
    first, second = (run("simulate", "--seed", 7, "--json") for _ in range(2))
    assert (first.code, first.json) == (0, second.json)
    shown = run("simulate", "--seed", 7)
    assert first.json["events"] in shown.out
    assert "peace" in shown.out


def test_a_broken_promise_is_named_with_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_item, "remove", forget_the_index_entry)
    answer = run(*FEW, "--processes", 1)
    assert answer.code == 1
    assert "seed 7: " in answer.out
    assert "replay: fairlead simulate --seed 7" in answer.out
    replayed = run("simulate", "--seed", 7, "--json")
    assert replayed.code == 1
    (violation,) = replayed.json["violations"]
    assert f"seed 7: {violation['oracle']}: {violation['what']}" in answer.out


@pytest.mark.parametrize(
    "typed", [("--seeds", 0), ("--processes", 0), ("--seed", -1), ("--seeds", "many"), ("--seed", 3, "--seeds", 2)]
)
def test_nonsense_is_refused(typed: tuple[Any, ...]) -> None:
    assert run("simulate", *typed).code == 2
