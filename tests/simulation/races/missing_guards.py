"""Guards taken away, one at a time, to show that a race would end badly without them."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.database import LatentTransaction, LateValue
from zones.keyspace import DB, POINTER, ROOT, TOP, pack_int
from zones.shard import Shard

Patch = pytest.MonkeyPatch

TENANTS = ROOT + pack_int(DB)  # Ownership and items: whatever lies beside a tenant's data.
TOP_LEVEL = ROOT + pack_int(TOP)
POINTER_INDEX = ROOT + pack_int(POINTER)


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


def look_for_nothing(patch: Patch) -> None:
    """Let nobody ask whether a commit of unknown result was applied."""
    transact = Shard.transact

    def without_asking(self: Shard, body: Any, *, applied: object = None, **how: Any) -> Any:
        return transact(self, body, **how)

    patch.setattr(Shard, "transact", without_asking)


def _nothing(*_: Any, **__: Any) -> None:
    pass
