"""The numbers of a workflow that ran, waited and went on, as a scrape of the fleet's own endpoint gives them."""

from __future__ import annotations

import time
from dataclasses import replace
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from fairlead import App, Cause, WorkflowContext, fleet
from fairlead.actors.telemetry.metrics import STEP_DURATION
from fairlead.telemetry.fleet_metrics import export_fleet_metrics
from tests.acceptance.prometheus_server import free_port
from tests.fairlead.live_consumers import eventually, until
from tests.workflows.application import add

PAYS_S = 0.2


class Scraped:
    """What one scrape answers."""

    def __init__(self, port: int) -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def numbers(self, name: str, **labels: str) -> list[float]:
        """Return the values of the series that have these labels, among others."""
        return [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]


def pay(key: str) -> str:
    time.sleep(PAYS_S)  # What is measured, not a wait for something.
    return key


def test_a_scrape_counts_the_waits_of_a_workflow_and_times_its_steps(live: App) -> None:
    """Each number is the workflow's alone: another kind, which never waits, has its own."""

    @live.workflow("waits")
    def waits(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.effect(pay)
        wf.wait_for("approved")
        wf.step(add, "b")

    live.workflow("hurries")(lambda wf: wf.step(add, "c"))
    port = free_port()
    live.configure(replace(live.config, metrics_port=port))
    alice = live.tenant("shop", "alice")
    with export_fleet_metrics(live) as fleet_metrics:
        fleet_metrics.fleet = running = fleet.start(live, "tests:app", runtime="threads")
        try:
            alice.enqueue("hurries")
            handle = alice.enqueue("waits")
            until(Cause.WAITS_FOR_SIGNAL, handle.explain)
            eventually(lambda: Scraped(port).numbers("fairlead_items_suspended_total", kind="waits") == [1])
            completed = "fairlead_items_completed_total"
            assert sum(Scraped(port).numbers(completed, kind="waits")) == 0
            handle.signal("approved")
            eventually(lambda: Scraped(port).numbers(completed) == [1, 1])
            scraped = Scraped(port)
        finally:
            running.stop(drain=0.1)
    for total, of_waits, of_hurries in (
        ("items_suspended", 1, 0),
        ("workflow_replays", 1, 0),
        ("workflow_steps", 3, 1),
    ):
        name = f"fairlead_{total}_total"
        assert sum(scraped.numbers(name, kind="waits")) == of_waits
        assert sum(scraped.numbers(name, kind="hurries")) == of_hurries
    duration = "fairlead_workflow_step_duration_seconds"
    assert scraped.numbers(f"{duration}_count", kind="waits", outcome="done") == [3]
    assert scraped.numbers(f"{duration}_count", kind="hurries", outcome="done") == [1]
    (sum_s,) = scraped.numbers(f"{duration}_sum", kind="waits")
    assert sum_s >= PAYS_S
    buckets = scraped.numbers(f"{duration}_bucket", kind="waits")
    assert (sorted(buckets), buckets[-1], len(buckets)) == (buckets, 3, len(STEP_DURATION.bounds_s) + 1)
    shorter = [each for each in STEP_DURATION.bounds_s if each < PAYS_S]
    assert buckets[len(shorter) - 1] <= 2, "the effect is in no bucket below its time"
