"""log: the actions of operators."""

from collections.abc import Iterator

import click
from rich.table import Table

from fairlead.app import App
from fairlead.audit_log import NOT_ENDED, MergedEntry, read_log
from fairlead.cli.output import example, json_option, show, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.formatting import ago, iso_time


@click.command(epilog=example("fairlead log --store embedded:./data"))
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many, of each shard.")
@accepts_store_options
@json_option
def log(store_options: StoreOptions, limit: int) -> None:
    """Show the audit log, the latest entry first: each action and its operator.

    The command line and the dashboard write each entry in the transaction of the action.
    """
    app = store_options.app()
    merged_entries = read_log(app.shards, entries_max=limit)
    show({"entries": [_answer(each) for each in merged_entries]}, lambda: _lines(app, merged_entries))


def _answer(merged_entry: MergedEntry) -> dict[str, object]:
    audit_entry = merged_entry.audit_entry
    return {
        "done": iso_time(audit_entry.done_us),
        "by": audit_entry.by,
        "through": audit_entry.through,
        "what": merged_entry.action,
        "to": audit_entry.to,
        "count": merged_entry.items,
        "ended": merged_entry.ended,
        "shards": merged_entry.shards,
    }


def _what(merged_entry: MergedEntry) -> str:
    return merged_entry.action if merged_entry.ended else f"{merged_entry.action}: {NOT_ENDED}"


def _lines(app: App, merged_entries: list[MergedEntry]) -> Iterator[str | Table]:
    now_us = app.clock.now_us()
    rows = (
        (
            ago(each.audit_entry.done_us, now_us),
            each.audit_entry.by,
            each.audit_entry.through,
            _what(each),
            each.target,
            each.items,
            ", ".join(each.shards),
        )
        for each in merged_entries
    )
    yield table(("done", "by", "through", "what", "to", "#items", "shards"), rows)
