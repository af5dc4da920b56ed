"""The bank: in memory, and on a FoundationDB cluster if one is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.zones.spanning.bank import Bank


@pytest.fixture(params=["memory", pytest.param("foundationdb", marks=pytest.mark.foundationdb)])
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    made = Bank(request.param)
    yield made
    made.close()
