"""why: why an item is not running, or how it ended."""

from collections.abc import Iterator
from typing import Any

import click

from fairlead.app import App
from fairlead.cli.arguments import ids_typed
from fairlead.cli.errors import NOT_THERE
from fairlead.cli.output import example, json_option, progress_answer, show
from fairlead.cli.store_options import optional_tenant_options
from fairlead.explanation import TENANT_MOVES, Attempts, Cause, Explanation
from fairlead.external_queues import ExternalQueues
from fairlead.formatting import iso_time
from fairlead.tenant_database import TenantDatabase
from fairlead.views import progress_in_words

NOWHERE = (Cause.NEVER_SEEN, Cause.NOT_FOUND)


@click.command(epilog=example("fairlead why order-7 --tenant shop/alice --store embedded:./data"))
@click.argument("item")
@optional_tenant_options
@json_option
def why(app: App, database: TenantDatabase | ExternalQueues | None, item: str, zone: str) -> None:
    """Say why ITEM, an id or the name it was given, is not running; or that it runs; or how it ended.

    Without a tenant, the command searches the first few thousand active queues, and external stores by the item's id.
    """
    explanation = _explained(app, database, item, zone)
    show(_answer(explanation), lambda: _lines(explanation))
    if explanation.cause in NOWHERE:
        raise click.exceptions.Exit(NOT_THERE)


def _explained(app: App, database: TenantDatabase | ExternalQueues | None, item: str, zone: str) -> Explanation:
    """Return the explanation of the first item that the typed text may name. If there is none, it says so."""
    for item_id in ids_typed(item):
        explanation = app.explain(item_id) if database is None else database.explain(item_id, zone=zone)
        if explanation.cause not in NOWHERE:
            return explanation
    return explanation


def _answer(explanation: Explanation) -> dict[str, Any]:
    return {
        "item": explanation.item_id.hex(),
        "cause": explanation.cause.value,
        "sentence": explanation.sentence,
        "shard": explanation.shard,
        "store": explanation.store,
        "tenant": explanation.tenant,
        "zone": explanation.zone,
        "kind": explanation.kind,
        "attempts": _answer_attempts(explanation.attempts),
        "progress": progress_answer(explanation.progress),
        "details": {
            key.removesuffix("_us"): iso_time(value) if key.endswith("_us") else value
            for key, value in explanation.details.items()
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


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.cause.value}: {explanation.sentence}"
    if explanation.tenant is not None:
        kind = f", kind {explanation.kind}" if explanation.kind else ""
        item = f"item {explanation.item_id.hex()}{kind}"
        store = f"in {explanation.store}, its pointer " if explanation.store else ""
        yield f"{item}, of {explanation.tenant}, zone {explanation.zone}, {store}on shard {explanation.shard}"
    if moving := explanation.details.get(TENANT_MOVES):
        yield f"its tenant moves: {moving}"
    if explanation.progress is not None:
        yield f"progress: {progress_in_words(explanation.progress)}; reported at {iso_time(explanation.progress.at_us)}"
    if explanation.attempts != Attempts():
        each = explanation.attempts
        yield (
            f"attempts so far: {each.raised} raised an error, {each.died} died with their worker,"
            f" {each.lease_lost} lost their lease, {each.return_count} were returned"
        )
        first, *rest = each.last_error.splitlines() or [""]
        if first:
            yield f"last error: {first}"
        if not each.last_traceback.rstrip().endswith(each.last_error.rstrip()):
            yield from rest
        yield from each.last_traceback.splitlines()
