"""Long jobs: what keeping their leases writes."""

from __future__ import annotations

from bench.long_jobs import keep


def test_a_job_of_up_to_ten_minutes_costs_two_writes_for_its_lease_at_most() -> None:
    figures = keep([2, 5, 60, 300, 599])
    assert figures["lease_writes_of_a_job_max"] == 2
    assert figures["lease_writes_per_job"] == (0 + 1 + 1 + 1 + 2) / 5


def test_heartbeats_come_once_a_second_for_all_jobs_together() -> None:
    assert 50 <= keep([60] * 20)["heartbeats"] <= 62


def test_short_jobs_cost_nothing() -> None:
    figures = keep([0.5, 1, 3])
    assert (figures["lease_writes_per_job"], figures["heartbeats"]) == (0, 0)
