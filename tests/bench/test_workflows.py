"""The memory of a long workflow stays, and the command prints the figures that other programs need."""

from __future__ import annotations

from typing import Any

import pytest

from bench.workflows import CHECKPOINT_EVERY
from tests.bench.test_core import run

GROWTH_MB_MAX = 20


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("what", "figures"),
    [
        ("latency", {"threads", "ray", "machine"}),
        ("checkpoint", {"steps", "steps_per_s", "early_mb", "last_mb", "growth_mb", "machine"}),
        ("replay", {"0_recorded", "1000_recorded", "replay_p50_ms", "machine"}),
        ("sleeping", {"none", "one_tenant", "as_many_tenants", "machine"}),
    ],
)
def test_each_quick_command_prints_its_figures(what: str, figures: set[str]) -> None:
    assert set(run("bench.workflows", what, "--quick", "--json")) == figures


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_workflow_that_forgets_its_steps_by_checkpoints_keeps_its_memory() -> None:
    result: dict[str, Any] = run("bench.workflows", "checkpoint", "--quick", "--json")
    assert result["steps"] >= 10 * CHECKPOINT_EVERY
    assert result["growth_mb"] < GROWTH_MB_MAX
