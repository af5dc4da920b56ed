"""Which probes there are, read off the product's sources: a probe that is never reached must still be missed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from fairlead import actors, zones


def probe_names() -> list[str]:
    """Return the names of all probes in the product, sorted."""
    folders = [Path(folder) for package in (zones, actors) for folder in package.__path__]
    return sorted(name for folder in folders for path in folder.rglob("*.py") for name in _names_in(path.read_text()))


def _names_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "probe":
            (name,) = node.args
            assert isinstance(name, ast.Constant)
            yield str(name.value)
