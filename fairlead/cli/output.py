"""The output of commands: tables for people, one JSON object for programs, progress on standard error.

Results go to standard output, everything else to standard error, so that a pipe carries results alone.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fairlead.formatting import iso_time, json_ready, payload_text, printable
from fairlead.views import DeadLetterView, ItemView
from fairlead.zones import records

JSON = "fairlead.json"  # the key in the context's `meta` that says whether `--json` was given
WIDTH = 160  # Of a table in a pipe or a file.


def example(line: str) -> str:
    """Return an example of a command for the end of its help."""
    return f"\b\nExample:\n  {line}"


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--json`. The command prints by `show`."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[JSON] = value

    return click.option(
        "--json", is_flag=True, is_eager=True, expose_value=False, callback=note, help="Print one JSON object."
    )(command)


def wants_json() -> bool:
    """Return whether `--json` was given to the command that runs."""
    return bool(click.get_current_context().meta.get(JSON))


def show(answer: Any, lines: Callable[[], Iterable[str | Table]]) -> None:
    """Print `answer` as JSON with `--json`, otherwise the lines and tables that `lines` yields."""
    if wants_json():
        click.echo(json.dumps(json_ready(answer), ensure_ascii=False))
        return
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    for line in lines():
        console.print(line if isinstance(line, Table) else printable(line), soft_wrap=isinstance(line, str))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table; a column whose title begins with `#` is a number."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        made.add_column(column.removeprefix("#"), justify="right" if column[0] == "#" else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(f"{cell:,}" if isinstance(cell, int) else str(cell))) for cell in row))
    return made


def stacked(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table whose last column gets the remaining width of the terminal, and is the only one that folds."""
    made = table(columns, rows)
    made.padding = (0, 1, 0, 0)  # So an id, 32 wide, fits beside five other columns into 80.
    for column in made.columns[:-1]:
        column.no_wrap = True
    return made


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on standard error, if it is a terminal; yield `advance(done, total)`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def item_answer(item: ItemView) -> dict[str, Any]:
    """Return an item as JSON shows it."""
    return {
        "item": item.id.hex(),
        "given_id": item.given_id,
        "shard": item.shard,
        "app": item.tenant.app,
        "user": item.tenant.user,
        "zone": item.zone,
        "kind": item.kind,
        "payload": item.payload,
        "priority": item.priority,
        "state": item.state.value,
        "enqueued": iso_time(item.enqueued_us),
        "vests": iso_time(item.vesting_us),
        "errors": item.error_count,
        "expiries": item.expiry_count,
        "last_error": item.last_error,
        "progress": progress_answer(item.progress),
        "keys": item.keys,
        **({} if item.store is None else {"store": item.store}),
    }


def progress_answer(progress: records.Progress | None) -> dict[str, Any] | None:
    """Return progress as JSON shows it."""
    if progress is None:
        return None
    return {"done": progress.done, "total": progress.total, "note": progress.note, "at": iso_time(progress.at_us)}


def dead_letter_answer(item: DeadLetterView) -> dict[str, Any]:
    """Return a dead letter as JSON shows it."""
    return {
        "item": item.id.hex(),
        "given_id": item.given_id,
        "shard": item.shard,
        "app": item.tenant.app,
        "user": item.tenant.user,
        "zone": item.zone,
        "kind": item.kind,
        "payload": item.payload,
        "reason": item.reason,
        "error": item.error,
        "traceback": item.traceback,
        "errors": item.error_count,
        "enqueued": iso_time(item.enqueued_us),
        "dead_lettered": iso_time(item.dead_lettered_us),
        "keys": item.keys,
        **({} if item.store is None else {"store": item.store}),
    }


def item_text(item: ItemView | DeadLetterView, *more: str) -> str:
    """Return an item line by line: its whole id, for other commands; its name; kind and payload; and `more`."""
    name = "" if item.given_id is None else repr(item.given_id)
    return "\n".join(filter(None, (item.id.hex(), name, f"{item.kind} {payload_text(item.payload)}", *more)))
