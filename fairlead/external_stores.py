"""The external stores of an application: databases whose queues lie beside a user's data (QuiCK section 6.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from random import Random
from typing import Any, NamedTuple

from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.config import Config
from fairlead.store_threads import AwaitableCalls
from fairlead.zones.engines import Clock
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.item_ids import id_of_given, new_id
from fairlead.zones.external.names import Queue, check_zone_name
from fairlead.zones.external.queue_operations import ItemToPut, QueueOperations
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import Enqueued, EnqueueStatus, NewItem

STATEMENT_MS = 2_000  # Within the five seconds that a transaction of a FoundationDB cluster may take.


class PsycopgMissing(QueueError):
    """The library that talks to PostgreSQL is not installed.

    Do: install it, `pip install 'fairlead[postgresql]'`.
    """

    message = "psycopg is not installed"


class UnknownStore(QueueError):
    """The application has no external store of this name.

    Do: use one of the names in `known`, or name the database in the configuration, `[external]`, or
    `App(external={"pg": "postgresql://..."})`.
    """

    message = "no external store of this name"


class OfTenant(NamedTuple):
    """An item to enqueue, and whose it is."""

    tenant: Tenant
    item: NewItem


class ExternalPlace(NamedTuple):
    """An external store as telemetry names it."""

    name: str
    clock: Clock


@dataclass(frozen=True, slots=True)
class ExternalAccess:
    """How the databases of tenants reach the external stores of their application.

    Attributes:
      stores, clock, random: of the application as it is configured now.
      check: refuses an item that cannot run in the store of a name.
    """

    stores: Callable[[], Mapping[str, InspectedStore]]
    clock: Callable[[], Clock]
    random: Callable[[], Random]
    check: Callable[[NewItem, str], None]

    def store(self, name: str) -> InspectedStore:
        """Return the store of a name.

        Raises:
          UnknownStore: there is none.
        """
        stores = self.stores()
        if name not in stores:
            raise UnknownStore(store=name, known=sorted(stores))
        return stores[name]

    def operations(self, name: str | None, within: Any) -> tuple[str, QueueOperations]:
        """Return the name of a store, and the operations on its queues: in its own transactions, or within a user's.

        `name` None: that of the store to which the connection leads.

        Raises:
          UnknownStore: see there.
          PsycopgMissing, and what `zones.postgresql.within.open_within` raises: only with `within`.
        """
        if within is None:
            assert name is not None
            return name, self.store(name).queues
        stores = self._stores(name)
        from fairlead.zones.postgresql.within import open_within

        return open_within(within, stores)

    async def async_operations(self, name: str | None, within: Any, calls: AwaitableCalls) -> tuple[str, Any]:
        """Return operations that are awaited, in the transaction of an asynchronous connection; see `operations`."""
        stores = self._stores(name)
        from fairlead.zones.postgresql.within import aopen_within

        return await aopen_within(within, stores, calls.run)

    def _stores(self, name: str | None) -> Mapping[str, InspectedStore]:
        require_psycopg()
        return self.stores() if name is None else {name: self.store(name)}

    def enqueue(
        self, name: str | None, zone: str, items: Sequence[OfTenant], within: Any
    ) -> tuple[str, list[Enqueued]]:
        """Enqueue items; return the name of the store, and what became of each."""
        check_zone_name(zone)
        name, operations = self.operations(name, within)
        call = _EnqueueCall(self, name, zone, items)
        with call.enqueueing:
            return name, call.note(operations.put(call.to_put))

    async def aenqueue(
        self, name: str | None, zone: str, items: Sequence[OfTenant], within: Any, calls: AwaitableCalls
    ) -> tuple[str, list[Enqueued]]:
        """Enqueue items in the transaction of an asynchronous connection; see `enqueue`."""
        check_zone_name(zone)
        name, operations = await self.async_operations(name, within, calls)
        call = _EnqueueCall(self, name, zone, items)
        with call.enqueueing:
            return name, call.note(await operations.put(call.to_put))


class _EnqueueCall:
    """What one call enqueues in a store of a name."""

    def __init__(self, access: ExternalAccess, name: str, zone: str, items: Sequence[OfTenant]) -> None:
        clock, random = access.clock(), access.random()
        tenants = {each.tenant for each in items}
        self.enqueueing = Enqueueing(next(iter(tenants)) if len(tenants) == 1 else None)
        self.enqueueing.begin_attempt(ExternalPlace(name, clock))
        self.to_put: list[ItemToPut] = []
        now_us = clock.now_us()
        for number, (tenant, new) in enumerate(items):
            if not tenant.app:
                raise BadArgument(argument="within", value=..., allowed="None for a local item")
            if not isinstance(new, NewItem):
                raise BadArgument(argument="items", value=new, allowed="what fairlead.new_item(kind, payload) returned")
            check_item(new)
            access.check(new, name)
            item, given = self.enqueueing.with_trace(new), new.given_id
            # Items of one call vest at one moment. Those that come later have later ids, so they also run later.
            item_id = new_id(now_us + number, random) if given is None else id_of_given(tenant, zone, given)
            self.to_put.append(ItemToPut(Queue(tenant, zone), item_id, item))

    def note(self, statuses: Sequence[EnqueueStatus]) -> list[Enqueued]:
        """Count what the store has enqueued. Whether a user's transaction commits is not known here."""
        results = [Enqueued(each.id, status) for each, status in zip(self.to_put, statuses, strict=True)]
        for each, enqueued in zip(self.to_put, results, strict=True):
            self.enqueueing.on_enqueued(each.item, enqueued)
        self.enqueueing.end_attempt()
        return results


def check_item(item: NewItem) -> None:
    """See that an item has nothing that lies in the shards.

    Raises:
      BadArgument: it has keys, or a unique key.
    """
    given = "unique_key" if item.unique_key else "keys" if item.keys else None
    if given is not None:
        allowed = "None in an external store: its index lies in the shards. An item_id is unique in its queue"
        raise BadArgument(argument=given, value=..., allowed=allowed)


def require_psycopg() -> None:
    """See that psycopg can be imported.

    Raises:
      PsycopgMissing: it cannot.
    """
    if find_spec("psycopg") is None:
        raise PsycopgMissing


def open_stores(config: Config, clock: Clock) -> dict[str, InspectedStore]:
    """Return the external stores by name. Connects to none: each connects when it is used.

    Raises:
      PsycopgMissing: there are some, and psycopg is not installed.
    """
    if not config.external:
        return {}
    require_psycopg()
    from fairlead.zones.postgresql.connections import Connections
    from fairlead.zones.postgresql.inspection import InspectedItemStore
    from fairlead.zones.postgresql.schema import check_for_consumer as check

    stores: dict[str, InspectedStore] = {}
    for name, dsn in config.external.items():
        shown = {"store": name}
        visits = Connections(dsn, shown, statement_ms=STATEMENT_MS, check=check, now_us=clock.now_us)
        handlers = Connections(dsn, shown, reads_committed=False, check=check, now_us=clock.now_us)
        stores[name] = InspectedItemStore(visits, handlers, notifies=config.external_notify.get(name, True))
    return stores
