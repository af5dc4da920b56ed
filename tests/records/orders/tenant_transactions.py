"""Records that are written within a transaction of their tenant, beside the slow path; and each guard of such a write.

The transaction is one step. The item that it enqueues, which deletes index records of dropped keys, follows it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, cast

from fairlead.records.accesses import Access, Op, one, together
from fairlead.records.errors import RecordError
from fairlead.records.on_shards import within
from fairlead.records.on_shards.cleanup import DROPPED_KIND
from fairlead.records.on_shards.transaction import RecordTransaction
from fairlead.records.protocol import Protocol
from fairlead.zones.queue.items import unpack_payload
from tests.records.orders.enumeration import Client, Scene
from tests.records.orders.scenes import Clients, dummy, entry, keys_of, real, scene
from tests.records.orders.shard_stores import ShardStores

PROTOCOL = Protocol(ends_at_once=True)
Drop = tuple[bytes, tuple[bytes, ...], int | None]  # The arguments of `Protocol.drop_op`, without the primary key.


class Transact(NamedTuple):
    """A user's transaction on the tenant of a record. Answer: what its items are to drop, or a `RecordError`."""

    body: Callable[[RecordTransaction], object]


class TenantStores(ShardStores):
    """All records on one shard, which are also written within transactions of their tenant."""

    def answer(self, access: Access | Transact) -> Any:
        """See `ModelStores`."""
        if not isinstance(access, Transact):
            return super().answer(access)
        view = self.view()
        try:
            access.body(self.begin(view))
        except RecordError as error:
            return error
        return tuple(_drop(unpack_payload(item.payload)) for item in view.enqueued if item.kind == DROPPED_KIND)


def _drop(payload: dict[str, Any]) -> Drop:
    return payload["generation"], tuple(payload["keys"]), payload["below"]


class TenantClients:
    """Makes clients that write within transactions. `module`: the code of such writes."""

    def __init__(self, module: ModuleType = within) -> None:
        self._module = module

    def put(self, key: str, names: str, generation: int) -> Client:
        """Return a client that writes a record within a transaction. `generation`: if it is new."""

        def body(here: RecordTransaction) -> None:
            self._module.put(here, key, b"", keys_of(names), keys_in=lambda _: (), generation=bytes([generation]))

        return Client(f"put {key} {names}", lambda: _transact_op(key, body))

    def remove(self, key: str) -> Client:
        """Return a client that deletes a record within a transaction."""
        return Client(
            f"remove {key}", lambda: _transact_op(key, lambda here: self._module.remove(here, key)), deletes=key
        )


def _transact_op(key: str, body: Callable[[RecordTransaction], object]) -> Op[None]:
    drops = yield from one(cast(Access, Transact(body)))
    yield from together([PROTOCOL.drop_op(key, *each) for each in drops])


def tenant_scenes(module: ModuleType = within) -> dict[str, Scene]:
    """Return the scenes by name."""
    do, tx = Clients(PROTOCOL), TenantClients(module)
    one_has_a = {"1": real(1, 1, "a"), "2": real(2, 1, "")}
    a_of_one = {"a": entry("1", 1, 0)}
    made = {
        "a key dropped within a transaction, which a slow update brings back": scene(
            [tx.put("1", "", 201), do.update("1", "ab"), do.find("a")], one_has_a, a_of_one
        ),
        "a key dropped within a transaction, brought back, and dropped again": scene(
            [tx.put("1", "", 201), do.update("1", "a"), tx.put("1", "", 202)], one_has_a, a_of_one
        ),
        "a key dropped within a transaction, which another takes, a find": scene(
            [tx.put("1", "", 201), do.update("2", "a"), do.find("a")], one_has_a, a_of_one
        ),
        "a write within a transaction beside two slow updates that add one key": scene(
            [tx.put("1", "a", 201), do.update("1", "ab"), do.update("2", "b")], one_has_a, a_of_one
        ),
        "a key added within a transaction": scene([tx.put("2", "b", 201), do.update("1", "b")], one_has_a, a_of_one),
        "a write within a transaction over a slow creator's dummy": scene(
            [do.finish("1", 100, "a"), tx.put("1", "", 201), do.clean("1", 100, "a"), do.create("2", "a")],
            {"1": dummy(100, "a")},
        ),
        "removed within a transaction, created anew, another takes its key": scene(
            [tx.remove("1"), do.create("1", "a"), do.create("2", "a")], {"1": real(1, 1, "a")}, a_of_one
        ),
    }
    return {name: each._replace(stores=TenantStores) for name, each in made.items()}


class PlantedWithin(NamedTuple):
    """A guard of writes within a transaction that is removed: a text, and what is there instead; see `Planted`."""

    shown_by: str
    old: str
    new: str

    def module(self) -> ModuleType:
        """Return the code without the guard."""
        source = inspect.getsource(within)
        assert source.count(self.old) == 1, f"writes within a transaction no longer hold: {self.old}"
        module = ModuleType("mutated")
        exec(compile(source.replace(self.old, self.new), "mutated", "exec"), module.__dict__)
        return module


REWRITTEN = "    record = read.rewritten(keys, value)\n"
OLD_VERSION = """    import msgspec
    record = msgspec.structs.replace(read.rewritten(keys, value), version=read.version)
"""
WITHIN: dict[str, PlantedWithin] = {
    "a write within a transaction adds no key": PlantedWithin(
        "a key added within a transaction", "    if added:\n", "    if False:\n"
    ),
    "a write within a transaction gives the record a new version": PlantedWithin(
        "a key dropped within a transaction, which a slow update brings back", REWRITTEN, OLD_VERSION
    ),
    "its item spares index records of a later version": PlantedWithin(
        "a key dropped within a transaction, brought back, and dropped again",
        "not in keys], record.version)",
        "not in keys], None)",
    ),
}


def scene_within_without(guard: str) -> Scene:
    """Return the scene that shows what a guard of writes within a transaction is for, without the guard."""
    planted = WITHIN[guard]
    return tenant_scenes(planted.module())[planted.shown_by]
