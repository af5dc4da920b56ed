"""Stores of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.records.storage_model.stores import KINDS, Clients, Stores


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """What makes stores."""
    made = Stores(tmp_path, lambda: request.getfixturevalue("postgresql"))
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def clients(request: pytest.FixtureRequest, stores: Stores) -> Clients:
    """Two clients of an empty store of each kind."""
    return stores.new(request.param)
