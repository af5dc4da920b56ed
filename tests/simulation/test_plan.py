"""Plans: each run has other sizes, settings and faults, so that no code can depend on one of them."""

from dataclasses import asdict
from random import Random

from fairlead.simulation.faults.table import FAULTS
from fairlead.simulation.plan import draw_plan
from fairlead.zones.settings import ZoneSettings

NOT_READ = {"drain_ms"}  # The simulator's restarts draw the length of a drain.
PLANS = [draw_plan(Random(seed)) for seed in range(200)]


def test_every_setting_takes_several_values() -> None:
    for settings in ("zones", "consumer"):
        drawn = [asdict(getattr(plan, settings)) for plan in PLANS]
        same = {name for name in drawn[0] if len({values[name] for values in drawn}) == 1}
        assert same <= NOT_READ, f"{settings}: {same}"


def test_most_settings_of_a_shard_take_their_default_too() -> None:
    """If all values were extreme, no world would have the settings that users run."""
    default = asdict(ZoneSettings())
    drawn = [asdict(plan.zones) for plan in PLANS]
    found = {name for name, value in default.items() if any(values[name] == value for values in drawn)}
    assert found >= {"wake_slack_ms", "max_sleep_ms", "max_pointer_lease_ms", "max_item_lease_ms", "max_skew_ms"}


def test_every_fault_is_in_about_half_of_the_runs_and_no_two_are_always_together() -> None:
    rare = {"dying loops", "stalled loops", "wrong clocks", "killing handlers", "lost watches", "refused watches"}
    for name in FAULTS.keys() - rare:
        assert 0.3 <= sum(name in plan.faults for plan in PLANS) / len(PLANS) <= 0.65, name
    assert len({plan.faults for plan in PLANS}) > 150


def test_some_runs_have_no_fault_that_could_make_a_lease_expire() -> None:
    assert 20 <= sum(not plan.leases_may_run_out for plan in PLANS) <= 60
