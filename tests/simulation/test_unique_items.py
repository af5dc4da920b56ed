"""Unique items in worlds with faults. `test_seeds` draws fresh seeds, mutations plant bugs."""

from collections import Counter

from fairlead.simulation.unique_items.world import SHARDS_MAX, SHARDS_MIN, UniqueItems, run_unique_items

SEEDS = range(32)  # The rarest point is reached by one seed in five.
GIVEN_UP = ("enqueue", "reserve", "complete")  # Operations that faults end.


def test_the_same_seed_gives_the_same_events() -> None:
    assert run_unique_items(5).events == run_unique_items(5).events


def test_keys_are_taken_refused_and_kept_on_any_number_of_shards() -> None:
    """A world with few events would prove little."""
    seen: Counter[str] = Counter()
    probes: Counter[str] = Counter()
    shards: Counter[int] = Counter()
    for seed in SEEDS:
        world = UniqueItems(seed)
        report = world.run()
        assert not report.violations, report
        seen.update(world.holders.counts())
        seen.update(name for line in report.lines for name in GIVEN_UP if f"gives up to {name}" in line)
        probes.update(report.probes)
        shards[world.plan.shards] += 1
    assert set(shards) == set(range(SHARDS_MIN, SHARDS_MAX + 1))
    assert min(seen[name] for name in ("held", "refused", "kept", *GIVEN_UP)) > len(SEEDS) // 10
    for rare in (
        "a creator finds its dummy changed or gone",
        "what a stopped creator has left is removed",
        "a dead letter is retried",
        "an id that was kept taken is free again",
    ):
        assert probes[rare], rare
