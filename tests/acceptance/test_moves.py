"""Tenants move between shards while their workflows run and processes are killed: each step happens exactly once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Config
from tests.acceptance.fleets import ROLES, consumer, kill_one
from tests.acceptance.loads import assert_nothing_left
from tests.acceptance.moving import Movers
from tests.acceptance.orders import BUYERS, SHOP, Orders, assert_exactly_once, buyer
from tests.acceptance.two_shards import PAIRS, pair_of_shards
from tests.acceptance.workflow_shop import DEPOTS, depot
from tests.workflows.application import kept_keys

pytestmark = pytest.mark.usefixtures("cluster")

CLIENT_PAUSE_S = 0.005


@pytest.fixture(params=PAIRS)
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Config]:
    with pair_of_shards(request.param, tmp_path) as pair:
        yield pair


class Writer:
    """A client that writes to tenants that move, all the time.

    Attributes:
      longest_wait_s: its longest transaction.
      errors: what it met.
    """

    def __init__(self, app: App, random: Random, tenants: Sequence[str]) -> None:
        self.errors: list[str] = []
        self.written: Counter[str] = Counter()
        self.longest_wait_s = 0.0
        self._app = app
        self._random = random
        self._tenants = tenants
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write meanwhile."""
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _write(self) -> None:
        while not self._stop.wait(CLIENT_PAUSE_S):
            tenant = self._random.choice(self._tenants)
            began = time.monotonic()
            try:
                self._app.tenant(tenant).transact(lambda tr: tr.add(("written", 0), 1))
            except Exception as error:
                self.errors.append(f"write: {error!r}")
                raise
            self.written[tenant] += 1
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began)

    def assert_all_written(self) -> None:
        """See that each acknowledged write is there once; take the counters away."""
        for tenant in self._tenants:
            database = self._app.tenant(tenant)
            stored = int.from_bytes(database.transact(lambda tr: tr.get(("written", 0))) or b"", "little")
            assert stored == self.written[tenant], tenant
            database.transact(lambda tr: tr.clear(("written", 0)))


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.long)])
def test_every_step_happens_once_though_tenants_move_and_processes_are_killed(
    app: App, chosen: Config, tmp_path: Path, kills: int, record_property: Any
) -> None:
    random = Random(kills)
    tenants = [*map(buyer, range(BUYERS)), *map(depot, range(DEPOTS))]
    orders = Orders(app, tmp_path / "paid")
    movers, writer = Movers(app, Random(kills + 1), tenants), Writer(app, Random(kills + 2), tenants)
    begun = time.monotonic()
    with consumer(chosen, reference=SHOP) as running:
        with movers.running(), writer.running():
            for _ in range(kills):
                orders.place(30)
                kill_one(running, chosen, random.choice([*ROLES, "worker", "worker"]), random)
            orders.approve_all()
        writer.assert_all_written()
        assert_exactly_once(orders)
        assert_nothing_left(app)
        assert [key for number in range(BUYERS) for key in kept_keys(app, buyer(number))] == []
    assert movers.errors + writer.errors == []
    assert movers.ended["moved"] > 0
    record_property(
        f"{kills} kills while tenants moved between two shards",
        f"{orders.count} workflows and {dict(movers.ended)} moves in {time.monotonic() - begun:.0f} s, each step once;"
        f" longest transaction of a client {writer.longest_wait_s:.2f} s",
    )
