"""Orders of the workflow shop: workflows of each kind, and what a sequential execution of them leaves."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from fairlead import App
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.acceptance.fleets import eventually
from tests.acceptance.loads import depth, lines_of
from tests.acceptance.workflow_shop import DEPOTS, depot

SHOP = "tests.acceptance.workflow_shop:app"
BUYERS = 10
KINDS = ("journey", "undone", "branches")


def buyer(number: int) -> str:
    return f"shop/user {number % BUYERS}"


class Orders:
    """Begins workflows of each kind in turn, and sends each journey its signal: at once, or some orders later."""

    def __init__(self, app: App, path: Path) -> None:
        self.app = app
        self.path = path
        self.count = 0
        self._waiting: list[int] = []

    def place(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            kind = KINDS[number % len(KINDS)]
            payload: dict[str, Any] = {"number": number}
            if kind != "branches":
                payload["path"] = str(self.path)
            if kind == "journey":
                self.app.tenant(depot(number + 3)).enqueue("listener", {"number": number}, item_id=f"listener-{number}")
                self._waiting.append(number)
            self.app.tenant(buyer(number)).enqueue(kind, payload, item_id=f"{kind}-{number}")
            if len(self._waiting) > number % 7:
                self._approve(self._waiting.pop(0))
        self.count += count

    def approve_all(self) -> None:
        while self._waiting:
            self._approve(self._waiting.pop())

    def _approve(self, number: int) -> None:
        self.app.tenant(buyer(number)).signal(f"journey-{number}", "go")


def counts(app: App) -> Counter[tuple[str, int]]:
    """Return how often each step of each order has happened, wherever."""
    found: Counter[tuple[str, int]] = Counter()

    def body(tr: TenantTransaction) -> list[tuple[tuple[Any, ...], bytes]]:
        return list(tr.get_range((), snapshot=True))

    for tenant in [*map(buyer, range(BUYERS)), *map(depot, range(DEPOTS))]:
        for (what, number), value in app.tenant(tenant).transact(body):
            found[what, number] += int.from_bytes(value, "little")
    return found


def expected(count: int) -> Counter[tuple[str, int]]:
    """Return the same as a sequential execution leaves it."""
    steps: Counter[tuple[str, int]] = Counter()
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        if kind == "journey":
            steps.update({(what, number): 1 for what in ("home", "there", "again", "last", f"heard {2 * number}")})
        elif kind == "undone":
            steps.update({("done", number): 2, ("undone", number): 2})
        else:
            steps.update({(f"branch {each}", number): 3 for each in range(3)})
    return steps


def assert_exactly_once(orders: Orders) -> None:
    """Wait until every workflow has ended; check the counts of all steps, and the keys of all effects."""
    app = orders.app
    eventually(lambda: depth(app) == 0, within_s=180, otherwise=lambda: f"{depth(app)} items are left")
    assert [each.error for number in range(BUYERS) for each in app.tenant(buyer(number)).dead_letters()] == []
    assert counts(app) == expected(orders.count)
    keys, repaid = defaultdict(set), Counter[int]()
    for line in lines_of(orders.path):
        number, key, *result = line.split()
        if key == "back":
            repaid[int(number)] += 1
            assert result != ["?"]
        else:
            keys[int(number)].add(key)
    paid = {number for number in range(orders.count) if KINDS[number % len(KINDS)] != "branches"}
    assert set(keys) == paid
    assert {len(each) for each in keys.values()} == {1}, "an effect was called with two keys"
    assert set(repaid) == {number for number in paid if KINDS[number % len(KINDS)] == "undone"}
