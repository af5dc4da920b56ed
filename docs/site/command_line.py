"""The command line's reference: the page says `::: fairlead --help`, and gets what each command's `--help` prints.

A hook of MkDocs. It stands beside the pages, and is not one of them.
"""

from collections.abc import Iterator
from typing import Any

import click

from fairlead.cli import main

PLACE = "::: fairlead --help"
WIDTH = 88  # Fits a page without scrolling.


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with the help of all commands where it asks for that."""
    return markdown.replace(PLACE, _all_commands()) if PLACE in markdown else markdown


def _all_commands() -> str:
    whole = click.Context(main, info_name="fairlead", terminal_width=WIDTH, **main.context_settings)
    return "\n".join(_sections("fairlead", main, whole))


def _sections(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the help of a command, and of the commands of a group."""
    yield _section(title, command, context)
    for name, each in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _sections(f"{title} {name}", each, click.Context(each, info_name=name, parent=context))


def _section(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```text\n{command.get_help(context)}\n```\n"
