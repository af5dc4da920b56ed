"""The directory: records in worlds with faults. `test_seeds` draws fresh seeds, mutations plant bugs."""

from collections import Counter

import pytest

from fairlead.simulation.directory.model import Create, Find, IsTaken, Person, directory_of
from fairlead.simulation.directory.world import SHARDS_MAX, SHARDS_MIN, Directory, run_directory
from fairlead.simulation.linearizability.history import Operation
from fairlead.simulation.linearizability.search import Verdict, is_linearizable

SEEDS = range(60)


def test_the_same_seed_gives_the_same_history() -> None:
    assert run_directory(5).events == run_directory(5).events


def test_clerks_get_every_kind_of_answer_on_any_number_of_shards() -> None:
    """A world with few events would prove little."""
    calls: Counter[str] = Counter()
    probes: Counter[str] = Counter()
    shards: Counter[int] = Counter()
    may_have_happened = 0
    for seed in SEEDS:
        directory = Directory(seed)
        report = directory.run()
        assert not report.violations, report
        history = directory.recorder.history()
        calls.update(type(operation.call).__name__ for operation in history)
        may_have_happened += sum(not operation.happened for operation in history)
        probes.update(report.probes)
        shards[directory.plan.shards] += 1
    operations = ("Create", "Update", "Delete", "Get", "Find", "IsThere", "IsTaken", "IsChanged")
    assert min(calls[name] for name in operations) > len(SEEDS) // 10
    assert set(shards) == set(range(SHARDS_MIN, SHARDS_MAX + 1))
    for rare in (
        "a creator finds its dummy changed or gone",
        "what a stopped creator has left is removed",
        "a lookup asks all shards, as the shard of an index record is away",
        "a record that was written while an index shard was away is repaired",
        "an index is built",
        "the build of an index lists a record that lacks its value",
        "an index is dropped",
    ):
        assert probes[rare], rare
    assert may_have_happened > len(SEEDS) // 10


@pytest.mark.parametrize("seed", [30, 90, 1004])
def test_a_seed_that_has_found_a_bug_finds_none_any_more(seed: int) -> None:
    """A held-up builder; a held-up begin of a move; a scrub that took a record the key that it shares."""
    assert not run_directory(seed).violations


def test_a_find_that_misses_a_key_which_was_never_free_has_no_order() -> None:
    created = Operation("ann", Create(0, (7,), "t"), True, invoked=1, responded=2)
    missed = Operation("bob", Find(7), None, invoked=3, responded=4)
    seen = missed._replace(answer=(0, Person("t", (7,))))
    assert is_linearizable([created, missed], directory_of(1), steps_max=100).verdict is Verdict.NOT_LINEARIZABLE
    assert is_linearizable([created, seen], directory_of(1), steps_max=100).verdict is Verdict.LINEARIZABLE


def test_a_refusal_is_right_only_while_another_one_has_the_key() -> None:
    created = Operation("ann", Create(0, (7,), "t"), True, invoked=3, responded=4)
    refused = Operation("bob", IsTaken(1, (7,)), True, invoked=1, responded=2)
    late = refused._replace(responded=5)
    assert is_linearizable([created, refused], directory_of(2), steps_max=100).verdict is Verdict.NOT_LINEARIZABLE
    assert is_linearizable([created, late], directory_of(2), steps_max=100).verdict is Verdict.LINEARIZABLE
