"""Removal of guards, one at a time, to show that a race ends badly without the guard."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest

from fairlead.simulation.database import LatentTransaction, LateValue
from fairlead.zones.keyspace import DB, GUARD, ROOT, TOP, TenantKeys, ZoneKeys, pack_int
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.mutations import IN_RACES, MUTATIONS
from tests.simulation.stage import ALICE

Patch = pytest.MonkeyPatch

TENANTS = ROOT + pack_int(DB)  # Ownership, items and pointers: all keys beside a tenant's data.
TOP_LEVEL = ROOT + pack_int(TOP)
ALICES = ZoneKeys(TenantKeys(*ALICE), DEFAULT_ZONE)


def planted(title: str) -> AbstractContextManager[None]:
    """Remove a guard by the bug of that title; see `mutations`."""
    (bug,) = (each for each in (*MUTATIONS, *IN_RACES) if each.title == title)
    return bug.planted()


def read_by_snapshot(patch: Patch, *prefixes: bytes) -> None:
    """Let reads of single keys that begin with one of `prefixes` cause no conflict."""
    read_key = LatentTransaction.read_key

    def read(self: LatentTransaction, key: bytes, snapshot: bool) -> LateValue:
        return read_key(self, key, snapshot or key.startswith(prefixes))

    patch.setattr(LatentTransaction, "read_key", read)


def ignore_the_guard(patch: Patch) -> None:
    """Let an insert not conflict with the creation, the deletion or the sleep of the pointer."""
    declare = LatentTransaction.add_read_conflict_key

    def declare_others(self: LatentTransaction, key: bytes) -> None:
        if not key.endswith(pack_int(GUARD)):
            declare(self, key)

    patch.setattr(LatentTransaction, "add_read_conflict_key", declare_others)


def read_ranges_by_snapshot(patch: Patch) -> None:
    """Let reads of ranges cause no conflict."""
    patch.setattr(LatentTransaction, "get_range", lambda self, *args, **how: self.snapshot.get_range(*args, **how))


def declare_nothing(patch: Patch, *methods: str) -> None:
    """Let a method that declares a conflict, such as `add_write_conflict_key`, do nothing."""
    for method in methods:
        patch.setattr(LatentTransaction, method, _nothing)


def leave_no_receipts(patch: Patch) -> None:
    """Let no transaction write a receipt, or check for one."""
    patch.setattr(Attempt, "needs_receipt", property(lambda attempt: False, _nothing))


def check_for_nothing_applied(patch: Patch) -> None:
    """Let no retry check whether a commit of unknown result was applied."""
    transact = Shard.transact

    def without_asking(self: Shard, body: Any, *, applied: object = None, **how: Any) -> Any:
        return transact(self, body, **how)

    patch.setattr(Shard, "transact", without_asking)


def _nothing(*_: Any, **__: Any) -> None:
    pass
