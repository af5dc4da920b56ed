"""locks: locks that workflows hold."""

from collections.abc import Iterator
from typing import Any

import click

from fairlead.cli.output import example, json_option, show, stacked
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.formatting import ago, iso_time
from fairlead.queries.locks import LockList, LockState, list_locks

NOT_WHOLE = "there may be more: only the first tenants, and their first requests, were read; name one by --tenant"


@click.command(epilog=example("fairlead locks --tenant shop/alice --store embedded:./data"))
@click.option("--tenant", nargs=2, metavar="APP/USER", help="Only this tenant's; also as two words, APP USER.")
@accepts_store_options
@json_option
def locks(store_options: StoreOptions, tenant: tuple[str, str] | None) -> None:
    """List the locks that workflows hold: by which item, since when, and how many others wait.

    Without a tenant, the command reads the first 2,000 tenants of each shard.
    """
    app = store_options.app()
    if tenant is None:
        lists = {name: list_locks(app.shards[name], None) for name in app.shards}
    else:
        database = app.tenant(*tenant)
        lists = {database.shard.name: list_locks(database.shard, database.tenant)}
    now_us = app.clock.now_us()
    show(
        {
            "locks": [_answer(shard, lock) for shard, found in lists.items() for lock in found.locks],
            "whole": all(found.whole for found in lists.values()),
        },
        lambda: _lines(lists, now_us),
    )


def _answer(shard: str, lock: LockState) -> dict[str, Any]:
    return {
        "shard": shard,
        "tenant": lock.tenant,
        "lock": lock.key,
        "waiting": lock.waiting,
        "holders": [
            {
                "tenant": request.tenant,
                "zone": request.zone,
                "item": request.item_id.hex(),
                "kind": request.kind,
                "process": request.process or None,
                "shared": request.shared,
                "since": iso_time(request.held_us or 0),
            }
            for request in lock.holders
        ],
    }


def _lines(lists: dict[str, LockList], now_us: int) -> Iterator[Any]:
    rows = [
        [
            str(lock.tenant),
            lock.key,
            "shared" if request.shared else "alone",
            ago(request.held_us or 0, now_us),
            lock.waiting,
            request.process or f"{request.kind} {request.item_id.hex()} of {request.tenant}",
        ]
        for found in lists.values()
        for lock in found.locks
        for request in lock.holders
    ]
    if rows:
        yield stacked(["tenant", "lock", "how", "since", "#waiting", "held by"], rows)
    else:
        yield "no workflow holds a lock"
    if not all(found.whole for found in lists.values()):
        yield NOT_WHOLE
