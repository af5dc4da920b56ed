"""The command runs as documented, and prints the figures that other programs need."""

from __future__ import annotations

import pytest

from tests.bench.test_core import run


@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_quick_build_prints_rates_and_what_users_notice() -> None:
    figures = run("bench.index_build", "--quick", "--json")
    assert figures["alone"]["per_s"] > 0
    assert figures["throttled"]["per_s"] > 0
    assert figures["users' p99"]["ratio"] > 0
