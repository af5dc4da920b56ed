"""log: what operators have done."""

from collections.abc import Iterator

import click
from rich.table import Table

from fairlead.app import App
from fairlead.audit_log import NOT_ENDED, Entry, read_log
from fairlead.cli.output import example, json_option, show, table
from fairlead.cli.store_options import Target, target_options
from fairlead.formatting import ago, when


@click.command(epilog=example("fairlead log --store embedded:./data"))
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many, of each shard.")
@target_options
@json_option
def log(target: Target, limit: int) -> None:
    """Show what operators have done, the latest first: who has paused, limited, weighed, revived, discarded, cancelled.

    It is written down in the transaction that does it, from the command line and the dashboard alike.
    """
    app = target.app()
    entries = read_log(app.shards, deeds_max=limit)
    show({"deeds": [_answer(each) for each in entries]}, lambda: _lines(app, entries))


def _answer(entry: Entry) -> dict[str, object]:
    deed = entry.deed
    return {
        "done": when(deed.done_us),
        "by": deed.by,
        "through": deed.through,
        "what": deed.what,
        "to": deed.to,
        "count": entry.items,
        "ended": entry.ended,
        "shards": entry.shards,
    }


def _what(entry: Entry) -> str:
    return entry.deed.what if entry.ended else f"{entry.deed.what}: {NOT_ENDED}"


def _lines(app: App, entries: list[Entry]) -> Iterator[str | Table]:
    now_us = app.clock.now_us()
    rows = ((ago(each.deed.done_us, now_us), each.deed.by, each.deed.through, _what(each), each.said,
             each.items, ", ".join(each.shards)) for each in entries)  # fmt: skip
    yield table(("done", "by", "through", "what", "to", "#items", "shards"), rows)
