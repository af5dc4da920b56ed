"""The shipped Grafana dashboard queries all metrics of the endpoint, and no others."""

from __future__ import annotations

import json
import re
from typing import Any

from fairlead.actors.telemetry.metrics import METRICS, Metric, MetricType
from fairlead.telemetry.prometheus import FleetCollector, prometheus_name
from tests.fairlead.shell import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs/grafana/fairlead.json").read_text(encoding="utf-8"))
DOC = (ROOT / "docs/telemetry.md").read_text(encoding="utf-8")
NAME = re.compile(r"\b(?:fairlead|messaging)_\w+")
SUFFIXES = {
    MetricType.COUNTER: ("_total",),
    MetricType.GAUGE: ("",),
    MetricType.HISTOGRAM: ("_bucket", "_sum", "_count"),
}


def samples(metric: Metric) -> set[str]:
    return {prometheus_name(metric) + suffix for suffix in SUFFIXES[metric.form]}


SERVED = {name: metric for metric in METRICS for name in samples(metric)}
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_metric_that_it_names_is_one_that_the_endpoint_serves() -> None:
    families = {family.name: family for family in FleetCollector(dict).collect()}
    assert set(families) == {prometheus_name(metric) for metric in METRICS}
    asked = {name for expression in EXPRESSIONS for name in NAME.findall(expression)}
    assert asked <= set(SERVED)


def test_every_metric_that_the_endpoint_serves_is_drawn_and_documented() -> None:
    drawn = {SERVED[name] for expression in EXPRESSIONS for name in NAME.findall(expression)}
    assert {metric.name for metric in METRICS} == {metric.name for metric in drawn}
    documented = set(re.findall(r"^\| `((?:fairlead|messaging)_\w+)` \|", DOC, re.MULTILINE))
    written = {prometheus_name(each) + ("_total" if each.form is MetricType.COUNTER else "") for each in METRICS}
    assert documented == written


def test_every_label_that_it_names_is_one_that_its_metric_has() -> None:
    known = {"le", "actor", "instance"}
    for expression in EXPRESSIONS:
        metrics = [SERVED[name] for name in NAME.findall(expression)]
        has = known | {label for metric in metrics for label in metric.labels}
        grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", expression) for label in found.split(",")}
        assert grouped <= has, expression
        for name, selected in re.findall(r"((?:fairlead|messaging)_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)!?[=~]", selected)) <= known | set(SERVED[name].labels), expression


def test_every_label_of_a_legend_is_one_by_which_its_query_groups() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
            outermost = {label.strip() for label in grouped[0].split(",")} if grouped else set()
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= outermost, target


def test_a_metric_with_a_label_for_failures_is_queried_by_that_label() -> None:
    """Items that the store has refused were not enqueued."""
    for expression in EXPRESSIONS:
        for following in re.findall(r"messaging_client_sent_messages_total(\S)", expression):
            assert following == "{", expression


def test_the_labels_of_every_metric_are_documented() -> None:
    rows = re.findall(r"^\| `((?:fairlead|messaging)_\w+)` \|.*\| ([^|]*) \|$", DOC, re.MULTILINE)
    documented = {name: tuple(filter(None, labels.strip().split(", "))) for name, labels in rows}
    written = {
        prometheus_name(each) + ("_total" if each.form is MetricType.COUNTER else ""): each.labels for each in METRICS
    }
    assert documented == written


def test_it_is_a_dashboard_that_grafana_can_import() -> None:
    assert DASHBOARD["uid"] == "fairlead"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["description"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
