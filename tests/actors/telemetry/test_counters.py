"""Counts add up, and each duration is in the right bucket."""

from __future__ import annotations

import pytest

from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.counters import Counters, Histogram, Reading
from fairlead.actors.telemetry.errors import ERROR_TYPES_MAX, OTHER, ErrorTypes, error_type
from fairlead.actors.telemetry.metrics import (
    COMPLETED,
    CONFLICTS,
    CONSUMED,
    DURATION,
    FAILED,
    ITEM_LATENCY,
    METRICS,
    POINTER_LATENCY,
    MetricType,
)
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from tests.actors.stage import item_ref

MS = 1_000


@pytest.mark.parametrize(
    "duration_us, bucket", [(-5, 0), (0, 0), (1 * MS, 0), (1 * MS + 1, 1), (3_600_000 * MS, 16), (3_600_001 * MS, 17)]
)
def test_a_duration_is_counted_under_the_first_bound_that_it_does_not_exceed(duration_us: int, bucket: int) -> None:
    histogram = Histogram(POINTER_LATENCY)
    histogram.record(duration_us)
    counts, sum_s = histogram.read()
    assert counts.index(1) == bucket
    assert sum_s == max(duration_us, 0) / 1e6


def test_counts_of_one_metric_and_its_labels_add_up() -> None:
    counters = Counters()
    counters.add(CONFLICTS, "main", "read", count=2)
    counters.add(CONFLICTS, "main", "read")
    counters.add(CONFLICTS, "main", "commit", count=0)
    name = CONFLICTS.name
    assert counters.read().numbers == {(name, ("main", "read")): 3, (name, ("main", "commit")): 0}


def test_what_was_read_does_not_change_with_what_is_counted_later() -> None:
    counters = Counters()
    counters.histogram(POINTER_LATENCY, "main").record(5)
    reading = counters.read()
    counters.histogram(POINTER_LATENCY, "main").record(5)
    counters.add(CONFLICTS, "main", "read")
    assert reading.histograms[POINTER_LATENCY.name, ("main",)][0][0] == 1
    assert not reading.numbers


def ref_of(kind: str, vested_us: int) -> ItemRef:
    return item_ref(1, kind=kind)._replace(vested_us=vested_us)


def test_a_sum_of_readings_has_each_series_of_either_and_adds_up_what_both_have() -> None:
    one, other = Counters(), Counters()
    for each in (one, other):
        each.add(CONFLICTS, "main", "read", count=2)
        each.histogram(POINTER_LATENCY, "main").record(1_000_000)
    other.add(CONFLICTS, "other", "read")
    total = one.read() + other.read() + Reading()
    assert total.numbers == {(CONFLICTS.name, ("main", "read")): 4, (CONFLICTS.name, ("other", "read")): 1}
    ((counts, sum_s),) = total.histograms.values()
    assert (sum(counts), sum_s) == (2, 2.0)
    assert sum(one.read().histograms[POINTER_LATENCY.name, ("main",)][0]) == 1, "the terms stay as they are"


def test_an_attempt_is_counted_with_its_wait_its_length_and_its_end() -> None:
    outcome_counts = OutcomeCounts()
    outcome_counts.end(ref_of("mail", 1_000 * MS), began_us=1_003 * MS, ended_us=1_023 * MS)
    outcome_counts["mail"].failed += 1
    outcome_counts["mail"].outcomes["retried"] += 1
    outcome_counts["fax"].outcomes["completed"] += 1
    reading = outcome_counts.read()
    assert reading.numbers[CONSUMED.name, ("mail", "")] == reading.numbers[FAILED.name, ("mail",)] == 1
    assert reading.numbers["fairlead.items.retried", ("mail",)] == 1
    assert reading.numbers[COMPLETED.name, ("fax",)] == 1
    assert reading.histograms[ITEM_LATENCY.name, ("mail",)] == ([0, 0, 1, *[0] * 15], 0.003)
    assert reading.histograms[DURATION.name, ("mail", "")] == ([0, 0, 1, *[0] * 12], 0.02)


def test_failed_attempts_are_counted_separately_by_the_class_of_their_error() -> None:
    outcome_counts = OutcomeCounts()
    for failed_by in ("", "ConnectionError", "ConnectionError", "shop.CardRefused"):
        outcome_counts.end(ref_of("mail", 0), began_us=0, ended_us=20 * MS, failed_by=failed_by)
    reading = outcome_counts.read()
    found = {"": 1, "ConnectionError": 2, "shop.CardRefused": 1}
    for failed_by, count in found.items():
        assert reading.numbers[CONSUMED.name, ("mail", failed_by)] == count
        assert reading.histograms[DURATION.name, ("mail", failed_by)][1] == pytest.approx(count * 0.02)
    assert sum(name == CONSUMED.name for name, _ in reading.numbers) == len(found)


def test_classes_of_errors_beyond_twenty_are_counted_together() -> None:
    """A class may be made anew with each call; each would be a series for ever."""
    types = ErrorTypes()
    named = [error_type(type(f"Made{number}", (Exception,), {})()) for number in range(ERROR_TYPES_MAX + 2)]
    counted = [types.counted(each) for each in named]
    assert counted == [*named[:ERROR_TYPES_MAX], OTHER, OTHER]
    assert (types.counted(named[0]), types.counted("")) == (named[0], "")


def test_a_class_without_a_readable_name_still_has_an_error_type() -> None:
    def refuse(cls: type) -> str:
        raise RuntimeError("no name")

    denying = type("Denying", (type,), dict.fromkeys(("__module__", "__dict__"), property(refuse)))
    strange = denying("Strange", (Exception,), {"__module__": "shop"})
    assert error_type(strange()) == "shop.Strange"
    assert error_type(denying("Stranger", (Exception,), {"__module__": None})()) == "Stranger"
    assert error_type(ConnectionError()) == "ConnectionError"


def test_an_unknown_wait_of_an_item_is_not_counted() -> None:
    outcome_counts = OutcomeCounts()
    outcome_counts.end(ref_of("mail", 0), began_us=5, ended_us=6)
    assert sum(outcome_counts.read().histograms[ITEM_LATENCY.name, ("mail",)][0]) == 0


def test_every_metric_has_a_name_of_its_own_and_histograms_have_rising_bounds() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert bool(metric.bounds_s) == (metric.form is MetricType.HISTOGRAM)
        assert list(metric.bounds_s) == sorted(set(metric.bounds_s))
