"""The commands run as documented, on real Ray, and print objects with the shapes that other programs need."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RATES = ("enqueue_one", "enqueue_bulk", "enqueue_four", "drain_threads", "drain_ray")
LATENCIES = ("latency_ray", "latency_threads")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_core_prints_one_object_with_every_figure() -> None:
    result = run("bench.core", "--quick", "--json")
    for name in RATES:
        assert result[name]["per_s"] > 0
        assert result[name]["of_floor"] > 0
    for name in LATENCIES:
        assert 0 < result[name]["p50_ms"] <= result[name]["p99_ms"] <= result[name]["max_ms"]
    assert 0 < result["quiet_tenants"]["p50_ms"] <= result["quiet_tenants"]["p99_ms"]
    assert {"empty", "scanner", "manager-0", "worker-0", "worker-1"} <= set(result["rss_anon_mb"])
    assert all(megabytes > 0 for megabytes in result["rss_anon_mb"].values())
    assert {"scanner", "manager-0", "worker-0", "worker-1"} <= set(result["drain_ray_cpu_us"])


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_shards_print_rates_for_each_number_of_shards() -> None:
    result = run("bench.shards", "--quick", "--json")
    for shards in ("1", "2", "4"):
        assert all(result[shards][name] > 0 for name in ("enqueue_four", "enqueue_bulk", "drain_threads", "drain_ray"))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_many_tenants_print_the_rate_of_many_beside_that_of_few() -> None:
    result = run("bench.many_tenants", "--quick", "--json")
    assert result["many"]["tenants"] > result["few"]["tenants"]
    assert result["of_few"]["drain_ray_per_s"] > 0


def run(module: str, *arguments: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()
    result: dict[str, Any] = json.loads(line)
    return result
