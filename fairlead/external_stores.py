"""The external stores of an application: databases whose queues lie beside a user's data (QuiCK section 6.1)."""

from collections.abc import Mapping
from importlib.util import find_spec
from random import Random
from typing import Any

from fairlead.zones.errors import QueueError
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.names import check_zone_name
from fairlead.zones.external.store import ExternalStore, Queue
from fairlead.zones.queue.items import Enqueued, NewItem

STATEMENT_MS = 2_000  # Within the five seconds that a transaction of a FoundationDB cluster may take.


class PsycopgMissing(QueueError):
    """The library that talks to PostgreSQL is not installed.

    Do: install it, `pip install 'fairlead[postgresql]'`.
    """

    message = "psycopg is not installed"


def require_psycopg() -> None:
    """See that psycopg can be imported.

    Raises:
      PsycopgMissing: it cannot.
    """
    if find_spec("psycopg") is None:
        raise PsycopgMissing


def enqueue_within(
    stores: Mapping[str, ExternalStore],
    queue: Queue,
    item: NewItem,
    connection: Any,
    *,
    now_us: int,
    random: Random,
) -> Enqueued:
    """Enqueue an item in the transaction of a connection; see `zones.postgresql.within`.

    Raises:
      PsycopgMissing: see there.
      BadArgument: a name is too long for an external store, or it is no such connection.
      NoTransaction, ForeignDatabase, SchemaMissing, PostgresRefused: see `zones.postgresql.within.enqueue_within`.
    """
    require_psycopg()
    from fairlead.zones.postgresql.item_ids import id_of_given, new_id
    from fairlead.zones.postgresql.item_store import ItemToPut
    from fairlead.zones.postgresql.within import enqueue_within

    check_zone_name(queue.zone)
    given = item.given_id
    item_id = new_id(now_us, random) if given is None else id_of_given(queue.tenant, queue.zone, given)
    (status,) = enqueue_within(connection, stores, [ItemToPut(queue, item_id, item)])
    return Enqueued(item_id, status)


def open_stores(dsns: Mapping[str, str]) -> dict[str, InspectedStore]:
    """Return the external stores by name. Connects to none: each connects when it is used.

    Raises:
      PsycopgMissing: there are some, and psycopg is not installed.
    """
    if not dsns:
        return {}
    require_psycopg()
    from fairlead.zones.postgresql.connections import Connections
    from fairlead.zones.postgresql.schema import check_for_consumer as check
    from fairlead.zones.postgresql.inspection import InspectedItemStore

    stores: dict[str, InspectedStore] = {}
    for name, dsn in dsns.items():
        shown = {"store": name}
        visits = Connections(dsn, shown, statement_ms=STATEMENT_MS, check=check)
        stores[name] = InspectedItemStore(visits, Connections(dsn, shown, check=check))
    return stores
