"""Durations as users give them become whole microseconds, or one clear error."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from fairlead.zones.durations import ABOVE_0, DELAY_S_MAX, duration_us
from fairlead.zones.errors import BadArgument


@pytest.mark.parametrize(
    "value, expected_us",
    [
        (0, 0),
        (3, 3_000_000),
        (0.25, 250_000),
        (1e-9, 1),
        (timedelta(hours=1, microseconds=1), 3_600_000_001),
        (DELAY_S_MAX, DELAY_S_MAX * 1_000_000),
        (timedelta(days=3_650), DELAY_S_MAX * 1_000_000),
    ],
)
def test_seconds_and_timedeltas_become_whole_microseconds(value: Any, expected_us: int) -> None:
    assert duration_us("delay", value) == expected_us


@pytest.mark.parametrize(
    "value",
    [-1, -1e-9, DELAY_S_MAX + 1, 10**400, float("nan"), float("inf"), True, False, None, "5", Decimal(5),
     timedelta(seconds=-1), timedelta(days=3_651)],
)  # fmt: skip
def test_anything_else_is_refused_with_the_argument_and_its_range(value: Any) -> None:
    with pytest.raises(BadArgument) as refused:
        duration_us("delay", value)
    assert refused.value.fields["argument"] == "delay"
    assert refused.value.fields["allowed"] == "seconds or a timedelta, 0 to 315,360,000 s"


@pytest.mark.parametrize("value", [0, 0.0, timedelta(0)])
def test_a_duration_that_must_be_above_0_is_refused_at_0(value: Any) -> None:
    with pytest.raises(BadArgument, match="above 0 to 60 s, or None"):
        duration_us("timeout", value, low_s=ABOVE_0, high_s=60, also=", or None")
