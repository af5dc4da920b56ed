"""What a command prints: tables for people, one JSON object for programs, progress beside either.

Results go to standard output, everything else to standard error, so that a pipe carries results alone. What came out
of a store is shown with its control characters spelled out: a payload cannot draw on somebody's terminal.
"""

import base64
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fairlead.views import BuriedView, ItemView
from zones import records

JSON = "fairlead.json"  # where the context notes that `--json` was given
WIDTH = 160  # Of a table in a pipe or a file.
PAYLOAD_CHARACTERS = 60  # Of a payload in a table.
DEPTH_MAX = 100  # Of lists and dicts in each other: a payload may be nested deeper than Python's stack.
TOO_DEEP = "nested too deep to show"


def example(line: str) -> str:
    """Return how a command is typed, for the end of its help."""
    return f"\b\nExample:\n  {line}"


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--json`; what it prints goes through `show`."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[JSON] = value

    return click.option(
        "--json", is_flag=True, is_eager=True, expose_value=False, callback=note, help="Print one JSON object."
    )(command)


def wants_json() -> bool:
    """Say whether `--json` was given to the command that runs."""
    return bool(click.get_current_context().meta.get(JSON))


def show(answer: Any, lines: Callable[[], Iterable[str | Table]]) -> None:
    """Print `answer` as JSON if that was asked for, and otherwise what `lines` yields."""
    if wants_json():
        click.echo(json.dumps(ready(answer), ensure_ascii=False))
        return
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    for line in lines():
        console.print(line if isinstance(line, Table) else plain(line), soft_wrap=isinstance(line, str))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table; a column whose title begins with `#` is a number."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        made.add_column(column.removeprefix("#"), justify="right" if column[0] == "#" else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(f"{cell:,}" if isinstance(cell, int) else str(cell))) for cell in row))
    return made


def stacked(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table whose last column takes what a narrow terminal has to spare, and alone is folded."""
    made = table(columns, rows)
    made.padding = (0, 1, 0, 0)  # So an id, 32 wide, fits beside five other columns into 80.
    for column in made.columns[:-1]:
        column.no_wrap = True
    return made


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on standard error, if a person looks; yields `advance(done, total)`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def plain(text: str) -> str:
    """Return `text` with control characters, line ends apart, spelled out."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text)


def ready(value: Any, depth_max: int = DEPTH_MAX) -> Any:
    """Return `value` as JSON can hold it: bytes as base64, infinities and what is nested too deep as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict | list | tuple) and not depth_max:
        return TOO_DEEP
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): ready(each, depth_max - 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [ready(each, depth_max - 1) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


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
        "enqueued": when(item.enqueued_us),
        "vests": when(item.vesting_us),
        "errors": item.error_count,
        "lapses": item.lapse_count,
        "last_error": item.last_error,
        "progress": progress_answer(item.progress),
    }


def progress_answer(progress: records.Progress | None) -> dict[str, Any] | None:
    """Return progress as JSON shows it."""
    if progress is None:
        return None
    return {"done": progress.done, "total": progress.total, "note": progress.note, "at": when(progress.at_us)}


def buried_answer(item: BuriedView) -> dict[str, Any]:
    """Return a buried item as JSON shows it."""
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
        "enqueued": when(item.enqueued_us),
        "buried": when(item.buried_us),
    }


def item_text(item: ItemView | BuriedView, *more: str) -> str:
    """Return an item line by line: its id, whole, for `cancel` or `revive`; its name; kind and payload; and `more`."""
    name = "" if item.given_id is None else repr(item.given_id)
    return "\n".join(filter(None, (item.id.hex(), name, f"{item.kind} {payload_text(item.payload)}", *more)))


def payload_text(payload: Any) -> str:
    """Return a payload in one line, cut to what a table can hold."""
    text = json.dumps(ready(payload), ensure_ascii=False)
    return text if len(text) <= PAYLOAD_CHARACTERS else f"{text[:PAYLOAD_CHARACTERS]}..."


def when(time_us: int) -> str:
    """Return a time as ISO 8601, UTC, to the millisecond; one beyond the calendar as a number of microseconds."""
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_us)


def ago(time_us: int, now_us: int) -> str:
    """Return how long ago, or in how long, in the unit that suits it."""
    seconds = abs(now_us - time_us) / 1e6
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            text = f"{seconds / size:.1f} {unit}"
            break
    else:
        text = f"{seconds * 1000:.0f} ms"
    return f"{text} ago" if time_us <= now_us else f"in {text}"
