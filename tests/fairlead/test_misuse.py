"""What a newcomer writes by mistake is refused where it stands, in words that say what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead import App, BadArgument

# --- Decorators ---


@pytest.mark.parametrize(
    "decorator, written",
    [("handler", '@app.handler("kind")'), ("every", "@app.every(60)"), ("daily", '@app.daily("03:30")')],
)
def test_a_decorator_without_its_parentheses_is_refused_with_them(app: App, decorator: str, written: str) -> None:
    """It would get the function as its first argument, register nothing, and the fleet would wait for ever."""

    def sweep() -> None: ...

    bare: Callable[[Any], object] = getattr(app, decorator)
    with pytest.raises(BadArgument) as caught:
        bare(sweep)
    assert written in str(caught.value.fields["allowed"])
    assert "sweep" in str(caught.value.fields["value"])
    assert (list(app.registry), app.periods) == ([], [])


@pytest.mark.parametrize("seconds", ["60", None, True, float("inf"), float("nan")])
def test_a_time_between_ticks_that_is_no_number_is_refused(app: App, seconds: Any) -> None:
    with pytest.raises(BadArgument, match="seconds"):
        app.every(seconds)
    with pytest.raises(BadArgument, match="phase"):
        app.every(60, phase=seconds)


def test_a_time_of_day_that_is_no_text_is_refused(app: App) -> None:
    at: Any = 330
    with pytest.raises(BadArgument, match="HH:MM"):
        app.daily(at)
