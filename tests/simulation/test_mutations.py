"""The mutation proof: bugs planted in the product, one at a time, are found by the standard campaign.

`make test` runs a sixteenth of them, drawn anew each time, with a seed known to find each (`mutations/seeds.txt`);
`make test-all` runs all. A change of the product or of the world changes the run of a seed, so a known seed may not
find its bug any more. That is not an error: the test then tries the campaign's seeds one by one. It fails only if the
bug survives all of them, which means that an oracle or a fault is missing. The test prints the new seed below the
results. `python -m tests.simulation.find_seeds` writes the table anew, which keeps the tests fast. A bug
without a known seed is planted by `make test-all`, and by a race in every run (`races`).
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SEEDS as FRESH_SEEDS
from tests.simulation.find_seeds import known_seeds, main, seeds_to_try
from tests.simulation.mutations import IN_RACES, MUTATIONS
from tests.simulation.mutations.mutation import SEEDS, Mutation

Note = Callable[[str, object], None]

KNOWN = known_seeds()
each_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
SHARE = 16  # One in so many mutations is planted by a short run: about fifteen, three seconds each.
DRAWN = int(os.environ[FRESH_SEEDS].partition(",")[0]) % SHARE
drawn_mutations = pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(mutation, marks=[] if number % SHARE == DRAWN and mutation.title in KNOWN else pytest.mark.long)
        for number, mutation in enumerate(MUTATIONS)
    ],
    ids=str,
)


@drawn_mutations
@pytest.mark.timeout(600)  # A known seed takes a second; the search for a new one takes minutes.
def test_a_known_seed_finds(mutation: Mutation, record_property: Note) -> None:
    known = known_seeds().get(mutation.title)
    catch = mutation.first_catch(seeds_to_try(known))
    assert catch is not None, f"none of {len(SEEDS)} seeds finds it"
    if catch.seed != known:
        record_property("seed no longer known", f"{mutation}: found by seed {catch.seed} instead of {known}")


@pytest.mark.long
@each_mutation
@pytest.mark.timeout(600)
def test_a_campaign_of_200_seeds_finds(mutation: Mutation, record_property: Note) -> None:
    """The campaign stops at the first seed that finds the bug."""
    catch = mutation.first_catch(SEEDS)
    assert catch is not None, f"none of {len(SEEDS)} seeds finds it"
    record_property("found", f"{mutation}: by seed {catch.seed}: {catch.violation.oracle}")


def test_the_search_for_seeds_explains_itself_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "python -m tests.simulation.find_seeds" in capsys.readouterr().out


def test_there_are_many_mutations_and_each_has_its_own_title() -> None:
    assert len(MUTATIONS) >= 24
    assert len({mutation.title for mutation in MUTATIONS}) == len(MUTATIONS)


def test_each_bug_has_a_seed_that_finds_it_or_a_race_that_plants_it() -> None:
    """A bug whose seed is lost, and that no other seed finds, needs a race: otherwise a short run never plants it.

    What tries all orders of accesses is a race, too, and so is a test that forces one order.
    """
    here = Path(__file__).parent
    elsewhere = (
        "zones/external/test_orders.py",
        "zones/moving/test_checks_beside_moves.py",
        "zones/moving/test_claims.py",
        "zones/moving/test_guards.py",
        "zones/moving/test_late_clearing.py",
        "zones/moving/test_late_movers.py",
        "zones/moving/test_late_visits.py",
        "fairlead/test_index_build.py",
        "fairlead/test_records_restored.py",
        "fairlead/test_scrub.py",
        "fairlead/test_unique_items.py",
    )
    files = [*here.glob("races/test_*.py"), *(here.parent / name for name in elsewhere)]
    races = "".join(path.read_text(encoding="utf-8") for path in files)
    bugs = [bug.title for bug in (*MUTATIONS, *IN_RACES)]
    assert [title for title in bugs if title not in KNOWN and f'"{title}"' not in races] == []
    assert set(KNOWN) <= {mutation.title for mutation in MUTATIONS}


def test_a_mutation_whose_fragment_is_not_in_the_product_raises_an_error() -> None:
    (edit,) = MUTATIONS[0].edits
    stale = Mutation("stale", (edit._replace(fragment="no such line"),), ())
    with pytest.raises(AssertionError, match="holds this 0 times instead of once: 'no such line'"):
        stale.first_catch([])


def test_a_planted_bug_is_removed_afterwards() -> None:
    codes = [edit.function.__code__ for mutation in MUTATIONS for edit in mutation.edits]
    for mutation in MUTATIONS:
        with mutation.planted():
            assert any(edit.function.__code__ not in codes for edit in mutation.edits)
    assert codes == [edit.function.__code__ for mutation in MUTATIONS for edit in mutation.edits]
