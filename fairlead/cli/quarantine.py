"""quarantine: damaged records that an operator has set aside."""

from collections.abc import Iterator
from typing import Any

import click

from fairlead.cli.output import example, json_option, show, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.formatting import ago, iso_time
from fairlead.zones.errors import QueueError
from fairlead.zones.layout import Tenant
from fairlead.zones.maintenance import quarantine as kept
from fairlead.zones.maintenance.integrity.parsed_keys import KeyParser
from fairlead.zones.maintenance.quarantine import SetAside
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt


class NotInQuarantine(QueueError):
    """The quarantine has no record with this id.

    Do: compare the id with those that `fairlead quarantine` shows.
    """

    message = "no record with this id was set aside"


@click.command(epilog=example("fairlead quarantine --store embedded:./data"))
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of each shard.")
@click.option("--discard", metavar="ID", help="Delete the record with this id for good.")
@accepts_store_options
@json_option
def quarantine(store_options: StoreOptions, limit: int, discard: str | None) -> None:
    """Show the damaged records that fairlead check --quarantine has set aside, the latest first.

    --json shows whole keys and values.
    """
    app = store_options.app()
    shards = [app.shards[name] for name in app.shards]
    if discard is not None:
        gone = sum(_discard(shard, discard) for shard in shards)
        if not gone:
            raise NotInQuarantine(id=discard)
        show({"discarded": discard}, lambda: [f"discarded {discard}"])
        return
    found = [(shard, pair) for shard in shards for pair in _listing(shard, limit)]
    now_us = app.clock.now_us()
    show({"set_aside": [_answer(*each) for each in found]}, lambda: _lines(found, now_us))


def _listing(shard: Shard, pairs_max: int) -> list[SetAside]:
    return shard.transact(lambda attempt: kept.listing(attempt.tr, pairs_max=pairs_max))


def _discard(shard: Shard, typed: str) -> int:
    try:
        pair_id = bytes.fromhex(typed)
    except ValueError:
        return 0

    def body(attempt: Attempt) -> int:
        attempt.needs_receipt = True  # A repetition after an unknown result finds nothing to delete.
        return kept.throw_away(attempt.tr, pair_id)

    return shard.transact(body)


def _whose(shard: Shard, key: bytes) -> dict[str, Any]:
    """Return the tenant, zone and item of a key, as far as the key can be parsed."""
    found = KeyParser(shard.layout).zone_key(key)
    if found is None:
        return {"app": None, "user": None, "zone": None, "item": None}
    tenant = found.location.tenant
    item = next((element.hex() for element in found.rest if isinstance(element, bytes)), None)
    return {"app": tenant.app, "user": tenant.user, "zone": found.location.name, "item": item}


def _answer(shard: Shard, pair: SetAside) -> dict[str, Any]:
    return {
        "id": pair.id.hex(),
        "shard": shard.name,
        "set_aside": iso_time(pair.at_us),
        "what": pair.why,
        **_whose(shard, pair.key),
        "key": pair.key.hex(),
        "value": pair.value.hex(),
    }


def _lines(found: list[tuple[Shard, SetAside]], now_us: int) -> Iterator[Any]:
    rows = []
    for shard, pair in found:
        whose = _whose(shard, pair.key)
        tenant = "" if whose["user"] is None else str(Tenant(whose["app"] or "", whose["user"]))
        item = whose["item"] or ""
        rows.append((pair.id.hex(), shard.name, ago(pair.at_us, now_us), pair.why, tenant, item, len(pair.value)))
    yield table(("id", "shard", "set aside", "what", "tenant", "item", "#bytes"), rows)
    yield f"{len(found)} set aside"
