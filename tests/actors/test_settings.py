"""Settings of a consumer: each in its range, and none against another."""

from typing import Annotated, Any, Literal, get_origin, get_type_hints

import pytest

from fairlead.actors.settings import SELECTIONS, BadSettings, ConsumerSettings
from fairlead.zones.errors import BadArgument
from fairlead.zones.settings import ZoneSettings


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


@pytest.mark.parametrize(
    "setting, value, allowed",
    [
        ("slots", 1_001, "a whole number, 1 to 1,000"),
        ("slots", 2.5, "a whole number, 1 to 1,000"),
        ("selection_frac", "half", "a number, 1e-06 to 1"),
        ("selection", "by age", ", ".join(SELECTIONS)),
    ],
)
def test_a_refusal_names_the_value_and_what_is_allowed(setting: str, value: Any, allowed: str) -> None:
    with pytest.raises(BadArgument) as refused:
        ConsumerSettings(**{setting: value})
    assert refused.value.fields == {"argument": setting, "value": value, "allowed": allowed}


@pytest.mark.parametrize("settings", [ConsumerSettings, ZoneSettings])
def test_every_setting_declares_what_it_accepts(settings: type) -> None:
    """A field without a range would accept anything."""
    declared = get_type_hints(settings, include_extras=True)
    assert {get_origin(each) for each in declared.values()} <= {Annotated, Literal}


def test_each_manager_needs_a_worker() -> None:
    with pytest.raises(BadSettings):
        ConsumerSettings(managers=3, workers=2)


def test_finished_items_may_not_linger_until_their_lease_ends() -> None:
    with pytest.raises(BadSettings):
        ConsumerSettings(lease_ms=300, linger_ms=51)


def test_the_extremes_are_allowed() -> None:
    ConsumerSettings(lease_ms=300, linger_ms=50, slots=1, workers=1, managers=1, selection_frac=1)
