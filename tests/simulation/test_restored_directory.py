"""A directory whose tenants are restored, in worlds with faults. Mutations plant bugs in it."""

from collections import Counter

import pytest

from fairlead.simulation.directory.restored import RestoredDirectory, run_restored_directory

SEEDS = range(14, 26)


def test_the_same_seed_gives_the_same_events() -> None:
    assert run_restored_directory(5).events == run_restored_directory(5).events


def test_tenants_are_restored_while_clerks_write_them() -> None:
    """A world with few events would prove little."""
    probes: Counter[str] = Counter()
    restored = shared = 0
    for seed in SEEDS:
        directory = RestoredDirectory(seed)
        report = directory.run()
        assert not report.violations, report
        restored += sum("has restored" in line for line in report.lines)
        shared += sum("gives up shared keys" in line for line in report.lines)
        probes.update(report.probes)
    assert restored > 3 * len(SEEDS)
    assert shared
    for rare in (
        "a dummy is deleted, because its tenant was restored",
        "a restored record gets other keys than it had, as indexes have changed since",
        "a record that was written while an index shard was away is repaired",
    ):
        assert probes[rare], rare


@pytest.mark.parametrize("seed", [29000405, 29000918])
def test_a_seed_that_has_found_a_bug_finds_none_any_more(seed: int) -> None:
    """A scrub took a restored record a key before it was marked; a restore where no type of records was stored."""
    assert not run_restored_directory(seed).violations
