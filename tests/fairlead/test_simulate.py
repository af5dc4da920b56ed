"""`fairlead simulate`: a campaign reports its findings, and a seed replays the same world."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.simulation import campaign, shrink
from fairlead.simulation.campaign import BrokenPromise, CampaignResult, Outcome, probe_names, run_seed
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.queue import stored_item
from tests.fairlead.shell import Answer, run

FEW = ("simulate", "--seeds", 2, "--first", 7)
SMALL = ("--size", "items=20,trouble_ms=500")
SAME = ("seeds", "violations", "probes", "virtual_s")


def forget_the_index_entry(tr: Any, location: ZoneLocation, item_id: bytes, record: Any, **_: Any) -> None:
    tr.clear(location.keys.item(item_id))


@pytest.fixture(scope="module")
def few_in_one_process() -> Answer:
    """The answer of a campaign in one process, which takes some seconds."""
    return run(*FEW, *SMALL, "--processes", 1, "--json")


def test_a_campaign_says_how_many_worlds_held(few_in_one_process: Answer) -> None:
    answer = few_in_one_process
    assert (answer.code, answer.json["seeds"], answer.json["violations"]) == (0, FEW[2], [])
    assert answer.json["virtual_s"] > 0
    assert answer.json["probes"]["a sleeping pointer is woken"] > 0
    assert "1 seed" in run("simulate", "--seeds", 1, "--first", 7, *SMALL, "--processes", 1).out


def test_side_by_side_the_worlds_are_the_same(few_in_one_process: Answer) -> None:
    alone, beside = few_in_one_process.json, run(*FEW, *SMALL, "--processes", 2, "--json").json
    assert [alone[name] for name in SAME] == [beside[name] for name in SAME]


def test_a_seed_replays_event_by_event() -> None:
    first = run("simulate", "--seed", 7, *SMALL, "--json")
    again = run("simulate", "--seed", 7, *SMALL)
    assert (first.code, again.code) == (0, 0)
    assert first.json["events"] in again.out
    assert "the faults have stopped" in again.out


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


def test_a_campaign_for_programs_is_one_object() -> None:
    answer = run("simulate", "--seeds", 1, "--processes", 1, "--size", "items=10", "--json").json
    assert {"seeds", "violations", "probes", "virtual_s", "wall_s"} <= set(answer)
    assert sorted(answer["probes"]) == probe_names()


def test_a_violation_for_programs_says_which_seed_which_oracle_and_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_item, "remove", forget_the_index_entry)
    answer = run("simulate", "--seeds", 1, "--first", 7, "--processes", 1, "--json")
    assert answer.code == 1
    (violation,) = answer.json["violations"]
    assert violation["seed"] == 7
    assert violation["oracle"] == "the index names every record exactly once"
    assert {"what", "faults", "replay"} <= set(violation)
    smallest = answer.json["smallest"]
    assert (smallest["seed"], smallest["faults"], smallest["size"]["items"]) == (7, [], 1)
    assert "VIOLATION" in smallest["last_events"][-1]


# --- Rare points ---


def outcomes(seeds: int, probes: dict[str, int]) -> Iterator[Outcome]:
    """Report a campaign as if it had run."""
    for _ in range(seeds):
        yield Outcome([], 1_000_000, probes, "", {})


@pytest.mark.parametrize(("seeds", "code"), [(1_000, 1), (999, 0)])
def test_a_standard_campaign_that_never_reaches_a_rare_point_fails(
    seeds: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed, *others = probe_names()
    monkeypatch.setattr(campaign, "campaign", lambda *_, **__: outcomes(seeds, dict.fromkeys(others, 1)))
    answer = run("simulate", "--seeds", seeds, "--verbose")
    assert answer.code == code
    assert (f"never reached in 1,000 seeds: {missed}" in answer.out) == bool(code)
    assert f"never   {missed}" in answer.out
    assert f"never   {missed}" not in run("simulate", "--seeds", seeds).out, "only where it is asked for"


def test_a_campaign_that_reaches_every_rare_point_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "campaign", lambda *_, **__: outcomes(1_000, dict.fromkeys(probe_names(), 1)))
    assert run("simulate", "--seeds", 1_000).code == 0


def test_a_campaign_of_which_less_is_kept_need_not_reach_every_rare_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "campaign", lambda *_, **__: outcomes(1_000, {}))
    assert run("simulate", "--seeds", 1_000, "--faults", "none").code == 0


# --- Early end ---


def test_a_campaign_stops_once_three_seeds_broke_the_same_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that always occurs fails every seed, and each seed may take half a minute."""
    monkeypatch.setattr(stored_item, "remove", forget_the_index_entry)
    typed = ("simulate", "--seeds", 20, "--processes", 1, "--size", "items=5")
    answer = run(*typed, "--json")
    assert (answer.code, answer.json["seeds"], len(answer.json["violations"])) == (1, 3, 3)
    why = "after 3 of 20 seeds, as 3 broke the same promise: the index names every record exactly once"
    assert answer.json["stopped"] == why
    assert f"stopped early, {why}\n3 seeds, " in run(*typed).out


def test_seeds_that_break_different_promises_tell_different_things() -> None:
    tally = CampaignResult()
    for promise in ("one", "another", "one", "another", "a third"):
        tally.add(Outcome([BrokenPromise(tally.seeds, promise, "", ())], 0, {}, "", {}))
    assert tally.repeated is None
    tally.add(Outcome([BrokenPromise(tally.seeds, "another", "", ())], 0, {}, "", {}))
    assert tally.repeated == "another"


# --- Interruptions ---


def interrupted_after(seeds: int) -> Any:
    """Return a campaign that Ctrl-C interrupts."""

    def so_far(all_seeds: range, **_: Any) -> Iterator[Outcome]:
        yield from map(run_seed, all_seeds[:seeds])
        raise KeyboardInterrupt

    return so_far


def test_ctrl_c_shows_what_was_found_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "campaign", interrupted_after(1))
    answer = run("simulate", "--first", 7, "--verbose")
    assert answer.code == 130
    assert "interrupted: no violation" in answer.out
    assert answer.out.splitlines()[-1].startswith("1 seeds, ")
    assert "a sleeping pointer is woken" in answer.out


def test_ctrl_c_after_a_violation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "campaign", interrupted_after(1))
    monkeypatch.setattr(stored_item, "remove", forget_the_index_entry)
    answer = run("simulate", "--first", 7, "--json")
    assert (answer.code, answer.json["interrupted"], answer.json["seeds"]) == (1, True, 1)


def test_ctrl_c_while_a_failing_seed_is_made_smaller_shows_the_smallest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_item, "remove", forget_the_index_entry)
    search = shrink.shrink

    def two_steps(*args: Any, **named: Any) -> Iterator[Any]:
        yield from itertools.islice(search(*args, **named), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(shrink, "shrink", two_steps)
    answer = run("simulate", "--seeds", 1, "--first", 7, "--processes", 1, *SMALL, "--json")
    assert (answer.code, answer.json["interrupted"]) == (1, True)
    assert answer.json["smallest"]["size"]["items"] < 40


# --- Options ---


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (("--faults", "kils"), "there is no fault 'kils'. There are: conflicts, "),
        (("--faults", "kills, none"), "there is no fault 'none'"),
        (("--faults", ""), "there is no fault ''"),
        (("--size", "customers=3"), "'customers' has no size. What has: items, "),
        (("--size", "items"), "Invalid value for '--size': items: write items=NUMBER, from 1 to 100,000"),
        (("--size", "items=0"), "items=0: write items=NUMBER, from 1 to 100,000"),
        (("--size", "items=1.5"), "items=1.5: write items=NUMBER, from 1 to 100,000"),
        (("--size", "items=3,consumers=1,items=4"), "items is given twice: 3 and 4"),
        (("--first", 2**63 - 1, "--seeds", 2), f"The last seed would be {2**63}"),
        (("--seed", 3, "--first", 2), "--seed replays one world"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(typed: tuple[Any, ...], says: str) -> None:
    answer = run("simulate", *typed)
    assert answer.code == 2
    assert says in " ".join(answer.err.split())


def test_chosen_faults_and_sizes_hold_for_every_seed() -> None:
    answer = run("simulate", "--seed", 7, "--faults", "pauses,kills", "--size", "consumers=1, items=10")
    assert answer.code == 0
    assert "c1.scanner" not in answer.out
    assert "is paused for" in answer.out or "kill c0" in answer.out


@pytest.mark.parametrize(
    "typed", [("--seeds", 0), ("--processes", 0), ("--seed", -1), ("--seeds", "many"), ("--seed", 3, "--seeds", 2)]
)
def test_nonsense_is_refused(typed: tuple[Any, ...]) -> None:
    assert run("simulate", *typed).code == 2
