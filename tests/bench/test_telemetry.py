"""The actors without telemetry have none, and each part of telemetry has a figure."""

from __future__ import annotations

import subprocess
import sys

from bench.telemetry import NO_TELEMETRY, parts_us
from tests.style.sources import ROOT

PROGRAM = """
from fairlead.actors.execution import runner
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.loading import load_attribute
load_attribute({no_telemetry!r})
outcome_counts = OutcomeCounts()
outcome_counts.end(None, began_us=1, ended_us=2)
assert not outcome_counts
with runner.Run(runner.RunningJob(b"", None, "mail", 1), runner.passed_on(None)):
    pass
assert runner.Run.__module__ == "bench.no_telemetry"
"""


def test_actors_that_load_the_application_without_telemetry_count_nothing() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM.format(no_telemetry=NO_TELEMETRY)], cwd=ROOT, check=True)


def test_every_part_has_its_microseconds() -> None:
    found = parts_us(iterations=100)
    assert set(found) == {
        "count",
        "run, no trace",
        "run, not recorded",
        "run, recorded",
        "enqueue, no span",
        "step, no trace",
        "step, not recorded",
        "step, recorded",
    }
    assert all(value > 0 for value in found.values())


def test_a_step_in_a_recorded_attempt_costs_its_span() -> None:
    found = parts_us(iterations=500)
    assert found["step, recorded"] > 2 * found["step, no trace"]
