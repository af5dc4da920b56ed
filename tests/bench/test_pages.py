"""The benchmark of the dashboard's pages and of `why` measures each of them on a real server."""

import pytest

from tests.bench.test_core import run


@pytest.mark.timeout(240)
def test_a_small_measurement_has_the_time_of_every_page_and_of_why() -> None:
    result = run("bench.pages", "--json", "--tenants", "300", "--waiting", "200", "--times", "2")
    assert result["stored"] == {"tenants": 300, "waiting": 200}
    assert {path.partition("?")[0] for path in result["pages_ms"]} == {
        "/", "/tenants", "/tenant", "/kinds", "/kind", "/periodic", "/running", "/delayed", "/dead-letters",
        "/dead-letters/items", "/item", "/search", "/log", "/workflows",
    }  # fmt: skip
    assert set(result["why_ms"]) == {"with tenant", "without", "of nothing"}
    assert all(0 < each["p50"] <= each["max"] for each in (*result["pages_ms"].values(), *result["why_ms"].values()))
