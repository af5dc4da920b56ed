"""The samples of docs/simulate.md work as printed."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cli import main
from fairlead.simulation.application import DRAIN_US_MAX
from fairlead.simulation.plan import Plan
from tests.fairlead.shell import ROOT, run

DOC = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
SHOP, WORLDS, FIX = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
COMMAND, FOUND, HELD, COMMANDS = re.findall(
    r"```\n(.*?)```", re.sub(r"```python\n.*?```", "", DOC, flags=re.DOTALL), re.DOTALL
)


@pytest.fixture(autouse=True)
def _written(empty_directory: Path) -> Iterator[None]:
    """Write the modules under their printed names."""
    for text in (SHOP, WORLDS):
        name = re.match(r"# (\w+\.py)\n", text)
        assert name is not None
        (empty_directory / name[1]).write_text(text, encoding="utf-8")
    yield
    for module in ("shop", "shop_worlds"):
        sys.modules.pop(module, None)


def alike(line: str) -> str:
    """Return a line without what depends on the seed, the machine, and which faults there are."""
    return re.sub(r"[0-9a-f]{8,}|\d[\d,.]*|alice|bob", "#", line.strip())


def test_the_handler_that_charges_twice_is_found_as_printed() -> None:
    (command,) = COMMAND.splitlines()
    answer = run(*shlex.split(command)[1:], "--processes", 1)
    assert answer.code == 1
    shown = {alike(line) for line in answer.out.splitlines()}
    printed = [alike(line) for line in FOUND.splitlines() if line.strip() not in ("", "...")]
    varying = ("items:", "replay:")
    assert [line for line in printed if line not in shown and not line.startswith(varying)] == []


def test_the_fix_holds_as_printed(empty_directory: Path) -> None:
    before = SHOP[SHOP.index("@app.handler") : SHOP.index("\n\n\ndef place_order")]
    (empty_directory / "shop.py").write_text(SHOP.replace(before, FIX.rstrip()), encoding="utf-8")
    (empty_directory / "shop_worlds.py").rename(empty_directory / "fl_fixed_worlds.py")
    (command,) = COMMAND.splitlines()
    typed = shlex.split(command.replace("--seeds 30", "--seeds 2").replace("shop_worlds", "fl_fixed_worlds"))
    answer = run(*typed[1:], "--processes", 1)
    assert (answer.code, alike(answer.out.splitlines()[-1])) == (0, alike(HELD))


def test_every_option_that_is_printed_exists() -> None:
    options = {name for parameter in main.commands["simulate"].params for name in parameter.opts}
    printed = set(re.findall(r"(--\w+)", COMMANDS))
    assert printed
    assert printed <= options


def test_the_numbers_that_are_printed_are_those_in_force() -> None:
    assert re.search(r"\*\*A run lasts ten virtual minutes\*\*", DOC)
    assert DRAIN_US_MAX == 10 * 60 * 1_000_000
    assert re.search(r"200 times in all", DOC)
    assert Plan.__dataclass_fields__["items"].default == 200
    assert Plan.__dataclass_fields__["producers"].default == 2
