"""The graph of imports among our own modules, and its cycles."""

import ast
from collections.abc import Iterable, Mapping
from itertools import count

from tests.style.sources import Source, imports

Graph = Mapping[str, Iterable[str]]


def module_of(path: str) -> str:
    """Return the name under which the file at `path` is imported: `zones/item.py` is `fairlead.zones.item`."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts if parts[0] in ("fairlead", "bench", "tests") else ["fairlead", *parts])


def import_graph(sources: Iterable[Source]) -> dict[str, list[str]]:
    """Return the modules of `sources` that each of them imports, in order of name.

    Every import statement counts: under `TYPE_CHECKING` and inside a function, too. That an import also loads the
    packages above a module does not count.
    """
    trees = {module_of(source.path): source.tree for source in sources}
    graph = {}
    for module, tree in trees.items():
        named = {name for _, name in imports(ast.walk(tree))}
        found = {name if name in trees else name.rpartition(".")[0] for name in named}
        graph[module] = sorted(found & trees.keys() - {module})
    return graph


def cycles(graph: Graph) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or through others, each in order of name.

    Source: Tarjan, "Depth-first search and linear graph algorithms", 1972: the strongly connected components.
    """
    numbers, lowest = count(), dict[str, int]()
    found_at: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def search(module: str) -> None:
        found_at[module] = lowest[module] = next(numbers)
        stack.append(module)
        for imported in graph[module]:
            if imported not in found_at:
                search(imported)
            if imported in lowest:  # It is on the stack still: no component holds it yet.
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == found_at[module]:
            component = stack[stack.index(module) :]
            del stack[-len(component) :]
            for each in component:
                del lowest[each]
            components.append(sorted(component))

    for module in graph:
        if module not in found_at:
            search(module)
    return sorted(component for component in components if len(component) > 1)
