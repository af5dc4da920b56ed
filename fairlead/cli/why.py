"""why: why an item is not running, or how it ended."""

from collections.abc import Iterator
from typing import Any

import click

from fairlead.app import App
from fairlead.cli.arguments import ids_typed
from fairlead.cli.errors import NOT_THERE
from fairlead.cli.output import example, json_option, progress_answer, show
from fairlead.cli.store_options import optional_tenant_options
from fairlead.explanation import Attempts, Cause, Explanation
from fairlead.formatting import iso_time
from fairlead.tenant_database import TenantDatabase
from fairlead.views import progress_in_words

NOWHERE = (Cause.NEVER_SEEN, Cause.NOT_FOUND)


@click.command(epilog=example("fairlead why order-7 --tenant shop/alice --store embedded:./data"))
@click.argument("item")
@optional_tenant_options
@json_option
def why(app: App, database: TenantDatabase | None, item: str, zone: str) -> None:
    """Say why ITEM, an id or the name it was given, is not running; or that it runs; or how it ended.

    Without a tenant the first few thousand active queues are looked through.
    """
    said = _explained(app, database, item, zone)
    show(_answer(said), lambda: _lines(said))
    if said.cause in NOWHERE:
        raise click.exceptions.Exit(NOT_THERE)


def _explained(app: App, database: TenantDatabase | None, item: str, zone: str) -> Explanation:
    """Return the explanation of the first item that the typed text may name; else one that finds none."""
    for item_id in ids_typed(item):
        said = app.explain(item_id) if database is None else database.explain(item_id, zone=zone)
        if said.cause not in NOWHERE:
            return said
    return said


def _answer(said: Explanation) -> dict[str, Any]:
    return {
        "item": said.item_id.hex(),
        "cause": said.cause.value,
        "sentence": said.sentence,
        "shard": said.shard,
        "tenant": said.tenant,
        "zone": said.zone,
        "kind": said.kind,
        "attempts": _answer_attempts(said.attempts),
        "progress": progress_answer(said.progress),
        "details": {
            key.removesuffix("_us"): iso_time(value) if key.endswith("_us") else value
            for key, value in said.details.items()
        },
    }


def _answer_attempts(attempts: Attempts) -> dict[str, Any]:
    return {
        "raised": attempts.raised,
        "died": attempts.died,
        "lease_lost": attempts.lease_lost,
        "returned": attempts.return_count,
        "last_error": attempts.last_error,
        "last_traceback": attempts.last_traceback,
    }


def _lines(said: Explanation) -> Iterator[str]:
    yield f"{said.cause.value}: {said.sentence}"
    if said.tenant is not None:
        kind = f", kind {said.kind}" if said.kind else ""
        yield f"item {said.item_id.hex()}{kind}, of {said.tenant}, zone {said.zone}, on shard {said.shard}"
    if said.progress is not None:
        yield f"progress: {progress_in_words(said.progress)}, as told at {iso_time(said.progress.at_us)}"
    if said.attempts != Attempts():
        each = said.attempts
        yield (
            f"attempts so far: {each.raised} raised an error, {each.died} died with their worker,"
            f" {each.lease_lost} lost their lease, {each.return_count} were returned"
        )
        if each.last_error:
            yield f"last error: {each.last_error}"
        yield from each.last_traceback.splitlines()
