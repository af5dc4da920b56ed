"""Who may import what, where import-linter cannot say it."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.style.import_graph import cycles, import_graph, module_of
from tests.style.sources import (
    PACKAGES,
    ROOT,
    Function,
    Offence,
    Source,
    assert_none,
    functions,
    imports,
    place,
    product_sources,
    references,
    source,
)

# Modules that are loaded only when they are chosen, and why. Nothing else is imported inside a function.
LAZY = {
    "fairlead.actors.runtime.ray_host": "importing Ray takes seconds, and the threads host never needs it",
    "fairlead.zones.postgresql": "psycopg is an extra, needed where queues or records lie in PostgreSQL",
    "fairlead.dashboard": "a web server is slow to import, and only one command serves pages",
    "fairlead.telemetry.prometheus": "prometheus_client is needed by one process, where a port is set",
    "fairlead.telemetry.otel_sdk": "OpenTelemetry's SDK and its exporters are needed only where something is exported",
    "fairlead.simulation": "only one command runs the simulator, and greenlets with it",
    "bench.uniqorn.postgresql": "it needs psycopg, which the simulated figures and the page do without",
    "fdb.tuple": "an application is imported where the binding is not installed",
    "fairlead.zones.engines.foundationdb": "it loads FoundationDB's client library, which other engines do without",
}
# What the modules of each folder may import of ours.
ALLOWED = {
    "zones": ("fairlead.zones",),
    "records": ("fairlead.records", "fairlead.zones"),
    "actors": ("fairlead.actors", "fairlead.records", "fairlead.zones"),
    "workflows": ("fairlead.workflows", "fairlead.actors", "fairlead.records", "fairlead.zones"),
    "simulation": (
        "fairlead.simulation",
        "fairlead.workflows",
        "fairlead.actors",
        "fairlead.records",
        "fairlead.zones",
    ),
    "fairlead": ("fairlead",),
    "bench": ("fairlead", "bench"),
    "tests": ("fairlead", "bench", "tests"),
}
OURS = ("fairlead", *ALLOWED)
RUNS_THE_SIMULATOR = "fairlead/cli/simulate.py"


def imports_against_the_arrow(source: Source) -> Iterator[Offence]:
    """Yield each import of ours that `ALLOWED` does not list for the folder of the file.

    A package of ours has one name: `import zones` works in a checkout, and would load each of its modules twice.
    """
    allowed = ALLOWED[source.path.partition("/")[0]]
    for node, module in imports(ast.walk(source.tree)):
        if not any(_is_within(module, ours) for ours in OURS):
            continue
        against = not any(_is_within(module, each) for each in allowed)
        if source.path.startswith("fairlead/") and _is_within(module, "fairlead.simulation"):
            against = source.path != RUNS_THE_SIMULATOR
        if against:
            yield Offence(place(source, node), f"{source.path} imports {module}", f"import only from {allowed}")


def imports_inside_functions(source: Source) -> Iterator[Offence]:
    """Yield each import statement in a function that imports anything but a module of `LAZY`."""
    for function, name in functions(source.tree):
        for node, module in imports(_own_nodes(function)):
            if not any(_is_within(module, lazy) for lazy in LAZY):
                yield Offence(
                    place(source, node),
                    f"{name} imports {module} when it is called",
                    "import at the top; if that makes a circle, move the shared part one layer down",
                )


def engines_that_look_up(source: Source) -> Iterator[Offence]:
    """Yield each import of a part of `zones` that lies above the engines."""
    for node, module in imports(ast.walk(source.tree)):
        if _is_within(module, "fairlead.zones") and not _is_within(module, "fairlead.zones.engines"):
            yield Offence(place(source, node), f"an engine imports {module}", "move it into fairlead.zones.engines")


def foundationdb_outside_its_engine(source: Source) -> Iterator[Offence]:
    """Yield each import of `fdb`; `zones` may use `fdb.tuple`, which is pure Python."""
    if source.path.startswith("zones/engines/foundationdb"):
        return
    for node, module in imports(ast.walk(source.tree)):
        # A plain `import fdb.tuple` binds `fdb`, and with it the way to a database.
        binds_fdb = isinstance(node, ast.Import) and not all(alias.asname for alias in node.names)
        pure = _is_within(module, "fdb.tuple") and not binds_fdb and source.path.startswith("zones/")
        if _is_within(module, "fdb") and not pure:
            yield Offence(
                place(source, node),
                f"{module} is imported outside fairlead.zones.engines.foundationdb.engine",
                "open the database through fairlead.zones.engines; in zones, `from fdb import tuple` is allowed",
            )


def test_imports_point_one_way() -> None:
    assert_none(imports_against_the_arrow, product_sources(*ALLOWED))


def test_no_modules_import_each_other() -> None:
    """Imports for types only and imports inside functions count, too: a reader follows them like any other."""
    found = cycles(import_graph(product_sources()))
    assert not found, "these modules import each other: " + "; ".join(" <-> ".join(cycle) for cycle in found)


def test_a_planted_cycle_is_found_by_the_names_of_its_modules() -> None:
    sources = [
        source("zones/a.py", "from fairlead.zones.b import B\nimport json"),
        source("zones/b.py", "if TYPE_CHECKING:\n    from fairlead.zones import c"),
        source("zones/c.py", "def f():\n    import fairlead.zones.a"),
        source("actors/__init__.py", "from fairlead.zones import a"),
    ]
    graph = import_graph(sources)
    assert graph["fairlead.actors"] == ["fairlead.zones.a"]
    assert cycles(graph) == [["fairlead.zones.a", "fairlead.zones.b", "fairlead.zones.c"]]


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, []),
        ({"a": ["b"], "b": ["a"], "c": ["a", "d"], "d": ["c"]}, [["a", "b"], ["c", "d"]]),
        ({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": ["e"], "e": ["a"]}, [["a", "b", "c", "d", "e"]]),
    ],
)
def test_cycles_are_the_sets_of_modules_that_reach_each_other(
    graph: dict[str, list[str]], found: list[list[str]]
) -> None:
    assert cycles(graph) == found


def test_a_file_has_the_name_under_which_it_is_imported() -> None:
    paths = ["zones/queue/items.py", "fairlead/__init__.py", "fairlead/app.py", "bench/core.py"]
    names = ["fairlead.zones.queue.items", "fairlead", "fairlead.app", "bench.core"]
    assert [module_of(path) for path in paths] == names


def test_no_module_is_loaded_twice() -> None:
    """As `fairlead.zones` and as `zones`, there would be two of each class, and an error of one is not of the other."""
    program = (
        "import collections, sys, fairlead.actors.runtime.ray_host, fairlead.cli\n"
        "import fairlead.dashboard, fairlead.simulation.run\n"
        "from pathlib import Path\n"
        "files = [Path(f).resolve() for m in list(sys.modules.values()) if (f := getattr(m, '__file__', None))]\n"
        f"ours = [Path(folder).resolve() for folder in {PACKAGES}]\n"
        "times = collections.Counter(f for f in files if any(f.is_relative_to(each) for each in ours))\n"
        "print([str(f) for f, n in times.items() if n > 1], len(times) > 100)"
    )
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[] True"


@pytest.mark.parametrize(
    ("path", "planted"),
    [
        ("tests/planted.py", "import zones"),
        ("bench/planted.py", "from actors.worker import Worker"),
        ("zones/planted.py", "from fairlead.actors import worker"),
        ("zones/planted.py", "from fairlead import App"),
        ("actors/planted.py", "from fairlead.app import App"),
        ("simulation/planted.py", "import fairlead.testing"),
        ("fairlead/planted.py", "from fairlead.simulation.run import run"),
        ("fairlead/planted.py", "from bench import core"),
    ],
)
def test_a_planted_import_against_the_arrow_is_found_once(path: str, planted: str) -> None:
    assert len(list(imports_against_the_arrow(source(path, planted)))) == 1


def test_nothing_is_imported_inside_a_function_but_what_is_loaded_by_choice() -> None:
    assert_none(imports_inside_functions, product_sources())


def test_engines_import_nothing_of_the_zones_above_them() -> None:
    assert_none(engines_that_look_up, product_sources("zones/engines"))


def test_only_its_engine_imports_foundationdb() -> None:
    assert_none(foundationdb_outside_its_engine, product_sources())


@pytest.mark.parametrize(
    "planted",
    ["import json", "from json import loads", "async def g():\n        import json", "if x:\n        import json"],
)
def test_a_planted_import_inside_a_function_is_found_once(planted: str) -> None:
    assert len(list(imports_inside_functions(source("zones/planted.py", f"def f():\n    {planted}")))) == 1


def test_a_module_that_is_loaded_by_choice_may_be_imported_inside_a_function() -> None:
    text = (
        "def open(url):\n    from fairlead.zones.engines.foundationdb.engine import Database\n    return Database(url)"
    )
    assert list(imports_inside_functions(source("zones/engines/planted.py", text))) == []


@pytest.mark.parametrize(
    "planted", ["import fairlead.zones.item", "from fairlead.zones import item", "from fairlead.zones.item import Item"]
)
def test_a_planted_look_up_from_an_engine_is_found(planted: str) -> None:
    assert len(list(engines_that_look_up(source("zones/engines/planted.py", planted)))) == 1


@pytest.mark.parametrize(
    "planted", ["import fdb", "import fdb.tuple", "from fdb import open", "from fdb.impl import open"]
)
def test_a_planted_import_of_foundationdb_is_found(planted: str) -> None:
    assert len(list(foundationdb_outside_its_engine(source("zones/planted.py", planted)))) == 1


@pytest.mark.parametrize(
    "planted", ["from fdb import tuple", "from fdb.tuple import pack", "import fdb.tuple as tuples"]
)
def test_zones_may_use_the_pure_tuple_layer(planted: str) -> None:
    assert list(foundationdb_outside_its_engine(source("zones/planted.py", planted))) == []


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield what the function holds, without what functions inside it hold: those come on their own."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function):
            waiting += ast.iter_child_nodes(node)


def changes_when_imported(source: Source) -> bool:
    """Return whether a module gives an attribute of what it imports a value, as it is imported itself."""
    targets = [each.targets[0] for each in source.tree.body if isinstance(each, ast.Assign)]
    imported = {node for node, _ in references(source.tree)}
    return any(isinstance(target, ast.Attribute) and target.value in imported for target in targets)


def changing_modules(sources: Sequence[Source]) -> list[str]:
    """Return the modules that change others when tests are collected: test files, and what any module imports."""
    changing = {module_of(each.path) for each in sources if changes_when_imported(each)}
    collected = {module for module in changing if module.rpartition(".")[2].startswith("test_")}
    return sorted(collected.union(*(changing.intersection(found) for found in import_graph(sources).values())))


def test_no_test_changes_the_product_when_it_is_collected() -> None:
    """The simulated worlds of that process would be others than those of the next one. A process of its own may."""
    assert not changing_modules(product_sources("tests"))


def test_a_planted_test_that_changes_the_product_is_found() -> None:
    sources = [
        source("tests/shop.py", "from fairlead.records import cleanup\ncleanup.DELAY_S = 3"),
        source("tests/test_shop.py", "from tests.shop import app"),
        source("tests/test_own.py", "import fairlead\nfairlead.x = 3"),
        source("tests/test_other.py", "def test_it(): fairlead.x = 3"),
    ]
    assert changing_modules(sources) == ["tests.shop", "tests.test_own"]
