"""The product's files as syntax trees, and the full name that an expression in them stands for."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# What is installed: the folders beside `fairlead/` are packages below it, by the links that lead to them.
PACKAGES = ("fairlead", "workflows", "actors", "records", "zones", "simulation")
PRODUCT = (*PACKAGES, "bench")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """One file: its path from the root with forward slashes, its text, its tree."""

    path: str
    text: str
    tree: ast.Module


class Offence(NamedTuple):
    """One broken rule: the place as `path:line`, what is wrong there, and what to do instead."""

    place: str
    wrong: str
    instead: str


def product_sources(*folders: str) -> list[Source]:
    """Return every Python file below `folders` (default: the whole product), in order of path."""
    paths = [path for folder in folders or PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    assert paths, f"no Python files below {folders or PRODUCT}: this check would check nothing"
    return [source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


@cache
def source(path: str, text: str) -> Source:
    """Return `text` parsed as if it stood in the file `path`. Parsed once: nobody changes the tree."""
    return Source(path, text, ast.parse(text, filename=path))


def assert_none(rule: Callable[[Source], Iterable[Offence]], sources: Iterable[Source]) -> None:
    """Fail with one line per offence against `rule` in `sources`."""
    lines = [f"{o.place}: {o.wrong}. Instead: {o.instead}." for each in sources for o in rule(each)]
    assert not lines, "\n" + "\n".join(lines)


def place(source: Source, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
    """Return where `node` begins, as `path:line`."""
    return f"{source.path}:{node.lineno}"


def references(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield each name or attribute that leads to an import, with its full name.

    `import time as t; t.sleep` and `from time import sleep; sleep` both yield `time.sleep`.
    """
    imported = _imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = _full_name(node, imported)
            if name is not None:
                yield node, name


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Yield each import statement among `nodes` with what it names; `from a import b` names `a.b`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def functions(tree: ast.Module) -> Iterator[tuple[Function, str]]:
    """Yield each function and method with its qualified name, such as `Worker.run`."""
    yield from _functions(tree, "")


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[Function, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, prefix + child.name
        inner = f"{prefix}{child.name}." if isinstance(child, Function | ast.ClassDef) else prefix
        yield from _functions(child, inner)


def _imported_names(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _full_name(node: ast.expr, imported: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return imported.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, imported)
        return None if owner is None else f"{owner}.{node.attr}"
    return None
