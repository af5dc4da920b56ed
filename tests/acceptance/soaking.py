"""What a soak keeps account of: effects, each settled once and then cleared; memory by role; the size of the store.

Effects are cleared as they are settled, so that the store stays as large as what is in flight. One that appears again
afterwards was done twice.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead import App, TenantTransaction
from tests.acceptance.fleets import SOAK
from tests.acceptance.loads import TENANTS

SOAK_S = float(os.environ.get(SOAK, "600"))  # Of the long form.
WARM_UP_FRAC = 0.3  # Of a process's life in the soak: caches fill, batches reach their largest.
COMPARED_FRAC = 0.2  # Memory moves by a megabyte with every batch: medians over a stretch are compared.


class EnqueueCounts:
    """Effects that must happen once, by the number of their item."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.settled: set[int] = set()
        self.doubled: list[int] = []

    def settle(self) -> None:
        """Take note of the effects that are there, and clear them."""
        for user in range(TENANTS):
            for number, count in self._app.tenant("shop", f"user {user}").transact(_take):
                if count != 1 or number in self.settled:
                    self.doubled.append(number)
                self.settled.add(number)


def _take(tr: TenantTransaction) -> list[tuple[int, int]]:
    found = []
    for key, value in list(tr.get_range(("done",))):
        found.append((int(str(key[1])), int.from_bytes(value, "little")))
        tr.clear(key)
    return found


class Memory:
    """Private memory (RssAnon) of processes over time, by role."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, int], list[int]] = defaultdict(list)

    def sample(self, pids: Mapping[str, Sequence[int]]) -> None:
        """Look at processes by role. One that is gone by now is left out."""
        for role, each in pids.items():
            for pid in each:
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except FileNotFoundError:
                    continue
                fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
                if "RssAnon" in fields:  # Not of one that is just dying.
                    self._samples[role, pid].append(int(fields["RssAnon"].split()[0]) << 10)

    def growth_bytes(self) -> dict[str, int]:
        """Return by role how much the process that lived longest has grown since it was warm."""
        longest: dict[str, list[int]] = {}
        for (role, _), samples in self._samples.items():
            if len(samples) > len(longest.get(role, [])):
                longest[role] = samples
        return {role: _growth(samples) for role, samples in sorted(longest.items())}


def _growth(samples: Sequence[int]) -> int:
    warm = samples[int(len(samples) * WARM_UP_FRAC) :]
    compared = max(1, int(len(samples) * COMPARED_FRAC))
    return int(statistics.median(warm[-compared:]) - statistics.median(warm[:compared]))
