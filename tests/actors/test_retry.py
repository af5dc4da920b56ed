"""The retry policy: when a failed item runs again (QuiCK section 6, Algorithm 3, line 4)."""

from random import Random
from typing import Any

import pytest

from fairlead.actors.execution.retry import Retry, delay_us
from fairlead.zones.durations import DELAY_S_MAX
from fairlead.zones.errors import BadArgument

SECOND = 1_000_000


def delays(retry: Retry, error_count: int, *, age_us: int = 0) -> list[int | None]:
    """Return a hundred random delays."""
    random = Random(7)
    return [delay_us(retry, error_count=error_count, age_us=age_us, random=random) for _ in range(100)]


@pytest.mark.parametrize("error_count, backoff_s", [(1, 1), (2, 2), (3, 4), (4, 8), (11, 1024)])
def test_the_delay_doubles_with_every_failure(error_count: int, backoff_s: int) -> None:
    drawn = delays(Retry(), error_count)
    assert all(delay is not None and backoff_s * SECOND / 2 <= delay <= backoff_s * SECOND for delay in drawn)


def test_items_that_failed_together_do_not_run_together_again() -> None:
    drawn = [delay for delay in delays(Retry(), 1) if delay is not None]
    assert len(set(drawn)) == 100
    assert min(drawn) < 0.6 * SECOND < 0.9 * SECOND < max(drawn)


def test_the_delay_never_exceeds_its_longest() -> None:
    retry = Retry(attempts=None, backoff_max=5)
    assert all(delay is not None and delay <= 5 * SECOND for delay in delays(retry, 1_000_000))


def test_after_the_last_attempt_there_is_no_delay() -> None:
    retry = Retry(attempts=3)
    assert None not in delays(retry, 2)
    assert set(delays(retry, 3)) == {None}
    assert set(delays(retry, 4)) == {None}  # As after the number was lowered.


def test_one_attempt_means_no_retry() -> None:
    assert set(delays(Retry(attempts=1), 1)) == {None}


def test_without_a_number_of_attempts_it_goes_on_for_ever() -> None:
    assert None not in delays(Retry(attempts=None), 10_000)


def test_no_attempt_starts_later_than_give_up_ms() -> None:
    retry = Retry(give_up_after=10)
    assert None not in delays(retry, 1, age_us=9 * SECOND)
    assert set(delays(retry, 1, age_us=10 * SECOND)) == {None}
    in_doubt = delays(retry, 1, age_us=int(9.25 * SECOND))
    assert None in in_doubt, "a delay that would end too late was drawn"
    assert any(delay is not None for delay in in_doubt)


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"attempts": True},
        {"attempts": 2.5},
        {"backoff": 0},
        {"backoff": None},
        {"backoff_max": DELAY_S_MAX + 1},
        {"give_up_after": 0},
        {"in_line": -1},
        {"in_line": 101},
        {"in_line": "3"},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(BadArgument) as refused:
        Retry(**options)
    assert refused.value.fields["argument"] == next(iter(options))
