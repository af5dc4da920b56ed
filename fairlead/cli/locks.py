"""locks: who holds locks; locks abort: what a lost shard has left locked."""

from collections.abc import Iterator
from typing import Any

import click

from fairlead.cli.output import example, json_option, show, stacked
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.formatting import ago, iso_time
from fairlead.lost_transactions import abort_transaction
from fairlead.queries.locks import LockList, LockState, list_locks

NOT_WHOLE = "there may be more: only the first tenants, and their first requests, were read; name one by --tenant"


@click.group(invoke_without_command=True, epilog=example("fairlead locks --tenant shop/alice --store embedded:./data"))
@click.option("--tenant", nargs=2, metavar="APP/USER", help="Only this tenant's; also as two words, APP USER.")
@click.pass_context
@accepts_store_options
@json_option
def locks(context: click.Context, store_options: StoreOptions, tenant: tuple[str, str] | None) -> None:
    """List the locks that are held: by which workflow or process, since when, and how many others wait.

    Without a tenant, the command reads the first 2,000 tenants of each shard.
    """
    if context.invoked_subcommand is not None:
        return
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


@locks.command(
    epilog=example("fairlead locks abort 63f1c0a2b1d40-00112233445566778899-1 --home-is-lost --app shop:app")
)
@click.argument("transaction")
@click.option("--home-is-lost", is_flag=True, help="The shard that decides about the transaction is lost for good.")
@accepts_store_options
@json_option
def abort(store_options: StoreOptions, transaction: str, home_is_lost: bool) -> None:
    """Abort TRANSACTION, a transaction across shards, on all shards that can be read: its home shard is lost.

    Errors about locked tenants name the transaction. If its home shard can be asked, the command refuses: the
    transaction settles by itself. If the transaction was committed there, its tenants on other shards lose what it
    would have written: compare them afterwards. The command writes an entry of the audit log.
    """
    app = store_options.app()
    aborted = abort_transaction(app.shards, transaction, app.operator, app.random, home_is_lost=home_is_lost)
    freed = [(shard, tenant) for shard, tenants in aborted.tenants.items() for tenant in tenants]
    show(
        {
            "aborted": transaction,
            "unlocked": [{"shard": shard, "tenant": tenant} for shard, tenant in freed],
            "away": aborted.away,
        },
        lambda: [
            f"aborted {transaction}",
            *(f"{tenant} of shard {shard} is unlocked" for shard, tenant in freed),
            *(f"shard {name} cannot be read: repeat the command once it is back" for name in aborted.away),
        ],
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
        yield "nobody holds a lock"
    if not all(found.whole for found in lists.values()):
        yield NOT_WHOLE
