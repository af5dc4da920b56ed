"""An application whose orders and queues lie in PostgreSQL. Its working directory has a `fairlead.toml`.

Each order is a row, and asks for four things: a receipt, which is a transactional handler, and enqueues the shipment,
which is one, too; a mail, which is plain; and a second mail, which SQL enqueues. What is transactional counts in the
order's row. No test imports this module: it lets the doorbell be switched off and on under the load of a test.
"""

from __future__ import annotations

from typing import Any

import fairlead
from fairlead.actors import external_reader
from tests.acceptance.shop import note

external_reader.BUSY_PER_S = 40  # Instead of 200.
AGAIN = fairlead.Retry(attempts=None, backoff=0.05, backoff_max=0.5)

app = fairlead.App()


@app.handler("receipt", transactional=True, store="pg", retry=AGAIN)
def receipt(job: fairlead.Job, connection: Any) -> None:
    count(connection, "receipts", job.payload["order"])
    app.tenant(job.tenant).enqueue("shipment", job.payload, within=connection)


@app.handler("shipment", transactional=True, store="pg", retry=AGAIN)
def shipment(job: fairlead.Job, connection: Any) -> None:
    count(connection, "shipments", job.payload["order"])


@app.handler("mail", retry=AGAIN)
def mail(job: fairlead.Job) -> None:
    note(job.payload["path"], job.payload["order"])


def count(connection: Any, column: str, order: str) -> None:
    """Count in the order's row, which is there: what asks for it was committed together with it."""
    changed = connection.execute(f"UPDATE orders SET {column} = {column} + 1 WHERE id = %s", [order]).rowcount
    assert changed == 1, f"order {order} is not there"
