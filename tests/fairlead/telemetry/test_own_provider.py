"""An application that configures OpenTelemetry itself keeps its own provider."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fairlead.shell import ROOT

PROVIDER = """
import fairlead
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
app = fairlead.App("embedded:data")

@app.handler("mail")
def mail(job):
    pass

with trace.get_tracer("web").start_as_current_span("POST"):
    app.tenant("shop", "alice").enqueue("mail")
"""
FLEET = """
from fairlead import fleet
running = fleet.start(app, "shop:app", runtime="threads")
while not running.counts().get("completed"):
    app.clock.sleep_us(1_000)
running.stop()
"""
DRAIN = """
from fairlead.testing import drain
drain(app)
"""
SHOWN = """
print(sorted(span.name.split()[0] for span in exporter.get_finished_spans() if "scan" not in span.name))
"""


def ran(program: str, directory: Path, **variables: str) -> str:
    """Run a program in a process of its own, and return what it prints."""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT), **variables}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, f"made a new store at {directory / 'data'}, for shard main\n")
    return answer.stdout.strip()


@pytest.mark.parametrize("variables", [{}, {"OTEL_TRACES_EXPORTER": "console"}])
def test_a_fleets_spans_go_to_the_applications_own_provider(tmp_path: Path, variables: dict[str, str]) -> None:
    assert ran(PROVIDER + FLEET + SHOWN, tmp_path, **variables) == "['POST', 'enqueue', 'run', 'serve']"


def test_a_drain_in_a_users_test_has_spans_too(tmp_path: Path) -> None:
    assert ran(PROVIDER + DRAIN + SHOWN, tmp_path) == "['POST', 'enqueue', 'run']"
