"""Tenants that move between the two shards all the while, and how their moves end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from fairlead import App
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.errors import MoveFailed, MoveRefused, MoveUnderWay
from tests.acceptance.fleets import eventually

PAUSE_S = 0.05  # Between two moves.


class Movers:
    """Moves tenants from shard to shard, one after the other.

    Attributes:
      ended: how moves have ended.
      errors: what nobody expected.
    """

    def __init__(self, app: App, random: Random, tenants: Sequence[str | Tenant]) -> None:
        self.ended: Counter[str] = Counter()
        self.errors: list[str] = []
        self._app = app
        self._random = random
        self._tenants = tenants
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Move meanwhile; end with all moves ended."""
        thread = threading.Thread(target=self._move)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            eventually(lambda: not [move for move in self._app.moves() if move.state == "under way"], within_s=60)

    def _move(self) -> None:
        while not self._stop.wait(PAUSE_S):
            tenant = self._random.choice(self._tenants)
            to = "b" if self._app.tenant(tenant).find().name == "a" else "a"
            try:
                move = self._app.move(tenant, to=to, mb_per_s=1_000)
                while not self._stop.is_set() and move.progress().state == "under way":
                    time.sleep(PAUSE_S)
                self.ended[move.progress().state] += 1
            except (MoveUnderWay, MoveRefused, MoveFailed) as error:
                self.ended[type(error).__name__] += 1
            except Exception as error:
                self.errors.append(f"move: {error!r}")
                raise
