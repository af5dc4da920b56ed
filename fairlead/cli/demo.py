"""demo: a fleet that does real work on this machine, in a minute."""

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from fairlead.cli.output import example, json_option, progress, show, table
from fairlead.demo import application, demo_run
from fairlead.demo.corpus import read_library
from fairlead.demo.result_check import TenantRow
from fairlead.fleet import RUNTIMES

DATA = Path("fairlead-demo")
ROWS = 4  # Largest and smallest tenants shown.
FOUND = 20


@click.command(epilog=example("fairlead demo --search queue"))
@click.option(
    "--runtime",
    type=click.Choice(RUNTIMES),
    default="ray",
    show_default=True,
    help="What runs the actors: Ray, or threads.",
)
@click.option("--search", "word", metavar="WORD", help="Search the index of the last demo; runs one if there is none.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA,
    show_default=True,
    help="The directory of the demo's store; that of an earlier demo is replaced.",
)
@json_option
def demo(runtime: str, word: str | None, data: Path) -> None:
    """Index the Python standard library with a fleet, kill a worker half-way, and check the result.

    Exits with 1 if a file was lost, indexed twice, or the index differs from one computed directly.
    """
    store = data.absolute() / "store"
    if word is not None and data.exists():
        demo_run.require_index(store)
        demo_run.configure(store)
        application.app.shards.must_exist = True
        found = _search(word)
        show(found, lambda: _found_lines(found))
        return
    with progress("indexing") as advance:
        run = demo_run.run_demo(
            store, runtime=runtime, on_event=lambda line: click.echo(line, err=True), progress=advance
        )
    result = run.result
    answer: dict[str, Any] = {
        "files": result.files,
        "enqueued": run.enqueued,
        "completed": run.completed,
        "lost": result.lost,
        "doubled": result.doubled,
        "index_matches": result.index_matches,
        "per_s": round(run.completed / run.seconds, 1),
        "seconds": round(run.seconds, 2),
        "killed_pid": run.killed_pid,
    }
    lines = [_summary(answer), _fairness(result.rows), "PASSED" if result.passed else "FAILED"]
    if result.passed:
        lines.append(
            f"\nNext: fairlead demo --search lambda{_where(data)}, which asks the index; then docs/tutorial.md"
        )
    found = {} if word is None else _search(word)
    show({**answer, **found}, lambda: [*lines, *(_found_lines(found) if found else ())])
    if not result.passed:
        raise click.exceptions.Exit(1)


def _where(data: Path) -> str:
    return "" if data == DATA else f" --data {data}"


def _summary(answer: dict[str, Any]) -> str:
    matches = "equals" if answer["index_matches"] else "DIFFERS from"
    return (
        f"{answer['completed']:,} of {answer['files']:,} files indexed in {answer['seconds']} s,"
        f" {answer['per_s']:,} per second; lost {answer['lost']}, doubled {answer['doubled']};"
        f" the index {matches} one computed directly\n"
    )


def _fairness(rows: list[TenantRow]) -> Table:
    """Waits of the largest and the smallest tenants: a large one must not delay a small one."""
    ordered = sorted(rows, key=lambda row: -row.files)
    shown = ordered if len(ordered) <= 2 * ROWS else [*ordered[:ROWS], *ordered[-ROWS:]]
    cells = [
        (row.tenant, row.files, *(f"{ms:,.0f} ms" for ms in (row.first_ms, row.median_ms, row.last_ms)))
        for row in shown
    ]
    return table(("tenant", "#files", "#shortest wait", "#median wait", "#longest wait"), cells)


def _search(word: str) -> dict[str, Any]:
    tenants = sorted({file.tenant for file in read_library()})
    rows = [
        {"tenant": tenant, "path": path, "count": count} for tenant, path, count in application.search(word, tenants)
    ]
    return {"word": word, "found": rows}


def _found_lines(found: dict[str, Any]) -> list[str | Table]:
    rows = found["found"]
    shown = [(row["path"], row["count"]) for row in rows[:FOUND]]
    if not rows:
        return [f"{found['word']!r} is in no file"]
    title = f"{found['word']!r} is in {len(rows):,} files" + (f"; the first {FOUND}:" if len(rows) > FOUND else ":")
    return [title, table(("file", "#times"), shown)]
