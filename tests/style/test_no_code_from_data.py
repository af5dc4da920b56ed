"""Data never becomes code: what turns bytes or names into programs is used in two places, and is known by name."""

import ast
from collections.abc import Iterator

import pytest

from tests.style.sources import Offence, Source, assert_none, place, product_sources, references, source

MODULES = ("pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "jsonpickle", "code", "runpy")
FUNCTIONS = {"importlib.import_module", "importlib.__import__", "types.FunctionType", "types.CodeType", "msgspec.yaml"}
BUILTINS = {"eval", "exec", "compile", "__import__"}

# Submitted handlers, which are programs on purpose, and applications by the name that somebody typed.
ALLOWED = {
    "actors/execution/submitted_handlers.py": {"pickle", "cloudpickle"},
    "fairlead/loading.py": {"importlib.import_module"},
}


def code_from_data(source: Source) -> Iterator[Offence]:
    """Yield each use of what makes a program of data or a name."""
    allowed = ALLOWED.get(source.path, set())
    instead = "let data stay data: msgpack in, msgpack out"
    for node, name in references(source.tree):
        module, dot, _ = name.partition(".")
        if (name in FUNCTIONS or (dot and module in MODULES)) and not {name, module} & allowed:
            yield Offence(place(source, node), f"{name} makes code of data", instead)
    for call in ast.walk(source.tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in BUILTINS:
            yield Offence(place(source, call), f"{call.func.id}() makes code of data", instead)


def test_bytes_become_code_only_as_submitted_handlers_and_applications_by_name() -> None:
    assert_none(code_from_data, product_sources("zones", "records", "actors", "workflows", "fairlead"))


@pytest.mark.parametrize(
    "planted",
    [
        "import pickle\npickle.loads(b'')",
        "from pickle import loads\nloads(b'')",
        "import cloudpickle as c\nc.loads(b'')",
        "import importlib\nimportlib.import_module('x')",
        "eval('1')",
        "exec('1')",
        "__import__('os')",
        "import marshal\nmarshal.loads(b'')",
    ],
)
def test_a_planted_way_from_data_to_code_is_found(planted: str) -> None:
    assert len(list(code_from_data(source("zones/planted.py", planted)))) == 1
