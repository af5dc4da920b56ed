"""Errors of commands: printed as a sentence with a remedy, and turned into an exit code.

Only errors that are raised on purpose are caught here: those of the queue and those of the stores. Any other error is a
bug, in Fairlead or in the application, and keeps its traceback.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from fairlead import error_text
from fairlead.actors.runtime.supervisor import ActorFailed
from fairlead.app import App
from fairlead.cli.arguments import tenants_spelled_out
from fairlead.cli.output import JSON
from fairlead.error_text import TRACEBACK, fields_of
from fairlead.fleet import FleetLost
from fairlead.formatting import json_ready, printable
from fairlead.handle import NoResult, ResultPending
from fairlead.index_changes import ChangeFailed, ChangePending, NoBuild, NoSuchType
from fairlead.lost_transactions import NothingPrepared
from fairlead.moves import MovePending, NoMove
from fairlead.records.errors import IndexAway
from fairlead.records.on_shards.index_changes import NoIndex
from fairlead.shards import StoreMissing
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import ItemFailed, ItemGone, NotADeadLetter, QueueError, ShardRefused, SnapshotGone
from fairlead.zones.moving.errors import MoveFailed

FOUND_FAULTS = 1
REFUSED = 2
STORE_UNUSABLE = 3
NOT_THERE = 4
INTERRUPTED = 130  # By Ctrl-C, before the command was done.
NOT_DONE = "interrupted before the command was done"

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (FleetLost, FOUND_FAULTS),
    (ActorFailed, FOUND_FAULTS),
    (ItemFailed, FOUND_FAULTS),
    (ResultPending, FOUND_FAULTS),
    (MoveFailed, FOUND_FAULTS),
    (MovePending, FOUND_FAULTS),
    (ChangeFailed, FOUND_FAULTS),
    (ChangePending, FOUND_FAULTS),
    (IndexAway, STORE_UNUSABLE),
    (NoIndex, NOT_THERE),
    (NoBuild, NOT_THERE),
    (NoSuchType, NOT_THERE),
    (ItemGone, NOT_THERE),
    (NotADeadLetter, NOT_THERE),
    (NothingPrepared, NOT_THERE),
    (NoResult, NOT_THERE),
    (SnapshotGone, NOT_THERE),
    (NoMove, NOT_THERE),
    (ShardRefused, STORE_UNUSABLE),
    (StoreMissing, STORE_UNUSABLE),
    (QueueError, REFUSED),
)


class Commands(click.Group):
    """The group of all commands; it handles their errors. The context's object lists the applications in use."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections: dict[str, list[str]] = {}  # Titles in the help, and the names of commands below each.

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, each with its short help, whole."""
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].short_help or "") for name in names])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added: the most needed first."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and end the process with a sentence and an exit code if it fails or is interrupted."""
        with interrupted(lambda: NOT_DONE):
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        apps: list[App] = []
        ctx.obj = apps
        typed = list(ctx.args)
        try:
            ctx.args = tenants_spelled_out(typed)
            return super().invoke(ctx)
        except click.UsageError as error:
            # A command line that cannot be parsed has not set --json: look for it among the arguments.
            if not ctx.meta.get(JSON, "--json" in typed):
                raise
            report(error, as_json=True)
            ctx.exit(REFUSED)
        except _errors_of(apps) as error:
            report(error, as_json=ctx.meta.get(JSON, False))
            ctx.exit(code_of(error))
        finally:
            for app in apps:
                app.close()


@contextmanager
def interrupted(goes_on: Callable[[], str]) -> Iterator[None]:
    """End with the exit code of an interruption if Ctrl-C ends the block, and say what goes on without the command."""
    try:
        yield
    except KeyboardInterrupt:
        said, context = goes_on(), click.get_current_context(silent=True)
        as_json = context is not None and context.meta.get(JSON, False)
        click.echo(json.dumps({"error": said, "fields": {}, "do": ""}) if as_json else said, err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def report(error: Exception, *, as_json: bool) -> None:
    """Print an error with its remedy to standard error."""
    if as_json:
        answer = {"error": message_of(error), "fields": fields_of(error), "do": remedy_of(error)}
        click.echo(json.dumps(json_ready(answer)), err=True)
        return
    click.echo(printable(f"Error: {sentence_of(error)}"), err=True)
    if lines := fields_of(error).get(TRACEBACK):
        click.echo("\n".join(printable(line) for line in str(lines).splitlines()), err=True)
    if remedy := remedy_of(error):
        click.echo(printable(f"  Do: {remedy}"), err=True)


def code_of(error: Exception) -> int:
    """Return the exit code of an error. An error that is not listed comes from a store."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), STORE_UNUSABLE)


def sentence_of(error: Exception) -> str:
    """Return an error in one line. A usage error has its own text."""
    return error.format_message() if isinstance(error, click.UsageError) else error_text.sentence_of(error)


def message_of(error: Exception) -> str:
    """Return the constant part of an error. A usage error is all constant."""
    return error.format_message() if isinstance(error, click.UsageError) else error_text.message_of(error)


def remedy_of(error: Exception) -> str:
    """Return the remedy of an error."""
    if isinstance(error, click.UsageError):
        return f"see `{error.ctx.command_path if error.ctx else 'fairlead'} --help`"
    return error_text.remedy_of(error)


def _errors_of(apps: Sequence[App]) -> tuple[type[Exception], ...]:
    """Return the classes that are raised on purpose. FoundationDB's class exists only after a cluster was opened."""
    return (QueueError, StoreError, *(kind for app in apps for kind in app.store_errors()))
