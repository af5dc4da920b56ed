"""Whether a function may read with conflict and write stands in its type: `Transaction`, or `Reader` if it may not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.style.sources import Offence, Source, assert_none, place, product_sources, source

NAMES = ("tr", "transaction", "txn", "reader", "attempt")


def transactions_of_any_type(source: Source) -> Iterator[Offence]:
    """Yield each argument and each variable that is named as a transaction and typed `Any`, or not at all."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                if argument.arg in NAMES and (argument.annotation is None or _is_any(argument.annotation)):
                    yield _offence(source, node, argument.arg)
        elif isinstance(node, ast.AnnAssign) and _is_any(node.annotation):
            name = ast.unparse(node.target).rpartition(".")[2].lstrip("_")
            if name in NAMES:
                yield _offence(source, node, name)


def _is_any(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def _offence(source: Source, node: ast.stmt, name: str) -> Offence:
    return Offence(place(source, node), f"the transaction {name} has no type", "write Reader, or Transaction")


def test_every_transaction_has_a_type() -> None:
    assert_none(transactions_of_any_type, product_sources("zones", "records", "actors", "workflows", "fairlead"))


@pytest.mark.parametrize(
    "planted", ["def f(tr: Any): ...", "def f(tr): ...", "async def f(*, transaction: Any): ...", "self._txn: Any = 1"]
)
def test_a_planted_transaction_without_a_type_is_found_once(planted: str) -> None:
    assert len(list(transactions_of_any_type(source("zones/planted.py", planted)))) == 1
