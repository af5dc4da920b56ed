"""The mutation proof: bugs planted in the product, one at a time, are found by the standard campaign.

`make test` runs each with a seed that is known to find it (`mutations/seeds.txt`). Any change of the product or of the
world changes what a seed brings about, so that a known seed may find its bug no more, and that is nobody's mistake:
then seeds are tried one after the other, as in a campaign, and the test fails only if the bug survives them all. So
red means that an oracle or a fault is missing, and nothing else. What it took is said below the results, so that the
table can be written anew by `python -m tests.simulation.find_seeds` before it costs much time.
"""

from collections.abc import Callable

import pytest

from tests.simulation.find_seeds import known_seeds, seeds_to_try
from tests.simulation.mutations import MUTATIONS
from tests.simulation.mutations.mutation import SEEDS, Mutation

Note = Callable[[str, object], None]

each_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=str)


@each_mutation
@pytest.mark.timeout(600)  # A known seed takes a second; a whole campaign, if one must be made up for, minutes.
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
    """It stops at the first seed that finds the bug."""
    catch = mutation.first_catch(SEEDS)
    assert catch is not None, f"none of {len(SEEDS)} seeds finds it"
    record_property("found", f"{mutation}: by seed {catch.seed}: {catch.violation.oracle}")


def test_there_are_many_mutations_and_each_says_what_it_is_in_its_own_words() -> None:
    assert len(MUTATIONS) >= 24
    assert len({mutation.title for mutation in MUTATIONS}) == len(MUTATIONS)


def test_a_mutation_whose_fragment_is_gone_from_the_product_says_so() -> None:
    (edit,) = MUTATIONS[0].edits
    stale = Mutation("stale", (edit._replace(fragment="no such line"),), ())
    with pytest.raises(AssertionError, match="holds this 0 times instead of once: 'no such line'"):
        stale.first_catch([])


def test_a_planted_bug_is_gone_afterwards() -> None:
    codes = [edit.function.__code__ for mutation in MUTATIONS for edit in mutation.edits]
    for mutation in MUTATIONS:
        with mutation.planted():
            assert any(edit.function.__code__ not in codes for edit in mutation.edits)
    assert codes == [edit.function.__code__ for mutation in MUTATIONS for edit in mutation.edits]
