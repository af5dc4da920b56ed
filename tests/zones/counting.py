"""A transaction that counts the calls to it: store calls are what an operation costs."""

from __future__ import annotations

from collections import Counter
from typing import Any

COUNTED = {
    "get": "get",
    "get_range": "get_range",
    "set": "set",
    "clear": "clear",
    "clear_range": "clear_range",
    "add": "add",
    "compare_and_clear": "compare_and_clear",
    "add_read_conflict_key": "conflict",
    "add_read_conflict_range": "conflict",
    "add_write_conflict_key": "conflict",
    "add_write_conflict_range": "conflict",
}


class CountingTransaction:
    """Passes everything on to a transaction; `calls` says how often it was asked for what."""

    def __init__(self, tr: Any, calls: Counter[str] | None = None, prefix: str = "") -> None:
        self._tr = tr
        self._prefix = prefix
        self.calls: Counter[str] = Counter() if calls is None else calls

    @property
    def snapshot(self) -> CountingTransaction:
        return CountingTransaction(self._tr.snapshot, self.calls, "snapshot_")

    def __getattr__(self, name: str) -> Any:
        if name in COUNTED:
            self.calls[self._prefix + COUNTED[name]] += 1
        return getattr(self._tr, name)
