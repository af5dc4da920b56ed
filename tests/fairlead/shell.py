"""Runs commands as typed, and returns their output, their exit code, and the content of the stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.testing import CliRunner

from fairlead import App, Config
from fairlead.cli import main
from fairlead.zones import engines
from fairlead.zones.keyspace import ROOT_RANGE

ROOT = Path(__file__).resolve().parents[2]


class Answer(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error as `--json` prints it."""
        assert self.out == ""
        return json.loads(self.err)


def all_commands(group: click.Group = main, path: str = "") -> dict[str, click.Command]:
    """Return every command by its words after `fairlead`; groups are no commands."""
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        full = f"{path} {name}".strip()
        found |= all_commands(command, full) if isinstance(command, click.Group) else {full: command}
    return found


def run(*typed: object, stdin: str = "") -> Answer:
    """Run a command in this process, which takes milliseconds."""
    result = CliRunner().invoke(main, [str(each) for each in typed], input=stdin, prog_name="fairlead")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def run_process(*typed: str | bytes, within: Sequence[str] = (), env: dict[str, str] | None = None) -> Answer:
    """Run a command in a process of its own, `within` another command if one is given."""
    command = [*within, sys.executable, "-m", "fairlead", *typed]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    ended = subprocess.run(command, capture_output=True, env=variables, timeout=60, check=False)
    return Answer(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def everything(url: str) -> list[tuple[bytes, bytes]]:
    """Return all pairs of a store."""
    app = App(config=Config(shards={"main": url}))
    try:
        return engines.transact(
            app.shards["main"].db, lambda tr: [(row.key, row.value) for row in tr.get_range(*ROOT_RANGE)]
        )
    finally:
        app.close()
