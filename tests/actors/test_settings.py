"""Settings of a consumer: each in its range, and none against another."""

from typing import Any

import pytest

from fairlead.actors.settings import BadSettings, ConsumerSettings
from fairlead.zones.errors import BadArgument


@pytest.mark.parametrize(
    "setting, value",
    [
        ("slots", 0),
        ("slots", 1_001),
        ("slots", True),
        ("lease_ms", 299),
        ("lease_ms", "10000"),
        ("selection_frac", 0),
        ("selection_frac", 1.1),
        ("selection_frac", float("nan")),
        ("selection", "by age"),
        ("selection", None),
        ("workers", 2.5),
        ("peek_max", 10.0),
    ],
)
def test_a_value_out_of_range_or_of_another_type_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(BadArgument) as refused:
        ConsumerSettings(**{setting: value})
    assert refused.value.fields["argument"] == setting


def test_each_manager_needs_a_worker() -> None:
    with pytest.raises(BadSettings):
        ConsumerSettings(managers=3, workers=2)


def test_finished_items_may_not_linger_away_their_lease() -> None:
    with pytest.raises(BadSettings):
        ConsumerSettings(lease_ms=300, linger_ms=51)


def test_the_extremes_are_allowed() -> None:
    ConsumerSettings(lease_ms=300, linger_ms=50, slots=1, workers=1, managers=1, selection_frac=1)
