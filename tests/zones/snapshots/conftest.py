"""Users with an empty store of every engine."""

from __future__ import annotations

import pytest

from fairlead.zones.engines import Database
from tests.clocks import ManualClock
from tests.zones.snapshots.user import User


@pytest.fixture
def alice(db: Database, clock: ManualClock) -> User:
    return User(db, clock)
