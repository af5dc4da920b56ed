"""Guards taken away, one at a time, to show that a race would end badly without them."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.database import LatentTransaction, LateValue

Patch = pytest.MonkeyPatch


def read_by_snapshot(patch: Patch, *prefixes: bytes) -> None:
    """Let reads of single keys that begin with one of `prefixes` be no reason to conflict."""
    read_key = LatentTransaction.read_key

    def read(self: LatentTransaction, key: bytes, snapshot: bool) -> LateValue:
        return read_key(self, key, snapshot or key.startswith(prefixes))

    patch.setattr(LatentTransaction, "read_key", read)


def read_ranges_by_snapshot(patch: Patch) -> None:
    """Let reads of ranges be no reason to conflict."""
    patch.setattr(LatentTransaction, "get_range", lambda self, *args, **how: self.snapshot.get_range(*args, **how))


def declare_nothing(patch: Patch, *methods: str) -> None:
    """Let a way to declare a conflict, such as `add_write_conflict_key`, do nothing."""
    for method in methods:
        patch.setattr(LatentTransaction, method, _nothing)


def _nothing(*_: Any, **__: Any) -> None:
    pass
