"""A real Prometheus scrapes a running fleet, and answers what an operator asks."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest

from fairlead.telemetry.fleet_metrics import export_fleet_metrics
from tests.acceptance import shop
from tests.acceptance.fleets import ROOT, config, consumer, eventually, opened
from tests.acceptance.prometheus_server import Prometheus, free_port, scraping

DASHBOARD = json.loads((ROOT / "docs/grafana/fairlead.json").read_text(encoding="utf-8"))
NEVER_HERE = re.compile(r"expiries|lost|records_scatters|fairlead_external_")  # What no item does within this test.
ITEMS = 40

pytestmark = pytest.mark.usefixtures("cluster")


class Scraped(NamedTuple):
    """A server that has scraped a fleet which did `ITEMS` items, and is at one more; and the fleet."""

    server: Prometheus
    running: Any


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Iterator[Scraped]:
    directory = tmp_path_factory.mktemp("prometheus")
    chosen = replace(config(directory, workers=1), metrics_port=free_port())
    told = directory / "told"
    with opened(chosen) as app, export_fleet_metrics(app) as fleet_metrics, consumer(chosen) as running:
        fleet_metrics.fleet = running
        with scraping(directory, chosen.metrics_port) as server:
            alice = app.tenant("shop", "alice")
            for number in range(ITEMS):
                alice.enqueue("plain", shop.payload(number))
            alice.enqueue("plain", "not what the handler expects", delay=0.001)
            alice.enqueue("until_told", shop.payload(0, path=str(told)))
            alice.enqueue("nobody_knows_this", None)
            alice.enqueue("stepwise")
            eventually(lambda: server.number("sum(fairlead_items_completed_total)") == ITEMS)
            eventually(lambda: (server.number("sum(fairlead_attempts_failed_total)") or 0) > 0)
            yield Scraped(server, running)
            told.touch()


def test_counts_and_times_are_there_by_kind(scraped: Scraped) -> None:
    server = scraped.server
    assert server.number('fairlead_items_completed_total{kind="plain",actor="worker-0"}') == ITEMS
    assert server.number('sum(messaging_process_duration_seconds_count{kind="plain"}) > bool 40') == 1
    assert server.number('messaging_process_duration_seconds_count{kind="plain",error_type=""}') == ITEMS
    assert server.number('fairlead_item_latency_seconds_bucket{kind="plain",le="+Inf"} > bool 40') == 1
    late = 'histogram_quantile(0.5, fairlead_item_latency_seconds_bucket{kind="plain"})'
    assert 0 < (server.number(late) or 0) < 60
    eventually(lambda: (server.number('fairlead_items_retried_total{kind="plain"}') or 0) > 0)


def test_steps_of_workflows_and_their_replays_are_counted(scraped: Scraped) -> None:
    steps = 'fairlead_workflow_steps_total{kind="stepwise",outcome="done"}'
    eventually(lambda: scraped.server.number(steps) == 2)
    eventually(lambda: scraped.server.number('fairlead_workflow_replays_total{kind="stepwise"}') == 1)


def test_what_waits_and_what_runs_is_seen(scraped: Scraped) -> None:
    server = scraped.server
    assert server.number('fairlead_queue_depth{shard="main",kind="nobody_knows_this"}') == 1
    assert server.number('fairlead_queue_oldest_age_seconds{shard="main"} >= bool 0') == 1
    eventually(lambda: server.number("fairlead_slots_in_use") == 1)
    assert server.number("fairlead_slots") == 8


def answered(server: Prometheus, expression: str) -> bool:
    """Whether a query has a number, or could have none here; one that is no query raises."""
    return bool(server.ask(expression)) or bool(NEVER_HERE.search(expression))


def test_every_query_of_the_dashboard_is_answered_with_numbers(scraped: Scraped) -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m")
            eventually(
                partial(answered, scraped.server, expression),
                otherwise=partial("nothing is known of {}".format, expression),
            )


def test_a_worker_that_dies_begins_anew_and_is_scraped_again(scraped: Scraped) -> None:
    """Prometheus notices that its counts have begun at zero, and adds them to those before."""
    before = scraped.server.number("fairlead_slots")
    (pid,) = scraped.running.pids()["worker"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: scraped.running.pids()["worker"] not in ([pid], []))
    eventually(lambda: scraped.server.number('fairlead_items_completed_total{kind="plain"}') != ITEMS)
    eventually(lambda: scraped.server.number("fairlead_slots") == before)
