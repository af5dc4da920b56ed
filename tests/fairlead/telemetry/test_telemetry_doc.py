"""The samples of docs/telemetry.md work as printed: an order, its trace, its metrics, its log lines."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from fairlead import config
from tests.acceptance.collector import Collector, attributes, collecting
from tests.acceptance.fleets import eventually
from tests.acceptance.prometheus_server import free_port
from tests.fairlead.shell import ROOT

DOC = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
SHOP, WEB, HASH = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", DOC, re.DOTALL)
(JOB,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
COMMANDS, TREE, LINE = re.findall(r"```\n(.*?)```", re.sub(r"```\w+\n.*?```", "", DOC, flags=re.DOTALL), re.DOTALL)
PATIENCE_S = 60.0


class Done(NamedTuple):
    """The page's order, executed: the collector's data, the scraped metrics, the log."""

    collector: Collector
    scraped: str
    logged: str


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    directory = tmp_path_factory.mktemp("doc")
    port = free_port()
    (directory / "shop.py").write_text(SHOP, encoding="utf-8")
    (directory / "web.py").write_text(WEB, encoding="utf-8")
    (directory / "fairlead.toml").write_text(SETTINGS.replace("9464", str(port)), encoding="utf-8")
    export, command = COMMANDS.splitlines()
    name, _, endpoint = export.removeprefix("export ").partition("=")
    with collecting() as collector:
        assert endpoint == "http://localhost:4318"
        env = {**os.environ, "PYTHONPATH": str(ROOT), name: collector.url}
        typed = [sys.executable, "-m", *shlex.split(command), "--runtime", "threads"]
        pipe = subprocess.PIPE
        with subprocess.Popen(typed, cwd=directory, env=env, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                subprocess.run([sys.executable, "web.py"], cwd=directory, env=env, check=True, timeout=PATIENCE_S)
                scraped = _scraped(port)
            finally:
                process.send_signal(signal.SIGTERM)
            _, logged = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0
        yield Done(collector, scraped, logged)


def _scraped(port: int) -> str:
    """Return the endpoint's metrics after the order has been executed."""
    found = ""

    def is_done() -> bool:
        nonlocal found
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            found = answer.read().decode()
        return bool(re.search(r'^fairlead_items_completed_total\{.*kind="archive"\} 1.0$', found, re.MULTILINE))

    eventually(is_done)
    return found


def test_the_spans_stand_as_they_are_drawn(done: Done) -> None:
    drawn: list[tuple[str, str | None]] = []
    above: dict[int, str] = {}
    for line in filter(None, TREE.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth] = re.split(r"\s{3,}", line.strip())[0]
        drawn.append((above[depth], above[depth - 1] if depth else None))
    spans = [span for _, span in done.collector.spans() if not span.name.startswith(("scan", "serve"))]
    names = {span.span_id: span.name for span in spans}
    found = [(span.name, names.get(span.parent_span_id)) for span in spans]
    assert sorted(found, key=str) == sorted(drawn, key=str)
    _, second = done.collector.named("run receipt")
    assert [names[link.span_id] for link in second.links] == ["enqueue receipt"]


def test_every_attribute_that_a_span_has_is_on_the_page(done: Done) -> None:
    for _, span in done.collector.spans():
        assert span.name.partition(" ")[0] in ("POST", "enqueue", "scan", "serve", "run")
        for name in attributes(span.attributes):
            assert f"`{name}`" in DOC


def test_web_server_and_fleet_name_their_service(done: Done) -> None:
    assert {process["service.name"] for process, _ in done.collector.spans()} == {"web", "fairlead"}


def test_the_endpoint_has_counts_of_the_order_and_of_the_store(done: Done) -> None:
    assert re.search(r'^fairlead_items_retried_total\{actor="worker-\d",kind="receipt"\} 1.0$', done.scraped, re.M)
    assert re.search(r'^fairlead_queue_oldest_age_seconds\{actor="stores",shard="main"\}', done.scraped, re.M)
    sent = r'^messaging_client_sent_messages_total\{actor="process",error_type="",kind="archive"\} 1.0$'
    assert re.search(sent, done.scraped, re.M)
    failed = r'^messaging_process_duration_seconds_count\{.*error_type="ConnectionError",kind="receipt"\} 1.0$'
    assert re.search(failed, done.scraped, re.M)


def test_metrics_of_the_stores_go_to_the_collector_too(done: Done) -> None:
    names = {metric.name for _, metric in done.collector.metrics()}
    assert {"fairlead.queue.oldest_age", "fairlead.slots", "messaging.process.duration"} <= names


def test_log_lines_look_as_they_are_printed(done: Done) -> None:
    printed = re.sub(r"\d+", r"\\d+", re.escape(LINE.strip())).replace(re.escape("..."), "[0-9a-f]+")
    assert re.search(printed, done.logged), done.logged


def test_the_hash_of_a_tenant_is_the_one_that_is_printed() -> None:
    exec(HASH, {})


@pytest.mark.usefixtures("empty_directory")
def test_the_settings_and_the_scrape_job_name_the_same_port() -> None:
    loaded = config.load(tomllib.loads(SETTINGS), environ={})
    assert f"{loaded.metrics_host}:{loaded.metrics_port}" in JOB
    assert config.load(environ={}).metrics_port == 0
    assert config.load(environ={}).metrics_host == loaded.metrics_host
