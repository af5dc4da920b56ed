"""Probes: rare points of the product, each with a name of its own, counted only while somebody counts."""

from __future__ import annotations

from collections import Counter

from fairlead.simulation.campaign import probe_names
from fairlead.simulation.run import run
from fairlead.zones.probes import probe, probes_into


def test_every_probe_has_a_name_of_its_own() -> None:
    names = probe_names()
    assert len(names) == len(set(names)) > 20


def test_a_probe_counts_for_whoever_counts_and_for_nobody_afterwards() -> None:
    outer: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    with probes_into(outer):
        probe("here")
        with probes_into(inner):
            probe("there")
        probe("here")
    probe("here")
    assert (outer, inner) == ({"here": 2}, {"there": 1})


def test_a_run_reports_what_it_reached_and_nothing_that_is_not_in_the_code() -> None:
    reached = run(7).probes
    assert reached["a sleeping pointer is woken"] > 0
    assert set(reached) <= set(probe_names())
