"""What the stories of workflows have in common: an application on two shards, and counters in the tenants' keys."""

from __future__ import annotations

from typing import Any

from fairlead import App
from fairlead.testing import DrainResult, ManualClock, drain
from fairlead.zones.keyspace import pack_bytes, range_end
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.tenant_transaction import TenantTransaction

HOME = "shop/alice"
NEIGHBOUR = "shop/u0"  # on the same shard
ELSEWHERE = "shop/u1"  # on the other shard


urls = {"a": "memory:", "b": "memory:"}  # of `two_shards`; the fixture `engine` changes them


def two_shards() -> App:
    """Return an application whose tenants live on two empty stores, with a clock that stands still."""
    return App(urls, clock=ManualClock())


def add(tr: TenantTransaction, name: str) -> int:
    """Count, in the tenant's keys, how often this was called with a name; return the count."""
    tr.add((name,), 1)
    return number(tr.get((name,)))


def subtract(tr: TenantTransaction, name: str) -> None:
    tr.add((name,), -1)


def number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "little", signed=True)


def count(app: App, tenant: str, name: str) -> int:
    """Return how often `add` has happened."""
    return app.tenant(tenant).transact(lambda tr: number(tr.get((name,))))


def append(tr: TenantTransaction, word: str) -> None:
    """Append a word to the tenant's list: what happened, in order."""
    tr.set(("words",), (tr.get(("words",)) or b"") + word.encode() + b" ")


def words(app: App, tenant: str = HOME) -> str:
    return app.tenant(tenant).transact(lambda tr: (tr.get(("words",)) or b"").decode().strip())


def enqueue(app: App, kind: str, payload: Any = None, **options: Any) -> Any:
    return app.tenant(HOME).enqueue(kind, payload, **options)


def run(app: App, *, within: float = 0, replays: bool = True) -> DrainResult:
    """Drain; errors of handlers are in the result."""
    return drain(app, within=within, raise_errors=False, replays=replays)


def kept_keys(app: App, tenant: str = HOME) -> list[bytes]:
    """Return the keys that workflows keep below a tenant: logs, fences, signals, results of children."""
    database = app.tenant(tenant)
    keys = database.shard.layout.location(database.tenant, DEFAULT_ZONE).keys.tenant
    empty = len(pack_bytes(b""))
    begin, last = keys.step_log(b"")[:-empty], keys.child_results(b"")[:-empty]
    return database.shard.transact(lambda attempt: [row.key for row in attempt.tr.get_range(begin, range_end(last))])
