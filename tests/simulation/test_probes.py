"""Probes: rare points of the product, each with its own name, counted only while a counter is set."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fairlead import simulation
from fairlead.simulation.campaign import probe_names
from fairlead.simulation.run import run
from fairlead.zones.probes import probe, probes_into


def test_every_probe_has_a_name_of_its_own() -> None:
    names = probe_names()
    assert len(names) == len(set(names)) > 20


def test_a_probe_counts_into_the_innermost_counter_and_nowhere_afterwards() -> None:
    outer: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    with probes_into(outer):
        probe("here")
        with probes_into(inner):
            probe("there")
        probe("here")
    probe("here")
    assert (outer, inner) == ({"here": 2}, {"there": 1})


def test_a_run_reports_only_probes_that_are_in_the_code() -> None:
    reached = run(7).probes
    assert reached["a sleeping pointer is woken"] > 0
    assert set(reached) <= set(probe_names())


def test_no_probe_is_outside_the_product() -> None:
    """A campaign counts those of the product: another one would be counted in a run that reaches it only."""
    sources = [path for folder in simulation.__path__ for path in Path(folder).rglob("*.py")]
    assert [path.name for path in sources if "import probe\n" in path.read_text("utf-8")] == []
