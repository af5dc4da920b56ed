"""The load generators run on real Ray, and print an object with the shape that other programs need."""

import pytest

from tests.bench.test_core import run


@pytest.mark.long
@pytest.mark.timeout(300)  # Twenty seconds on two quiet cores.
def test_a_quick_load_prints_the_waits_of_all_items() -> None:
    result = run("bench.load", "--quick", "--json", "--items", "2", "--skew", "pareto")
    outcome, enqueue = result["outcome"], result["enqueue"]
    assert outcome["item"]["count"] == 2 * enqueue["count"] > 0
    assert 0 < outcome["item"]["p50_ms"] <= outcome["item"]["p99_9_ms"]
    assert 0 < outcome["pointer"]["p50_ms"] <= outcome["pointer"]["p99_9_ms"]
    assert outcome["leases"]["leased"] > 0
    assert result["load"]["work_ms"] == 10
