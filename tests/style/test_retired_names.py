"""A name that was replaced by the field's word does not come back; `retired_names.txt` says what each became."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.style.sources import PRODUCT, ROOT, Offence, Source, assert_none, product_sources, source

LIST = Path(__file__).with_name("retired_names.txt")
DOTTED = re.compile(r"\b(?:fairlead|bench)(?:\.\w+)+")
BACKTICKED = re.compile(r"`([^`\n]*)`")


@cache
def retired() -> dict[str, str]:
    """Return the new name of each retired one: of modules, dotted, and of identifiers."""
    lines = [line.split() for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return dict(lines)


def retired_names(source: Source) -> Iterator[Offence]:
    """Yield each identifier that is retired, and each dotted name of a retired module, in strings and comments too."""
    new = retired()
    for line, name in _identifiers(source.tree):
        if name in new:
            yield Offence(f"{source.path}:{line}", f"{name} is retired", f"write {new[name]}")
    for found in DOTTED.finditer(source.text):
        for module in _modules(found[0]):
            if module in new:
                line = source.text.count("\n", 0, found.start()) + 1
                yield Offence(f"{source.path}:{line}", f"{module} is retired", f"write {new[module]}")


def retired_names_in_page(path: str, text: str) -> Iterator[Offence]:
    """Yield each retired identifier or module that a page names in `backticks`."""
    new = retired()
    for number, line in enumerate(text.splitlines(), 1):
        for code in BACKTICKED.findall(line):
            names = {*re.findall(r"\w+", code), *(m for found in DOTTED.findall(code) for m in _modules(found))}
            for name in sorted(names & new.keys()):
                yield Offence(f"{path}:{number}", f"{name} is retired", f"write {new[name]}")


def test_no_retired_name_is_used() -> None:
    assert_none(retired_names, product_sources(*PRODUCT, "tests"))


def test_no_page_names_what_is_retired() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        each for page in pages for each in retired_names_in_page(str(page.relative_to(ROOT)), page.read_text("utf-8"))
    ]
    assert not found, "\n".join(f"{each.place}: {each.wrong}. Instead: {each.instead}." for each in found)


def test_no_new_name_is_retired_itself() -> None:
    assert not retired().keys() & set(retired().values())


@pytest.mark.parametrize(
    "planted", ["in_step([])", "class Custody: ...", "f(said_us=1)", "x = 'fairlead." + "zones.visit.lease'"]
)
def test_a_planted_retired_name_is_found_once(planted: str) -> None:
    assert len(list(retired_names(source("zones/planted.py", planted)))) == 1


def _identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.alias):
            yield node.lineno, node.name.rpartition(".")[2]


def _modules(dotted: str) -> Iterator[str]:
    parts = dotted.split(".")
    yield from (".".join(parts[:length]) for length in range(2, len(parts) + 1))
