"""A database of a test, and short ways to do what tests do with it."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Any

from fairlead.zones.external.queue_operations import ItemToPut
from fairlead.zones.external.store import ItemLease, Queue, Want
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import EnqueueStatus, NewItem, Outcome, new_item
from tests.postgresql_server import TestedPostgres

LEASE_US = 60_000_000
ALICE = Tenant("shop", "alice")
NOW_US = 1_700_000_000_000_000  # The caller's clock, which has nothing to do with the server's.


class Database:
    """A database of its own on a server. What needs psycopg is imported in here, as tests may be skipped without it."""

    def __init__(self, server: TestedPostgres, name: str) -> None:
        self.dsn = f"{server.url.rpartition('/')[0]}/{name}"
        self.random = Random(name)
        import psycopg

        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")

    def connect(self, **options: Any) -> Any:
        """Return a connection, with autocommit."""
        import psycopg

        return psycopg.connect(self.dsn, **{"autocommit": True, **options})

    def prepare(self) -> None:
        """Make the schema."""
        from fairlead.zones.postgresql import schema

        with self.connect() as connection:
            schema.prepare(connection)

    def empty(self) -> None:
        """Delete all items."""
        with self.connections.call() as call:
            call.execute("DELETE FROM fairlead.items")

    @property
    def store(self) -> Any:
        """The items of the database."""
        from fairlead.zones.postgresql.item_store import ItemStore

        return ItemStore(self.connections, self.connections)

    @cached_property
    def connections(self) -> Any:
        """Connections, which the tests of this database share."""
        from fairlead.zones.postgresql.connections import Connections

        return Connections(self.dsn, {"store": "pg"})

    def let_pass(self, column: str, value: str = "1") -> None:
        """Let a time of all items lie in the past, as if the server's clock had gone on."""
        with self.connections.call() as call:
            call.execute(f"UPDATE fairlead.items SET {column} = {value}")

    def put(self, *items: NewItem, tenant: Tenant = ALICE, zone: str = "queue") -> list[tuple[bytes, EnqueueStatus]]:
        """Enqueue items in a transaction of their own; return their ids, and what became of them."""
        from fairlead.zones.external.item_ids import id_of_given, new_id

        queue = Queue(tenant, zone)
        wanted = [
            ItemToPut(
                queue,
                new_id(NOW_US, self.random) if item.given_id is None else id_of_given(tenant, zone, item.given_id),
                item,
            )
            for item in items
        ]
        statuses = self.store.queues.put(wanted)
        return [(each.id, status) for each, status in zip(wanted, statuses, strict=True)]

    def enqueue(self, kind: str = "mail", payload: Any = None, **options: Any) -> bytes:
        """Enqueue one item of alice; return its id."""
        ((item_id, status),) = self.put(new_item(kind, payload, **options))
        assert status is EnqueueStatus.ENQUEUED
        return item_id

    def lease(self, *tenants: Tenant, items_max: int = 10, rooms: dict[str, int] | None = None, **options: Any) -> Any:
        """Lease items of tenants, of alice by default."""
        wants = [Want(Queue(tenant, "queue"), items_max) for tenant in tenants or (ALICE,)]
        arguments = {"lease_id": self.random.randbytes(16), "lease_us": LEASE_US, "now_us": NOW_US, **options}
        return self.store.dequeue(wants, {"mail": 100} if rooms is None else rooms, **arguments).rows

    def complete(self, *leased: Any, **options: Any) -> list[Outcome | None]:
        """End leased items."""
        return self.store.complete([held(each) for each in leased], **options)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close all connections."""
        self.connections.close()


def held(leased: Any) -> Any:
    """Return a leased item as operations name it."""
    return ItemLease(leased.id, leased.record.lease_id)
