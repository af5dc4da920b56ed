"""The commands, tests and files that the documentation names exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

from fairlead.cli import main
from fairlead.cli.arguments import tenants_spelled_out
from tests.style.sources import ROOT

PROJECT_PAGES = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES = [*PROJECT_PAGES, *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands(page: Path) -> list[str]:
    """Return what stands in code spans and blocks of a page and begins like a command."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line.split("#")[0].strip()
        for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [
        each.removeprefix("$ ")
        for each in (*lines, *spans)
        if re.match(r"(\$ )?(fairlead|make|pytest|python -m) [^=]", each)
    ]


def wrong(command: str) -> str | None:
    """Say what is wrong with a command, None if it could be typed."""
    program, *args = shlex.split(command)
    if program == "make":
        return None if set(args) <= TARGETS else "no such target"
    if program == "pytest":
        paths = [each for each in args if each.startswith("tests")]
        return None if all((ROOT / each.split("::")[0]).exists() for each in paths) else "no such test"
    if program == "python":
        return None if args[1] in ("pytest", "fairlead") or importlib.util.find_spec(args[1]) else "no such module"
    if args[0].startswith("-"):
        return None
    named: click.Command = main
    while isinstance(named, click.Group) and not (named.invoke_without_command and args[:1] != ["abort"]):
        if not args or args[0] not in named.commands:
            return "no such command"
        named = named.commands[args.pop(0)]
    try:
        named.make_context(named.name, tenants_spelled_out(args), resilient_parsing=False)
    except click.exceptions.Exit:
        return None
    except click.UsageError as error:
        return None if isinstance(error, click.MissingParameter) else error.format_message()
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_a_page_names_can_be_typed(page: Path) -> None:
    assert {command: what for command in commands(page) if (what := wrong(command))} == {}


def test_a_command_that_is_not_there_is_found() -> None:
    assert wrong("make nothing") == "no such target"
    assert wrong("pytest tests/nothing.py") == "no such test"
    assert wrong("python -m bench.nothing") == "no such module"
    assert wrong("fairlead nothing") == "no such command"
    assert "--nothing" in str(wrong("fairlead simulate --nothing"))
    assert wrong("fairlead simulate --seeds 1000") is None


@pytest.mark.parametrize("page", PROJECT_PAGES, ids=lambda page: page.name)
def test_every_link_of_a_project_page_leads_to_a_file(page: Path) -> None:
    """Links of the pages below docs are checked when the site is built."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_test_that_a_page_names_exists() -> None:
    """A claim is worth as much as the test that it names."""
    named = {
        (page.name, path, test)
        for page in PAGES
        for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    }
    assert len({name for name in named if name[0] == "security.md"}) > 25
    missing = [name for name in named if f"def {name[2]}(" not in (ROOT / name[1]).read_text(encoding="utf-8")]
    assert missing == []
