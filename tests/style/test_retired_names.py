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
WORD = re.compile(r"(?<!-)\b\w+\b(?!-)")
CODE_BLOCK = re.compile(r"^```(?:python|pycon|toml)[^\n]*\n(.*?)^```", re.M | re.S)
NAME_IN_CODE = re.compile(r"\b(\w+)(?= ?=[^=]|\()|(?<=\.)(\w+)")  # an argument or a setting, a call, an attribute
ARROW = " -> "


@cache
def entries() -> list[str]:
    """Return the lines of the list, without its comments."""
    return [line for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


@cache
def retired() -> dict[str, str]:
    """Return the new name of each retired one: of modules, dotted, and of identifiers."""
    return dict(line.split() for line in entries() if ARROW not in line)


@cache
def retired_texts() -> dict[str, str]:
    """Return the new text of each retired one: of commands, metrics, settings and paths, as users type them."""
    return {old: new for line in entries() if ARROW in line for old, new in [line.split(ARROW)]}


def retired_in_text(path: str, text: str) -> Iterator[Offence]:
    """Yield each command, metric, setting or path that is retired, wherever a file has it."""
    for old, new in retired_texts().items():
        for found in re.finditer(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", text):
            line = text.count("\n", 0, found.start()) + 1
            yield Offence(f"{path}:{line}", f"{old} is retired", f"write {new}")


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
    yield from retired_in_text(str(source.path), source.text)


def retired_names_in_page(path: str, text: str) -> Iterator[Offence]:
    """Yield each retired identifier or module that a page names in `backticks` or in code, and retired texts."""
    new = retired()
    for number, line in enumerate(text.splitlines(), 1):
        for code in BACKTICKED.findall(line):
            modules = {module for found in DOTTED.findall(code) for module in _modules(found)}
            for name in sorted((modules | set(WORD.findall(code))) & new.keys()):
                yield Offence(f"{path}:{number}", f"{name} is retired", f"write {new[name]}")
    for block in CODE_BLOCK.finditer(text):
        for found in NAME_IN_CODE.finditer(block[1]):
            name = found[1] or found[2]
            if name in new:
                number = text.count("\n", 0, block.start(1) + found.start()) + 1
                yield Offence(f"{path}:{number}", f"{name} is retired", f"write {new[name]}")
    yield from retired_in_text(path, text)


def test_no_retired_name_is_used() -> None:
    assert_none(retired_names, product_sources(*PRODUCT, "tests"))


def test_no_page_names_what_is_retired() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        each for page in pages for each in retired_names_in_page(str(page.relative_to(ROOT)), page.read_text("utf-8"))
    ]
    assert not found, "\n".join(f"{each.place}: {each.wrong}. Instead: {each.instead}." for each in found)


def test_no_other_file_that_users_get_names_what_is_retired() -> None:
    files = [
        ROOT / "Makefile",
        ROOT / "cluster.yaml",
        ROOT / "pyproject.toml",
        *sorted((ROOT / "docs").rglob("*.json")),
    ]
    templates = ROOT / "fairlead" / "dashboard"
    files += [path for ending in ("html", "js", "css") for path in sorted(templates.rglob(f"fairlead*.{ending}"))]
    files += sorted((templates / "templates").glob("*.html"))
    found = [each for path in files for each in retired_in_text(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    assert not found, "\n".join(f"{each.place}: {each.wrong}. Instead: {each.instead}." for each in found)


def test_no_new_name_is_retired_itself() -> None:
    assert not retired().keys() & set(retired().values())
    assert not retired_texts().keys() & set(retired_texts().values())


@pytest.mark.parametrize(
    "planted",
    [
        "in_step([])",
        "class Custody: ...",
        "f(said_us=1)",
        "x = 'fairlead." + "zones.visit.lease'",
        "x = 'see fairlead " + "buried'",
        "x = 'fairlead.items." + "lapsed'",
    ],
)
def test_a_planted_retired_name_is_found_once(planted: str) -> None:
    assert len(list(retired_names(source("zones/planted.py", planted)))) == 1


@pytest.mark.parametrize(
    "planted",
    [
        "`said_us`",
        "```toml\nsaid_us = 3\n```\n",
        "```python\nf(said_us=1)\n```\n",
        "fairlead " + "weigh 3",
        "/" + "buried?kind=x",
        "rate(fairlead_items_" + "buried_total[1m])",
    ],
)
def test_a_planted_retired_name_is_found_once_in_a_page(planted: str) -> None:
    assert len(list(retired_names_in_page("page.md", planted))) == 1


def test_a_command_s_output_may_use_the_words_of_retired_identifiers() -> None:
    assert not list(retired_names_in_page("page.md", "```console\n$ make\nalone in a room\n```\n"))


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
