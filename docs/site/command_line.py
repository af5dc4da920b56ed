"""The command line's reference: the page says `::: fairlead --help`, and gets what each command's `--help` prints.

A hook of MkDocs. It stands beside the pages, and is not one of them.
"""

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
    parts = [_section("fairlead", main, whole)]
    for name, command in main.commands.items():
        parts.append(_section(f"fairlead {name}", command, click.Context(command, info_name=name, parent=whole)))
    return "\n".join(parts)


def _section(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```text\n{command.get_help(context)}\n```\n"
